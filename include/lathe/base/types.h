// SPDX-License-Identifier: Apache-2.0
//
// Numeric storage types and their exact scalar conversions from and to float.
//
// Everything here is integer arithmetic on bit patterns: results do not depend on the calling
// thread's rounding mode or flush-to-zero state, and are usable in constant expressions.

#ifndef LATHE_BASE_TYPES_H_
#define LATHE_BASE_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lathe/base/config.h"

namespace lathe {

// Storage only: no arithmetic. Arrays of them alias the raw integers of other libraries' types of
// the same format (two or one bytes, no padding).

// The upper half of a float: 8 exponent and 7 mantissa bits.
struct bfloat16 {
  uint16_t bits;
};

// IEEE 754 binary16.
struct float16 {
  uint16_t bits;
};

// OCP FP8 E4M3: largest value 448, no infinities, NaN = 0x7F and 0xFF.
struct float8_e4m3fn {
  uint8_t bits;
};

// The variant of older AMD GPUs: largest value 240, no infinities, no -0, NaN = 0x80.
struct float8_e4m3fnuz {
  uint8_t bits;
};

// OCP FP8 E5M2: largest value 57344, infinities and NaN as IEEE 754.
struct float8_e5m2 {
  uint8_t bits;
};

// OCP FP4 E2M1: +-{0, .5, 1, 1.5, 2, 3, 4, 6}, in the low four bits; the high four are written as
// zero and ignored when read. Packing two into a byte is the cache format's business.
struct float4_e2m1 {
  uint8_t bits;
};

// OCP E8M0 ("ue8m0"), a scale: byte b = 2^(b - 127), 255 = NaN; neither zero nor sign.
struct float8_e8m0 {
  uint8_t bits;
};

namespace detail {

template <class T, size_t kBytes>
inline constexpr bool kIsPlainStorage =
    sizeof(T) == kBytes&& std::is_standard_layout_v<T>&& std::is_trivially_copyable_v<
                     T>&& std::is_trivially_default_constructible_v<T>;

static_assert(kIsPlainStorage<bfloat16, 2> && kIsPlainStorage<float16, 2>);
static_assert(kIsPlainStorage<float8_e4m3fn, 1> && kIsPlainStorage<float8_e4m3fnuz, 1>);
static_assert(kIsPlainStorage<float8_e5m2, 1> && kIsPlainStorage<float4_e2m1, 1>);
static_assert(kIsPlainStorage<float8_e8m0, 1>);

// binary32, the format all conversions start or end in.
inline constexpr int kFloatMantissaBits = 23;
inline constexpr int kFloatBias = 127;
inline constexpr uint32_t kFloatSign = 0x80000000u;
inline constexpr uint32_t kFloatInfinity = 0x7F800000u;
inline constexpr uint32_t kFloatMantissa = 0x007FFFFFu;
inline constexpr uint32_t kFloatHiddenBit = 0x00800000u;

// The builtin rather than std::bit_cast: that is C++20, memcpy is not constexpr.
LATHE_INLINE constexpr uint32_t BitsOf(float x) noexcept { return __builtin_bit_cast(uint32_t, x); }
LATHE_INLINE constexpr float FloatOf(uint32_t bits) noexcept {
  return __builtin_bit_cast(float, bits);
}

// value / 2^num_bits, to nearest, ties to even. 1 <= num_bits < 32, and the sum must not wrap.
LATHE_INLINE constexpr uint32_t ShiftRightNearestEven(uint32_t value, int num_bits) noexcept {
  const uint32_t is_odd = (value >> num_bits) & 1;
  return (value + (1u << (num_bits - 1)) - 1 + is_odd) >> num_bits;
}

// A sign-magnitude binary format with subnormals, at most as wide as float in range and precision.
//
//   code = [sign | exponent | mantissa]
//
// kMaxFinite  largest finite magnitude code; larger ones decode to infinity (mantissa 0) or NaN
// kOverflow   magnitude code for what rounds beyond kMaxFinite, and for infinity: equal to
//             kMaxFinite where the format saturates, else the code of infinity
// kNan        code for NaN, or-ed with the leading payload bits; the sign is kept. Equal to kSign:
//             that code is the only NaN, and the format has no negative zero
template <int kExponentBits, int kMantissaBits, int kBias, uint32_t kMaxFinite, uint32_t kOverflow,
          uint32_t kNan>
struct MiniFloat {
  static constexpr uint32_t kSign = 1u << (kExponentBits + kMantissaBits);
  static constexpr uint32_t kMantissa = (1u << kMantissaBits) - 1;
  static constexpr bool kNanReplacesNegativeZero = kNan == kSign;
  static constexpr int kDroppedBits = kFloatMantissaBits - kMantissaBits;
  // The parameters, for vector codecs of the same format.
  static constexpr int kNumMantissaBits = kMantissaBits;
  static constexpr int kExponentBias = kBias;
  static constexpr uint32_t kLargest = kMaxFinite;
  static constexpr bool kSaturates = kOverflow == kMaxFinite;
  static constexpr uint32_t kNanCode = kNan;

