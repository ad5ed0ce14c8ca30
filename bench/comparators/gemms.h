// SPDX-License-Identifier: Apache-2.0
// The two matrix products of attention, by a library.
#ifndef LATHE_BENCH_COMPARATORS_GEMMS_H_
#define LATHE_BENCH_COMPARATORS_GEMMS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lathe/base/types.h"

namespace lathe::bench {

struct GemmShape {
  int64_t rows, keys, head_dim, v_dim;
  DType type;      // of queries, keys and weights: float32 or bfloat16
  size_t threads;  // of the library
};

// Used by one thread, the one that made it. Rows are dense; sums are float32.
class Gemms {
 public:
  virtual ~Gemms() = default;
  // Before a number of products: sets the library's threads.
  virtual void Begin() = 0;
  // scores[rows, keys] = q[rows, head_dim] * keys[keys, head_dim]^T
  virtual void Scores(const std::byte* q, const std::byte* keys, float* scores) = 0;
  // out[rows, v_dim] += weights[rows, keys] * keys[:, 0 : v_dim]
  virtual void AddValues(const std::byte* weights, const std::byte* keys, float* out) = 0;
};

// Null where the library has no such product.
using MakeGemms = std::unique_ptr<Gemms> (*)(const GemmShape& shape);

std::unique_ptr<Gemms> MakeOneDnnGemms(const GemmShape& shape);
std::string DescribeOneDnn();
std::unique_ptr<Gemms> MakeOpenBlasGemms(const GemmShape& shape);
std::string DescribeOpenBlas();

}  // namespace lathe::bench

#endif  // LATHE_BENCH_COMPARATORS_GEMMS_H_
