// SPDX-License-Identifier: Apache-2.0
// Tiles of columns: their largest magnitudes, scales and codes.
#if defined(LATHE_CACHE_ENCODE_TILES_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_CACHE_ENCODE_TILES_INL_H_
#undef LATHE_CACHE_ENCODE_TILES_INL_H_
#else
#define LATHE_CACHE_ENCODE_TILES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lathe/base/types.h"
#include "lathe/cache/decode-inl.h"
#include "lathe/cache/encode-inl.h"
#include "lathe/cache/scale_rules.h"
#include "lathe/cache/token_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// codes[i] = x[i] / scale, by the correctly rounded quotient, or one that has the same code.
template <class Code, bool kPacked = false, class From>
HWY_NOINLINE void EncodeTile(const From* HWY_RESTRICT x, int64_t n, float scale,
                             std::byte* HWY_RESTRICT codes) {
  int64_t i = 0;
  // With scales from here on, float subnormals, quotients too, are below half of the least code.
  if (scale >= 0x1p-100f) {
    const OneScale divisor{hn::Set(F32(), scale)};
    const auto encode = [&](const auto& quotient) {
      i = EncodeVectors<Code, kPacked, false>(x, n, quotient, codes);
    };
    if (IsPowerOfTwo(scale) && scale <= 0x1p100f) {
      if constexpr (std::is_same_v<From, bfloat16>) {
        const uint32_t field = detail::BitsOf(scale) >> detail::kFloatMantissaBits;
        encode(PowerOfTwo{hn::Set(U16x2(), static_cast<uint16_t>(OriginOf<Code>(field)))});
      } else {
        encode(ExactInverse<OneScale>{{hn::Set(F32(), 1.0f / scale)}});
      }
    } else if (HaveSplitInverse(divisor.lanes)) {
      VF upper, lower;
      SplitInverseOf(divisor.lanes, upper, lower);
      encode(SplitInverse<OneScale>{{upper}, {lower}});
    } else {
      encode(Divisor<OneScale>{divisor});
    }
  }
  const auto code = [&](int64_t c) {
    return std::byte{FromFloat<Code>(DivideTiny(ToFloat(x[c]), scale)).bits};
  };
  if constexpr (kPacked) {
    for (; i < n; i += 2) codes[i / 2] = code(i) | code(i + 1) << 4;
  } else {
    for (; i < n; ++i) codes[i] = code(i);
  }
}

// Lengths of arrays of one value a tile that are worked on by whole vectors.
constexpr int64_t PaddedTiles(int64_t tiles) { return RoundUp(tiles, kLanes); }

// Tiles with a power of two each, given by its exponent field, that fits them.
template <class Code, int64_t kTile, int64_t kTiles, bool kPacked = false, class From>
LATHE_INLINE void EncodeTilesByPowers(const From* HWY_RESTRICT x, const uint32_t* fields,
                                      std::byte* HWY_RESTRICT codes) {
  constexpr bool kIsBFloat16 = std::is_same_v<From, bfloat16>;
  const U32 du;
  HWY_ALIGN uint32_t origins[PaddedTiles(kTiles)];
  HWY_ALIGN float inverses[PaddedTiles(kTiles)];
  auto is_unusual = hn::MaskFalse(du);
  for (int64_t i = 0; i < kTiles; i += kLanes) {
    const VU field = hn::Load(du, fields + i);
    is_unusual = hn::Or(is_unusual, hn::Gt(hn::Sub(field, hn::Set(du, 27u)), hn::Set(du, 200u)));
    if constexpr (kIsBFloat16) {
      const VU origin = hn::Add(hn::ShiftLeft<7>(field), hn::Set(du, OriginOf<Code>(0)));
      hn::Store(hn::Or(origin, hn::ShiftLeft<16>(origin)), du, origins + i);
    } else {
      const VU inverse = hn::Sub(hn::Set(du, 254u), field);
      hn::Store(hn::BitCast(F32(), hn::ShiftLeft<detail::kFloatMantissaBits>(inverse)), F32(),
                inverses + i);
    }
  }
  if (HWY_LIKELY(hn::AllFalse(du, is_unusual))) {
    if constexpr (kIsBFloat16) {
      EncodeVectors<Code, kPacked, true>(x, kTile * kTiles, PowersOfTwo<kTile>{origins}, codes);
    } else {
      using Scales = TileScales<kTile, true>;
      EncodeVectors<Code, kPacked, true>(x, kTile * kTiles, ExactInverse<Scales>{{inverses}},
                                         codes);
    }
    return;
  }
  for (int64_t i = 0; i < kTiles; ++i) {
    const float8_e8m0 scale{static_cast<uint8_t>(fields[i])};
    EncodeTile<Code, kPacked>(x + i * kTile, kTile, ToFloat(scale),
                              codes + i * kTile / (kPacked ? 2 : 1));
  }
}

