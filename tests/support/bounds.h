// SPDX-License-Identifier: Apache-2.0
// The one place that says how close results must be to the double reference (SEMANTICS 2).
#ifndef LATHE_TESTS_SUPPORT_BOUNDS_H_
#define LATHE_TESTS_SUPPORT_BOUNDS_H_

#include <algorithm>
#include <cmath>

#include "lathe/cache/formats.h"
#include "lathe/lathe.h"

namespace lathe::test {

inline bool HasNativeBf16(Target target) {
  for (const TargetInfo& info : Targets()) {
    if (info.target == target) return info.native_bf16;
  }
  return false;
}

// Products of bfloat16 are expected exactly where docs/numerics.md says that they are used.
inline bool HasBf16Products(const MlaDecodeOptions& options, const MlaDecodeArgs& args) {
  const Target target = options.target == Target::kAuto ? BestTarget() : options.target;
  if (options.precision == Precision::kFloat32 || !HasNativeBf16(target)) return false;
  bool is_never = false, is_exact = true;
  for (const KeySet* keys : {&args.keys, &args.extra_keys}) {
    if (!keys->is_given()) continue;
    const BFloat16Rows rows = BFloat16UnscaledRowsOf(keys->cache.format);
    is_never = is_never || rows == BFloat16Rows::kNever;
    is_exact = is_exact && rows == BFloat16Rows::kExact;
  }
  if (is_never) return false;
  if (options.precision == Precision::kBFloat16) return true;
  for (const In<3>* part : {&args.q, &args.q_nope, &args.q_pe}) {
    is_exact = is_exact && (part->extent[2] == 0 || part->dtype == DType::kBFloat16);
  }
  return is_exact;
}

// Which products made a result, and what it was stored as.
struct Bounds {
  bool is_bf16_path = false;
  DType out = DType::kFloat32;
};

// One output element against its reference. `row_max` is the largest |reference| of its row:
// float32 sums of cancelling terms are accurate relative to the terms, not to what is left of them.
inline double OutTolerance(Bounds bounds, double reference, double row_max) {
  double tolerance = bounds.is_bf16_path ? std::max(8e-4, std::abs(reference) * 2.01 / 128)
                                         : 1e-5 * std::max(std::abs(reference), row_max);
  if (bounds.out == DType::kBFloat16) tolerance += std::abs(reference) / 256;
  if (bounds.out == DType::kFloat16) tolerance += std::abs(reference) / 2048 + 3e-8;
  return tolerance;
}

inline double LseTolerance(Bounds bounds, double reference) {
  return bounds.is_bf16_path ? std::max(1e-6, std::abs(reference) * 8.01 / 65536)
                             : 1e-5 * std::max(1.0, std::abs(reference));
}

// The right answers of CASES.md are exact in every format, so that they can be held to narrower
// bounds.
inline double KnownOutTolerance(Bounds bounds, double known) {
  const bool is_rounded = bounds.is_bf16_path || bounds.out == DType::kBFloat16;
  return std::abs(known) * (is_rounded ? 1.0 / 256 : 1e-5);
}
inline double KnownLseTolerance(Bounds bounds, double known) {
  return std::min(LseTolerance(bounds, known), std::max(1e-3, 1e-5 * std::abs(known)));
}

inline bool Matches(double value, double reference, double tolerance) {
  if (std::isnan(reference)) return std::isnan(value);
  if (std::isinf(reference)) return value == reference;
  return std::abs(value - reference) <= tolerance;
}

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_BOUNDS_H_
