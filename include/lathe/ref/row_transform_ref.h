// SPDX-License-Identifier: Apache-2.0
// Row transforms (base/row_transform.h) in double precision, written from the formulas.
#ifndef LATHE_REF_ROW_TRANSFORM_REF_H_
#define LATHE_REF_ROW_TRANSFORM_REF_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lathe/base/row_transform.h"
#include "lathe/ref/elements.h"

namespace lathe::ref {

inline std::vector<double> NormRow(const RowNorm& norm, std::vector<double> row) {
  if (norm.kind == NormKind::kNone) return row;
  const auto n = static_cast<double>(row.size());
  double mean = 0.0, variance = 0.0;
  if (norm.kind == NormKind::kLayer) {
    for (const double x : row) mean += x / n;
  }
  for (const double x : row) variance += (x - mean) * (x - mean) / n;
  const double deviation = std::sqrt(variance + static_cast<double>(norm.eps));
  for (size_t i = 0; i < row.size(); ++i) {
    const auto c = static_cast<int64_t>(i);
    row[i] = (row[i] - mean) / deviation;
    if (!norm.weight.empty()) row[i] *= At(norm.weight, c);
    if (!norm.bias.empty()) row[i] += At(norm.bias, c);
  }
  return row;
}

inline std::vector<double> RopeRow(const Rope& rope, int64_t position, std::vector<double> row) {
  if (!rope.is_given()) return row;
  const auto dim = static_cast<size_t>(rope.dim());
  const size_t first = rope.leading ? 0 : row.size() - dim;
  for (size_t i = 0; i < dim / 2; ++i) {
    const double cos = At(rope.cos, position, static_cast<int64_t>(i));
    const double sin = At(rope.sin, position, static_cast<int64_t>(i)) * (rope.inverse ? -1 : 1);
    double& a = row[first + (rope.interleaved ? 2 * i : i)];
    double& b = row[first + (rope.interleaved ? 2 * i + 1 : i + dim / 2)];
    const double rotated = a * cos - b * sin;
    b = b * cos + a * sin;
    a = rotated;
  }
  return row;
}

// By the whole matrix.
inline std::vector<double> HadamardRow(const std::vector<double>& row) {
  std::vector<double> product(row.size());
  for (size_t i = 0; i < row.size(); ++i) {
    for (size_t j = 0; j < row.size(); ++j) {
      bool is_negative = false;
      for (size_t common = i & j; common != 0; common &= common - 1) is_negative = !is_negative;
      product[i] += is_negative ? -row[j] : row[j];
    }
    product[i] /= std::sqrt(static_cast<double>(row.size()));
  }
  return product;
}

inline std::vector<double> TransformRow(const RowTransform& transform, int64_t position,
                                        std::vector<double> row) {
  row = RopeRow(transform.rope, position, NormRow(transform.norm, row));
  if (transform.hadamard) row = HadamardRow(row);
  if (transform.round_to_bfloat16) {
    for (double& x : row) {
      x = static_cast<double>(ToFloat(FromFloat<bfloat16>(static_cast<float>(x))));
    }
  }
  return row;
}

}  // namespace lathe::ref

#endif  // LATHE_REF_ROW_TRANSFORM_REF_H_
