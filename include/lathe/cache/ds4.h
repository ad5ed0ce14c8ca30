// SPDX-License-Identifier: Apache-2.0
// The caches of DeepSeek-V4: rows of 512 columns, the last 64 rotated, where the value is the whole
// row.
//
// Fp8Ds4: 448 columns in tiles of 64 with a power of two each, in a second part of the page.
//
//   page:       | data row 0 | ... | data row n-1 | scale row 0 | ... | scale row n-1 |
//               n * 584 bytes, often padded to 576 * k
//   data row:   | 448 x e4m3fn | 64 x bfloat16 rope |     576 bytes, aligned to 2
//   scale row:  | 7 x ue8m0 | 0 |                           8 bytes
//
//   value = code * 2^(scale byte - 127)
//
// Bf16Ds4: | 512 x bfloat16 |, 1024 bytes, aligned to 2.
#ifndef LATHE_CACHE_DS4_H_
#define LATHE_CACHE_DS4_H_

#include "lathe/cache/latent.h"
#include "lathe/cache/scale_rules.h"

namespace lathe {

struct Fp8Ds4 : FormatDefaults {
  static constexpr BFloat16Rows kBFloat16 = BFloat16Rows::kExact;
  static constexpr size_t kAlignment = alignof(bfloat16);
  static constexpr int64_t kWidth = 512;
  static constexpr int64_t kSideBytes = 8;
  LATHE_INLINE static constexpr int64_t RecordBytes(int64_t) noexcept { return 576; }

  static constexpr int64_t kQuantized = 448;  // columns, and bytes
  static constexpr int64_t kTile = 64;
  static constexpr int64_t kTiles = kQuantized / kTile;

  LATHE_INLINE static float DecodeColumn(const std::byte* record, const std::byte* side,
                                         int64_t column) noexcept {
    if (column >= kQuantized) {
      return detail::DecodeAt<bfloat16>(record + kQuantized, column - kQuantized);
    }
    return detail::DecodeAt<float8_e4m3fn>(record, column) *
           detail::DecodeAt<float8_e8m0>(side, column / kTile);
  }
};

struct Bf16Ds4 : Latent<bfloat16> {
  static constexpr int64_t kWidth = 512;
};

}  // namespace lathe

#endif  // LATHE_CACHE_DS4_H_

#ifdef LATHE_TARGET_PASS
#include "lathe/cache/encode_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Element>
void DecodeRecord(Fp8Ds4, const std::byte* record, const std::byte* side, int64_t, Element* row) {
  using F = Fp8Ds4;
  float scales[F::kTiles];
  for (int64_t i = 0; i < F::kTiles; ++i) scales[i] = detail::DecodeAt<float8_e8m0>(side, i);
  DecodeCodes<float8_e4m3fn>(record, F::kQuantized, TileScales<F::kTile, true>{scales}, row);
  ConvertRow(reinterpret_cast<const bfloat16*>(record + F::kQuantized), row + F::kQuantized,
             F::kWidth - F::kQuantized);
}

inline auto AmaxOf(Fp8Ds4, const TokenRow& token) { return FiniteAmax<Fp8Ds4>(token); }

inline void EncodeRecord(Fp8Ds4, const TokenRow& token, const TileAmax<Fp8Ds4::kTiles>& amax,
                         const ScaleRule&, std::byte* record, std::byte* side) {
  using F = Fp8Ds4;
  EncodePowerOfTwoTiles<float8_e4m3fn, F::kTile>(token, amax, record, side);
  side[F::kTiles] = std::byte{0};
  token.Round<F::kWidth - F::kQuantized>(F::kQuantized, record + F::kQuantized);
}

template <class Element>
void DecodeRecord(Bf16Ds4, const std::byte* record, const std::byte* side, int64_t width,
                  Element* row) {
  DecodeRecord(Latent<bfloat16>(), record, side, width, row);
}

inline void EncodeRecord(Bf16Ds4, const TokenRow& token, const ScaleRule& rule, std::byte* record,
                         std::byte* side) {
  EncodeRecord(Latent<bfloat16>(), token, rule, record, side);
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // LATHE_TARGET_PASS
