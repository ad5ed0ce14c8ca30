// SPDX-License-Identifier: Apache-2.0
// Codes of 4 and 8 bits into rows of float or bfloat16, times the scales of their tiles.
//
//   codes   | c0 | c1 | c2 | c3 | ...    one vector of bytes
//   low     | l0 | l1 | l2 | l3 | ...    the two bytes of each as a bfloat16, which is exact: by a
//   high    | h0 | h1 | h2 | h3 | ...    table, or by shifts and a table of the subnormals
//   row     | h0 l0 | h1 l1 | ...        interleaved: bfloat16; with 16 zero bits more, float
//
// Only integer operations and shuffles: subnormal codes do not meet arithmetic that may flush them,
// and no value is a float subnormal before it is scaled. The usual shift into a float's exponent
// and multiplication by 2^120 lost: it feeds float subnormals to the multiplier, which
// flush-to-zero makes 0 and which some CPUs take in microcode, and its NaN code is 480.
#if defined(LATHE_CACHE_DECODE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_CACHE_DECODE_INL_H_
#undef LATHE_CACHE_DECODE_INL_H_
#else
#define LATHE_CACHE_DECODE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lathe/base/types.h"
#include "lathe/cache/code_tables.h"
#include "lathe/cache/scale_rules.h"
#include "lathe/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// Scales of a decoder that has none.
struct Unscaled {
  static constexpr bool kScales = false;
  float At(int64_t) const { return 1.0f; }
};

// Scales of a decoder, one for each kTile columns. kIsExact: products are bfloat16 numbers and need no rounding.
template <int64_t kTile, bool kExact>
struct TileScales {
  static constexpr bool kScales = true;
  static constexpr bool kIsExact = kExact;
  const float* scales;

  float At(int64_t column) const { return scales[column / kTile]; }

  // The scales of a vector whose lanes stand for kColumns columns each, beginning at `column`.
  template <int64_t kColumns>
  LATHE_INLINE VF Lanes(int64_t column) const {
    const F32 d;
    if constexpr (kLanes * kColumns <= kTile) {
      return hn::Set(d, scales[column / kTile]);
    } else {
      static_assert(kLanes * kColumns == 2 * kTile);
      return hn::ConcatUpperLower(d, hn::Set(d, scales[column / kTile + 1]),
                                  hn::Set(d, scales[column / kTile]));
    }
  }
};

template <class Code, class D>
LATHE_INLINE hn::Vec<D> LoadCodes(D d, const std::byte* codes, int64_t i) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(codes);
  if constexpr (std::is_same_v<Code, float4_e2m1>) {
    const hn::RepartitionToWide<D> d16;
    const hn::Rebind<uint8_t, decltype(d16)> dhalf;
    const auto pairs = hn::PromoteTo(d16, hn::LoadU(dhalf, bytes + i / 2));
    return hn::BitCast(
        d, hn::And(hn::Or(pairs, hn::ShiftLeft<4>(pairs)), hn::Set(d16, uint16_t{0x0F0F})));
  } else {
    return hn::LoadU(d, bytes + i);
  }
}

// table[index], index < kCount <= 16.
template <int kCount, class D>
LATHE_INLINE hn::Vec<D> LookUp(D d, const uint8_t* table, hn::Vec<D> index) {
#if HWY_TARGET == HWY_SSE2  // has no byte shuffle
  auto result = hn::Zero(d);
  for (int i = 0; i < kCount; ++i) {
    const auto is_index = hn::Eq(index, hn::Set(d, static_cast<uint8_t>(i)));
    result = hn::Or(result, hn::IfThenElseZero(is_index, hn::Set(d, table[i])));
  }
  return result;
#else
  return hn::TableLookupBytes(hn::LoadDup128(d, table), index);
#endif
}