  LATHE_INLINE static constexpr float Decode(uint32_t code) noexcept {
    if (kNanReplacesNegativeZero && code == kNan) return FloatOf(kFloatInfinity | kFloatMantissa);
    const uint32_t sign = (code & kSign) != 0 ? kFloatSign : 0;
    return FloatOf(sign | DecodeMagnitude(code & (kSign - 1)));
  }

  LATHE_INLINE static constexpr uint32_t Encode(float x) noexcept {
    const uint32_t bits = BitsOf(x);
    const uint32_t sign = (bits & kFloatSign) != 0 ? kSign : 0;
    const uint32_t magnitude = bits & ~kFloatSign;
    if (magnitude > kFloatInfinity) {
      if constexpr (kNanReplacesNegativeZero) return kNan;
      return sign | kNan | ((magnitude & kFloatMantissa) >> kDroppedBits);
    }
    const uint32_t code = EncodeMagnitude(magnitude);
    if (kNanReplacesNegativeZero && code == 0) return 0;
    return sign | code;
  }

 private:
  LATHE_INLINE static constexpr uint32_t DecodeMagnitude(uint32_t code) noexcept {
    // float's own exponent range: every code, subnormal and special ones too, is a truncated float.
    if constexpr (kBias == kFloatBias) return code << kDroppedBits;
    if (code > kMaxFinite) return kFloatInfinity | (code & kMantissa) << kDroppedBits;
    if (code > kMantissa) {
      return (code << kDroppedBits) +
             (static_cast<uint32_t>(kFloatBias - kBias) << kFloatMantissaBits);
    }
    if (code == 0) return 0;
    // Subnormal: code * 2^(1 - kBias - kMantissaBits). The conversion of so small an integer is
    // exact in every rounding mode, and the power of two moves its exponent, which stays normal.
    return BitsOf(static_cast<float>(code)) -
           (static_cast<uint32_t>(kBias + kMantissaBits - 1) << kFloatMantissaBits);
  }

