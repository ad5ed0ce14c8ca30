// SPDX-License-Identifier: Apache-2.0
// Timing of operations that only move data.
#ifndef LATHE_BENCH_COPY_BOUND_H_
#define LATHE_BENCH_COPY_BOUND_H_

#include <benchmark/benchmark.h>

#include <functional>

#include "bench/ceilings.h"
#include "bench/measure.h"

namespace lathe::bench {

// Counters GB/s, of bytes read and written, and of_memcpy: against memcpy of as many bytes (half of
// them read, half written) by the same threads. Returns the median seconds of a call.
inline double MeasureCopyBound(benchmark::State& state, Team& team,
                               const std::function<void()>& call, double bytes) {
  CopyProbe copy(static_cast<size_t>(bytes / 2));
  const double seconds = Measure(
      state, team, call, {{"of_memcpy", "", 1.0, [&] { return copy.CopiesPerSecond(team); }}});
  state.counters["GB/s"] = bytes / seconds * 1e-9;
  return seconds;
}

}  // namespace lathe::bench

#endif  // LATHE_BENCH_COPY_BOUND_H_
