// SPDX-License-Identifier: Apache-2.0
// Loops that do nothing but multiply and add in registers: the most a kernel could reach if all its
// data were where it needs it.
#ifndef LATHE_BENCH_FLOP_LOOP_H_
#define LATHE_BENCH_FLOP_LOOP_H_

#include <cstddef>

#include "lathe/base/target.h"

namespace lathe::bench {

struct FlopLoop {
  const char* instruction;  // "vdpbf16ps zmm"
  double flops_per_round;
  void (*run)(size_t rounds);
};

// The loop over the instruction that `target` multiplies with: its bf16 dot product for bfloat16
// rows where it has one, else float32. Only to be run where the target is runnable.
const FlopLoop& FlopLoopOf(const TargetInfo& target, bool is_bf16);

}  // namespace lathe::bench

#endif  // LATHE_BENCH_FLOP_LOOP_H_
