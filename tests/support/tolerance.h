// SPDX-License-Identifier: Apache-2.0
// The one place that says how close results must be to the double reference (SEMANTICS 2).
#ifndef LATHE_TESTS_SUPPORT_TOLERANCE_H_
#define LATHE_TESTS_SUPPORT_TOLERANCE_H_

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "lathe/base/types.h"
#include "lathe/base/view.h"

namespace lathe::test {

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

// Rows of `width` values. Requires every element within its bound, NaN and infinities in the same
// places, and on bf16 paths the direction of each whole row: 1 - cosine <= 5e-6.
template <class Values>
void RequireOut(const Values& values, const std::vector<double>& reference, size_t width,
                Bounds bounds) {
  REQUIRE(values.size() == reference.size());
  for (size_t row = 0; row < reference.size() / width; ++row) {
    double row_max = 0.0;
    for (size_t c = 0; c < width; ++c) {
      const double r = reference[row * width + c];
      if (std::isfinite(r)) row_max = std::max(row_max, std::abs(r));
    }
    double dot = 0.0, value_norm = 0.0, reference_norm = 0.0;
    for (size_t c = 0; c < width; ++c) {
      const double v = ToFloat(values[row * width + c]);
      const double r = reference[row * width + c];
      if (!Matches(v, r, OutTolerance(bounds, r, row_max))) {
        INFO("row " << row << " column " << c << ": " << v << " instead of " << r);
        REQUIRE(Matches(v, r, OutTolerance(bounds, r, row_max)));
      }
      dot += v * r;
      value_norm += v * v;
      reference_norm += r * r;
    }
    const double norm = std::sqrt(value_norm * reference_norm);
    if (bounds.out != DType::kFloat32 || !(norm > 0.0) || !std::isfinite(norm)) continue;
    INFO("row " << row);
    REQUIRE(1.0 - dot / norm <= 5e-6);
  }
}

template <class Values>
void RequireLse(const Values& values, const std::vector<double>& reference, Bounds bounds) {
  REQUIRE(values.size() == reference.size());
  for (size_t i = 0; i < reference.size(); ++i) {
    const auto v = static_cast<double>(values[i]);
    if (Matches(v, reference[i], LseTolerance(bounds, reference[i]))) continue;
    INFO("lse " << i << ": " << v << " instead of " << reference[i]);
    REQUIRE(Matches(v, reference[i], LseTolerance(bounds, reference[i])));
  }
}

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_TOLERANCE_H_
