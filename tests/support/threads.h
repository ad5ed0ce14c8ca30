// SPDX-License-Identifier: Apache-2.0
// The worst pool there is: a new thread for every task, all at once.
#ifndef LATHE_TESTS_SUPPORT_THREADS_H_
#define LATHE_TESTS_SUPPORT_THREADS_H_

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "lathe/base/executor.h"

namespace lathe::test {

// For CallableExecutor(pool, num_workers).
struct ThreadPerTask {
  template <class Body>
  void operator()(size_t num_tasks, const Body& body) const {
    std::vector<std::thread> threads;
    threads.reserve(num_tasks);
    for (size_t task = 0; task < num_tasks; ++task) {
      threads.emplace_back([&body, task] { body(task); });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

// body(i) for every i in [0, n), each on a thread of its own.
template <class Body>
void OnThreads(size_t n, const Body& body) {
  ThreadPerTask{}(n, body);
}

inline Executor ThreadExecutor(size_t num_workers) {
  return Executor{nullptr, num_workers,
                  [](void*, size_t num_tasks, Executor::TaskFn fn, void* arg) {
                    OnThreads(num_tasks, [fn, arg](size_t task) { fn(arg, task); });
                  }};
}

// All of n threads have come here before any goes on; can be used once.
class Barrier {
 public:
  explicit Barrier(size_t n) : missing_(n) {}
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (--missing_ == 0) return all_here_.notify_all();
    all_here_.wait(lock, [this] { return missing_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  size_t missing_;
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_THREADS_H_
