// SPDX-License-Identifier: Apache-2.0
// Columns into codes of 4 and 8 bits, bit for bit as the scalar codecs of base/types.h, whatever flushes.
//
//   source    | x0 | x1 | ...     two vectors of columns
//   quotients | q0 | q1 | ...     bfloat16: x itself if it is that and the scale a power of two, else
//                                 x / scale, rounded to odd
//   codes     | c0 | c1 | ...     16 bits each, then packed, then given the signs
//
// Rounding to odd (inexact: the neighbour whose last bit is 1) keeps on which side of a midpoint of
// codes a number lies, so the second rounding is right, and everything that narrows is written once.
#if defined(LATHE_CACHE_ENCODE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_CACHE_ENCODE_INL_H_
#undef LATHE_CACHE_ENCODE_INL_H_
#else
#define LATHE_CACHE_ENCODE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lathe/base/types.h"
#include "lathe/cache/code_tables.h"
#include "lathe/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using U16x2 = hn::Repartition<uint16_t, F32>;  // two columns in place of a float
using I16x2 = hn::RebindToSigned<U16x2>;
using U8x4 = hn::Repartition<uint8_t, F32>;
using V16 = hn::Vec<U16x2>;
constexpr int64_t kQuotientsAtOnce = 2 * kLanes;
constexpr int64_t kCodesAtOnce = 2 * kQuotientsAtOnce;  // a vector of bytes

// Mantissa bits that bfloat16 has more than a code, and the least code that is not subnormal.
template <class Code>
constexpr int kDropped = 7 - detail::FormatOf<Code>::kNumMantissaBits;
template <class Code>
constexpr uint32_t kLeastCode = 1u << detail::FormatOf<Code>::kNumMantissaBits;

// A power of two as scale is given by its origin: the bfloat16 that becomes the least normal code, less
// what rounding adds. `field`: the exponent field that the scale has as a float.
template <class Code>
constexpr uint32_t kHalfLess1 = (1u << (kDropped<Code> - 1)) - 1;
template <class Code>
constexpr uint32_t OriginOf(uint32_t field) {
  return ((field + 1 - static_cast<uint32_t>(detail::FormatOf<Code>::kExponentBias)) << 7) -
         kHalfLess1<Code>;
}

// Bits above the origin, rounded to nearest even in units of 2^kDropped: codes less the least normal
// one. A carry out of the mantissa reaches the exponent field by itself.
template <class Code>
LATHE_INLINE V16 RoundedAbove(V16 origin, V16 bits) {
  const U16x2 d;
  const auto is_odd = hn::TestBit(bits, hn::Set(d, uint16_t{1u << kDropped<Code>}));
  const V16 sum = hn::Sub(bits, origin);
  return hn::MaskedAddOr(sum, is_odd, sum, hn::Set(d, uint16_t{1}));
}

// Subnormal codes less the least normal one, in the low bytes: added to a float whose last place is
// the least code, a number is rounded to that. float's own subnormals are nothing beside it, flushed
// or not.
template <class Code>
LATHE_INLINE V16 SubnormalCodes(V16 origin, V16 magnitude) {
  const U16x2 d;
  const U32 du;
  const F32 df;
  constexpr uint32_t kAnchor =
      (kHalfLess1<Code> << 16) +
      (uint32_t{detail::FormatOf<Code>::kDroppedBits} << detail::kFloatMantissaBits) +
      (256 - kLeastCode<Code>);
  const VU least = hn::ShiftLeft<16>(hn::BitCast(du, origin));
  const VF anchor = hn::BitCast(df, hn::Add(least, hn::Set(du, kAnchor)));
  const VU pairs = hn::BitCast(du, magnitude);
  const VU odd_sum = hn::ShiftLeft<16>(hn::BitCast(du, hn::Add(OddFloats(pairs), anchor)));
  return hn::OddEven(hn::BitCast(d, odd_sum), hn::BitCast(d, hn::Add(EvenFloats(pairs), anchor)));
}

