// SPDX-License-Identifier: Apache-2.0
// Whole results against the double reference.
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
#include "support/bounds.h"

namespace lathe::test {

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
