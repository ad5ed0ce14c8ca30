// SPDX-License-Identifier: Apache-2.0
// A user's format: codes of 8 bits, two's complement, with one scale for the whole tensor. It has no
// SIMD section.
#if defined(LATHE_FORMAT)
LATHE_FORMAT(kInt8Latent, 128, ::my::Int8Latent)
#elif !defined(LATHE_TESTS_BUILD_EXTRA_FORMAT_H_)
#define LATHE_TESTS_BUILD_EXTRA_FORMAT_H_

#include <cstddef>
#include <cstdint>

#include "lathe/cache/scale_rules.h"

namespace my {

struct Int8Latent {
  using Element = void;
  static constexpr auto kBFloat16 = lathe::BFloat16Rows::kExact;
  static constexpr size_t kAlignment = 1;
  static constexpr int64_t kWidth = 0;
  static constexpr int64_t kSideBytes = 0;
  static constexpr bool kHasTensorScale = true;
  static constexpr int64_t RecordBytes(int64_t width) { return width; }

  static float DecodeColumn(const std::byte* record, const std::byte*, int64_t column) {
    return static_cast<float>(lathe::detail::LoadAs<int8_t>(record + column));
  }
  static void EncodeColumn(float x, std::byte* record, std::byte*, int64_t column) {
    const float clamped = x < -127.0f ? -127.0f : x > 127.0f ? 127.0f : x;
    record[column] = static_cast<std::byte>(static_cast<int>(clamped + (x < 0 ? -0.5f : 0.5f)));
  }
};

}  // namespace my

#endif  // LATHE_TESTS_BUILD_EXTRA_FORMAT_H_
