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
      const auto field = static_cast<uint8_t>(detail::BitsOf(scale) >> detail::kFloatMantissaBits);
      i = EncodeVectors<Code, kPacked, false>(x, n, PowersOfTwo<kAll>{&field}, codes);
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

// Tiles with a scale each that fits them; powers of two as bytes.
template <class Code, int64_t kTile, int64_t kTiles, bool kPacked = false, class From>
LATHE_INLINE void QuantizeTiles(const From* HWY_RESTRICT x, const float8_e8m0* scales,
                                std::byte* HWY_RESTRICT codes) {
#if HWY_TARGET != HWY_SCALAR
  uint8_t fields[kTiles];
  float inverses[kTiles];
  bool is_usual = true;
  for (int64_t i = 0; i < kTiles; ++i) {
    fields[i] = scales[i].bits;
    inverses[i] = detail::FloatOf((254u - fields[i]) << detail::kFloatMantissaBits);
    is_usual = is_usual && fields[i] >= 27 && fields[i] <= 227;
  }
  if (HWY_LIKELY(is_usual)) {
    if constexpr (std::is_same_v<From, bfloat16>) {
      EncodeVectors<Code, kPacked, true>(x, kTile * kTiles, PowersOfTwo<kTile>{fields}, codes);
    } else {
      using Scales = TileScales<kTile, true>;
      EncodeVectors<Code, kPacked, true>(x, kTile * kTiles, Multiply<Scales>{{inverses}}, codes);
    }
    return;
  }
#endif
  for (int64_t i = 0; i < kTiles; ++i) {
    QuantizeTile<Code, kPacked>(x + i * kTile, kTile, ToFloat(scales[i]),
                                codes + i * kTile / (kPacked ? 2 : 1));
  }
}

// Any scales.
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

// maxima[i] = the largest magnitude of tile i. Vertically as far as a tile is wider than a vector,
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
  for (int64_t i = 0; i < kTiles; ++i) {
    maxima[i] = static_cast<uint32_t>(max[i]) << (32 - 8 * static_cast<int>(sizeof(T)));
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

// The amax of each tile: NaN do not count, they keep their own code; an infinity counts as the
// largest float, so that it stays huge and everything else becomes small beside it.
template <int64_t kTile, int64_t kTiles, class From>
LATHE_INLINE void FiniteMaxima(const From* x, float* amax) {
  uint32_t maxima[kTiles];
  TileMaxima<kTile, kTiles>(x, maxima);
  for (int64_t i = 0; i < kTiles; ++i) {
    uint32_t max = maxima[i];
    if (HWY_UNLIKELY(max > detail::kFloatInfinity)) {
      max = 0;
      for (int64_t c = i * kTile; c < (i + 1) * kTile; ++c) {
        const uint32_t magnitude = MagnitudeOf(x[c]);
        if (magnitude <= detail::kFloatInfinity) max = (std::max)(max, magnitude);
      }
    }
    amax[i] = detail::FloatOf((std::min)(max, detail::kFloatInfinity - 1));
  }
}

// Tiles of e4m3 codes, each with a power of two: codes to `codes`, a scale byte each to `scales`.
template <int64_t kTile, int64_t kTiles>
void EncodePowerOfTwoTiles(const TokenRow& token, std::byte* codes, std::byte* scales) {
  token.Visit<kTile * kTiles>(0, [&](const auto* x) {
    float amax[kTiles];
    float8_e8m0 scale[kTiles];
    FiniteMaxima<kTile, kTiles>(x, amax);
    for (int64_t i = 0; i < kTiles; ++i) scale[i] = PowerOfTwoScale(amax[i]);
    std::memcpy(scales, scale, sizeof(scale));
    QuantizeTiles<float8_e4m3fn, kTile, kTiles>(x, scale, codes);
  });
}

// E2m1Scale of each amax, given as bits.
template <int64_t kTiles>
LATHE_INLINE void E2m1Scales(const uint32_t* amax, float8_e4m3fn* scales) {
#if HWY_TARGET != HWY_SCALAR
  static_assert(kTiles % kLanes == 0);
  const U32 du;
  const F32 df;
  const hn::Rebind<uint8_t, U32> d8;
  for (int64_t i = 0; i < kTiles; i += kLanes) {
    const VU bits = hn::LoadU(du, amax + i);
    const VF scale = hn::Div(hn::BitCast(df, bits), hn::Set(df, kLargestE2m1));
    const VF clamped = hn::Min(hn::Max(scale, hn::Set(df, 0x1p-9f)), hn::Set(df, kLargestE4m3));
    const auto is_finite = hn::Lt(bits, hn::Set(du, detail::kFloatInfinity));
    const VU nan = hn::Set(du, detail::FormatOf<float8_e4m3fn>::kNanCode);
    const VU code = hn::IfThenElse(is_finite, EncodeMagnitudes<float8_e4m3fn>(clamped), nan);
    hn::StoreU(hn::TruncateTo(d8, code), d8, &scales[i].bits);
  }
#else
  for (int64_t i = 0; i < kTiles; ++i) scales[i] = E2m1Scale(detail::FloatOf(amax[i]));
#endif
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
    uint32_t amax[kTiles];
    float scale[kTiles];
    TileMaxima<kTile, kTiles>(x, amax);
    E2m1Scales<kTiles>(amax, scales);
    DecodeCodes<float8_e4m3fn>(reinterpret_cast<const std::byte*>(scales), kTiles, Unscaled(),
                               scale);
#if HWY_NATIVE_FMA
    using Scales = TileScales<kTile, false>;
    HWY_ALIGN float inverse[kTiles];
    for (int64_t i = 0; i < kTiles; i += kLanes) {
      hn::Store(hn::Div(hn::Set(F32(), 1.0f), hn::LoadU(F32(), scale + i)), F32(), inverse + i);
    }
    EncodeVectors<float4_e2m1, true, true>(x, kTile * kTiles, Correct<Scales>{{scale}, {inverse}},
                                           packed);
#else
    QuantizeTiles<float4_e2m1, kTile, kTiles, true>(x, scale, packed);
#endif
    ClearTilesOfNaN<kTile, kTiles>(amax, packed);
  });
}

// MXFP4: packed e2m1 codes with a power of two for each tile.
template <int64_t kTile, int64_t kTiles>
void EncodeMxfp4Tiles(const TokenRow& token, std::byte* packed, std::byte* scales) {
  token.Visit<kTile * kTiles>(0, [&](const auto* x) {
    uint32_t amax[kTiles];
    float8_e8m0 scale[kTiles];
    TileMaxima<kTile, kTiles>(x, amax);
    for (int64_t i = 0; i < kTiles; ++i) scale[i] = E2m1PowerOfTwoScale(detail::FloatOf(amax[i]));
    std::memcpy(scales, scale, sizeof(scale));
    QuantizeTiles<float4_e2m1, kTile, kTiles, true>(x, scale, packed);
    ClearTilesOfNaN<kTile, kTiles>(amax, packed);
  });
}
