// SPDX-License-Identifier: Apache-2.0
// One decode call as rows time it: planned once, then run over the caches of one layer after another.
#ifndef LATHE_BENCH_DECODE_STEP_H_
#define LATHE_BENCH_DECODE_STEP_H_

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "bench/ceilings.h"
#include "bench/decode_check.h"
#include "bench/flop_loop.h"
#include "bench/huge_buffer.h"
#include "bench/team.h"
#include "bench/tensor.h"
#include "lathe/base/keys.h"
#include "lathe/mla_decode.h"

namespace lathe::bench {

// Turn `i`, any number: `point` gives `args` the caches and lists of that turn, all of the same sizes.
using Turns = std::function<void(int64_t i, MlaDecodeArgs* args)>;

class DecodeStep {
 public:
  // `args`: what a call needs besides query and results, pointed at turn 0. What they view stays alive.
  DecodeStep(const DecodeCall& call, const MlaDecodeArgs& args, Turns point);

  void Run(int64_t turn, const Executor& executor);
  void RunNext(const Executor& executor) { Run(++turn_, executor); }

  // The parts of a step that are no arithmetic: the plan once more; all checks of a run, which ends there, since its
  // workspace is a byte short.
  void PlanAgain();
  void CheckOnly() const;

  // What Run() is given, with another place for results.
  MlaDecodeArgs Args(int64_t turn, const Results& results) const;

  const DecodeCall& call() const { return call_; }
  const Results& results() const { return results_; }
  double io_bytes() const { return static_cast<double>(q_.bytes() + results_.bytes()); }

 private:
  void Plan();

  DecodeCall call_;
  Turns point_;
  Tensor<3> q_;
  std::vector<int32_t> query_start_loc_;
  Results results_;
  MlaDecodeArgs args_;
  HugeBuffer plan_memory_, workspace_;
  const MlaDecodePlan* plan_ = nullptr;
  int64_t turn_ = -1;
};

// The loop over the products that keys of this format are decoded with.
const FlopLoop& FlopLoopOf(const TargetInfo& target, CacheFormat format, Precision precision);

// What a call does, for its counters.
struct DecodeWork {
  int64_t pairs;     // of a token and a key that it sees
  double key_bytes;  // records and lists
};

// Times RunNext() and sets, besides what Measure() does,
//
//   GFLOP/s           2 * pairs * H * (D + Dv) / time
//   GB/s              key_bytes, query and output / time
//   tokens/s          tokens / time: decoded tokens, for one layer
//   of_flop_ceiling   GFLOP/s against `loop`
//   of_read_ceiling   GB/s against `read`
//
// Returns the seconds of a call.
double MeasureDecode(benchmark::State& state, Team& team, DecodeStep& step, const DecodeWork& work,
                     const FlopLoop& loop, ReadProbe& read);

}  // namespace lathe::bench

#endif  // LATHE_BENCH_DECODE_STEP_H_
