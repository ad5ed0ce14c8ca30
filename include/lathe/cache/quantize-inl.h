// SPDX-License-Identifier: Apache-2.0
// Tiles of columns: their largest magnitudes, scales and codes.
#include "lathe/cache/encode-inl.h"

// codes[i] = x[i] / scale, by the correctly rounded quotient, or one that has the same code.
template <class Code, bool kPacked = false, class From>
HWY_NOINLINE void QuantizeTile(const From* HWY_RESTRICT x, int64_t n, float scale,
                               std::byte* HWY_RESTRICT codes) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  // With scales from here on, float subnormals, quotients too, are below half of the least code.
  if (scale >= 0x1p-100f) {
    const OneScale divisor{hn::Set(F32(), scale)};
    if (!IsPowerOfTwo(scale) || scale > 0x1p100f) {
      i = EncodeVectors<Code, kPacked, false>(x, n, Divide<OneScale>{divisor}, codes);
    } else if constexpr (std::is_same_v<From, bfloat16>) {
      constexpr int64_t kAll = int64_t{1} << 62;
      const uint32_t least = (detail::BitsOf(scale) >> 16) +
                             (static_cast<uint32_t>(kLeastNormal<Code> - detail::kFloatBias) << 7);
      i = EncodeVectors<Code, kPacked, false>(x, n, PowersOfTwo<kAll>{&least}, codes);
    } else {
      const OneScale factor{hn::Set(F32(), 1.0f / scale)};
      i = EncodeVectors<Code, kPacked, false>(x, n, Multiply<OneScale>{factor}, codes);
    }
  }
#endif
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
constexpr int64_t Padded(int64_t tiles) { return RoundUp(tiles, kLanes); }

// Tiles with a power of two each, given by its exponent field, that fits them.
template <class Code, int64_t kTile, int64_t kTiles, bool kPacked = false, class From>
LATHE_INLINE void QuantizeByPowers(const From* HWY_RESTRICT x, const uint32_t* fields,
                                   std::byte* HWY_RESTRICT codes) {
#if HWY_TARGET != HWY_SCALAR
  constexpr bool kIsBFloat16 = std::is_same_v<From, bfloat16>;
  const U32 du;
  HWY_ALIGN uint32_t steps[Padded(kTiles)];  // what the quotients are told: least or inverse
  auto is_unusual = hn::MaskFalse(du);
  for (int64_t i = 0; i < kTiles; i += kLanes) {
    const VU field = hn::Load(du, fields + i);
    is_unusual = hn::Or(is_unusual, hn::Gt(hn::Sub(field, hn::Set(du, 27u)), hn::Set(du, 200u)));
    constexpr auto kOffset = static_cast<uint32_t>(kLeastNormal<Code> - detail::kFloatBias);
    if constexpr (kIsBFloat16) {
      hn::Store(hn::ShiftLeft<7>(hn::Add(field, hn::Set(du, kOffset))), du, steps + i);
    } else {
      const VU inverse = hn::Sub(hn::Set(du, 254u), field);
      hn::Store(hn::ShiftLeft<detail::kFloatMantissaBits>(inverse), du, steps + i);
    }
  }
  if (HWY_LIKELY(hn::AllFalse(du, is_unusual))) {
    if constexpr (kIsBFloat16) {
      EncodeVectors<Code, kPacked, true>(x, kTile * kTiles, PowersOfTwo<kTile>{steps}, codes);
    } else {
      using Scales = TileScales<kTile, true>;
      float inverses[kTiles];
      std::memcpy(inverses, steps, sizeof(inverses));
      EncodeVectors<Code, kPacked, true>(x, kTile * kTiles, Multiply<Scales>{{inverses}}, codes);
    }
    return;
  }
#endif
  for (int64_t i = 0; i < kTiles; ++i) {
    const float8_e8m0 scale{static_cast<uint8_t>(fields[i])};
    QuantizeTile<Code, kPacked>(x + i * kTile, kTile, ToFloat(scale),
                                codes + i * kTile / (kPacked ? 2 : 1));
  }
}

// Tiles with any scale each that fits them: quotients are below 2^20, or the scale is above 2^100.
template <class Code, int64_t kTile, int64_t kTiles, bool kPacked = false, class From>
LATHE_INLINE void QuantizeTiles(const From* HWY_RESTRICT x, const float* scales,
                                std::byte* HWY_RESTRICT codes) {
#if HWY_TARGET != HWY_SCALAR
  bool is_correct = true;
  float inverses[kTiles];
  for (int64_t i = 0; i < kTiles; ++i) {
    inverses[i] = 1.0f / scales[i];
    is_correct = is_correct && IsCorrect(scales[i]);
  }
  if (HWY_LIKELY(is_correct)) {
    using Scales = TileScales<kTile, false>;
    EncodeVectors<Code, kPacked, true>(x, kTile * kTiles, Correct<Scales>{{scales}, {inverses}},
                                       codes);
    return;
  }
#endif
  for (int64_t i = 0; i < kTiles; ++i) {
    QuantizeTile<Code, kPacked>(x + i * kTile, kTile, scales[i],
                                codes + i * kTile / (kPacked ? 2 : 1));
  }
}