// Magnitudes of 7 bits by arithmetic:  bfloat16 = magnitude << (7 - M) + (127 - bias) << 7, in
// bytes.
template <class Code, class D>
LATHE_INLINE void DecodeMagnitudes(D d, hn::Vec<D> magnitude, hn::Vec<D>& low, hn::Vec<D>& high) {
  using F = detail::FormatOf<Code>;
  constexpr int kM = F::kNumMantissaBits;
  // An odd exponent offset would carry from the low byte; one exponent step taken from it is even.
  constexpr int kOffset = detail::kFloatBias - F::kExponentBias;
  auto moved = magnitude;
  if constexpr (kOffset % 2 != 0) moved = hn::Add(moved, hn::Set(d, uint8_t{1 << kM}));
  low = hn::ShiftLeft<7 - kM>(moved);
  high = hn::Add(hn::ShiftRight<1 + kM>(moved), hn::Set(d, static_cast<uint8_t>(kOffset / 2)));
  if constexpr (F::kLargest < 0x7F) {  // infinities and NaN; their mantissas are in place
    const auto is_special = hn::Gt(magnitude, hn::Set(d, static_cast<uint8_t>(F::kLargest)));
    high = hn::IfThenElse(is_special, hn::Set(d, uint8_t{0x7F}), high);
  }
  constexpr int kSubnormals = 1 << kM;
  const auto is_subnormal = hn::Lt(magnitude, hn::Set(d, uint8_t{kSubnormals}));
  const auto index = hn::And(magnitude, hn::Set(d, uint8_t{kSubnormals - 1}));
  const auto& tables = detail::kCodeTables<Code>;
  low = hn::IfThenElse(is_subnormal, LookUp<kSubnormals>(d, tables.low, index), low);
  high = hn::IfThenElse(is_subnormal, LookUp<kSubnormals>(d, tables.high, index), high);
}

template <class Code, class D>
LATHE_INLINE void DecodeBytes(D d, hn::Vec<D> codes, hn::Vec<D>& low, hn::Vec<D>& high) {
  const auto& tables = detail::kCodeTables<Code>;
  if constexpr (std::is_same_v<Code, float4_e2m1>) {
    low = LookUp<16>(d, tables.low, codes);
    high = LookUp<16>(d, tables.high, codes);
    return;
  }
  const auto magnitude = hn::And(codes, hn::Set(d, uint8_t{0x7F}));
  constexpr bool kHasByteTables =
      HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL && HWY_MAX_LANES_D(D) == 64;
  if constexpr (kHasByteTables) {  // a table of 128 bytes is two vectors
    const auto index = hn::IndicesFromVec(d, magnitude);
    low = hn::TwoTablesLookupLanes(d, hn::Load(d, tables.low), hn::Load(d, tables.low + 64), index);
    high =
        hn::TwoTablesLookupLanes(d, hn::Load(d, tables.high), hn::Load(d, tables.high + 64), index);
  } else {
    DecodeMagnitudes<Code>(d, magnitude, low, high);
  }
  high = hn::OrAnd(high, codes, hn::Set(d, uint8_t{0x80}));
  if constexpr (detail::FormatOf<Code>::kNanReplacesNegativeZero) {
    const auto is_nan = hn::Eq(codes, hn::Set(d, uint8_t{0x80}));
    low = hn::IfThenElse(is_nan, hn::Set(d, uint8_t{0xFF}), low);
    high = hn::IfThenElse(is_nan, hn::Set(d, uint8_t{0x7F}), high);
  }
}

