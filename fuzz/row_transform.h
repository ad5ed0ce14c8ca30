// SPDX-License-Identifier: Apache-2.0
// Norm, rope and Hadamard matrix, as a fuzzer's bytes have them.
#ifndef LATHE_FUZZ_ROW_TRANSFORM_H_
#define LATHE_FUZZ_ROW_TRANSFORM_H_

#include "fuzz_input.h"

namespace lathe::fuzz {

// Angles for rows of `width` >= 2 columns at positions below `num_positions`.
inline Rope MakeRope(Input& in, Arrays& arrays, int64_t width, int64_t num_positions) {
  Rope rope;
  const int64_t pairs = in.Int(1, width < 80 ? width / 2 : 40);
  rope.cos = arrays.FloatInput<2>({num_positions, pairs}, DTypeOf(in));
  rope.sin = arrays.FloatInput<2>({num_positions, pairs}, DTypeOf(in));
  rope.interleaved = in.Flip();
  rope.leading = in.Flip();
  rope.inverse = in.Flip();
  return rope;
}

// Of rows whose norm spans `norm_width` columns and whose rope lies in `rope_width`; both are the row where these
// are the same.
inline RowTransform MakeTransform(Input& in, Arrays& arrays, int64_t norm_width, int64_t rope_width,
                                  int64_t num_positions) {
  RowTransform transform;
  if (in.Flip()) {
    transform.norm.kind = in.Flip() ? NormKind::kRms : NormKind::kLayer;
    transform.norm.eps = in.Absurd(32) ? in.Pick({-1.0f, NAN, INFINITY}) : 1e-3f;
    if (in.Flip()) transform.norm.weight = arrays.FloatInput<1>({norm_width}, DTypeOf(in));
    const bool takes_bias = transform.norm.kind == NormKind::kLayer || in.Absurd(8);
    if (takes_bias && in.Flip())
      transform.norm.bias = arrays.FloatInput<1>({norm_width}, DTypeOf(in));
  }
  if (in.Flip() && rope_width > 1) transform.rope = MakeRope(in, arrays, rope_width, num_positions);
  const bool is_possible = norm_width == rope_width && (norm_width & (norm_width - 1)) == 0;
  transform.hadamard = in.Flip() && (is_possible || in.Absurd(4));
  return transform;
}

}  // namespace lathe::fuzz

#endif  // LATHE_FUZZ_ROW_TRANSFORM_H_