// A magnitude as the bits of a float, which order like numbers; above infinity: NaN.
LATHE_INLINE uint32_t MagnitudeOf(float x) { return detail::BitsOf(x) & ~detail::kFloatSign; }
LATHE_INLINE uint32_t MagnitudeOf(bfloat16 x) { return uint32_t{x.bits & 0x7FFFu} << 16; }

#if HWY_TARGET != HWY_SCALAR

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

#endif

// maxima[i] = the largest magnitude of tile i, and those of some tile in the padding. Vertically as far as a tile is wider than a vector,
// then by neighbours, all tiles at once: reductions one by one are long chains.
template <int64_t kTile, int64_t kTiles, class From>
LATHE_INLINE void TileMaxima(const From* x, uint32_t* maxima) {
#if HWY_TARGET != HWY_SCALAR
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
#else
  for (int64_t i = 0; i < kTiles; ++i) {
    maxima[i] = 0;
    for (int64_t c = i * kTile; c < (i + 1) * kTile; ++c) {
      maxima[i] = (std::max)(maxima[i], MagnitudeOf(x[c]));
    }
  }
#endif
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
  uint32_t max = 0;
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  using T = std::conditional_t<sizeof(From) == 2, int16_t, int32_t>;
  const hn::Repartition<T, F32> d;
  constexpr auto kN = static_cast<int64_t>(HWY_MAX_LANES_D(decltype(d)));
  auto lanes = hn::Zero(d);
  for (; i + kN <= n; i += kN) {
    const auto v = hn::LoadU(d, reinterpret_cast<const T*>(x) + i);
    lanes = hn::Max(lanes, hn::And(v, hn::Set(d, (std::numeric_limits<T>::max)())));
  }
  max = static_cast<uint32_t>(hn::ReduceMax(d, lanes)) << (32 - 8 * static_cast<int>(sizeof(T)));
#endif
  for (; i < n; ++i) max = (std::max)(max, MagnitudeOf(x[i]));
  if (HWY_UNLIKELY(max > detail::kFloatInfinity)) max = MaxWithoutNan(x, n);
  return detail::FloatOf((std::min)(max, detail::kFloatInfinity - 1));
}

// A row of e4m3 codes under one scale, which is returned: keys and queries of an indexer.
template <class From>
float QuantizeIndexerRow(const From* x, int64_t n, bool power_of_two, std::byte* codes) {
  const float amax = FiniteMax(x, n);
  const float scale = power_of_two ? ToFloat(PowerOfTwoScale(amax)) : IndexerScale(amax);
  QuantizeTile<float8_e4m3fn>(x, n, scale, codes);
  return scale;
}

