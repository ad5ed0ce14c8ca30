// SPDX-License-Identifier: Apache-2.0
// The same bits every time, of every operation: whatever runs the work, in whatever order, however often,
// and whatever the caller's floating-point modes are; and these modes, and the flags of exceptions, are the
// caller's.
#include <catch2/generators/catch_generators.hpp>
#include <thread>

#include "reliability/operations.h"
#include "support/float_modes.h"
#include "support/targets.h"
#include "support/threads.h"

#if __has_include("hwy/contrib/thread_pool/thread_pool.h")
#include "hwy/contrib/thread_pool/thread_pool.h"
#define LATHE_TEST_HWY_POOL 1
#endif

namespace lathe::test {
namespace {

// f(executor, what it is) for one of each kind.
template <class F>
void ForEachExecutor(const F& f) {
  for (const size_t num_workers : {1, 2, 3, 5, 16, 1000}) {
    f(ThreadExecutor(num_workers), "threads " + std::to_string(num_workers));
  }
  Executor claimed = SerialExecutor();
  claimed.num_workers = 5;
  f(claimed, "one thread for five workers");
  auto backwards = [](size_t num_tasks, const auto& body) {
    for (size_t task = num_tasks; task-- > 0;) body(task);
  };
  f(CallableExecutor(backwards, 7), "last task first");
  auto ranges = [](int64_t begin, int64_t end, const auto& body) {
    const int64_t middle = (begin + end) / 2;
    std::thread upper([&] { body(middle, end); });
    body(begin, middle);
    upper.join();
  };
  f(RangeExecutor(ranges, 4), "ranges");
  auto region = [](const auto& body) { OnThreads(2, [&](size_t i) { body(i, 2); }); };
  f(IthNthExecutor(region, 3), "one body on every thread");
#if defined(_OPENMP)
  f(OpenMpExecutor(4), "OpenMP");
#endif
#if defined(LATHE_TEST_HWY_POOL)
  hwy::ThreadPool pool(3);
  f(PoolExecutor(pool), "hwy::ThreadPool");
#endif
}

TEST_CASE("every operation gives the same bits on every executor",
          "[reliability][determinism][A27][long]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const Operation& operation : Operations(target)) {
    const std::vector<std::byte> expected = operation.run({});
    REQUIRE(operation.run({}) == expected);
    ForEachExecutor([&](const Executor& executor, const std::string& kind) {
      INFO(operation.name << " on " << Name(target) << ", " << kind);
      const bool is_same = operation.run(executor) == expected;
      REQUIRE(is_same);
    });
  }
}

TEST_CASE("operations of several callers at once do not meet", "[reliability][determinism][A27]") {
  const Target target = LATHE_GENERATE_TARGET();
  // Two of everything: a call may not share what it writes.
  std::vector<Operation> own[2] = {Operations(target), Operations(target)};
  std::vector<std::vector<std::byte>> expected;
  for (const Operation& operation : own[0]) expected.push_back(operation.run({}));
  std::vector<char> is_same(own[0].size() * 2);
  OnThreads(2, [&](size_t caller) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const size_t at = caller == 0 ? i : expected.size() - 1 - i;
      is_same[2 * at + caller] = own[caller][at].run(ThreadExecutor(2)) == expected[at];
    }
  });
  for (size_t i = 0; i < is_same.size(); ++i) {
    INFO(own[0][i / 2].name << " of caller " << i % 2);
    REQUIRE(is_same[i]);
  }
}

TEST_CASE("no operation changes the floating-point modes", "[reliability][modes]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const FloatModes& modes : AllFloatModes()) {
    for (const Operation& operation : Operations(target)) {
      INFO(operation.name << " on " << Name(target) << ", " << modes.name);
      // Workers have modes of their own, and keep these, too.
      const Executor executor = ThreadExecutor(2);
      const unsigned before = modes.Enter();
      operation.run({});
      const unsigned after = FloatModes::Current();
      FloatModes::Restore(before);
      REQUIRE(after == modes.bits(before));
      operation.run(executor);
      REQUIRE(FloatModes::Current() == before);
    }
  }
}

// Of whole calls build.watched shows it.
TEST_CASE("no task leaves flags of exceptions on the thread that it is lent",
          "[reliability][modes]") {
  const Target target = LATHE_GENERATE_TARGET();
  size_t num_shared = 0;  // operations that are large enough to be
  for (const unsigned flags : SomeFloatFlags()) {
    for (const Operation& operation : Operations(target)) {
      INFO(operation.name << " on " << Name(target) << ", flags " << flags);
      size_t num_tasks = 0, num_kept = 0;
      auto watching = [&](size_t n, const auto& body) {
        for (size_t task = 0; task < n; ++task) {
          SetFloatFlags(flags);
          body(task);
          num_kept += FloatFlags() == flags ? 1 : 0;
        }
        num_tasks += n;
      };
      operation.run(CallableExecutor(watching, 3));
      SetFloatFlags(0);
      REQUIRE(num_kept == num_tasks);
      num_shared += num_tasks > 0 ? 1 : 0;
    }
  }
  REQUIRE(num_shared > Operations(target).size());  // of four times as many
}

TEST_CASE("flushed denormals change no bit where nothing is that small", "[reliability][modes]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const Operation& operation : Operations(target)) {
    const std::vector<std::byte> expected = operation.run({});
    const unsigned before = AllFloatModes().back().Enter();
    const std::vector<std::byte> flushed = operation.run({});
    FloatModes::Restore(before);
    INFO(operation.name << " on " << Name(target));
    const bool is_same = flushed == expected;
    REQUIRE(is_same);
  }
}

}  // namespace
}  // namespace lathe::test
