// SPDX-License-Identifier: Apache-2.0
// Columns into codes of 4 and 8 bits, bit for bit as the scalar codecs of base/types.h, whatever flushes.
//
//   source           scale                    quotient                       encoded in lanes of
//   bfloat16         a power of two           a difference of exponents      16 bits
//   any              a power of two           a product                      32 bits
//   any              a tile's                 Correct: a product, corrected  32 bits
//   any              any                      a division                     32 bits

// The exponent field of the least float that is a normal code, and where codes lie in the mantissas
// of numbers whose last place is the least code: adding such an anchor rounds to subnormal codes.
// float's own subnormals are nothing beside it, flushed or not.
template <class Code>
constexpr int kLeastNormal = detail::kFloatBias - detail::FormatOf<Code>::kExponentBias + 1;

LATHE_INLINE constexpr uint32_t AnchorBits(int least_normal, int dropped_bits) {
  return static_cast<uint32_t>(least_normal + dropped_bits) << detail::kFloatMantissaBits;
}

// Normal codes of the numbers that lie `distance` above the least of them, in units of the last place
// of a type that has kDropped mantissa bits more. To nearest even; a carry out of the mantissa
// reaches the exponent field by itself.
template <class Code, int kDropped, class D>
LATHE_INLINE hn::Vec<D> NormalCodes(D d, hn::Vec<D> distance) {
  using T = hn::TFromD<D>;
  constexpr T kLeastCode = T{1} << (detail::FormatOf<Code>::kNumMantissaBits + kDropped);
  constexpr T kHalf = T{1} << (kDropped - 1);
  const auto is_odd = hn::TestBit(distance, hn::Set(d, static_cast<T>(T{1} << kDropped)));
  const auto up = hn::Add(distance, hn::Set(d, static_cast<T>(kLeastCode + kHalf)));
  const auto down = hn::Add(distance, hn::Set(d, static_cast<T>(kLeastCode + kHalf - 1)));
  return hn::ShiftRight<kDropped>(hn::IfThenElse(is_odd, up, down));
}

// The largest of these distances; what lies less than half of the last place beyond is still rounded
// to it, as an amax divided by its scale may be.
template <class Code, int kDropped>
constexpr uint32_t kLargestDistance =
    ((detail::FormatOf<Code>::kLargest - (1u << detail::FormatOf<Code>::kNumMantissaBits))
     << kDropped) +
    (1u << (kDropped - 1)) - 1;

// A code with the sign of `bits`, the type's sign being kShift above the code's.
template <class Code, int kShift, class D>
LATHE_INLINE hn::Vec<D> WithSign(D d, hn::Vec<D> code, hn::Vec<D> bits) {
  using F = detail::FormatOf<Code>;
  using T = hn::TFromD<D>;
  auto sign = hn::ShiftRight<kShift>(bits);
  if constexpr (F::kNanReplacesNegativeZero) {
    sign = hn::IfThenZeroElse(hn::Eq(code, hn::Zero(d)), sign);
  }
  return hn::OrAnd(code, sign, hn::Set(d, static_cast<T>(F::kSign)));
}

// Floats as codes without signs, in the low byte of each lane. Variable shifts for subnormal codes, as
// in the scalar codec, lost: 1.6 times the operations.
template <class Code>
LATHE_INLINE VU EncodeMagnitudes(VF x) {
  using F = detail::FormatOf<Code>;
  constexpr int kLeast = kLeastNormal<Code>;
  const U32 du;
  const I32 di;
  const F32 df;
  const auto magnitude = hn::BitCast(di, hn::Abs(x));
  const auto least = hn::Set(di, kLeast << detail::kFloatMantissaBits);
  const auto normal = hn::BitCast(
      di, NormalCodes<Code, F::kDroppedBits>(du, hn::BitCast(du, hn::Sub(magnitude, least))));
  const auto anchor = hn::Set(di, static_cast<int32_t>(AnchorBits(kLeast, F::kDroppedBits)));
  const auto sum = hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, anchor));
  const auto subnormal = hn::Sub(hn::BitCast(di, sum), anchor);
  auto code = hn::IfThenElse(hn::Lt(magnitude, least), subnormal, normal);
  code = hn::Min(code, hn::Set(di, static_cast<int32_t>(F::kLargest)));
  if constexpr (F::kNanCode != F::kLargest) {
    const auto is_nan =
        hn::Gt(magnitude, hn::Set(di, static_cast<int32_t>(detail::kFloatInfinity)));
    code = hn::IfThenElse(is_nan, hn::Set(di, static_cast<int32_t>(F::kNanCode)), code);
  }
  return hn::BitCast(du, code);
}

#if HWY_TARGET != HWY_SCALAR

using U16x2 = hn::Repartition<uint16_t, F32>;  // two columns in place of a float
using I16x2 = hn::RebindToSigned<U16x2>;
using V16 = hn::Vec<U16x2>;
constexpr int64_t kColumns = 2 * kLanes;  // that are encoded at once

