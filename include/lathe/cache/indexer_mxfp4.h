// SPDX-License-Identifier: Apache-2.0
// IndexerMxfp4: an indexer's keys in MXFP4, 128 columns in e2m1 in tiles of 32 with a power of two
// each, in a second part of the page.
//
//   page:    | key 0 | ... | key n-1 | scales 0 | ... | scales n-1 |     n * 68 bytes
//   key:     | 128 x e2m1, even column in the low nibble |     64 bytes, any alignment
//   scales:  | 4 x ue8m0 |                                      4 bytes
//
//   value = code * 2^(scale byte - 127). A tile with a NaN or infinity has a NaN scale.
#ifndef LATHE_CACHE_INDEXER_MXFP4_H_
#define LATHE_CACHE_INDEXER_MXFP4_H_

#include "lathe/cache/scale_rules.h"

namespace lathe {

struct IndexerMxfp4 : FormatDefaults {
  static constexpr BFloat16Rows kBFloat16 = BFloat16Rows::kExact;
  static constexpr int64_t kWidth = 128;
  static constexpr int64_t kTile = 32;
  static constexpr int64_t kTiles = kWidth / kTile;
  static constexpr int64_t kSideBytes = kTiles;
  LATHE_INLINE static constexpr int64_t RecordBytes(int64_t) noexcept { return kWidth / 2; }

  LATHE_INLINE static float DecodeColumn(const std::byte* record, const std::byte* side,
                                         int64_t column) noexcept {
    return detail::DecodeAt<float4_e2m1>(record, column) *
           detail::DecodeAt<float8_e8m0>(side, column / kTile);
  }
};

}  // namespace lathe

#endif  // LATHE_CACHE_INDEXER_MXFP4_H_

#ifdef LATHE_TARGET_PASS
#include "lathe/cache/encode_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Element>
void DecodeRecord(IndexerMxfp4, const std::byte* record, const std::byte* side, int64_t,
                  Element* row) {
  using F = IndexerMxfp4;
  float scales[F::kTiles];
  for (int64_t i = 0; i < F::kTiles; ++i) scales[i] = detail::DecodeAt<float8_e8m0>(side, i);
  DecodeCodes<float4_e2m1>(record, F::kWidth, TileScales<F::kTile, true>{scales}, row);
}

inline auto AmaxOf(IndexerMxfp4, const TokenRow& token) { return AnyAmax<IndexerMxfp4>(token); }

inline void EncodeRecord(IndexerMxfp4, const TokenRow& token,
                         const TileAmax<IndexerMxfp4::kTiles>& amax, const ScaleRule&,
                         std::byte* record, std::byte* side) {
  EncodePowerOfTwoTiles<float4_e2m1, IndexerMxfp4::kTile>(token, amax, record, side);
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // LATHE_TARGET_PASS
