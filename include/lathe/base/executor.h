// SPDX-License-Identifier: Apache-2.0
// Executor: how a caller lends its threads. The library makes no thread and waits on nothing of its
// own; an engine wraps the pool it already has in one of the adapters below.
#ifndef LATHE_BASE_EXECUTOR_H_
#define LATHE_BASE_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "lathe/base/config.h"

namespace lathe {

// run(ctx, num_tasks, fn, arg) calls fn(arg, task) exactly once for every task in [0, num_tasks), on
// any threads, concurrently or not, in any order, and returns after all of them have returned.
// lathe asks for at most `num_workers` tasks at a time and balances inside them, so a plain
// "parallel for" without work stealing is enough. A task never calls the executor again and never throws. `run` may not
// throw either: operations are noexcept, so an exception that leaves it, or a cancelled thread inside it, ends the
// process by std::terminate.
struct Executor {
  using TaskFn = void (*)(void* arg, size_t task);
  using RunFn = void (*)(void* ctx, size_t num_tasks, TaskFn fn, void* arg);

  void* ctx = nullptr;
  size_t num_workers = 1;
  RunFn run = [](void*, size_t num_tasks, TaskFn fn, void* arg) {
    for (size_t task = 0; task < num_tasks; ++task) fn(arg, task);
  };
};

// The calling thread alone.
LATHE_INLINE Executor SerialExecutor() noexcept { return Executor{}; }

// Any callable f(num_tasks, body) that calls body(task) for each task: std::for_each with an
// execution policy, a TBB lambda, an engine's own pool. `f` must outlive the executor.
template <class F>
LATHE_INLINE Executor CallableExecutor(F& f, size_t num_workers) noexcept {
  return Executor{&f, num_workers, [](void* ctx, size_t num_tasks, Executor::TaskFn fn, void* arg) {
                    (*static_cast<F*>(ctx))(num_tasks, [fn, arg](size_t task) { fn(arg, task); });
                  }};
}

// Range pools in the manner of parallel_for(begin, end, grain, body(begin, end)): f(begin, end, body).
template <class F>
LATHE_INLINE Executor RangeExecutor(F& f, size_t num_workers) noexcept {
  return Executor{&f, num_workers, [](void* ctx, size_t num_tasks, Executor::TaskFn fn, void* arg) {
                    (*static_cast<F*>(ctx))(int64_t{0}, static_cast<int64_t>(num_tasks),
                                            [fn, arg](int64_t begin, int64_t end) {
                                              for (int64_t i = begin; i < end; ++i)
                                                fn(arg, static_cast<size_t>(i));
                                            });
                  }};
}

// Pools that start one body on every thread: f(body) calls body(ith, nth) once for each ith in
// [0, nth), nth the same for all. Tasks are dealt round robin.
template <class F>
LATHE_INLINE Executor IthNthExecutor(F& f, size_t num_workers) noexcept {
  return Executor{&f, num_workers, [](void* ctx, size_t num_tasks, Executor::TaskFn fn, void* arg) {
                    (*static_cast<F*>(ctx))([num_tasks, fn, arg](size_t ith, size_t nth) {
                      for (size_t task = ith; task < num_tasks; task += nth) fn(arg, task);
                    });
                  }};
}

// hwy::ThreadPool, or any pool with NumWorkers() and Run(begin, end, f(task, worker)).
template <class Pool>
LATHE_INLINE Executor PoolExecutor(Pool& pool) noexcept {
  return Executor{&pool, static_cast<size_t>(pool.NumWorkers()),
                  [](void* ctx, size_t num_tasks, Executor::TaskFn fn, void* arg) {
                    static_cast<Pool*>(ctx)->Run(
                        uint64_t{0}, static_cast<uint64_t>(num_tasks),
                        [fn, arg](uint64_t task, size_t) { fn(arg, static_cast<size_t>(task)); });
                  }};
}

#if defined(_OPENMP)
// OpenMP's own team: all of it in every region, since runtimes build a team anew when its size changes, which takes
// longer than the work of a decode step (libgomp, 16 threads: 0.25 instead of 0.18 ms). Where the runtime gives fewer
// threads, inside an outer region for example, those share the tasks.
LATHE_INLINE Executor OpenMpExecutor(size_t num_workers) noexcept {
  return Executor{reinterpret_cast<void*>(num_workers > 0 ? num_workers : 1), num_workers,
                  [](void* ctx, size_t num_tasks, Executor::TaskFn fn, void* arg) {
                    const auto team = static_cast<int>(reinterpret_cast<uintptr_t>(ctx));
                    const auto n = static_cast<int64_t>(num_tasks);
#pragma omp parallel for schedule(static, 1) num_threads(team)
                    for (int64_t i = 0; i < n; ++i) fn(arg, static_cast<size_t>(i));
                  }};
}
#endif

}  // namespace lathe

#endif  // LATHE_BASE_EXECUTOR_H_