// The same for two vectors that seldom hold anything but normal codes.
template <class Code>
LATHE_INLINE void EncodeNormals(VF x, VF y, VU& x_codes, VU& y_codes) {
  constexpr int kDropped = detail::FormatOf<Code>::kDroppedBits;
  const U32 du;
  const VU least = hn::Set(du, uint32_t{kLeastNormal<Code>} << detail::kFloatMantissaBits);
  const VU largest = hn::Set(du, kLargestDistance<Code, kDropped>);
  const VU x_distance = hn::Sub(hn::BitCast(du, hn::Abs(x)), least);
  const VU y_distance = hn::Sub(hn::BitCast(du, hn::Abs(y)), least);
  x_codes = NormalCodes<Code, kDropped>(du, x_distance);
  y_codes = NormalCodes<Code, kDropped>(du, y_distance);
  const auto is_other = hn::Or(hn::Gt(x_distance, largest), hn::Gt(y_distance, largest));
  if (HWY_UNLIKELY(!hn::AllFalse(du, is_other))) {
    x_codes = EncodeMagnitudes<Code>(x);
    y_codes = EncodeMagnitudes<Code>(y);
  }
}

// Quotients x / scale of lanes that stand for kEach columns each, from column c on.
template <class Scales>
struct Multiply {  // for exact inverses
  Scales inverses;
  template <int64_t kEach>
  LATHE_INLINE VF At(int64_t c, VF x) const {
    return hn::Mul(x, inverses.template Lanes<kEach>(c));
  }
};

template <class Scales>
struct Divide {
  Scales scales;
  template <int64_t kEach>
  LATHE_INLINE VF At(int64_t c, VF x) const {
    return hn::Div(x, scales.template Lanes<kEach>(c));
  }
};

// Not quite the correctly rounded quotient, but one that has the same code, or NaN. The product with the
// rounded inverse is less than 3 units in the last place off, and one fused correction leaves less
// than 2^-22 units before the last rounding. That could change a code only if the quotient were
// that near to a number half a unit from a midpoint m / 16 of two codes:
//   |X * 2^24 - S * (m * 2^20 +- 1)| <= 6        X, S: the 24 bits of x and of scale
// Modulo 2^20 it follows that S = k * 2^20 + c, |c| <= 6, and then, modulo 2^24, that c is not 0.
template <class Scales>
struct Correct {
  Scales scales, inverses;
  template <int64_t kEach>
  LATHE_INLINE VF At(int64_t c, VF x) const {
    const VF inverse = inverses.template Lanes<kEach>(c);
    const VF q = hn::Mul(x, inverse);
    return hn::MulAdd(hn::NegMulAdd(q, scales.template Lanes<kEach>(c), x), inverse, q);
  }
};

// Whether it may be used, for x up to 2^20 * scale. The remainder of a quotient from half of the
// least code on is no float subnormal with such scales.
LATHE_INLINE bool IsCorrect(float scale) {
  const uint32_t low = detail::BitsOf(scale) & 0xFFFFFu;
  return HWY_NATIVE_FMA && scale >= 0x1p-60f && scale <= 0x1p100f &&
         (low == 0 || (low > 32 && low < 0x100000u - 32));
}

// Whether a branch may decide if there are other than normal codes. Where a scale does not fit they come
// often enough not to be foreseen (fp8_e4m3 of normal numbers by 1: 160 ns a row in place of 76), and e2m1
// has few codes that are not subnormal.
template <class Code, bool kFits>
constexpr bool kIsSeldomSubnormal = kFits&& detail::FormatOf<Code>::kNumMantissaBits > 1;

// The codes of kColumns columns from c on, in lanes of 16 bits. kFits: the scales fit their tiles.
template <class Code, bool kFits>
LATHE_INLINE void EncodePair(VF x, VF y, VU& x_codes, VU& y_codes) {
  if constexpr (kIsSeldomSubnormal<Code, kFits>) {
    EncodeNormals<Code>(x, y, x_codes, y_codes);
  } else {
    x_codes = EncodeMagnitudes<Code>(x);
    y_codes = EncodeMagnitudes<Code>(y);
  }
}

template <class Code, bool kFits, class Quotient>
LATHE_INLINE V16 EncodeColumns(const float* x, int64_t c, const Quotient& quotient) {
  const U32 du;
  const VF first = LoadFloats(x + c), second = LoadFloats(x + c + kLanes);
  VU first_codes, second_codes;
  EncodePair<Code, kFits>(quotient.template At<1>(c, first),
                          quotient.template At<1>(c + kLanes, second), first_codes, second_codes);
  constexpr int kShift = detail::FormatOf<Code>::kSign == 0x80 ? 24 : 28;
  return hn::OrderedTruncate2To(U16x2(),
                                WithSign<Code, kShift>(du, first_codes, hn::BitCast(du, first)),
                                WithSign<Code, kShift>(du, second_codes, hn::BitCast(du, second)));
}

