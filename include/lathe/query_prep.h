// SPDX-License-Identifier: Apache-2.0
// The query side: what happens to projected queries before attention or an indexer takes them. DeepSeek-V4
// normalises each head without a weight and rotates its last columns; the lightning indexer of
// DeepSeek-V3.2 and V4 rotates, may apply a Hadamard matrix, quantises to fp8 and folds the scales into the
// head weights.
#ifndef LATHE_QUERY_PREP_H_
#define LATHE_QUERY_PREP_H_

#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/executor.h"
#include "lathe/base/row_transform.h"
#include "lathe/base/status.h"
#include "lathe/base/target.h"
#include "lathe/base/view.h"

namespace lathe {

// T tokens of H heads.
//
//   q            [T, H, D] float32, float16 or bfloat16, innermost stride 1; D at most kMaxTransformWidth.
//                Not given: only weights are folded
//   transform    of each row q[t, h] (row_transform.h)
//   positions    [>=T] of the tokens, below P of transform.rope; not looked at without a rope
//   out          [T, H, D] of any of the three types, innermost stride 1: the transformed rows. May be the
//                very array q (same data, strides, type): in place
//   codes        [T, H, D] float8_e4m3fn instead of out, innermost stride 1: row / scale, the scale one for
//                each row, max(amax, 1e-4) / 448 (options: the next power of two)
//   q_scales     [T, H] optional, with codes: these scales
//   weights      [T, H] float32, float16 or bfloat16, innermost stride 1: head weights of an indexer
//   weights_out  [T, H], with weights: weights * scale * softmax_scale * head_scale, multiplied in this order
//                in float32; without codes there is no scale in it. May be the very array weights
struct QueryPrepArgs {
  In<3> q = {};
  RowTransform transform = {};
  IndexView<1> positions = {};
  Out<3> out = {};
  View<float8_e4m3fn, 3> codes = {};
  View<float, 2> q_scales = {};
  In<2> weights = {};
  View<float, 2> weights_out = {};
};

struct QueryPrepOptions {
  Target target = Target::kAuto;
  // Scales are 2^ceil(log2(max(amax, 1e-4) / 448)), as vLLM has them for V3.2 and V4.
  bool power_of_two_scales = false;
  float softmax_scale = 1.0f;  // of the indexer, D^-0.5
  float head_scale = 1.0f;     // H^-0.5, if the weights do not have it yet
};

// Rows are converted to float32, transformed, and rounded once to what is asked for, to nearest even; codes
// saturate, NaN stays NaN, amax is that of the numbers. A row's bits depend on the row and on the target
// only, never on the other rows or on the number of workers. O(T * H * D), with a Hadamard matrix
// O(T * H * D log D); no workspace.
// Refuses, before anything is written: null data, extents that differ, strides smaller than a row,
// misaligned data, both or neither of out and codes for a given q, q_scales without codes, weights without
// weights_out and the reverse, a transform that does not fit rows of D columns (a rope wider than they are,
// norm vectors of another length, a Hadamard matrix whose D is no power of two, eps that is negative or not
// finite), positions outside of the rope's table, scales that are not finite, and outputs that overlap an
// input or one another, other than in place.
LATHE_API Status PrepareQueries(const QueryPrepArgs& args, const QueryPrepOptions& options = {},
                                const Executor& executor = {}) noexcept;

}  // namespace lathe

#endif  // LATHE_QUERY_PREP_H_