// Tiles with any scale each that fits them.
template <class Code, int64_t kTile, int64_t kTiles, bool kPacked = false, class From>
LATHE_INLINE void EncodeTiles(const From* HWY_RESTRICT x, const float* scales,
                              std::byte* HWY_RESTRICT codes) {
  const F32 df;
  HWY_ALIGN float upper[PaddedTiles(kTiles)], lower[PaddedTiles(kTiles)];
  bool have_inverses = true;
  for (int64_t i = 0; i < kTiles; i += kLanes) {
    const auto n = static_cast<size_t>((std::min)(kTiles - i, kLanes));
    const VF scale = hn::LoadNOr(hn::Set(df, 1.0f), df, scales + i, n);
    VF greater, lesser;
    SplitInverseOf(scale, greater, lesser);
    have_inverses = have_inverses && HaveSplitInverse(scale);
    hn::Store(greater, df, upper + i);
    hn::Store(lesser, df, lower + i);
  }
  if (HWY_LIKELY(have_inverses)) {
    using Scales = TileScales<kTile, false>;
    EncodeVectors<Code, kPacked, true>(x, kTile * kTiles, SplitInverse<Scales>{{upper}, {lower}},
                                       codes);
    return;
  }
  for (int64_t i = 0; i < kTiles; ++i) {
    EncodeTile<Code, kPacked>(x + i * kTile, kTile, scales[i],
                              codes + i * kTile / (kPacked ? 2 : 1));
  }
}

// A magnitude as the bits of a float, which order like numbers; above infinity: NaN.
LATHE_INLINE uint32_t MagnitudeOf(float x) { return detail::BitsOf(x) & ~detail::kFloatSign; }
LATHE_INLINE uint32_t MagnitudeOf(bfloat16 x) { return uint32_t{x.bits & 0x7FFFu} << 16; }

// The maxima of neighbours, kRounds times over: kVectors vectors become kVectors / 2^kRounds.
template <int64_t kVectors, int kRounds, class D>
LATHE_INLINE void FoldNeighbours(D d, hn::Vec<D>* v) {
  if constexpr (kRounds > 0) {
    constexpr int64_t kHalf = (kVectors + 1) / 2;
    LATHE_UNROLL
    for (int64_t i = 0; i < kHalf; ++i) {
      const auto a = v[2 * i], b = v[(std::min)(2 * i + 1, kVectors - 1)];
      v[i] = hn::Max(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
    }
    FoldNeighbours<kHalf, kRounds - 1>(d, v);
  }
}

// maxima[i] = the largest magnitude of tile i, and those of some tile in the padding. Vertically as far as a tile is wider than a vector,
// then by neighbours, all tiles at once: reductions one by one are long chains.
template <int64_t kTile, int64_t kTiles, class From>
LATHE_INLINE void TileMaxima(const From* x, uint32_t* maxima) {
  using T = std::conditional_t<sizeof(From) == 2, int16_t, int32_t>;  // lanes without their signs
  const hn::Repartition<T, F32> d;
  constexpr auto kN = static_cast<int64_t>(HWY_MAX_LANES_D(decltype(d)));
  constexpr int64_t kWidth = (std::min)(kTile, kN), kStep = (std::max)(kTile, kN);
  constexpr int64_t kVectors = kTiles * kWidth / kN;
  static_assert(kVectors * kN == kTiles * kWidth && (kWidth & (kWidth - 1)) == 0);
  const auto magnitudes = [&](int64_t c) {
    const auto v = hn::LoadU(d, reinterpret_cast<const T*>(x) + c);
    return hn::And(v, hn::Set(d, (std::numeric_limits<T>::max)()));
  };
  hn::Vec<decltype(d)> v[kVectors];
  LATHE_UNROLL
  for (int64_t i = 0; i < kVectors; ++i) {
    v[i] = magnitudes(i * kStep);
    LATHE_UNROLL
    for (int64_t c = kN; c < kStep; c += kN) v[i] = hn::Max(v[i], magnitudes(i * kStep + c));
  }
  constexpr int kRounds = static_cast<int>(hwy::FloorLog2(static_cast<uint32_t>(kWidth)));
  FoldNeighbours<kVectors, kRounds>(d, v);
  HWY_ALIGN T max[RoundUp(kTiles, kN)];
  for (int64_t i = 0; i * kN < kTiles; ++i) hn::Store(v[i], d, max + i * kN);
  for (int64_t i = 0; i < kTiles; i += kLanes) {
    if constexpr (sizeof(T) == 2) {
      const auto half = hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(max) + i);
      hn::Store(hn::ShiftLeft<16>(hn::PromoteTo(U32(), half)), U32(), maxima + i);
    } else {
      hn::Store(hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(max) + i), U32(), maxima + i);
    }
  }
}