// The low bytes.
LATHE_INLINE hn::Vec<U8x4> PackLower(const V16 (&v)[2]) {
  const U8x4 d;
  return hn::ConcatEven(d, hn::BitCast(d, v[1]), hn::BitCast(d, v[0]));
}

// Codes of any numbers less the least normal one, in the low bytes, without signs.
template <class Code>
LATHE_INLINE void EncodeAny(const V16 (&origins)[2], const V16 (&bits)[2], V16 (&codes)[2]) {
  using F = detail::FormatOf<Code>;
  const U16x2 d;
  const I16x2 di;
  constexpr uint32_t kLeast = kLeastCode<Code>;
  constexpr uint32_t kLimit = ((F::kLargest - kLeast + 1) << kDropped<Code>)-1;
  const auto limit = hn::Set(di, int16_t{kLimit});
  V16 magnitudes[2];
  hn::Vec<I16x2> rounded[2];
  LATHE_UNROLL
  for (int i = 0; i < 2; ++i) {
    magnitudes[i] = hn::And(bits[i], hn::Set(d, uint16_t{0x7FFF}));
    const V16 above = RoundedAbove<Code>(origins[i], magnitudes[i]);
    rounded[i] = hn::BitCast(di, above);
    const V16 is_small = hn::BitCast(d, hn::BroadcastSignBit(rounded[i]));
    codes[i] = hn::IfVecThenElse(is_small, SubnormalCodes<Code>(origins[i], magnitudes[i]),
                                 hn::ShiftRight<kDropped<Code>>(above));
  }
  if (HWY_LIKELY(hn::AllFalse(di, hn::Gt(hn::Max(rounded[0], rounded[1]), limit)))) return;
  for (int i = 0; i < 2; ++i) {
    const auto is_large = hn::RebindMask(d, hn::Gt(rounded[i], limit));
    const auto is_nan = hn::Gt(magnitudes[i], hn::Set(d, uint16_t{0x7F80}));
    const auto nan_code = hn::Set(d, static_cast<uint16_t>(F::kNanCode - kLeast));
    const auto largest = hn::Set(d, static_cast<uint16_t>(F::kLargest - kLeast));
    codes[i] = hn::IfThenElse(is_large, hn::IfThenElse(is_nan, nan_code, largest), codes[i]);
  }
}

// What EncodeAny gives, of numbers that are seldom anything but normal codes, and large only if they are NaN.
template <class Code>
LATHE_INLINE void EncodeFitting(const V16 (&origins)[2], const V16 (&bits)[2], V16 (&codes)[2]) {
  const U16x2 d;
  constexpr uint32_t kInside = (detail::FormatOf<Code>::kSign << kDropped<Code>)-1;
  const V16 first = RoundedAbove<Code>(origins[0], bits[0]);
  const V16 second = RoundedAbove<Code>(origins[1], bits[1]);
  codes[0] = hn::ShiftRight<kDropped<Code>>(first);
  codes[1] = hn::ShiftRight<kDropped<Code>>(second);
  const V16 outside =
      hn::And(hn::Or(first, second), hn::Set(d, static_cast<uint16_t>(0x7FFF - kInside)));
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Eq(outside, hn::Zero(d))))) {
    EncodeAny<Code>(origins, bits, codes);
  }
}

