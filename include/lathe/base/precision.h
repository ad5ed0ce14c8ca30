// SPDX-License-Identifier: Apache-2.0
// Precision: which products of queries with keys an operation may take. Sums are float32 always.
#ifndef LATHE_BASE_PRECISION_H_
#define LATHE_BASE_PRECISION_H_

#include <cstdint>

namespace lathe {

enum class Precision : uint8_t {
  // bf16 products where they round nothing: where the query is bfloat16 (or narrower) and so are all values
  // of the cache's format, or its codes, whose scales attention applies itself. Else float32: for float32 and float16
  // caches, and in an indexer for kFp8DsMla, whose keys are products with any float.
  kAuto,
  // bf16 products for every cache but float32 and float16: a query of another type, and an indexer's keys of
  // kFp8DsMla (exact where its scales are powers of two), are rounded once. The fastest.
  kBFloat16,
  // float32 products on every target.
  kFloat32,
};

}  // namespace lathe

#endif  // LATHE_BASE_PRECISION_H_
