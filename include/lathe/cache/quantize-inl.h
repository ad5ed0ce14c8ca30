// SPDX-License-Identifier: Apache-2.0
// Floats into codes of 4 and 8 bits, as the scalar codecs of base/types.h do it, and the tiles of
// the formats.

// x as a code, in the low byte of each lane. Variable shifts for subnormal codes, as in the scalar
// codec, lost: 1.6 times the operations.
template <class Code>
LATHE_INLINE VU EncodeLanes(VF x) {
  using F = detail::FormatOf<Code>;
  static_assert(F::kSaturates);
  constexpr int kM = F::kNumMantissaBits;
  constexpr int kLeast =
      detail::kFloatBias - F::kExponentBias + 1;  // a normal code's exponent field
  const U32 du;
  const I32 di;
  const F32 df;
  const VU bits = hn::BitCast(du, x);
  const auto magnitude = hn::BitCast(di, hn::And(bits, hn::Set(du, ~detail::kFloatSign)));

  // Nearest even; a carry out of the mantissa reaches the exponent field by itself.
  const auto odd = hn::And(hn::ShiftRight<F::kDroppedBits>(magnitude), hn::Set(di, 1));
  const auto below_half = hn::Set(di, (1 << (F::kDroppedBits - 1)) - 1);
  const auto rounded =
      hn::ShiftRight<F::kDroppedBits>(hn::Add(magnitude, hn::Add(below_half, odd)));
  const auto normal = hn::Sub(rounded, hn::Set(di, (kLeast - 1) << kM));

  // Added to a number whose last place is that of the subnormal codes, these are rounded by the
  // addition; float's own subnormals are nothing beside it, flushed or not.
  constexpr uint32_t kAnchor = static_cast<uint32_t>(kLeast + F::kDroppedBits)
                               << detail::kFloatMantissaBits;
  const auto anchor = hn::Set(di, static_cast<int32_t>(kAnchor));
  const auto sum = hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, anchor));
  const auto subnormal = hn::Sub(hn::BitCast(di, sum), anchor);

  const auto least = hn::Set(di, kLeast << detail::kFloatMantissaBits);
  auto code = hn::IfThenElse(hn::Lt(magnitude, least), subnormal, normal);
  code = hn::Min(code, hn::Set(di, static_cast<int32_t>(F::kLargest)));

  constexpr int kSignShift = F::kSign == 0x80 ? 24 : 28;
  static_assert(F::kSign << kSignShift == detail::kFloatSign);
  VU sign = hn::And(hn::ShiftRight<kSignShift>(bits), hn::Set(du, F::kSign));
  const auto nan = hn::Set(di, static_cast<int32_t>(F::kNanCode));
  const auto is_nan = hn::Gt(magnitude, hn::Set(di, static_cast<int32_t>(detail::kFloatInfinity)));
  if constexpr (F::kNanReplacesNegativeZero) {
    sign = hn::IfThenZeroElse(hn::RebindMask(du, hn::Eq(code, hn::Zero(di))), sign);
    sign = hn::IfThenZeroElse(hn::RebindMask(du, is_nan), sign);
  }
  return hn::Or(hn::BitCast(du, hn::IfThenElse(is_nan, nan, code)), sign);
}

// The largest magnitude of n floats as bits, which order like numbers; above infinity: there is a
// NaN.
inline uint32_t MaxMagnitude(const float* x, int64_t n) {
  const U32 du;
  const auto* bits = reinterpret_cast<const uint32_t*>(x);
  VU max = hn::Zero(du);
  int64_t i = 0;
  for (const int64_t end = n / kLanes * kLanes; i < end; i += kLanes) {
    max = hn::Max(max, hn::And(hn::LoadU(du, bits + i), hn::Set(du, ~detail::kFloatSign)));
  }
  uint32_t result = hn::ReduceMax(du, max);
  for (; i < n; ++i) result = (std::max)(result, detail::BitsOf(x[i]) & ~detail::kFloatSign);
  return result;
}

