#include <cstdio>


static int Run(const char* name, int (*snippet)()) {
  std::printf("-- %s\n", name);
  std::fflush(stdout);
  const int result = snippet();
  if (result != 0) std::printf("FAILED: %s returns %d\n", name, result);
  return result != 0;
}

int main() {
  int failed = 0;
  return failed;
}
