// SPDX-License-Identifier: Apache-2.0
// The caches of DeepSeek-V4.1 (FlashMLA): rows of 512 columns, quantised as a whole, scales behind
// the codes.
//
// Ds41Fp8: tiles of 32 with a power of two each.
//
//   record:  | 512 x e4m3fn | 16 x ue8m0 |     528 bytes, any alignment
//            0              512        528
//   value = code * 2^(scale byte - 127)
//
// Ds41Fp4, the extra cache beside it: tiles of 16 with an e4m3 scale each.
//
//   record:  | 512 x e2m1, even column in the low nibble | 32 x e4m3fn |     288 bytes, any
//   alignment
//            0                                           256          288
//   value = code * scale of its tile: at most 6 significant bits. A tile with a NaN or infinity has
//   a NaN scale.
#ifndef LATHE_CACHE_DS41_H_
#define LATHE_CACHE_DS41_H_

#include "lathe/cache/scale_rules.h"

namespace lathe {

struct Ds41Fp8 : FormatDefaults {
  static constexpr BFloat16Rows kBFloat16 = BFloat16Rows::kExact;
  static constexpr int64_t kWidth = 512;
  LATHE_INLINE static constexpr int64_t RecordBytes(int64_t) noexcept { return 528; }

  static constexpr int64_t kTile = 32;
  static constexpr int64_t kTiles = kWidth / kTile;

  LATHE_INLINE static float DecodeColumn(const std::byte* record, const std::byte*,
                                         int64_t column) noexcept {
    return detail::DecodeAt<float8_e4m3fn>(record, column) *
           detail::DecodeAt<float8_e8m0>(record + kWidth, column / kTile);
  }
};

struct Ds41Fp4 : FormatDefaults {
  static constexpr BFloat16Rows kBFloat16 = BFloat16Rows::kExact;
  static constexpr int64_t kWidth = 512;
  LATHE_INLINE static constexpr int64_t RecordBytes(int64_t) noexcept { return 288; }

  static constexpr int64_t kTile = 16;
  static constexpr int64_t kTiles = kWidth / kTile;
  static constexpr int64_t kScales = kWidth / 2;  // byte

  LATHE_INLINE static float DecodeColumn(const std::byte* record, const std::byte*,
                                         int64_t column) noexcept {
    return detail::DecodeAt<float4_e2m1>(record, column) *
           detail::DecodeAt<float8_e4m3fn>(record + kScales, column / kTile);
  }
};

}  // namespace lathe

#endif  // LATHE_CACHE_DS41_H_

#ifdef LATHE_TARGET_PASS
#include "lathe/cache/encode_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Element>
void DecodeRecord(Ds41Fp8, const std::byte* record, const std::byte*, int64_t, Element* row) {
  using F = Ds41Fp8;
  float scales[F::kTiles];
  for (int64_t i = 0; i < F::kTiles; ++i) {
    scales[i] = detail::DecodeAt<float8_e8m0>(record + F::kWidth, i);
  }
  DecodeCodes<float8_e4m3fn>(record, F::kWidth, TileScales<F::kTile, true>{scales}, row);
}

inline auto AmaxOf(Ds41Fp8, const TokenRow& token) { return FiniteAmax<Ds41Fp8>(token); }

inline void EncodeRecord(Ds41Fp8, const TokenRow& token, const TileAmax<Ds41Fp8::kTiles>& amax,
                         const ScaleRule&, std::byte* record, std::byte*) {
  using F = Ds41Fp8;
  EncodePowerOfTwoTiles<float8_e4m3fn, F::kTile>(token, amax, record, record + F::kWidth);
}

template <class Element>
void DecodeRecord(Ds41Fp4, const std::byte* record, const std::byte*, int64_t, Element* row) {
  using F = Ds41Fp4;
  float scales[F::kTiles];
  DecodeCodes<float8_e4m3fn>(record + F::kScales, F::kTiles, Unscaled(), scales);
  DecodeCodes<float4_e2m1>(record, F::kWidth, TileScales<F::kTile, true>{scales}, row);
}

inline auto AmaxOf(Ds41Fp4, const TokenRow& token) { return AnyAmax<Ds41Fp4>(token); }

inline void EncodeRecord(Ds41Fp4, const TokenRow& token, const TileAmax<Ds41Fp4::kTiles>& amax,
                         const ScaleRule&, std::byte* record, std::byte*) {
  using F = Ds41Fp4;
  float8_e4m3fn scales[F::kTiles];
  EncodeNvfp4Tiles(token, amax, record, scales);
  std::memcpy(record + F::kScales, scales, sizeof(scales));
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // LATHE_TARGET_PASS