// Even and odd columns as floats in one word each, to bfloat16 in order.
template <bool kIsExact>
LATHE_INLINE VU PackPairs(VF even, VF odd) {
  const U32 du;
  const VU upper = hn::Set(du, 0xFFFF0000u);
  if constexpr (kIsExact) {
    return hn::OrAnd(hn::ShiftRight<16>(hn::BitCast(du, even)), hn::BitCast(du, odd), upper);
  } else {
#if HWY_ARCH_X86 && HWY_NATIVE_DOT_BF16
    // The instruction flushes float subnormals, which products of a key with a query never notice.
    const hn::Repartition<hwy::bfloat16_t, F32> dbf;
    const hn::Repartition<uint16_t, F32> d16;
    const auto halves = hn::BitCast(d16, hn::OrderedDemote2To(dbf, even, odd));
    return hn::BitCast(
        du, hn::InterleaveWholeLower(d16, halves, hn::ConcatUpperUpper(d16, halves, halves)));
#else
    return hn::OrAnd(hn::ShiftRight<16>(RoundToBFloat16(even)), RoundToBFloat16(odd), upper);
#endif
  }
}

// Columns [c, c + 2 * lanes of float), given as bfloat16.
template <class D16, class Scales>
LATHE_INLINE void StoreDecoded(D16 d16, hn::Vec<D16> values, const Scales& scales, int64_t c,
                               bfloat16* row) {
  if constexpr (Scales::kScales) {
    const VF scale = scales.template Lanes<2>(c);
    const VU pairs = hn::BitCast(U32(), values);
    values = hn::BitCast(d16, PackPairs<Scales::kIsExact>(hn::Mul(EvenFloats(pairs), scale),
                                                          hn::Mul(OddFloats(pairs), scale)));
  }
  hn::StoreU(values, d16, &row[c].bits);
}

template <class D16, class Scales>
LATHE_INLINE void StoreDecoded(D16 d16, hn::Vec<D16> values, const Scales& scales, int64_t c,
                               float* row) {
  const hn::RepartitionToWide<D16> du;
  const hn::RebindToFloat<decltype(du)> df;
  const auto n = static_cast<int64_t>(HWY_MAX_LANES_D(decltype(df)));
  const auto zero = hn::Zero(d16);
  auto first = hn::BitCast(df, hn::InterleaveWholeLower(d16, zero, values));
  auto second = hn::BitCast(df, hn::InterleaveWholeUpper(d16, zero, values));
  if constexpr (Scales::kScales) {
    first = hn::Mul(first, scales.template Lanes<1>(c));
    second = hn::Mul(second, scales.template Lanes<1>(c + n));
  }
  hn::StoreU(first, df, row + c);
  hn::StoreU(second, df, row + c + n);
}

// Whole vectors from column c on; returns the column after the last one.
template <class Code, class D, class Scales, class Element>
int64_t DecodeVectors(D d, const std::byte* codes, int64_t c, int64_t n, const Scales& scales,
                      Element* HWY_RESTRICT row) {
  const hn::RepartitionToWide<D> d16;
  constexpr auto kStep = static_cast<int64_t>(HWY_MAX_LANES_D(D));
  for (const int64_t end = c + (n - c) / kStep * kStep; c < end; c += kStep) {
    hn::Vec<D> low, high;
    DecodeBytes<Code>(d, LoadCodes<Code>(d, codes, c), low, high);
    const auto first = hn::BitCast(d16, hn::InterleaveWholeLower(d, low, high));
    const auto second = hn::BitCast(d16, hn::InterleaveWholeUpper(d, low, high));
    StoreDecoded(d16, first, scales, c, row);
    StoreDecoded(d16, second, scales, c + kStep / 2, row);
  }
  return c;
}

// row[i] = code i * scales.At(i), i < n.
template <class Code, class Scales, class Element>
void DecodeCodes(const std::byte* codes, int64_t n, const Scales& scales, Element* row) {
  const hn::Repartition<uint8_t, F32> d;
  int64_t c = DecodeVectors<Code>(d, codes, 0, n, scales, row);
  if constexpr (!Scales::kScales && HWY_MAX_LANES_D(decltype(d)) > 32) {
    c = DecodeVectors<Code>(hn::Half<decltype(d)>(), codes, c, n, scales, row);
  }
  for (; c < n; ++c) {
    row[c] = FromFloat<Element>(detail::DecodeAt<Code>(codes, c) * scales.At(c));
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
