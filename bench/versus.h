// SPDX-License-Identifier: Apache-2.0
// A row against what a user would otherwise run, once the row itself has been measured.
#ifndef LATHE_BENCH_VERSUS_H_
#define LATHE_BENCH_VERSUS_H_

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

#include "bench/comparators/comparator.h"
#include "bench/team.h"

namespace lathe::bench {

// Something else that does a row's work, or as much.
struct Opponent {
  std::string name;
  std::function<void()> run;
  double seconds;          // of a run, roughly
  bool is_on_team = true;  // or on threads of its own
  double scale = 1.0;      // of its time, where a run does only a part of the row's work
};

// Times both, in samples next to each other, and sets
//
//   vs_<name>   its time over ours: median over the samples
//   <name>_ms   its median
//
// `ours` is one call of lathe and takes about `seconds`.
void TakeTurns(benchmark::State& state, Team& team, double seconds,
               const std::function<void()>& ours, const Opponent& opponent);

// Checks each contender, lets the fastest way of each take turns with us, and sets the label: what that way was.
// `ours` as above, `theirs` the same call of a comparator, on the same data in the same state of the caches;
// `check` throws if the comparator's results are wrong.
void MeasureVersus(benchmark::State& state, const DecodeTask& task, Team& team, double seconds,
                   const std::function<void()>& ours,
                   const std::function<void(Comparator&)>& theirs,
                   const std::function<void(Comparator&)>& check);

}  // namespace lathe::bench

#endif  // LATHE_BENCH_VERSUS_H_
