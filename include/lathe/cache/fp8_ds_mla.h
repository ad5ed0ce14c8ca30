// SPDX-License-Identifier: Apache-2.0
// Fp8DsMla: the fp8 cache of DeepSeek-V3.2's sparse attention (FlashMLA's "fp8 with scale", vLLM's
// fp8_ds_mla). 512 latent columns in tiles of 128 with a float scale each, 64 rope columns
// unscaled.
//
//   record:  | 512 x e4m3fn | 4 x float32 scale | 64 x bfloat16 rope |     656 bytes, aligned to 4
//            0              512                 528                656
//
//   value = code * scale of its tile. Any float is read as a scale; max(amax / 448, FLT_MIN) is
//   written, or, on request, the power of two that the ue8m0 formats would use.
#ifndef LATHE_CACHE_FP8_DS_MLA_H_
#define LATHE_CACHE_FP8_DS_MLA_H_

#include "lathe/cache/scale_rules.h"

namespace lathe {

struct Fp8DsMla : FormatDefaults {
  static constexpr BFloat16Rows kBFloat16 = BFloat16Rows::kRounded;
  static constexpr size_t kAlignment = alignof(float);
  static constexpr int64_t kWidth = 576;
  LATHE_INLINE static constexpr int64_t RecordBytes(int64_t) noexcept { return 656; }

  static constexpr int64_t kLatent = 512;  // columns, and bytes
  static constexpr int64_t kTile = 128;
  static constexpr int64_t kTiles = kLatent / kTile;
  static constexpr int64_t kRope = kLatent + kTiles * static_cast<int64_t>(sizeof(float));  // byte

  static constexpr int64_t kScaleColumns = kTile;
  static constexpr int64_t kNumScales = kTiles;
  static LATHE_INLINE float ScaleAt(const std::byte* record, const std::byte*,
                                    int64_t tile) noexcept {
    return detail::LoadAs<float>(record + kLatent + tile * static_cast<int64_t>(sizeof(float)));
  }

  LATHE_INLINE static float DecodeColumn(const std::byte* record, const std::byte*,
                                         int64_t column) noexcept {
    if (column >= kLatent) return detail::DecodeAt<bfloat16>(record + kRope, column - kLatent);
    return detail::DecodeAt<float8_e4m3fn>(record, column) *
           ScaleAt(record, nullptr, column / kTile);
  }
};

}  // namespace lathe

#endif  // LATHE_CACHE_FP8_DS_MLA_H_

#ifdef LATHE_TARGET_PASS
#include "lathe/cache/encode_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Element>
void DecodeRecord(Fp8DsMla, const std::byte* record, const std::byte*, int64_t, Element* row) {
  using F = Fp8DsMla;
  float scales[F::kTiles];
  std::memcpy(scales, record + F::kLatent, sizeof(scales));
  DecodeCodes<float8_e4m3fn>(record, F::kLatent, TileScales<F::kTile, false>{scales}, row);
  ConvertRow(reinterpret_cast<const bfloat16*>(record + F::kRope), row + F::kLatent,
             F::kWidth - F::kLatent);
}

template <class Element>
void DecodeUnscaled(Fp8DsMla, const std::byte* record, const std::byte*, int64_t, Element* row) {
  using F = Fp8DsMla;
  DecodeCodes<float8_e4m3fn>(record, F::kLatent, Unscaled(), row);
  ConvertRow(reinterpret_cast<const bfloat16*>(record + F::kRope), row + F::kLatent,
             F::kWidth - F::kLatent);
}

inline auto AmaxOf(Fp8DsMla, const TokenRow& token) { return FiniteAmax<Fp8DsMla>(token); }

inline void EncodeRecord(Fp8DsMla, const TokenRow& token, const TileAmax<Fp8DsMla::kTiles>& amax,
                         const ScaleRule& rule, std::byte* record, std::byte*) {
  using F = Fp8DsMla;
  HWY_ALIGN float scales[PaddedTiles(F::kTiles)];
  if (rule.power_of_two) {
    std::byte powers[F::kTiles];
    EncodePowerOfTwoTiles<float8_e4m3fn, F::kTile>(token, amax, record, powers);
    for (int64_t i = 0; i < F::kTiles; ++i) scales[i] = detail::DecodeAt<float8_e8m0>(powers, i);
  } else {
    ExactScales(amax, scales);
    token.Visit<F::kLatent>(0, [&](const auto* x) {
      EncodeTiles<float8_e4m3fn, F::kTile, F::kTiles>(x, scales, record);
    });
  }
  std::memcpy(record + F::kLatent, scales, F::kTiles * sizeof(float));
  token.Round<F::kWidth - F::kLatent>(F::kLatent, record + F::kRope);
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // LATHE_TARGET_PASS
