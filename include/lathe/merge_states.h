// SPDX-License-Identifier: Apache-2.0
// Merging partial attention results over disjoint key sets by their log-sum-exp values: what chunked
// prefill, shared prefixes and context parallelism need (Cascade attention; the associative state of
// FlashAttention, arXiv 2205.14135, section 3.1).
#ifndef LATHE_MERGE_STATES_H_
#define LATHE_MERGE_STATES_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/executor.h"
#include "lathe/base/lse.h"
#include "lathe/base/status.h"
#include "lathe/base/target.h"
#include "lathe/base/view.h"

namespace lathe {

// One partial result of T rows and H heads: out [T, H, Dv] float32, float16 or bfloat16, innermost stride 1,
// and lse [T, H], in the part's own convention. An element whose lse is `lse_policy.empty` or -inf
// is an empty part: its out is not read.
struct MergePart {
  In<3> out = {};
  View<const float, 2> lse = {};
  LsePolicy lse_policy = {};
};

//   parts, num_parts   any number >= 1
//   attn_sink          [H] optional; applied once, to the merged row: parts must not have it applied
//   out                [T, H, Dv] any of the three types
//   lse                [T, H] optional, in options.lse_policy, without the sink
//
// out and lse may be the very arrays (same data, strides, type) of one of the parts: merging in place.
// Any other overlap is refused.
struct MergeStatesArgs {
  const MergePart* parts = nullptr;
  size_t num_parts = 0;
  View<const float, 1> attn_sink = {};
  Out<3> out = {};
  View<float, 2> lse = {};
};

struct MergeStatesOptions {
  Target target = Target::kAuto;
  LsePolicy lse_policy = {};
};

// out = sum_i w_i out_i with w_i = exp(lse_i) / sum_k exp(lse_k), lse = log sum_k exp(lse_k); summed in
// float32 in the order of the parts. One live part among empty ones comes through bit for bit (where types
// and policies are equal and there is no sink); no live part gives 0 and options.lse_policy.empty.
// O(num_parts * T * H * Dv); no workspace. Refuses null data, extents that differ, strides smaller than a
// row, misaligned data, overlap other than in place.
LATHE_API Status MergeStates(const MergeStatesArgs& args, const MergeStatesOptions& options = {},
                             const Executor& executor = {}) noexcept;

}  // namespace lathe

#endif  // LATHE_MERGE_STATES_H_
