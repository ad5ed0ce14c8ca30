// SPDX-License-Identifier: Apache-2.0
// What format files are made of: defaults, how quantised formats choose scales, how stored numbers are read. A format
// file needs no other header in its scalar section.
#ifndef LATHE_CACHE_SCALE_RULES_H_
#define LATHE_CACHE_SCALE_RULES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lathe/base/config.h"
#include "lathe/base/types.h"

namespace lathe {

// Whether a format's rows may become bfloat16, for engines that take bfloat16 products.
enum class BFloat16Rows : uint8_t {
  kNever,    // it holds more precision than that
  kRounded,  // its values are products of a narrow code and any float: rounded once, 2^-9 relative
  kExact,    // its values are bfloat16 numbers
};

// Members of a format (formats.h) that it need not repeat.
struct FormatDefaults {
  using Element = void;
  static constexpr size_t kAlignment = 1;
  static constexpr int64_t kWidth = 0;
  static constexpr int64_t kSideBytes = 0;
  static constexpr bool kHasTensorScale = false;
};

// The choices a writer leaves to the caller.
struct ScaleRule {
  bool power_of_two = false;  // where the format stores float scales
  float tensor_scale = 1.0f;  // of formats with one scale for the whole tensor
};

constexpr float kLargestE4m3 = 448.0f;
constexpr float kLargestE2m1 = 6.0f;
// An amax counts as at least this where the scale is a power of two.
constexpr float kFloorE4m3 = 1e-4f;
constexpr float kFloorE2m1 = kLargestE2m1 * (std::numeric_limits<float>::min)();

// amax: the largest magnitude of a tile, finite. All rules give finite scales above 0, also for 0.

// 2^ceil(log2(x / largest)), largest and quotient normal floats: whether the mantissa of x is above
// that of `largest` says on which side of a power of two the quotient lies.
LATHE_INLINE constexpr float8_e8m0 CeilPowerOfTwoQuotient(float x, float largest) noexcept {
  const uint32_t distance = detail::BitsOf(x) - detail::BitsOf(largest) + detail::kFloatMantissa;
  return float8_e8m0{static_cast<uint8_t>((distance >> detail::kFloatMantissaBits) + 127)};
}

// 2^ceil(log2(max(amax, 1e-4) / 448)): the floor is on amax, before the division.
LATHE_INLINE constexpr float8_e8m0 PowerOfTwoScale(float amax) noexcept {
  return CeilPowerOfTwoQuotient(amax > kFloorE4m3 ? amax : kFloorE4m3, kLargestE4m3);
}

// max(amax, 1e-4) / 448, of the keys of an indexer.
LATHE_INLINE constexpr float IndexerScale(float amax) noexcept {
  return (amax > kFloorE4m3 ? amax : kFloorE4m3) / kLargestE4m3;
}

LATHE_INLINE constexpr bool IsPowerOfTwo(float scale) noexcept {
  const uint32_t bits = detail::BitsOf(scale);
  return (bits & detail::kFloatMantissa) == 0 && bits != 0 && bits < detail::kFloatInfinity;
}

namespace detail {
// The exact value, also of a subnormal where the caller takes those for 0.
LATHE_INLINE constexpr double Widen(float value) noexcept {
  const uint32_t bits = BitsOf(value);
  if ((bits & kFloatInfinity) != 0) return static_cast<double>(value);
  const double magnitude = static_cast<double>(bits & kFloatMantissa) * 0x1p-149;
  return (bits & kFloatSign) != 0 ? -magnitude : magnitude;
}
}  // namespace detail

// x / scale, also where flush-to-zero would take x or scale for 0. Rounding to double first changes nothing (53 >= 2 * 24 + 2 bits).
LATHE_INLINE constexpr float DivideTiny(float x, float scale) noexcept {
  const double quotient = detail::Widen(x) / detail::Widen(scale);
  constexpr double kLargest = (std::numeric_limits<float>::max)();
  if (quotient > kLargest) return (std::numeric_limits<float>::infinity)();
  if (quotient < -kLargest) return -(std::numeric_limits<float>::infinity)();
  return static_cast<float>(quotient);
}

namespace detail {

// Reading of stored numbers at any address.
template <class T>
LATHE_INLINE T LoadAs(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}
// Element `index` of an array; e2m1 codes are packed, the even ones in the low nibble.
template <class T>
LATHE_INLINE float DecodeAt(const std::byte* numbers, int64_t index) noexcept {
  if constexpr (std::is_same_v<T, float4_e2m1>) {
    const auto pair = std::to_integer<unsigned>(numbers[index / 2]);
    return ToFloat(T{static_cast<uint8_t>((index % 2 == 0 ? pair : pair >> 4) & 0xF)});
  } else {
    return ToFloat(LoadAs<T>(numbers + index * static_cast<int64_t>(sizeof(T))));
  }
}

}  // namespace detail
}  // namespace lathe

#endif  // LATHE_CACHE_SCALE_RULES_H_
