// SPDX-License-Identifier: Apache-2.0
// Narrow codes as bfloat16 numbers, in two tables of bytes for byte shuffles. Every code of at most
// 8 bits with at most 7 mantissa bits is exactly a bfloat16.
#ifndef LATHE_CACHE_CODE_TABLES_H_
#define LATHE_CACHE_CODE_TABLES_H_

#include <cstdint>

#include "lathe/base/types.h"

namespace lathe {
namespace detail {

// Bits 16..23 and 24..31 of ToFloat(Code{i}). Codes of 8 bits: the magnitudes. Codes of 4 bits: the
// first 16 entries are all codes.
struct CodeTables {
  alignas(64) uint8_t low[128];
  alignas(64) uint8_t high[128];
};

template <class Code>
constexpr CodeTables MakeCodeTables() noexcept {
  CodeTables tables = {};
  for (unsigned i = 0; i < 128; ++i) {
    const uint32_t bits = BitsOf(ToFloat(Code{static_cast<uint8_t>(i)}));
    tables.low[i] = static_cast<uint8_t>(bits >> 16);
    tables.high[i] = static_cast<uint8_t>(bits >> 24);
  }
  return tables;
}

template <class Code>
inline constexpr CodeTables kCodeTables = MakeCodeTables<Code>();

}  // namespace detail
}  // namespace lathe

#endif  // LATHE_CACHE_CODE_TABLES_H_
