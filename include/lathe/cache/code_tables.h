// SPDX-License-Identifier: Apache-2.0
// Tables of bytes for byte shuffles: narrow codes as bfloat16 numbers, and bfloat16 numbers as codes. Every
// code of at most 8 bits with at most 7 mantissa bits is exactly a bfloat16.
#ifndef LATHE_CACHE_CODE_TABLES_H_
#define LATHE_CACHE_CODE_TABLES_H_

#include <cstdint>

#include "lathe/base/types.h"

namespace lathe::detail {

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
LATHE_HIDDEN inline constexpr CodeTables kCodeTables = MakeCodeTables<Code>();

// What rounds bfloat16 magnitudes to codes, for lookups by 6 bits. Counted from half of the least code on,
// a magnitude is [steps | dropped], steps being as fine as normal codes.
//
//   normal[last bit of steps | dropped]    what is added to steps for the code
//   inexact[last bit of steps | dropped]   kInexact where anything is dropped
//   subnormal[inexact | steps]             the code, where there are fewer than kSubnormalSteps
struct RoundingTables {
  alignas(64) uint8_t normal[64];
  alignas(64) uint8_t inexact[64];
  alignas(64) uint8_t subnormal[64];
};

constexpr uint8_t kInexact = 32;
template <class Code>
LATHE_HIDDEN inline constexpr uint8_t kSubnormalSteps = (FormatOf<Code>::kNumMantissaBits + 1)
                                                        << FormatOf<Code>::kNumMantissaBits;

template <class Code>
constexpr RoundingTables MakeRoundingTables() noexcept {
  constexpr int kMantissaBits = FormatOf<Code>::kNumMantissaBits;
  constexpr int kDropped = FormatOf<bfloat16>::kNumMantissaBits - kMantissaBits;
  constexpr uint32_t kLeastCode = 1u << kMantissaBits;
  static_assert(kDropped < 6 && kSubnormalSteps<Code> <= kInexact);
  constexpr uint32_t kHalf = BitsOf(ToFloat(Code{1}) / 2) >> 16;
  RoundingTables tables = {};
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t rounded = ShiftRightNearestEven(i, kDropped) - (i >> kDropped);
    tables.normal[i] = static_cast<uint8_t>(rounded + kLeastCode - kSubnormalSteps<Code>);
    tables.inexact[i] = i % (1u << kDropped) != 0 ? kInexact : uint8_t{0};
    const uint32_t magnitude = kHalf + (i % kInexact << kDropped) + i / kInexact;
    tables.subnormal[i] = FromFloat<Code>(FloatOf(magnitude << 16)).bits;
  }
  return tables;
}

template <class Code>
LATHE_HIDDEN inline constexpr RoundingTables kRoundingTables = MakeRoundingTables<Code>();

}  // namespace lathe::detail

#endif  // LATHE_CACHE_CODE_TABLES_H_
