// SPDX-License-Identifier: Apache-2.0
// What no call may do: allocate, start a thread, change the caller's floating-point modes. Every operation
// is called through a wrapper that watches it, in each of these modes.
#include <cerrno>
#include <cfenv>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "lathe/lathe.h"

// Allocation can be watched in glibc, whose own functions have a second name.
#if defined(__GLIBC__)
#include <pthread.h>
#define LATHE_TEST_INTERPOSES 1
#else
#define LATHE_TEST_INTERPOSES 0
#endif

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace {

thread_local bool is_watched = false;
int violations = 0;

void Complain(const char* what) {
  if (!is_watched) return;
  is_watched = false;  // printing allocates
  std::printf("%s inside a call\n", what);
  ++violations;
  is_watched = true;
}

}  // namespace

#if LATHE_TEST_INTERPOSES
extern "C" {
void* __libc_malloc(size_t bytes) noexcept;
void* __libc_calloc(size_t count, size_t bytes) noexcept;
void* __libc_realloc(void* memory, size_t bytes) noexcept;
void* __libc_memalign(size_t alignment, size_t bytes) noexcept;

void* malloc(size_t bytes) noexcept {
  Complain("malloc");
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  Complain("calloc");
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) noexcept {
  Complain("realloc");
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  Complain("aligned_alloc");
  return __libc_memalign(alignment, bytes);
}
// No thread is ever started: that a call would is all there is to see.
int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) noexcept {
  Complain("pthread_create");
  return EAGAIN;
}
}
#endif

namespace {

// The caller's modes: rounding, flush-to-zero, denormals-are-zero and which exceptions trap. Whether
// exceptions have occurred is left out: arithmetic raises these flags.
unsigned Modes() {
#if defined(__SSE2__)
  constexpr unsigned kFlags = 0x3F;
  return _mm_getcsr() & ~kFlags;
#else
  return static_cast<unsigned>(std::fegetround());
#endif
}

class Watch {
 public:
  explicit Watch(const char* name) : name_(name), modes_(Modes()) { is_watched = true; }
  ~Watch() {
    is_watched = false;
    if (Modes() == modes_) return;
    std::printf("%s changed the floating-point modes from %x to %x\n", name_, modes_, Modes());
    ++violations;
  }

 private:
  const char* name_;
  unsigned modes_;
};

// Every operation under its own name.
namespace watched {
using namespace lathe;
#define LATHE_DEFAULT = {}
#define LATHE_OPERATION(result, name, parameters, arguments) \
  [[maybe_unused]] result name parameters {                  \
    const Watch watch(#name);                                \
    return ::lathe::name arguments;                          \
  }
#include "lathe/dispatch/operations.def"
#undef LATHE_OPERATION
#undef LATHE_DEFAULT
}  // namespace watched

}  // namespace

namespace ops = watched;
#include "tests/build/exercise.h"

namespace {

bool ExerciseInModes(const char* name, int rounding, [[maybe_unused]] unsigned flush) {
  std::printf("%s\n", name);
#if defined(__SSE2__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | flush);
#endif
  std::fesetround(rounding);
  const bool ok = Exercise();
  std::fesetround(FE_TONEAREST);
#if defined(__SSE2__)
  _mm_setcsr(before);
#endif
  return ok;
}

// The watch itself sees what it is for.
bool WatchSees() {
  {
    const Watch watch("this test");
    std::fesetround(FE_UPWARD);
#if LATHE_TEST_INTERPOSES
    void* volatile memory = std::malloc(1);
    std::free(memory);
    ::operator delete(::operator new(1));
#endif
  }
  std::fesetround(FE_TONEAREST);
  const bool saw = violations == (LATHE_TEST_INTERPOSES ? 3 : 1);
  violations = 0;
  return saw;
}

}  // namespace

int main() {
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
  bool ok = WatchSees();
  if (!ok) std::printf("nothing is seen\n");
  ok = ExerciseInModes("as it comes", FE_TONEAREST, 0) && ok;
  ok = ExerciseInModes("denormals flushed", FE_TONEAREST, kFlushToZero | kDenormalsAreZero) && ok;
  ok = ExerciseInModes("rounding up", FE_UPWARD, 0) && ok;
  ok = ExerciseInModes("rounding towards zero", FE_TOWARDZERO, kFlushToZero) && ok;
  std::printf("%d violations\n", violations);
  return ok && violations == 0 ? 0 : 1;
}