// EncodeAny by tables, to whole codes, as bytes: integers only, and subnormals cost a lookup. Where a table of 64 bytes is one instruction, and the last bit kept and those dropped are 6 at most.
template <class Code>
constexpr bool kEncodesByTables = HWY_ARCH_X86&& HWY_TARGET <= HWY_AVX3_DL&& kDropped<Code> < 6;
template <class Code>
LATHE_INLINE hn::Vec<U8x4> EncodeByTables(const V16 (&origins)[2], const V16 (&bits)[2]) {
  const U16x2 d;
  const U8x4 d8;
  constexpr uint32_t kSteps = detail::kSubnormalSteps<Code>;
  // From half of the least code to the origin, and to the largest numbers that need not be cut.
  constexpr uint32_t kToOrigin = (kSteps << kDropped<Code>)-kHalfLess1<Code>;
  constexpr uint32_t kNormal = detail::FormatOf<Code>::kLargest - kLeastCode<Code>;
  constexpr uint32_t kLimit = ((kNormal + kSteps) << kDropped<Code>)+kHalfLess1<Code>;
  V16 above[2], steps[2];
  LATHE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const V16 half = hn::Sub(origins[i], hn::Set(d, static_cast<uint16_t>(kToOrigin)));
    above[i] = hn::SaturatedSub(hn::And(bits[i], hn::Set(d, uint16_t{0x7FFF})), half);
    steps[i] = hn::ShiftRight<kDropped<Code>>(above[i]);
  }
  const auto look_up = [d8](const uint8_t* table, hn::Vec<U8x4> index) {
    const auto in_table = hn::And(index, hn::Set(d8, uint8_t{63}));
    return hn::TableLookupLanes(hn::Load(d8, table), hn::IndicesFromVec(d8, in_table));
  };
  const auto& tables = detail::kRoundingTables<Code>;
  const auto step = PackLower(steps), last = PackLower(above);
  const auto normal = hn::Add(step, look_up(tables.normal, last));
  const auto subnormal = look_up(tables.subnormal, hn::Or(step, look_up(tables.inexact, last)));
  const auto is_subnormal = hn::Lt(step, hn::Set(d8, uint8_t{kSteps}));
  auto codes = hn::IfThenElse(is_subnormal, subnormal, normal);
  // Last, so that compilers set constants before the loop.
  const auto limit = hn::Set(d, static_cast<uint16_t>(kLimit));
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Gt(hn::Max(above[0], above[1]), limit)))) {
    V16 any[2];
    EncodeAny<Code>(origins, bits, any);
    codes = hn::Add(PackLower(any), hn::Set(d8, uint8_t{kLeastCode<Code>}));
  }
  return codes;
}

// Whether a branch may decide if there are other than normal codes. Where a scale does not fit they come
// often enough not to be foreseen (fp8_e4m3 of normal numbers by 1 took twice the time), and e2m1
// has few codes that are not subnormal.
template <class Code, bool kFits>
constexpr bool kIsSeldomSubnormal = kFits&& std::is_same_v<Code, float8_e4m3fn>;

// A vector of codes from numbers by their origins. kFits: the scales fit their tiles.
template <class Code, bool kFits>
LATHE_INLINE hn::Vec<U8x4> EncodeColumns(const V16 (&origins)[2], const V16 (&bits)[2]) {
  using F = detail::FormatOf<Code>;
  const U8x4 d;
  constexpr bool kIsFitting = kIsSeldomSubnormal<Code, kFits>;
  constexpr bool kIsWhole = kEncodesByTables<Code> && !kIsFitting;
  hn::Vec<U8x4> code;
  if constexpr (kIsWhole) {
    code = EncodeByTables<Code>(origins, bits);
  } else {
    V16 codes[2];
    if constexpr (kIsFitting) {
      EncodeFitting<Code>(origins, bits, codes);
    } else {
      EncodeAny<Code>(origins, bits, codes);
    }
    code = PackLower(codes);
  }
  auto sign = hn::ConcatOdd(d, hn::BitCast(d, bits[1]), hn::BitCast(d, bits[0]));
  if constexpr (F::kSign == 0x08) {
    sign = hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(U16x2(), sign)));
  }
  [[maybe_unused]] const auto least = hn::Set(d, static_cast<uint8_t>(kLeastCode<Code>));
  const auto mask = hn::Set(d, static_cast<uint8_t>(F::kSign));
  if constexpr (F::kNanReplacesNegativeZero) {
    if constexpr (!kIsWhole) code = hn::Add(code, least);
    return hn::OrAnd(code, hn::IfThenZeroElse(hn::Eq(code, hn::Zero(d)), sign), mask);
  } else if constexpr (kIsWhole) {
    return hn::OrAnd(code, sign, mask);
  } else {
    return hn::Add(code, hn::OrAnd(least, sign, mask));
  }
}

