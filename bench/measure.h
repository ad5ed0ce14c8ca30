// SPDX-License-Identifier: Apache-2.0
// How a row is timed: samples of at least 50 ms (or one call), each between two probes of every
// ceiling.
#ifndef LATHE_BENCH_MEASURE_H_
#define LATHE_BENCH_MEASURE_H_

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/team.h"

namespace lathe::bench {

// A rate that the row is compared with. `work` of it is what one call does.
struct Ceiling {
  std::string counter;  // name of the fraction: "of_flop_ceiling"
  std::string
      rate_counter;  // name of the ceiling itself, scaled: "flop_ceiling_GFLOP/s"; "" = none
  double work;
  std::function<double()> probe;
};

double Median(std::vector<double> values);
double TimeCalls(const std::function<void()>& call, int64_t calls);  // mean seconds of a call

// Times call() and sets these counters; returns the median seconds of a call.
//
//   median_ms, min_ms   of a call
//   mad_percent         median absolute deviation of the samples, per cent of the median
//   samples
//   <counter>           for each ceiling: median over the samples of (work / seconds) / ceiling,
//                       the ceiling being the best of the four probes nearest to the sample
//   <rate_counter>      the best that these probes saw, in 1e9 per second
//   of_limit            where there are several ceilings: that of the ceiling which is the limit, sample by sample; the
//                       least time that the work can take on this machine, over the time that it took
//
// A benchmark iteration is one call. Google Benchmark's own time is the mean over all samples.
double Measure(benchmark::State& state, Team& team, const std::function<void()>& call,
               const std::vector<Ceiling>& ceilings);

// From here on Measure() calls as often as its benchmark iterates, does nothing else, and ends the row by throwing
// CallsEnd: for profilers, which would otherwise see the probes.
void OnlyCall();
struct CallsEnd {};

}  // namespace lathe::bench

#endif  // LATHE_BENCH_MEASURE_H_
