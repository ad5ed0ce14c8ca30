// SPDX-License-Identifier: Apache-2.0
// RowTransform: what a model does to a row of a query, key or compressed entry between the projection that
// makes it and the place that keeps it.
#ifndef LATHE_BASE_ROW_TRANSFORM_H_
#define LATHE_BASE_ROW_TRANSFORM_H_

#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/rope.h"
#include "lathe/base/view.h"

namespace lathe {

// Numbers of the ABI.
enum class NormKind : uint8_t { kNone = 0, kRms = 1, kLayer = 2 };

// What becomes of a row x of D columns; sums and means are over all of them:
//
//   kRms    x / sqrt(mean(x^2) + eps) * weight                             (arXiv 1910.07467)
//   kLayer  (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias  (arXiv 1607.06450)
//
//   weight  [D] float32, float16 or bfloat16, innermost stride 1. Not given (extent 0): 1, as in the
//           per-head norm of DeepSeek-V4's queries
//   bias    [D] of any of these types; not given: 0. kLayer alone has one
//   eps     finite, 0 or more. With 0, a row of zeros becomes NaN: it is 0 / 0
struct RowNorm {
  NormKind kind = NormKind::kNone;
  In<1> weight = {};
  In<1> bias = {};
  float eps = 1e-6f;
};

// In this order, each step only if asked for, all in float32:
//
//   norm                over all columns
//   rope                of the first or last columns (rope.h), at the row's position
//   hadamard            row * H / sqrt(D), H the +-1 matrix with H(i, j) = (-1)^popcount(i & j) (Sylvester's);
//                       D a power of two. It spreads outliers over the columns before quantisation, and is
//                       its own inverse (DeepSeek-V3.2's indexer)
//   round_to_bfloat16   to nearest even: what is quantised by a chain of kernels over bfloat16 tensors
//
// A NaN stays in the columns that depend on it: all of them under norm or Hadamard, a pair under rope.
struct RowTransform {
  RowNorm norm = {};
  Rope rope = {};
  bool hadamard = false;
  bool round_to_bfloat16 = false;

  // Nothing is asked for.
  LATHE_INLINE constexpr bool is_identity() const noexcept {
    return norm.kind == NormKind::kNone && !rope.is_given() && !hadamard && !round_to_bfloat16;
  }
};

// The widest row that is transformed: it lies on the stack meanwhile.
constexpr int64_t kMaxTransformWidth = 4096;

}  // namespace lathe

#endif  // LATHE_BASE_ROW_TRANSFORM_H_