// Codes, a byte each or two to a byte, the even column in the low nibble.
template <bool kPacked>
LATHE_INLINE void StoreCodes(hn::Vec<U8x4> codes, std::byte* to) {
  auto* bytes = reinterpret_cast<uint8_t*>(to);
  if constexpr (kPacked) {
    const hn::Rebind<uint8_t, U16x2> dhalf;
    const V16 pairs = hn::BitCast(U16x2(), codes);
    hn::StoreU(hn::TruncateTo(dhalf, hn::Or(pairs, hn::ShiftRight<4>(pairs))), dhalf, bytes);
  } else {
    hn::StoreU(codes, U8x4(), bytes);
  }
}

// Quotients of lanes that stand for kEach columns each, from column c on: by inverses that are exact, by division, or by
// an inverse in two floats.
template <class Scales>
struct ExactInverse {
  Scales inverses;
  template <int64_t kEach>
  LATHE_INLINE VF At(int64_t c, VF x) const {
    return hn::Mul(x, inverses.template Lanes<kEach>(c));
  }
};

template <class Scales>
struct Divisor {
  Scales scales;
  template <int64_t kEach>
  LATHE_INLINE VF At(int64_t c, VF x) const {
    return hn::Div(x, scales.template Lanes<kEach>(c));
  }
};

// Not quite the correctly rounded quotient, but one that has the same code. 1 / scale is a sum of two
// floats, so that less than 2^-44 of the quotient is wrong before the only rounding that matters. It
// could change a code only if the quotient were that near to a number half a unit in the last place
// from a midpoint m / 16 of two codes:
//   |X * 2^24 - S * (m * 2^20 +- 1)| <= 16       X, S: the 24 bits of x and of scale
// Modulo 2^20 it follows that S = k * 2^20 + c, |c| <= 16, and then, modulo 2^24, that c is not 0.
template <class Scales>
struct SplitInverse {
  Scales upper, lower;
  template <int64_t kEach>
  LATHE_INLINE VF At(int64_t c, VF x) const {
    return hn::MulAdd(x, upper.template Lanes<kEach>(c),
                      hn::Mul(x, lower.template Lanes<kEach>(c)));
  }
};

// The parts of a SplitInverse. `upper` is below the inverse so that `lower` is positive: zeros keep their signs and
// infinities do not become NaN.
LATHE_INLINE void SplitInverseOf(VF scale, VF& upper, VF& lower) {
  const U32 du;
  const F32 df;
  const VF one = hn::Set(df, 1.0f);
  const VF inverse = hn::Div(one, scale);
  upper = hn::BitCast(df, hn::Sub(hn::BitCast(du, inverse), hn::Set(du, 1u)));
  lower = hn::Mul(hn::NegMulAdd(upper, scale, one), inverse);
}

// Whether a SplitInverse serves all of these scales; within its bounds nothing that matters is a float subnormal.
LATHE_INLINE bool HaveSplitInverse(VF scales) {
  const U32 du;
  constexpr uint32_t kLeast = detail::BitsOf(0x1p-60f), kLargest = detail::BitsOf(0x1p75f);
  const VU bits = hn::BitCast(du, scales);
  const VU low = hn::And(bits, hn::Set(du, 0xFFFFFu));
  const auto is_even = hn::Eq(low, hn::Zero(du));
  const auto is_far = hn::Lt(hn::Sub(low, hn::Set(du, 33u)), hn::Set(du, 0x100000u - 65));
  const auto is_usual = hn::Le(hn::Sub(bits, hn::Set(du, kLeast)), hn::Set(du, kLargest - kLeast));
  return HWY_NATIVE_FMA && hn::AllTrue(du, hn::And(is_usual, hn::Or(is_even, is_far)));
}

// One scale everywhere.
struct OneScale {
  VF lanes;
  template <int64_t>
  LATHE_INLINE VF Lanes(int64_t) const {
    return lanes;
  }
};

