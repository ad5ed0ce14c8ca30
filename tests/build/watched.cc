// SPDX-License-Identifier: Apache-2.0
// What no call may do: allocate, start a thread, change the caller's floating-point modes or the flags of
// exceptions. Every operation is called through a wrapper that watches it, in each of these modes; tools/check_lists.py
// sees to it that none is left out.
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

namespace watched {
template <class F>
auto Call(const char* name, const F& call) {
  static int turn = 0;  // of each call in the text
  const Watch watch(name, turn++);
  return call();
}
}  // namespace watched

}  // namespace

namespace ops = watched;
#define LATHE_TEST_WATCH(name, ...) Call(#name, [&] { return ::lathe::name(__VA_ARGS__); })
// clang-format off
#define CompressorSizes(...) LATHE_TEST_WATCH(CompressorSizes, __VA_ARGS__)
#define CompressTokens(...) LATHE_TEST_WATCH(CompressTokens, __VA_ARGS__)
#define MergeCompressed(...) LATHE_TEST_WATCH(MergeCompressed, __VA_ARGS__)
#define IndexerLogitsSizes(...) LATHE_TEST_WATCH(IndexerLogitsSizes, __VA_ARGS__)
#define ComputeIndexerLogits(...) LATHE_TEST_WATCH(ComputeIndexerLogits, __VA_ARGS__)
#define IndexerTopkSizes(...) LATHE_TEST_WATCH(IndexerTopkSizes, __VA_ARGS__)
#define SelectIndexerTopk(...) LATHE_TEST_WATCH(SelectIndexerTopk, __VA_ARGS__)
#define WriteLatentCache(...) LATHE_TEST_WATCH(WriteLatentCache, __VA_ARGS__)
#define WriteLatentCaches(...) LATHE_TEST_WATCH(WriteLatentCaches, __VA_ARGS__)
#define GatherLatentCache(...) LATHE_TEST_WATCH(GatherLatentCache, __VA_ARGS__)
#define CopyCachePages(...) LATHE_TEST_WATCH(CopyCachePages, __VA_ARGS__)
#define CopyCachesPages(...) LATHE_TEST_WATCH(CopyCachesPages, __VA_ARGS__)
#define CopyCacheRecords(...) LATHE_TEST_WATCH(CopyCacheRecords, __VA_ARGS__)
#define CopyCachesRecords(...) LATHE_TEST_WATCH(CopyCachesRecords, __VA_ARGS__)
#define MergeStates(...) LATHE_TEST_WATCH(MergeStates, __VA_ARGS__)
#define PlanTarget(...) LATHE_TEST_WATCH(PlanTarget, __VA_ARGS__)
#define PlanWorkspaceBytes(...) LATHE_TEST_WATCH(PlanWorkspaceBytes, __VA_ARGS__)
#define MlaDecodeSizes(...) LATHE_TEST_WATCH(MlaDecodeSizes, __VA_ARGS__)
#define PlanMlaDecode(...) LATHE_TEST_WATCH(PlanMlaDecode, __VA_ARGS__)
#define RunMlaDecode(...) LATHE_TEST_WATCH(RunMlaDecode, __VA_ARGS__)
#define RunMlaDecodePart(...) LATHE_TEST_WATCH(RunMlaDecodePart, __VA_ARGS__)
#define RunMlaDecodeMerge(...) LATHE_TEST_WATCH(RunMlaDecodeMerge, __VA_ARGS__)
#define PrefillSizes(...) LATHE_TEST_WATCH(PrefillSizes, __VA_ARGS__)
#define PlanPrefill(...) LATHE_TEST_WATCH(PlanPrefill, __VA_ARGS__)
#define RunPrefill(...) LATHE_TEST_WATCH(RunPrefill, __VA_ARGS__)
#define RunPrefillPart(...) LATHE_TEST_WATCH(RunPrefillPart, __VA_ARGS__)
#define RunPrefillMerge(...) LATHE_TEST_WATCH(RunPrefillMerge, __VA_ARGS__)
#define PrepareQueries(...) LATHE_TEST_WATCH(PrepareQueries, __VA_ARGS__)
#define TopkSizes(...) LATHE_TEST_WATCH(TopkSizes, __VA_ARGS__)
#define SelectTopk(...) LATHE_TEST_WATCH(SelectTopk, __VA_ARGS__)
#define Targets(...) LATHE_TEST_WATCH(Targets, __VA_ARGS__)
#define BestTarget(...) LATHE_TEST_WATCH(BestTarget, __VA_ARGS__)
#define DeclineAmx(...) LATHE_TEST_WATCH(DeclineAmx, __VA_ARGS__)
// clang-format on
#include "tests/build/exercise.h"

namespace {

bool ExerciseIn(const FloatModes& modes) {
  std::printf("%s\n", modes.name);
  const unsigned before = modes.Enter();
  const bool ok = Exercise();
  FloatModes::Restore(before);
  return ok;
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
  std::printf("%d violations\n", violations);
  return ok && violations == 0 ? 0 : 1;
}
