// SPDX-License-Identifier: Apache-2.0
// A user's formats: codes of 8 bits, two's complement. Int8Latent has one scale for the whole tensor, and no SIMD
// section; Int8Rows one for each row, in front of its codes, which engines apply to scores and weights.
#if defined(LATHE_FORMAT)
LATHE_FORMAT(kInt8Latent, 128, ::my::Int8Latent)
LATHE_FORMAT(kInt8Rows, 129, ::my::Int8Rows)
#elif !defined(LATHE_TESTS_BUILD_EXTRA_FORMAT_H_)
#define LATHE_TESTS_BUILD_EXTRA_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <limits>

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

struct Int8Rows : lathe::FormatDefaults {
  static constexpr auto kBFloat16 = lathe::BFloat16Rows::kRounded;  // with their scale
  static constexpr size_t kAlignment = alignof(float);
  static constexpr int64_t RecordBytes(int64_t width) { return 4 + (width + 3) / 4 * 4; }

  static constexpr int64_t kScaleColumns = std::numeric_limits<int64_t>::max();  // all
  static constexpr int64_t kNumScales = 1;
  static float ScaleAt(const std::byte* record, const std::byte*, int64_t) {
    return lathe::detail::LoadAs<float>(record);
  }
  static float CodeAt(const std::byte* record, int64_t column) {
    return static_cast<float>(lathe::detail::LoadAs<int8_t>(record + 4 + column));
  }
  static float DecodeColumn(const std::byte* record, const std::byte* side, int64_t column) {
    return CodeAt(record, column) * ScaleAt(record, side, 0);
  }
};

}  // namespace my

#endif  // LATHE_TESTS_BUILD_EXTRA_FORMAT_H_

#ifdef LATHE_TARGET_PASS
#include "lathe/cache/encode_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Element>
void DecodeUnscaled(::my::Int8Rows, const std::byte* record, const std::byte*, int64_t width,
                    Element* row) {
  for (int64_t c = 0; c < width; ++c) {
    row[c] = FromFloat<Element>(::my::Int8Rows::CodeAt(record, c));
  }
}

inline void EncodeRecord(::my::Int8Rows, const TokenRow& token, const ScaleRule&, std::byte* record,
                         std::byte*) {
  float largest = 1e-30f, x;
  for (int64_t c = 0; c < token.width(); ++c) {
    token.Load(c, 1, &x);
    largest = (std::max)(largest, x < 0.0f ? -x : x);
  }
  const float scale = largest / 127;
  std::memset(record, 0, static_cast<size_t>(::my::Int8Rows::RecordBytes(token.width())));
  std::memcpy(record, &scale, sizeof(scale));
  for (int64_t c = 0; c < token.width(); ++c) {
    token.Load(c, 1, &x);
    record[4 + c] = static_cast<std::byte>(static_cast<int>(x / scale + (x < 0 ? -0.5f : 0.5f)));
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // LATHE_TARGET_PASS