// Even and odd columns of bfloat16 need no widening.
template <class Code, bool kFits, class Quotient>
LATHE_INLINE V16 EncodeColumns(const bfloat16* x, int64_t c, const Quotient& quotient) {
  const U32 du;
  const F32 df;
  const U16x2 d16;
  const V16 columns = hn::LoadU(d16, &x[c].bits);
  const VU pairs = hn::BitCast(du, columns);
  const VF even = hn::BitCast(df, hn::ShiftLeft<16>(pairs));
  const VF odd = hn::BitCast(df, hn::And(pairs, hn::Set(du, 0xFFFF0000u)));
  VU even_codes, odd_codes;
  EncodePair<Code, kFits>(quotient.template At<2>(c, even), quotient.template At<2>(c, odd),
                          even_codes, odd_codes);
  constexpr int kShift = detail::FormatOf<Code>::kSign == 0x80 ? 8 : 12;
  return WithSign<Code, kShift>(
      d16, hn::BitCast(d16, hn::Or(even_codes, hn::ShiftLeft<16>(odd_codes))), columns);
}

// Powers of two for bfloat16 numbers: those and their codes fit in lanes of 16 bits, and dividing is
// subtracting. Each is given by the bfloat16 that it makes the least normal code, whose exponent field
// is 3 or more and that of its anchor below 255.
template <int64_t kTile>
struct PowersOfTwo {
  const uint32_t* least;
};

template <class Code, bool kFits, int64_t kTile>
LATHE_INLINE V16 EncodeColumns(const bfloat16* x, int64_t c, const PowersOfTwo<kTile>& scales) {
  using F = detail::FormatOf<Code>;
  static_assert(kTile % kColumns == 0);
  constexpr int kDropped = 7 - F::kNumMantissaBits;
  const U16x2 d;
  const I16x2 di;
  const uint32_t least = scales.least[c / kTile];
  const V16 bits = hn::LoadU(d, &x[c].bits);
  const V16 magnitude = hn::And(bits, hn::Set(d, uint16_t{0x7FFF}));
  const V16 distance = hn::Sub(magnitude, hn::Set(d, static_cast<uint16_t>(least)));
  V16 code = NormalCodes<Code, kDropped>(d, distance);
  constexpr auto kLargest = static_cast<uint16_t>(kLargestDistance<Code, kDropped>);
  const auto is_other = hn::Gt(distance, hn::Set(d, kLargest));
  if (!kIsSeldomSubnormal<Code, kFits> || HWY_UNLIKELY(!hn::AllFalse(d, is_other))) {
    const U32 du;
    const F32 df;
    const VF anchor =
        hn::BitCast(df, hn::Set(du, AnchorBits(static_cast<int>(least >> 7), F::kDroppedBits)));
    const VU pairs = hn::BitCast(du, magnitude);
    const VF even = hn::Add(hn::BitCast(df, hn::ShiftLeft<16>(pairs)), anchor);
    const VF odd = hn::Add(hn::BitCast(df, hn::And(pairs, hn::Set(du, 0xFFFF0000u))), anchor);
    const VU sums = hn::OrAnd(hn::ShiftLeft<16>(hn::BitCast(du, odd)), hn::BitCast(du, even),
                              hn::Set(du, 0xFFFFu));
    const auto large = hn::Min(hn::BitCast(di, code), hn::Set(di, int16_t{F::kLargest}));
    const auto is_small = hn::Lt(hn::BitCast(di, distance), hn::Zero(di));
    const auto is_nan = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, int16_t{0x7F80}));
    code = hn::IfThenElse(hn::RebindMask(d, is_small), hn::BitCast(d, sums), hn::BitCast(d, large));
    code = hn::IfThenElse(hn::RebindMask(d, is_nan), hn::Set(d, uint16_t{F::kNanCode}), code);
  }
  return WithSign < Code, F::kSign == 0x80 ? 8 : 12 > (d, code, bits);
}

// Codes, a byte each or two to a byte, the even column in the low nibble.
template <bool kPacked>
LATHE_INLINE void StoreCodes(V16 codes, int64_t column, std::byte* to) {
  auto* bytes = reinterpret_cast<uint8_t*>(to);
  if constexpr (kPacked) {
    const U32 du;
    const hn::Rebind<uint8_t, U32> d8;
    const VU pairs = hn::BitCast(du, codes);
    hn::StoreU(hn::TruncateTo(d8, hn::Or(pairs, hn::ShiftRight<12>(pairs))), d8,
               bytes + column / 2);
  } else {
    const hn::Rebind<uint8_t, U16x2> d8;
    hn::StoreU(hn::TruncateTo(d8, codes), d8, bytes + column);
  }
}

// Whole vectors; returns the column after the last one.
template <class Code, bool kPacked, bool kFits, class From, class Quotient>
LATHE_INLINE int64_t EncodeVectors(const From* HWY_RESTRICT x, int64_t n, const Quotient& quotient,
                                   std::byte* HWY_RESTRICT codes) {
  const int64_t end = n / kColumns * kColumns;
  for (int64_t c = 0; c < end; c += kColumns) {
    StoreCodes<kPacked>(EncodeColumns<Code, kFits>(x, c, quotient), c, codes);
  }
  return end;
}

// The same scale everywhere.
struct OneScale {
  VF lanes;
  template <int64_t>
  LATHE_INLINE VF Lanes(int64_t) const {
    return lanes;
  }
};

#endif  // HWY_TARGET != HWY_SCALAR
