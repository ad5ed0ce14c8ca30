// SPDX-License-Identifier: Apache-2.0
// The threads of a row: the same ones run the kernel and the probes of its ceilings, whoever they belong to. Two pools
// awake on the same cores would be in each other's way for milliseconds.
#ifndef LATHE_BENCH_TEAM_H_
#define LATHE_BENCH_TEAM_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "hwy/contrib/thread_pool/thread_pool.h"
#include "lathe/base/executor.h"

namespace lathe::bench {

// CLOCK_MONOTONIC. CPU-time clocks under-count now and then in virtual machines, and the minimum
// of many samples finds exactly those.
using Clock = std::chrono::steady_clock;

inline double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

#if defined(_OPENMP)
inline constexpr bool kHasOpenMp = true;
#else
inline constexpr bool kHasOpenMp = false;
#endif

// How many threads, and whether they are OpenMP's instead of a hwy::ThreadPool's.
struct TeamSpec {
  size_t threads = 1;
  bool is_openmp = false;

  bool operator<(const TeamSpec& other) const {
    return std::tie(threads, is_openmp) < std::tie(other.threads, other.is_openmp);
  }
  // What the name of a row ends with.
  std::string suffix() const { return is_openmp ? "/executor:openmp" : ""; }
};

class Team {
 public:
  explicit Team(const TeamSpec& spec) : spec_(spec), pool_(spec.is_openmp ? 1 : spec.threads) {}

  size_t size() const { return spec_.threads; }
  Executor executor() {
#if defined(_OPENMP)
    if (spec_.is_openmp) return OpenMpExecutor(size());
#endif
    return PoolExecutor(pool_);
  }

  // f(ith) on every thread.
  template <class F>
  void Run(const F& f) {
#if defined(_OPENMP)
    if (spec_.is_openmp) {
#pragma omp parallel num_threads(static_cast <int>(size()))
      f(static_cast<size_t>(omp_get_thread_num()));
      return;
    }
#endif
    pool_.Run(0, size(), [&f](uint64_t ith, size_t) { f(static_cast<size_t>(ith)); });
  }

  // Of the pool; OpenMP's threads wait as the environment says (OMP_WAIT_POLICY).
  void Spin(bool on) {
    if (pool_.NumWorkers() == 1) return;
    pool_.SetWaitMode(on ? hwy::PoolWaitMode::kSpin : hwy::PoolWaitMode::kBlock);
  }

 private:
  TeamSpec spec_;
  hwy::ThreadPool pool_;
};

// Threads that wait spin during its life, as those of an engine do between layers; otherwise they
// sleep and leave the machine to other teams.
class SpinScope {
 public:
  explicit SpinScope(Team& team) : team_(team) { team_.Spin(true); }
  ~SpinScope() { team_.Spin(false); }
  SpinScope(const SpinScope&) = delete;
  SpinScope& operator=(const SpinScope&) = delete;

 private:
  Team& team_;
};

// Repeats work(ith), which returns how much it did, on every thread for `seconds`, and returns the
// sum of what each did per second. All stop at the same time rather than after equal work, so that
// slow cores count for what they give and none ends up alone with what the cores share. Each has
// its own time: among many threads some are always interrupted, and should cost their own part
// only.
template <class F>
double Throughput(Team& team, double seconds, const F& work) {
  struct alignas(64) Rate {
    double per_second = 0.0;
  };
  std::vector<Rate> rates(team.size());
  const Clock::time_point start = Clock::now();
  team.Run([&](size_t ith) {
    const Clock::time_point my_start = Clock::now();
    Clock::time_point now;
    double done = 0.0;
    do {
      done += work(ith);
      now = Clock::now();
    } while (Seconds(now - start) < seconds);
    rates[ith].per_second = done / Seconds(now - my_start);
  });
  double all = 0.0;
  for (const Rate& rate : rates) all += rate.per_second;
  return all;
}

}  // namespace lathe::bench

#endif  // LATHE_BENCH_TEAM_H_
