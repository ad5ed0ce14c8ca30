// SPDX-License-Identifier: Apache-2.0
// Executors: whatever pool stands behind an adapter, every task runs exactly once and the call
// returns after the last of them.
#include "lathe/base/executor.h"

#include <atomic>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/threads.h"

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__SANITIZE_THREAD__)
#define LATHE_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LATHE_TEST_TSAN 1
#endif
#endif
// The thread sanitizer does not understand the fences that Highway's pool synchronises with.
#if !defined(LATHE_TEST_TSAN) && __has_include("hwy/contrib/thread_pool/thread_pool.h")
#include "hwy/contrib/thread_pool/thread_pool.h"
#define LATHE_TEST_HWY_POOL 1
#endif

namespace lathe::test {
namespace {

// Runs 0, 1, ... tasks, fewer and more than workers, and counts how often each was called.
void RequireRunsEachTaskOnce(const Executor& executor) {
  for (const size_t num_tasks : {0u, 1u, 2u, 3u, 4u, 7u, 16u, 100u}) {
    INFO("tasks " << num_tasks << ", workers " << executor.num_workers);
    struct Counts {
      std::vector<std::atomic<int>> of_task;
      std::atomic<int> outside{0};
      std::atomic<size_t> finished{0};
    } counts;
    counts.of_task = std::vector<std::atomic<int>>(num_tasks);
    executor.run(
        executor.ctx, num_tasks,
        [](void* arg, size_t task) {
          auto& c = *static_cast<Counts*>(arg);
          std::this_thread::yield();
          ++(task < c.of_task.size() ? c.of_task[task] : c.outside);
          ++c.finished;
        },
        &counts);
    REQUIRE(counts.finished.load() == num_tasks);
    REQUIRE(counts.outside.load() == 0);
    for (const auto& count : counts.of_task) REQUIRE(count.load() == 1);
  }
}

TEST_CASE("the default executor is the calling thread", "[executor]") {
  const Executor executor = SerialExecutor();
  REQUIRE(executor.num_workers == 1);
  REQUIRE(Executor{}.num_workers == 1);
  RequireRunsEachTaskOnce(executor);
  RequireRunsEachTaskOnce(Executor{});
  struct Seen {
    std::thread::id caller = std::this_thread::get_id();
    std::vector<size_t> tasks;
  } seen;
  executor.run(
      executor.ctx, 4,
      [](void* arg, size_t task) {
        auto& s = *static_cast<Seen*>(arg);
        if (std::this_thread::get_id() == s.caller) s.tasks.push_back(task);
      },
      &seen);
  REQUIRE(seen.tasks == std::vector<size_t>{0, 1, 2, 3});
}

TEST_CASE("CallableExecutor: a parallel for given as a callable", "[executor]") {
  ThreadPerTask pool;
  REQUIRE(CallableExecutor(pool, 5).num_workers == 5);
  RequireRunsEachTaskOnce(CallableExecutor(pool, 5));
  auto backwards = [](size_t num_tasks, const auto& body) {
    while (num_tasks-- > 0) body(num_tasks);
  };
  RequireRunsEachTaskOnce(CallableExecutor(backwards, 2));
}

TEST_CASE("RangeExecutor: pools that hand out ranges", "[executor]") {
  for (const int64_t grain : {1, 3, 1000}) {
    auto pool = [grain](int64_t begin, int64_t end, const auto& body) {
      std::vector<std::thread> threads;
      for (int64_t at = begin; at < end; at += grain) {
        const int64_t stop = at + grain < end ? at + grain : end;
        threads.emplace_back([&body, at, stop] { body(at, stop); });
      }
      for (std::thread& thread : threads) thread.join();
    };
    const Executor executor = RangeExecutor(pool, 3);
    REQUIRE(executor.num_workers == 3);
    RequireRunsEachTaskOnce(executor);
  }
}

TEST_CASE("IthNthExecutor: pools that start one body on every thread", "[executor]") {
  for (const size_t nth : {1u, 2u, 3u, 16u}) {
    auto pool = [nth](const auto& body) {
      std::vector<std::thread> threads;
      for (size_t ith = 0; ith < nth; ++ith) {
        threads.emplace_back([&body, ith, nth] { body(ith, nth); });
      }
      for (std::thread& thread : threads) thread.join();
    };
    const Executor executor = IthNthExecutor(pool, nth);
    REQUIRE(executor.num_workers == nth);
    RequireRunsEachTaskOnce(executor);
  }
}

struct SmallPool {
  uint32_t NumWorkers() const { return 4; }
  template <class F>
  void Run(uint64_t begin, uint64_t end, const F& f) {
    for (uint64_t task = begin; task < end; ++task) f(task, size_t{0});
  }
};

TEST_CASE("PoolExecutor: pools with NumWorkers and Run", "[executor]") {
  SmallPool pool;
  REQUIRE(PoolExecutor(pool).num_workers == 4);
  RequireRunsEachTaskOnce(PoolExecutor(pool));
}

#if defined(LATHE_TEST_HWY_POOL)
TEST_CASE("PoolExecutor over hwy::ThreadPool", "[executor]") {
  for (const size_t num_threads : {0u, 1u, 2u, 3u}) {
    hwy::ThreadPool pool(num_threads);
    const Executor executor = PoolExecutor(pool);
    REQUIRE(executor.num_workers == pool.NumWorkers());
    RequireRunsEachTaskOnce(executor);
  }
}
#endif

#if defined(_OPENMP)
TEST_CASE("OpenMpExecutor: teams of any size, nested or not", "[executor]") {
  for (const size_t num_workers : {0u, 1u, 2u, 3u, 16u}) {
    const Executor executor = OpenMpExecutor(num_workers);
    REQUIRE(executor.num_workers == num_workers);
    RequireRunsEachTaskOnce(executor);
  }
  for (const int levels : {1, 2}) {  // inner regions of one thread, and of a team
    const int before = omp_get_max_active_levels();
    omp_set_max_active_levels(levels);
    std::atomic<int> runs{0};
#pragma omp parallel num_threads(2)
    {
      const Executor inner = OpenMpExecutor(3);
      inner.run(
          inner.ctx, 7, [](void* arg, size_t) { ++*static_cast<std::atomic<int>*>(arg); }, &runs);
    }
    omp_set_max_active_levels(before);
    REQUIRE(runs.load() == 2 * 7);
  }
}

TEST_CASE("OpenMpExecutor: the team has one size, whatever is asked for", "[executor]") {
  const Executor executor = OpenMpExecutor(5);
  for (const size_t num_tasks : {1u, 2u, 5u, 40u}) {
    std::atomic<size_t> in_team_of_five{0};
    executor.run(
        executor.ctx, num_tasks,
        [](void* arg, size_t) {
          if (omp_get_num_threads() == 5) ++*static_cast<std::atomic<size_t>*>(arg);
        },
        &in_team_of_five);
    REQUIRE(in_team_of_five.load() == num_tasks);
  }
}

TEST_CASE("OpenMpExecutor: a runtime that gives fewer threads", "[executor]") {
  omp_set_dynamic(1);
  RequireRunsEachTaskOnce(OpenMpExecutor(64));
  omp_set_dynamic(0);
}
#endif

}  // namespace
}  // namespace lathe::test
