// SPDX-License-Identifier: Apache-2.0
// What no call may do: allocate, start a thread, change the caller's floating-point modes or the flags of
// exceptions. Every operation is called through a wrapper that watches it, in each of these modes; and every one has
// to be called.
#include <cerrno>
#include <cfenv>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "lathe/lathe.h"
#include "tests/support/float_modes.h"

// Allocation can be watched in glibc, whose own functions have a second name.
#if defined(__GLIBC__)
#include <pthread.h>
#define LATHE_TEST_INTERPOSES 1
#else
#define LATHE_TEST_INTERPOSES 0
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

using lathe::test::FloatFlags;
using lathe::test::FloatModes;

// Of operations.def, by name.
enum class Op {
#define LATHE_OPERATION(result, name, parameters, arguments) name,
#include "lathe/dispatch/operations.def"
#undef LATHE_OPERATION
  kCount
};
constexpr const char* kNames[] = {
#define LATHE_OPERATION(result, name, parameters, arguments) #name,
#include "lathe/dispatch/operations.def"
#undef LATHE_OPERATION
};
int calls[static_cast<size_t>(Op::kCount)] = {};

class Watch {
 public:
  // Call number `turn` of the operation: before it no flags are raised, or all, or some, so that raising and
  // clearing are both seen.
  Watch(const char* name, int turn) : name_(name), modes_(FloatModes::Current()) {
    const std::vector<unsigned> some = lathe::test::SomeFloatFlags();
    flags_ = some[static_cast<size_t>(turn) % some.size()];
    lathe::test::SetFloatFlags(flags_);
    is_watched = true;
  }
  ~Watch() {
    is_watched = false;
    const unsigned modes = FloatModes::Current(), flags = FloatFlags();
    if (modes != modes_) Report("modes", modes_, modes);
    if (flags != flags_) Report("flags", flags_, flags);
  }

 private:
  void Report(const char* what, unsigned before, unsigned after) const {
    std::printf("%s changed the floating-point %s from %x to %x\n", name_, what, before, after);
    ++violations;
  }

  const char* name_;
  unsigned modes_, flags_;
};

// Every operation under its own name.
namespace watched {
using namespace lathe;
#define LATHE_DEFAULT = {}
#define LATHE_OPERATION(result, name, parameters, arguments)          \
  [[maybe_unused]] result name parameters {                           \
    const Watch watch(#name, calls[static_cast<size_t>(Op::name)]++); \
    return ::lathe::name arguments;                                   \
  }
#include "lathe/dispatch/operations.def"
#undef LATHE_OPERATION
#undef LATHE_DEFAULT
}  // namespace watched

}  // namespace

namespace ops = watched;
#include "tests/build/exercise.h"

namespace {

bool ExerciseIn(const FloatModes& modes) {
  std::printf("%s\n", modes.name);
  const unsigned before = modes.Enter();
  const bool ok = Exercise();
  FloatModes::Restore(before);
  return ok;
}

bool AllAreCalled() {
  bool all = true;
  for (size_t i = 0; i < static_cast<size_t>(Op::kCount); ++i) {
    if (calls[i] > 0) continue;
    std::printf("%s is never called\n", kNames[i]);
    all = false;
  }
  return all;
}

// The watch itself sees what it is for.
bool WatchSees() {
  const unsigned inexact = lathe::test::SomeFloatFlags()[2];
  {
    const Watch watch("this test", 0);
    std::fesetround(FE_UPWARD);
    lathe::test::SetFloatFlags(inexact);
#if LATHE_TEST_INTERPOSES
    void* volatile memory = std::malloc(1);
    std::free(memory);
    ::operator delete(::operator new(1));
#endif
  }
  std::fesetround(FE_TONEAREST);
  const bool saw = violations == (LATHE_TEST_INTERPOSES ? 4 : 2);
  violations = 0;
  return saw;
}

}  // namespace

int main() {
  bool ok = WatchSees();
  if (!ok) std::printf("nothing is seen\n");
  ok = ExerciseIn({"as it comes", FE_TONEAREST, 0}) && ok;
  for (const FloatModes& modes : lathe::test::AllFloatModes()) ok = ExerciseIn(modes) && ok;
  ok = AllAreCalled() && ok;
  std::printf("%d violations\n", violations);
  return ok && violations == 0 ? 0 : 1;
}