// CeilPowerOfTwoQuotient(max(amax, floor), largest) of each tile: exponent fields and bytes.
template <int64_t kTiles>
LATHE_INLINE void PowerOfTwoScales(const uint32_t* amax, float floor, float largest,
                                   uint32_t* fields, std::byte* bytes) {
  const U32 du;
  const hn::Rebind<uint8_t, U32> d8;
  uint8_t padded[Padded(kTiles)];
  const VU offset = hn::Set(du, detail::kFloatMantissa - detail::BitsOf(largest));
  for (int64_t i = 0; i < kTiles; i += kLanes) {
    const VU max = hn::Max(hn::Load(du, amax + i), hn::Set(du, detail::BitsOf(floor)));
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

// Tiles of e4m3 codes, each with PowerOfTwoScale(amax): codes to `codes`, a scale byte each to
// `scales`.
template <int64_t kTile, int64_t kTiles, class From>
LATHE_INLINE void QuantizePowerOfTwoTiles(const From* x, std::byte* codes, std::byte* scales) {
  HWY_ALIGN uint32_t amax[Padded(kTiles)], fields[Padded(kTiles)];
  FiniteMaxima<kTile, kTiles>(x, amax);
  PowerOfTwoScales<kTiles>(amax, kFloorE4m3, kLargestE4m3, fields, scales);
  QuantizeByPowers<float8_e4m3fn, kTile, kTiles>(x, fields, codes);
}

template <int64_t kTile, int64_t kTiles>
void EncodePowerOfTwoTiles(const TokenRow& token, std::byte* codes, std::byte* scales) {
  token.Visit<kTile * kTiles>(
      0, [&](const auto* x) { QuantizePowerOfTwoTiles<kTile, kTiles>(x, codes, scales); });
}

// E2m1Scale of each amax, its value and the inverse of that.
template <int64_t kTiles>
LATHE_INLINE void E2m1Scales(const uint32_t* amax, float8_e4m3fn* codes, float* scales,
                             float* inverses) {
  using F = detail::FormatOf<float8_e4m3fn>;
  const U32 du;
  const I32 di;
  const F32 df;
  const hn::Rebind<uint8_t, U32> d8;
  static_assert(kTiles % kLanes == 0);
  for (int64_t i = 0; i < kTiles; i += kLanes) {
    const VU bits = hn::Load(du, amax + i);
    const VF exact = hn::Div(hn::BitCast(df, bits), hn::Set(df, kLargestE2m1));
    const VF clamped = hn::Min(hn::Max(exact, hn::Set(df, 0x1p-9f)), hn::Set(df, kLargestE4m3));
    const auto is_finite = hn::Lt(bits, hn::Set(du, detail::kFloatInfinity));
    const VU code = hn::IfThenElse(is_finite, EncodeMagnitudes<float8_e4m3fn>(clamped),
                                   hn::Set(du, F::kNanCode));
    hn::StoreU(hn::TruncateTo(d8, code), d8, &codes[i].bits);

    constexpr uint32_t kRebias = static_cast<uint32_t>(detail::kFloatBias - F::kExponentBias)
                                 << detail::kFloatMantissaBits;
    const VU normal = hn::Add(hn::ShiftLeft<F::kDroppedBits>(code), hn::Set(du, kRebias));
    const VF subnormal = hn::Mul(hn::ConvertTo(df, hn::BitCast(di, code)), hn::Set(df, 0x1p-9f));
    const auto is_normal = hn::Gt(code, hn::Set(du, F::kMantissa));
    const VF scale =
        hn::IfThenElse(hn::RebindMask(df, is_normal), hn::BitCast(df, normal), subnormal);
    hn::Store(scale, df, scales + i);
    hn::Store(hn::Div(hn::Set(df, 1.0f), scale), df, inverses + i);
  }
}

// Codes of tiles that are not all finite, whose scales are NaN.
template <int64_t kTile, int64_t kTiles>
LATHE_INLINE void ClearTilesOfNaN(const uint32_t* amax, std::byte* packed) {
  for (int64_t i = 0; i < kTiles; ++i) {
    if (HWY_LIKELY(amax[i] < detail::kFloatInfinity)) continue;
    std::memset(packed + i * kTile / 2, 0, static_cast<size_t>(kTile / 2));
  }
}

// NVFP4: tiles of 16 packed e2m1 codes with a scale in e4m3, which has few enough bits for Correct.
template <int64_t kTiles>
void EncodeNvfp4Tiles(const TokenRow& token, std::byte* packed, float8_e4m3fn* scales) {
  constexpr int64_t kTile = 16;
  token.Visit<kTile * kTiles>(0, [&](const auto* x) {
    HWY_ALIGN uint32_t amax[Padded(kTiles)];
    HWY_ALIGN float values[kTiles], inverses[kTiles];
    TileMaxima<kTile, kTiles>(x, amax);
    E2m1Scales<kTiles>(amax, scales, values, inverses);
#if HWY_NATIVE_FMA && HWY_TARGET != HWY_SCALAR
    using Scales = TileScales<kTile, false>;
    EncodeVectors<float4_e2m1, true, true>(x, kTile * kTiles, Correct<Scales>{{values}, {inverses}},
                                           packed);
#else
    QuantizeTiles<float4_e2m1, kTile, kTiles, true>(x, values, packed);
#endif
    ClearTilesOfNaN<kTile, kTiles>(amax, packed);
  });
}

// MXFP4: packed e2m1 codes with a power of two for each tile.
template <int64_t kTile, int64_t kTiles>
void EncodeMxfp4Tiles(const TokenRow& token, std::byte* packed, std::byte* scales) {
  token.Visit<kTile * kTiles>(0, [&](const auto* x) {
    HWY_ALIGN uint32_t amax[Padded(kTiles)], fields[Padded(kTiles)];
    TileMaxima<kTile, kTiles>(x, amax);
    PowerOfTwoScales<kTiles>(amax, kFloorE2m1, kLargestE2m1, fields, scales);
    QuantizeByPowers<float4_e2m1, kTile, kTiles, true>(x, fields, packed);
    ClearTilesOfNaN<kTile, kTiles>(amax, packed);
  });
}