// The largest magnitude but NaN; an infinity is the largest float.
template <class From>
uint32_t MaxWithoutNan(const From* x, int64_t n) {
  uint32_t max = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = MagnitudeOf(x[i]);
    if (magnitude <= detail::kFloatInfinity) max = (std::max)(max, magnitude);
  }
  return (std::min)(max, detail::kFloatInfinity - 1);
}

// The amax of each tile as bits: NaN do not count, they keep their own code; an infinity counts as the
// largest float, so that it stays huge and everything else becomes small beside it.
template <int64_t kTile, int64_t kTiles, class From>
LATHE_INLINE void FiniteMaxima(const From* x, uint32_t* maxima) {
  const U32 du;
  TileMaxima<kTile, kTiles>(x, maxima);
  auto is_nan = hn::MaskFalse(du);
  for (int64_t i = 0; i < kTiles; i += kLanes) {
    const VU max = hn::Load(du, maxima + i);
    is_nan = hn::Or(is_nan, hn::Gt(max, hn::Set(du, detail::kFloatInfinity)));
    hn::Store(hn::Min(max, hn::Set(du, detail::kFloatInfinity - 1)), du, maxima + i);
  }
  if (HWY_LIKELY(hn::AllFalse(du, is_nan))) return;
  for (int64_t i = 0; i < kTiles; ++i) maxima[i] = MaxWithoutNan(x + i * kTile, kTile);
}

// The amax of one row of any length.
template <class From>
LATHE_INLINE float FiniteMax(const From* x, int64_t n) {
  int64_t i = 0;
  using T = std::conditional_t<sizeof(From) == 2, int16_t, int32_t>;
  const hn::Repartition<T, F32> d;
  constexpr auto kN = static_cast<int64_t>(HWY_MAX_LANES_D(decltype(d)));
  auto lanes = hn::Zero(d);
  for (; i + kN <= n; i += kN) {
    const auto v = hn::LoadU(d, reinterpret_cast<const T*>(x) + i);
    lanes = hn::Max(lanes, hn::And(v, hn::Set(d, (std::numeric_limits<T>::max)())));
  }
  constexpr int kShift = 32 - 8 * static_cast<int>(sizeof(T));
  uint32_t max = static_cast<uint32_t>(hn::ReduceMax(d, lanes)) << kShift;
  for (; i < n; ++i) max = (std::max)(max, MagnitudeOf(x[i]));
  if (HWY_UNLIKELY(max > detail::kFloatInfinity)) max = MaxWithoutNan(x, n);
  return detail::FloatOf((std::min)(max, detail::kFloatInfinity - 1));
}