// The amax of a tile: NaN do not count, they keep their own code; an infinity counts as the largest
// float, so that it stays huge and everything else becomes small beside it.
inline float FiniteMax(const float* x, int64_t n) {
  uint32_t max = MaxMagnitude(x, n);
  if (max > detail::kFloatInfinity) {
    max = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t magnitude = detail::BitsOf(x[i]) & ~detail::kFloatSign;
      if (magnitude <= detail::kFloatInfinity) max = (std::max)(max, magnitude);
    }
  }
  return detail::FloatOf((std::min)(max, detail::kFloatInfinity - 1));
}

// codes[i] = x[i] / scale, one byte each. The quotient is the correctly rounded one.
// Out of line: inlined into its loop over tiles, Fp8DsMla takes 539 cycles a token instead of 417.
template <class Code>
HWY_NOINLINE void QuantizeTile(const float* HWY_RESTRICT x, int64_t n, float scale,
                               std::byte* HWY_RESTRICT codes) {
  int64_t i = 0;
  // With scales from here on, float subnormals, quotients too, are below half of the least code.
  if (scale >= 0x1p-100f) {
    const F32 d;
    const hn::Rebind<uint8_t, F32> d8;
    // The product with an exact inverse is the quotient.
    const bool is_product = IsPowerOfTwo(scale) && scale <= 0x1p126f;
    const VF factor = hn::Set(d, is_product ? 1.0f / scale : scale);
    for (const int64_t end = n / kLanes * kLanes; i < end; i += kLanes) {
      const VF v = hn::LoadU(d, x + i);
      const VU code = EncodeLanes<Code>(is_product ? hn::Mul(v, factor) : hn::Div(v, factor));
      hn::StoreU(hn::TruncateTo(d8, code), d8, reinterpret_cast<uint8_t*>(codes + i));
    }
  }
  for (; i < n; ++i) codes[i] = std::byte{FromFloat<Code>(DivideTiny(x[i], scale)).bits};
}

// A row of e4m3 codes under one scale, which is returned: keys and queries of an indexer.
inline float QuantizeIndexerRow(const float* x, int64_t n, bool power_of_two, std::byte* codes) {
  const float amax = FiniteMax(x, n);
  const float scale = power_of_two ? ToFloat(PowerOfTwoScale(amax)) : IndexerScale(amax);
  QuantizeTile<float8_e4m3fn>(x, n, scale, codes);
  return scale;
}

// Tiles of e4m3 codes, each with a power of two: codes to `codes`, a scale byte each to `scales`.
// All scales first: they are long chains of dependent operations, which then overlap.
template <int64_t kTile, int64_t kTiles>
void EncodePowerOfTwoTiles(const TokenRow& token, std::byte* codes, std::byte* scales) {
  float x[kTile * kTiles];
  float8_e8m0 scale[kTiles];
  token.Load(0, kTile * kTiles, x);
  for (int64_t i = 0; i < kTiles; ++i) scale[i] = PowerOfTwoScale(FiniteMax(x + i * kTile, kTile));
  for (int64_t i = 0; i < kTiles; ++i) {
    QuantizeTile<float8_e4m3fn>(x + i * kTile, kTile, ToFloat(scale[i]), codes + i * kTile);
  }
  std::memcpy(scales, scale, sizeof(scale));
}

// Tiles of packed e2m1 codes, each with rule(amax) as its scale. A tile that is not all finite
// becomes NaN as a whole.
template <int64_t kTile, int64_t kTiles, class Rule, class Scale>
void EncodeE2m1Tiles(const TokenRow& token, const Rule& rule, std::byte* packed, Scale* scales) {
  float x[kTile * kTiles];
  token.Load(0, kTile * kTiles, x);
  for (int64_t i = 0; i < kTiles; ++i) {
    scales[i] = rule(detail::FloatOf(MaxMagnitude(x + i * kTile, kTile)));
  }
  std::byte codes[kTile * kTiles];
  for (int64_t i = 0; i < kTiles; ++i) {
    const float scale = ToFloat(scales[i]);
    if (scale > 0.0f) {
      QuantizeTile<float4_e2m1>(x + i * kTile, kTile, scale, codes + i * kTile);
    } else {
      std::memset(codes + i * kTile, 0, static_cast<size_t>(kTile));
    }
  }
  for (int64_t i = 0; i < kTile * kTiles / 2; ++i) packed[i] = codes[2 * i] | codes[2 * i + 1] << 4;
}
