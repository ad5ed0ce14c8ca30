// SPDX-License-Identifier: Apache-2.0
// IndexerFp8: the keys of DeepSeek-V3.2's indexer, 128 columns in e4m3 with one float scale, in a
// second part of the page.
//
//   page:    | key 0 | ... | key n-1 | scale 0 | ... | scale n-1 |     n * 132 bytes
//   key:     | 128 x e4m3fn |     128 bytes, aligned to 4
//   scale:   | float32 |            4 bytes
//
//   value = code * scale
//
// Plain keys are Latent<float>, Latent<float16> or Latent<bfloat16> of 128 columns.
#ifndef LATHE_CACHE_INDEXER_FP8_H_
#define LATHE_CACHE_INDEXER_FP8_H_

#include "lathe/cache/scale_rules.h"

namespace lathe {

struct IndexerFp8 : FormatDefaults {
  static constexpr BFloat16Rows kBFloat16 = BFloat16Rows::kRounded;
  static constexpr size_t kAlignment = alignof(float);
  static constexpr int64_t kWidth = 128;
  static constexpr int64_t kSideBytes = sizeof(float);
  LATHE_INLINE static constexpr int64_t RecordBytes(int64_t) noexcept { return kWidth; }

  static constexpr int64_t kTile = kWidth;
  static constexpr int64_t kTiles = 1;
  static constexpr int64_t kScaleColumns = kTile;
  static constexpr int64_t kNumScales = kTiles;
  static LATHE_INLINE float ScaleAt(const std::byte*, const std::byte* side, int64_t) noexcept {
    return detail::LoadAs<float>(side);
  }

  LATHE_INLINE static float DecodeColumn(const std::byte* record, const std::byte* side,
                                         int64_t column) noexcept {
    return detail::DecodeAt<float8_e4m3fn>(record, column) * detail::LoadAs<float>(side);
  }
};

}  // namespace lathe

#endif  // LATHE_CACHE_INDEXER_FP8_H_

#ifdef LATHE_TARGET_PASS
#include "lathe/cache/encode_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Element>
void DecodeRecord(IndexerFp8, const std::byte* record, const std::byte* side, int64_t,
                  Element* row) {
  using F = IndexerFp8;
  const auto scale = detail::LoadAs<float>(side);
  DecodeCodes<float8_e4m3fn>(record, F::kWidth, TileScales<F::kWidth, false>{&scale}, row);
}

template <class Element>
void DecodeUnscaled(IndexerFp8, const std::byte* record, const std::byte*, int64_t, Element* row) {
  DecodeCodes<float8_e4m3fn>(record, IndexerFp8::kWidth, Unscaled(), row);
}

inline auto AmaxOf(IndexerFp8, const TokenRow& token) { return FiniteAmax<IndexerFp8>(token); }

inline void EncodeRecord(IndexerFp8, const TokenRow& token, const TileAmax<1>& amax,
                         const ScaleRule& rule, std::byte* record, std::byte* side) {
  using F = IndexerFp8;
  token.Visit<F::kWidth>(0, [&](const auto* x) {
    const float scale = EncodeIndexerRow(x, F::kWidth, amax.At(0), rule.power_of_two, record);
    std::memcpy(side, &scale, sizeof(scale));
  });
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // LATHE_TARGET_PASS