// The amax of the tiles of a row, which EncodeRecord is given (formats.h).
template <int64_t kTiles>
struct TileAmax {
  HWY_ALIGN uint32_t bits[PaddedTiles(kTiles)];
  float At(int64_t tile) const { return detail::FloatOf(bits[tile]); }
};
// For formats of Format::kTiles tiles whose scales are finite in any case, and for those whose scales may be NaN.
template <class Format, int64_t kTile = Format::kTile, int64_t kTiles = Format::kTiles>
LATHE_INLINE TileAmax<kTiles> FiniteAmax(const TokenRow& token) {
  TileAmax<kTiles> amax;
  token.Visit<kTile * kTiles>(0, [&](const auto* x) { FiniteMaxima<kTile, kTiles>(x, amax.bits); });
  return amax;
}
template <class Format, int64_t kTile = Format::kTile, int64_t kTiles = Format::kTiles>
LATHE_INLINE TileAmax<kTiles> AnyAmax(const TokenRow& token) {
  TileAmax<kTiles> amax;
  token.Visit<kTile * kTiles>(0, [&](const auto* x) { TileMaxima<kTile, kTiles>(x, amax.bits); });
  return amax;
}

// A row of e4m3 codes under one scale, which is returned: keys and queries of an indexer.
template <class From>
float EncodeIndexerRow(const From* x, int64_t n, float amax, bool power_of_two, std::byte* codes) {
  const float scale = power_of_two ? ToFloat(PowerOfTwoScale(amax)) : IndexerScale(amax);
  EncodeTile<float8_e4m3fn>(x, n, scale, codes);
  return scale;
}

// CeilPowerOfTwoQuotient(max(amax, floor), largest) of each tile: exponent fields and bytes.
template <int64_t kTiles>
LATHE_INLINE void PowerOfTwoScales(const TileAmax<kTiles>& amax, float floor, float largest,
                                   uint32_t* fields, std::byte* bytes) {
  const U32 du;
  const hn::Rebind<uint8_t, U32> d8;
  uint8_t padded[PaddedTiles(kTiles)];
  const VU offset = hn::Set(du, detail::kFloatMantissa - detail::BitsOf(largest));
  for (int64_t i = 0; i < kTiles; i += kLanes) {
    const VU max = hn::Max(hn::Load(du, amax.bits + i), hn::Set(du, detail::BitsOf(floor)));
    // Up to half of the least scale: no borrow goes beyond the exponent field.
    const VU quotient = hn::ShiftRight<detail::kFloatMantissaBits>(
        hn::Add(hn::Add(max, offset), hn::Set(du, uint32_t{127} << detail::kFloatMantissaBits)));
    const auto is_finite = hn::Lt(max, hn::Set(du, detail::kFloatInfinity));
    const VU field = hn::IfThenElse(is_finite, quotient, hn::Set(du, 255u));
    hn::Store(field, du, fields + i);
    hn::StoreU(hn::TruncateTo(d8, field), d8, padded + i);
  }
  std::memcpy(bytes, padded, static_cast<size_t>(kTiles));
}

// max(amax / 448, FLT_MIN) of each tile, and the padding; compared before the division, which
// flush-to-zero could make 0.
template <int64_t kTiles>
LATHE_INLINE void ExactScales(const TileAmax<kTiles>& amax, float* scales) {
  const F32 df;
  constexpr float kSmallest = (std::numeric_limits<float>::min)();
  for (int64_t i = 0; i < kTiles; i += kLanes) {
    const VF max = hn::BitCast(df, hn::Load(U32(), amax.bits + i));
    const auto is_usual = hn::Gt(max, hn::Set(df, kSmallest * kLargestE4m3));
    const VF quotient = hn::Div(max, hn::Set(df, kLargestE4m3));
    hn::Store(hn::IfThenElse(is_usual, quotient, hn::Set(df, kSmallest)), df, scales + i);
  }
}

