// SPDX-License-Identifier: Apache-2.0
// A row against what a user would otherwise run, once the row itself has been measured.
#ifndef LATHE_BENCH_VERSUS_H_
#define LATHE_BENCH_VERSUS_H_

#include <benchmark/benchmark.h>

#include <functional>

#include "bench/comparators/comparator.h"
#include "bench/team.h"

namespace lathe::bench {

// Checks and times each contender, in samples next to samples of lathe's own, and sets
//
//   vs_<name>   its time over ours: median over the samples
//   <name>_ms   its median
//
// and the label: what the fastest way of each was. `ours` is one call of lathe and takes about
// `seconds`, `theirs` the same call of a comparator, on the same data in the same state of the
// caches; `check` throws if the comparator's results are wrong.
void MeasureVersus(benchmark::State& state, const DecodeTask& task, Team& team, double seconds,
                   const std::function<void()>& ours,
                   const std::function<void(Comparator&)>& theirs,
                   const std::function<void(Comparator&)>& check);

}  // namespace lathe::bench

#endif  // LATHE_BENCH_VERSUS_H_
