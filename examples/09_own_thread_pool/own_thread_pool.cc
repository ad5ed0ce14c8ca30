// SPDX-License-Identifier: Apache-2.0
// lathe makes no thread; here are the two ways to lend it some. First a pool of std::thread that runs n tasks,
// wrapped in an Executor. Then a team that is inside a parallel region already, as ggml-like engines
// have it: every thread calls Part, waits at the team's own barrier, and calls Merge. All give the bits of one
// thread.
//
// Output:
//   one thread         out[0] = 0.0374
//   pool of 3          the same bits
//   ith of 3, barrier  the same bits
#include <lathe/lathe.h>

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "examples/support/paged.h"

namespace {

constexpr size_t kThreads = 3;
constexpr int64_t kHeads = 4, kWidth = 576, kBlockSize = 64, kBlocks = 80, kTokens = 5000;

using example::Check;

// The least that a pool can be: Run calls body(task) for every task on its threads and returns when all are done.
class Pool {
 public:
  explicit Pool(size_t num_threads) {
    for (size_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~Pool() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stops_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void Run(size_t num_tasks, const std::function<void(size_t)>& body) {
    std::unique_lock<std::mutex> lock(mutex_);
    body_ = &body;
    next_ = 0;
    num_tasks_ = unfinished_ = num_tasks;
    wake_.notify_all();
    done_.wait(lock, [this] { return unfinished_ == 0; });
  }

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stops_ || next_ < num_tasks_; });
      if (stops_) return;
      const size_t task = next_++;
      lock.unlock();
      (*body_)(task);
      lock.lock();
      if (--unfinished_ == 0) done_.notify_all();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(size_t)>* body_ = nullptr;
  size_t next_ = 0, num_tasks_ = 0, unfinished_ = 0;
  bool stops_ = false;
};

// For one use: C++17 has none.
class Barrier {
 public:
  explicit Barrier(size_t count) : missing_(count) {}
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

// One decode step of one long sequence.
struct Step {
  Step() : cache(kBlocks * kBlockSize * kWidth), q(kHeads * kWidth), out(kHeads * 512) {
    std::mt19937 generator(1);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (lathe::bfloat16& x : cache) x = lathe::FromFloat<lathe::bfloat16>(uniform(generator));
    for (lathe::bfloat16& x : q) x = lathe::FromFloat<lathe::bfloat16>(uniform(generator));
    for (int32_t i = 0; i < kBlocks; ++i) block_table.push_back(kBlocks - 1 - i);

    lathe::MlaDecodeOptions options;
    options.softmax_scale = 0.0721688f;
    args.q = lathe::Packed(q.data(), 1, kHeads, kWidth);
    args.keys.cache = lathe::LatentPages(cache.data(), kBlocks, kBlockSize, kWidth);
    args.keys.block_table = lathe::Packed(block_table.data(), 1, kBlocks);
    args.keys.seq_lens = lathe::Packed(seq_lens, 1);
    args.out = lathe::Packed(out.data(), 1, kHeads, 512);

    const lathe::MlaShape shape{kHeads, 512, 64};
    lathe::Sizes sizes;
    Check(lathe::MlaDecodeSizes(shape, options, {1, 1, kTokens, kThreads}, &sizes));
    plan_memory.resize(sizes.plan_bytes);
    workspace.resize(sizes.workspace_bytes);
    Check(lathe::PlanMlaDecode(shape, options, args, kThreads,
                               {plan_memory.data(), plan_memory.size()}, &plan));
  }
  lathe::Buffer scratch() { return {workspace.data(), workspace.size()}; }

  std::vector<lathe::bfloat16> cache, q;
  std::vector<int32_t> block_table;
  int32_t seq_lens[1] = {kTokens};
  std::vector<float> out;
  lathe::MlaDecodeArgs args;
  std::vector<std::byte> plan_memory, workspace;
  const lathe::MlaDecodePlan* plan = nullptr;
};

}  // namespace

int main() {
  Step step;
  Check(lathe::RunMlaDecode(*step.plan, step.args, step.scratch()));
  const std::vector<float> serial = step.out;
  std::printf("one thread         out[0] = %.4f\n", static_cast<double>(serial[0]));
  bool is_right = true;
  const auto compare = [&](const char* what) {
    const bool same =
        std::memcmp(serial.data(), step.out.data(), serial.size() * sizeof(float)) == 0;
    std::printf("%-18s %s\n", what, same ? "the same bits" : "OTHER BITS");
    is_right = is_right && same;
    std::memset(step.out.data(), 0, step.out.size() * sizeof(float));
  };

  Pool pool(kThreads);
  auto run = [&](size_t num_tasks, const auto& body) { pool.Run(num_tasks, body); };
  std::memset(step.out.data(), 0, step.out.size() * sizeof(float));
  Check(lathe::RunMlaDecode(*step.plan, step.args, step.scratch(),
                            lathe::CallableExecutor(run, kThreads)));
  compare("pool of 3");

  Barrier barrier(kThreads);
  std::vector<std::thread> team;
  for (size_t ith = 0; ith < kThreads; ++ith) {
    team.emplace_back([&, ith] {
      Check(lathe::RunMlaDecodePart(*step.plan, step.args, step.scratch(), ith, kThreads));
      barrier.Wait();
      Check(lathe::RunMlaDecodeMerge(*step.plan, step.args, step.scratch(), ith, kThreads));
    });
  }
  for (std::thread& thread : team) thread.join();
  compare("ith of 3, barrier");
  return is_right ? 0 : 1;
}
