// SPDX-License-Identifier: Apache-2.0
// Nvfp4DsMla: DeepSeek-V3 rows in NVFP4 (vLLM's nvfp4_ds_mla). 512 latent columns in tiles of 16
// with an e4m3 scale each, 64 rope columns as plain e4m3.
//
//   record:  | 512 x e2m1, even column in the low nibble | 64 x e4m3fn rope | 32 x e4m3fn scale |
//            0                                           256                320               352
//   The scale of tile i is byte 8 * (i mod 4) + i / 4 of the last part. 352 bytes, any alignment.
//
//   value = code * scale of its tile; rope = code. A tile with a NaN or infinity has a NaN scale.
#ifndef LATHE_CACHE_NVFP4_DS_MLA_H_
#define LATHE_CACHE_NVFP4_DS_MLA_H_

#include "lathe/cache/scale_rules.h"

namespace lathe {

struct Nvfp4DsMla : FormatDefaults {
  static constexpr BFloat16Rows kBFloat16 = BFloat16Rows::kExact;
  static constexpr int64_t kWidth = 576;
  LATHE_INLINE static constexpr int64_t RecordBytes(int64_t) noexcept { return 352; }

  static constexpr int64_t kLatent = 512;  // columns
  static constexpr int64_t kTile = 16;
  static constexpr int64_t kTiles = kLatent / kTile;
  static constexpr int64_t kRope = kLatent / 2;                   // byte
  static constexpr int64_t kScales = kRope + (kWidth - kLatent);  // byte
  LATHE_INLINE static constexpr int64_t ScaleByte(int64_t tile) noexcept {
    return kScales + 8 * (tile % 4) + tile / 4;
  }

  LATHE_INLINE static float DecodeColumn(const std::byte* record, const std::byte*,
                                         int64_t column) noexcept {
    if (column >= kLatent) {
      return detail::DecodeAt<float8_e4m3fn>(record + kRope, column - kLatent);
    }
    return detail::DecodeAt<float4_e2m1>(record, column) *
           detail::DecodeAt<float8_e4m3fn>(record + ScaleByte(column / kTile), 0);
  }
};

}  // namespace lathe

#endif  // LATHE_CACHE_NVFP4_DS_MLA_H_

#ifdef LATHE_TARGET_PASS
#include "lathe/cache/encode_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Element>
void DecodeRecord(Nvfp4DsMla, const std::byte* record, const std::byte*, int64_t, Element* row) {
  using F = Nvfp4DsMla;
  float stored[F::kTiles], scales[F::kTiles];
  DecodeCodes<float8_e4m3fn>(record + F::kScales, F::kTiles, Unscaled(), stored);
  for (int64_t i = 0; i < F::kTiles; ++i) scales[i] = stored[F::ScaleByte(i) - F::kScales];
  DecodeCodes<float4_e2m1>(record, F::kLatent, TileScales<F::kTile, true>{scales}, row);
  DecodeCodes<float8_e4m3fn>(record + F::kRope, F::kWidth - F::kLatent, Unscaled(),
                             row + F::kLatent);
}

inline auto AmaxOf(Nvfp4DsMla, const TokenRow& token) { return AnyAmax<Nvfp4DsMla>(token); }

inline void EncodeRecord(Nvfp4DsMla, const TokenRow& token,
                         const TileAmax<Nvfp4DsMla::kTiles>& amax, const ScaleRule&,
                         std::byte* record, std::byte*) {
  using F = Nvfp4DsMla;
  float8_e4m3fn scales[F::kTiles];
  EncodeNvfp4Tiles(token, amax, record, scales);
  for (int64_t i = 0; i < F::kTiles; ++i) record[F::ScaleByte(i)] = std::byte{scales[i].bits};
  constexpr int64_t kRopeWidth = F::kWidth - F::kLatent;
  token.Visit<kRopeWidth>(F::kLatent, [&](const auto* x) {
    EncodeTile<float8_e4m3fn>(x, kRopeWidth, 1.0f, record + F::kRope);
  });
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // LATHE_TARGET_PASS