  // Nearest even. Subnormal results have a fixed exponent and give up more mantissa bits instead;
  // a mantissa that rounds up to the next power of two carries into the exponent field by itself.
  LATHE_INLINE static constexpr uint32_t EncodeMagnitude(uint32_t magnitude) noexcept {
    // float's own exponent range: the carry reaches infinity by itself, too.
    if constexpr (kBias == kFloatBias) return ShiftRightNearestEven(magnitude, kDroppedBits);
    // Zero and float's subnormals get a hidden bit they do not have; with it, too, they are far
    // below half of the smallest code.
    static_assert(kBias <= kFloatBias - 1 - kMantissaBits || kBias == kFloatBias);
    const uint32_t significand = (magnitude & kFloatMantissa) | kFloatHiddenBit;
    const int exponent = static_cast<int>(magnitude >> kFloatMantissaBits) - kFloatBias + kBias;

    // The significand has 24 bits: from 25 dropped bits on, it is below half of the last place.
    const int excess = exponent < 1 ? 1 - exponent : 0;
    const int dropped = kDroppedBits + excess < 25 ? kDroppedBits + excess : 25;
    const uint32_t rounded = ShiftRightNearestEven(significand, dropped);

    // Minus one because the hidden bit, where there is one, adds one to the exponent field.
    const uint32_t exponent_field = static_cast<uint32_t>(exponent < 1 ? 0 : exponent - 1);
    const uint32_t code = (exponent_field << kMantissaBits) + rounded;
    return code > kMaxFinite ? kOverflow : code;
  }
};

// Which format a storage type holds; undefined for all others.
template <class T>
struct FormatOf;

// clang-format off
//                                              exponent, mantissa, bias, max finite, overflow, NaN
template <> struct FormatOf<bfloat16>        : MiniFloat<8, 7, 127,  0x7F7F, 0x7F80, 0x7FC0> {};
template <> struct FormatOf<float16>         : MiniFloat<5, 10, 15,  0x7BFF, 0x7C00, 0x7E00> {};
template <> struct FormatOf<float8_e4m3fn>   : MiniFloat<4, 3, 7,    0x7E,   0x7E,   0x7F> {};
template <> struct FormatOf<float8_e4m3fnuz> : MiniFloat<4, 3, 8,    0x7F,   0x7F,   0x80> {};
template <> struct FormatOf<float8_e5m2>     : MiniFloat<5, 2, 15,   0x7B,   0x7B,   0x7F> {};
template <> struct FormatOf<float4_e2m1>     : MiniFloat<2, 1, 1,    0x7,    0x7,    0x7> {};
// clang-format on

}  // namespace detail

// The exact value of a stored number, for all types above. NaN codes give NaN (sign and payload
// moved along where the format has them; signalling NaNs are not quieted), infinities infinity.
template <class T>
LATHE_INLINE constexpr float ToFloat(T x) noexcept {
  return detail::FormatOf<T>::Decode(x.bits);
}

LATHE_INLINE constexpr float ToFloat(float x) noexcept { return x; }

// 2^(bits - 127). Byte 0 is 2^-127, a float subnormal: arithmetic on it under denormals-are-zero
// gives zero, though this conversion does not.
LATHE_INLINE constexpr float ToFloat(float8_e8m0 x) noexcept {
  if (x.bits == 0) return detail::FloatOf(detail::kFloatHiddenBit >> 1);
  if (x.bits == 255) return detail::FloatOf(detail::kFloatInfinity | detail::kFloatMantissa);
  return detail::FloatOf(static_cast<uint32_t>(x.bits) << detail::kFloatMantissaBits);
}

// The stored number nearest to x, ties to the even code; subnormal inputs and results are kept.
//
//   type             beyond the largest value, infinity   NaN                          -0 and below
//   float            (identity)
//   bfloat16         infinity, as IEEE 754                quiet NaN, sign and payload  kept
//   float16          infinity, as IEEE 754                quiet NaN, sign and payload  kept
//   float8_e4m3fn    saturates to +-448                   0x7F, 0xFF by sign           kept
//   float8_e4m3fnuz  saturates to +-240                   0x80                         0
//   float8_e5m2      saturates to +-57344                 0x7F, 0xFF by sign           kept
//   float4_e2m1      saturates to +-6                     +-6 by sign: it has no NaN   kept
//
// "-0 and below": -0 and negative numbers that round to zero keep their sign or become 0.
// float8_e5m2 saturates although it has infinities: a cache must not turn a large value into one.
// float4_e2m1 cannot carry a NaN; its block scale has to.
template <class T>
LATHE_INLINE constexpr T FromFloat(float x) noexcept {
  return T{static_cast<decltype(T::bits)>(detail::FormatOf<T>::Encode(x))};
}

template <>
LATHE_INLINE constexpr float FromFloat<float>(float x) noexcept {
  return x;
}

// A scale is rounded up, never to nearest: see CeilPowerOfTwo.
template <>
float8_e8m0 FromFloat<float8_e8m0>(float x) noexcept = delete;

// The smallest power of two >= x, that is 2^ceil(log2(x)), clamped to [2^-127, 2^127]. Zero of
// either sign gives 2^-127; anything above 2^127, infinity included, gives 2^127; NaN and negative
// numbers give NaN (255).
LATHE_INLINE constexpr float8_e8m0 CeilPowerOfTwo(float x) noexcept {
  const uint32_t bits = detail::BitsOf(x);
  if (bits == detail::kFloatSign) return float8_e8m0{0};
  // Above infinity as an unsigned number lie the NaNs and everything with a sign.
  if (bits > detail::kFloatInfinity) return float8_e8m0{255};
  const uint32_t mantissa = bits & detail::kFloatMantissa;
  const uint32_t exponent = bits >> detail::kFloatMantissaBits;
  // Byte 0 stands for the subnormal with the upper mantissa bit alone, others for a mantissa of 0.
  const uint32_t power_mantissa = exponent == 0 ? detail::kFloatHiddenBit >> 1 : 0;
  const uint32_t code = exponent + (mantissa > power_mantissa ? 1 : 0);
  return float8_e8m0{static_cast<uint8_t>(code < 254 ? code : 254)};
}

// Element type of a tensor whose type is only known at run time: activations, plain caches and
// outputs. Quantised caches are formats, not dtypes. The numbers are part of the ABI.
enum class DType : uint8_t { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };

namespace detail {

template <class T>
struct DTypeTag {
  static_assert(
      !std::is_same_v<T, T>,
      "tensors hold float, lathe::float16 or lathe::bfloat16; an engine's own 16-bit words "
      "(uint16_t, __bf16, ...) are passed as they lie: "
      "reinterpret_cast<const lathe::bfloat16*>(pointer)");
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeTag<float> : std::integral_constant<DType, DType::kFloat32> {};
template <>
struct DTypeTag<float16> : std::integral_constant<DType, DType::kFloat16> {};
template <>
struct DTypeTag<bfloat16> : std::integral_constant<DType, DType::kBFloat16> {};

}  // namespace detail

// The DType of an element type, const or not; other types do not compile, and are told how to be passed.
template <class T>
inline constexpr DType kDTypeOf = detail::DTypeTag<std::remove_cv_t<T>>::value;

// Bytes of an element; 0 for a value that is no DType.
LATHE_INLINE constexpr size_t SizeOf(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
  }
  return 0;
}

// "float32", "float16", "bfloat16"; "unknown" for a value that is no DType.
LATHE_INLINE constexpr const char* Name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
  }
  return "unknown";
}

}  // namespace lathe

#endif  // LATHE_BASE_TYPES_H_