// No division of bfloat16 numbers, but origins as above: one everywhere, or in both halves of origins[i]
// that of tile i.
struct PowerOfTwo {
  V16 origin;
};
template <int64_t kTile>
struct PowersOfTwo {
  const uint32_t* origins;
};

LATHE_INLINE V16 RoundToOdd(V16 upper, V16 lower) {
  return hn::Or(upper, hn::Min(lower, hn::Set(U16x2(), uint16_t{1})));
}

// kQuotientsAtOnce quotients as bfloat16.
template <class Quotient>
LATHE_INLINE V16 QuotientsAt(const float* x, int64_t c, const Quotient& quotient) {
  const U16x2 d;
  const V16 first = hn::BitCast(d, quotient.template At<1>(c, LoadFloats(x + c)));
  const V16 second =
      hn::BitCast(d, quotient.template At<1>(c + kLanes, LoadFloats(x + c + kLanes)));
  return RoundToOdd(hn::ConcatOdd(d, second, first), hn::ConcatEven(d, second, first));
}

// Even and odd columns of bfloat16 need no widening.
template <class Quotient>
LATHE_INLINE V16 QuotientsAt(const bfloat16* x, int64_t c, const Quotient& quotient) {
  const U16x2 d;
  const U32 du;
  const VU pairs = hn::BitCast(du, hn::LoadU(d, &x[c].bits));
  const VU first = hn::BitCast(du, quotient.template At<2>(c, EvenFloats(pairs)));
  const VU second = hn::BitCast(du, quotient.template At<2>(c, OddFloats(pairs)));
  return RoundToOdd(hn::OddEven(hn::BitCast(d, second), hn::BitCast(d, hn::ShiftRight<16>(first))),
                    hn::OddEven(hn::BitCast(d, hn::ShiftLeft<16>(second)), hn::BitCast(d, first)));
}

LATHE_INLINE V16 QuotientsAt(const bfloat16* x, int64_t c, const PowerOfTwo&) {
  return hn::LoadU(U16x2(), &x[c].bits);
}
template <int64_t kTile>
LATHE_INLINE V16 QuotientsAt(const bfloat16* x, int64_t c, const PowersOfTwo<kTile>&) {
  return hn::LoadU(U16x2(), &x[c].bits);
}

// What the quotients of kQuotientsAtOnce are then encoded by.
template <class Code, class Quotient>
LATHE_INLINE V16 OriginAt(int64_t, const Quotient&) {
  return hn::Set(U16x2(), static_cast<uint16_t>(OriginOf<Code>(detail::kFloatBias)));
}
template <class Code>
LATHE_INLINE V16 OriginAt(int64_t, const PowerOfTwo& scale) {
  return scale.origin;
}
template <class Code, int64_t kTile>
LATHE_INLINE V16 OriginAt(int64_t c, const PowersOfTwo<kTile>& scales) {
  static_assert(kTile % kQuotientsAtOnce == 0);
  return hn::BitCast(U16x2(), hn::Set(U32(), scales.origins[c / kTile]));
}

// Whole vectors; returns the column after the last one.
template <class Code, bool kPacked, bool kFits, class From, class Quotient>
LATHE_INLINE int64_t EncodeVectors(const From* HWY_RESTRICT x, int64_t n, const Quotient& quotient,
                                   std::byte* HWY_RESTRICT codes) {
  const int64_t end = n / kCodesAtOnce * kCodesAtOnce;
  for (int64_t c = 0; c < end; c += kCodesAtOnce) {
    const V16 origins[2] = {OriginAt<Code>(c, quotient),
                            OriginAt<Code>(c + kQuotientsAtOnce, quotient)};
    const V16 bits[2] = {QuotientsAt(x, c, quotient),
                         QuotientsAt(x, c + kQuotientsAtOnce, quotient)};
    StoreCodes<kPacked>(EncodeColumns<Code, kFits>(origins, bits), codes + (kPacked ? c / 2 : c));
  }
  return end;
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