// The e4m3 numbers nearest to amax / 6, within [2^-9, 448]. Not rounded up: up to 1/16 of a tile's largest values saturate.
// e2m1 codes have no NaN: it is the scale that is NaN where amax is not finite.
template <int64_t kTiles>
LATHE_INLINE void E2m1Scales(const TileAmax<kTiles>& amax, float8_e4m3fn* scales) {
  const F32 df;
  static_assert(kTiles % kLanes == 0);
  constexpr int64_t kPadded = RoundUp(kTiles, kCodesAtOnce);
  HWY_ALIGN float clamped[kPadded];
  float8_e4m3fn codes[kPadded];
  std::fill(clamped + kTiles, clamped + kPadded, 1.0f);
  for (int64_t i = 0; i < kTiles; i += kLanes) {
    const VF max = hn::BitCast(df, hn::Load(U32(), amax.bits + i));
    const VF exact = hn::Div(max, hn::Set(df, kLargestE2m1));
    const VF scale = hn::Min(hn::Max(exact, hn::Set(df, 0x1p-9f)), hn::Set(df, kLargestE4m3));
    hn::Store(hn::IfThenElse(hn::Lt(max, hn::Inf(df)), scale, hn::NaN(df)), df, clamped + i);
  }
  EncodeVectors<float8_e4m3fn, false, true>(clamped, kPadded,
                                            ExactInverse<OneScale>{{hn::Set(df, 1.0f)}},
                                            reinterpret_cast<std::byte*>(codes));
  std::memcpy(scales, codes, kTiles * sizeof(codes[0]));
}

// Codes of tiles that are not all finite, whose scales are NaN.
template <int64_t kTile, int64_t kTiles>
LATHE_INLINE void ClearTilesOfNaN(const TileAmax<kTiles>& amax, std::byte* packed) {
  const U32 du;
  auto is_any = hn::MaskFalse(du);
  for (int64_t i = 0; i < kTiles; i += kLanes) {
    const auto infinity = hn::Set(du, detail::kFloatInfinity);
    is_any = hn::Or(is_any, hn::Ge(hn::Load(du, amax.bits + i), infinity));
  }
  if (HWY_LIKELY(hn::AllFalse(du, is_any))) return;
  for (int64_t i = 0; i < kTiles; ++i) {
    if (amax.bits[i] < detail::kFloatInfinity) continue;
    std::memset(packed + i * kTile / 2, 0, static_cast<size_t>(kTile / 2));
  }
}

// NVFP4: tiles of 16 packed e2m1 codes with a scale in e4m3.
constexpr int64_t kNvfp4Tile = 16;
template <int64_t kTiles>
LATHE_INLINE void EncodeNvfp4Tiles(const TokenRow& token, const TileAmax<kTiles>& amax,
                                   std::byte* packed, float8_e4m3fn* scales) {
  float values[kTiles];
  E2m1Scales(amax, scales);
  DecodeCodes<float8_e4m3fn>(reinterpret_cast<const std::byte*>(scales), kTiles, Unscaled(),
                             values);
  token.Visit<kNvfp4Tile * kTiles>(0, [&](const auto* x) {
    EncodeTiles<float4_e2m1, kNvfp4Tile, kTiles, true>(x, values, packed);
  });
  ClearTilesOfNaN<kNvfp4Tile>(amax, packed);
}

// Tiles of e4m3 codes, or of packed e2m1 codes (MXFP4), with a power of two each, whose bytes go to `scales`:
// PowerOfTwoScale(amax) or, of e2m1, 2^ceil(log2(max(amax, 6 * 2^-126) / 6)), never a float subnormal, NaN where amax is not
// finite.
template <class Code, int64_t kTile, int64_t kTiles>
LATHE_INLINE void EncodePowerOfTwoTiles(const TokenRow& token, const TileAmax<kTiles>& amax,
                                        std::byte* codes, std::byte* scales) {
  constexpr bool kIsE2m1 = std::is_same_v<Code, float4_e2m1>;
  HWY_ALIGN uint32_t fields[PaddedTiles(kTiles)];
  PowerOfTwoScales(amax, kIsE2m1 ? kFloorE2m1 : kFloorE4m3, kIsE2m1 ? kLargestE2m1 : kLargestE4m3,
                   fields, scales);
  token.Visit<kTile * kTiles>(0, [&](const auto* x) {
    EncodeTilesByPowers<Code, kTile, kTiles, kIsE2m1>(x, fields, codes);
  });
  if constexpr (kIsE2m1) ClearTilesOfNaN<kTile>(amax, codes);
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
