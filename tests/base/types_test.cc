// SPDX-License-Identifier: Apache-2.0
//
// Scalar number formats against plainly written formulas in double: decoding by the definition of
// each format, encoding by a search for the nearest value in the table of all values.

#include "lathe/base/types.h"

#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace lathe {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

uint32_t FloatBits(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

float FloatFromBits(uint32_t bits) {
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// ---- the formats as their definitions have them ----

enum class Beyond { kInfinity, kSaturates };

struct Definition {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  Beyond beyond;
  bool has_negative_zero;
  bool (*is_infinity)(uint32_t code);
  bool (*is_nan)(uint32_t code);
};

bool Never(uint32_t) { return false; }

template <class T>
Definition DefinitionOf();

template <>
Definition DefinitionOf<bfloat16>() {
  const auto is_infinity = [](uint32_t code) { return code == 0x7F80 || code == 0xFF80; };
  const auto is_nan = [](uint32_t code) { return (code & 0x7FFF) > 0x7F80; };
  return {8, 7, 127, Beyond::kInfinity, true, is_infinity, is_nan};
}

template <>
Definition DefinitionOf<float16>() {
  const auto is_infinity = [](uint32_t code) { return code == 0x7C00 || code == 0xFC00; };
  const auto is_nan = [](uint32_t code) { return (code & 0x7FFF) > 0x7C00; };
  return {5, 10, 15, Beyond::kInfinity, true, is_infinity, is_nan};
}

template <>
Definition DefinitionOf<float8_e4m3fn>() {
  const auto is_nan = [](uint32_t code) { return code == 0x7F || code == 0xFF; };
  return {4, 3, 7, Beyond::kSaturates, true, Never, is_nan};
}

template <>
Definition DefinitionOf<float8_e4m3fnuz>() {
  const auto is_nan = [](uint32_t code) { return code == 0x80; };
  return {4, 3, 8, Beyond::kSaturates, false, Never, is_nan};
}

template <>
Definition DefinitionOf<float8_e5m2>() {
  const auto is_infinity = [](uint32_t code) { return code == 0x7C || code == 0xFC; };
  const auto is_nan = [](uint32_t code) { return (code & 0x7F) > 0x7C; };
  return {5, 2, 15, Beyond::kSaturates, true, is_infinity, is_nan};
}

template <>
Definition DefinitionOf<float4_e2m1>() {
  return {2, 1, 1, Beyond::kSaturates, true, Never, Never};
}

uint32_t SignBit(const Definition& d) { return 1u << (d.exponent_bits + d.mantissa_bits); }
uint32_t NumCodes(const Definition& d) { return 2 * SignBit(d); }

// The value of a code; infinite or NaN where the definition says so.
double ValueOf(const Definition& d, uint32_t code) {
  const double sign = (code & SignBit(d)) != 0 ? -1.0 : 1.0;
  if (d.is_nan(code)) return std::numeric_limits<double>::quiet_NaN();
  if (d.is_infinity(code)) return sign * std::numeric_limits<double>::infinity();
  const double mantissa_steps = std::ldexp(1.0, d.mantissa_bits);
  const double fraction = std::fmod(code, mantissa_steps) / mantissa_steps;
  const int exponent = static_cast<int>(code % SignBit(d)) >> d.mantissa_bits;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - d.bias);
  return sign * std::ldexp(1.0 + fraction, exponent - d.bias);
}

template <class T>
T FromCode(uint32_t code) {
  return T{static_cast<decltype(T::bits)>(code)};
}

// ---- the nearest code by search ----

class NearestCode {
 public:
  explicit NearestCode(const Definition& d) : definition_(d) {
    for (uint32_t code = 0; code < SignBit(d); ++code) {
      if (!d.is_nan(code) && !d.is_infinity(code)) values_.push_back(ValueOf(d, code));
    }
    // What a format with infinities rounds to infinity is what would round to the next value if
    // the exponent range had no end.
    if (d.beyond == Beyond::kInfinity) {
      values_.push_back(2 * values_.back() - values_[values_.size() - 2]);
    }
  }

  // Magnitudes in code order: index = code.
  const std::vector<double>& values() const { return values_; }

  // x is not NaN.
  uint32_t operator()(float x) const {
    const double magnitude = std::min(std::fabs(static_cast<double>(x)), values_.back());
    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    uint32_t code = static_cast<uint32_t>(above - values_.begin());
    if (*above != magnitude) {
      const double to_above = *above - magnitude;
      const double to_below = magnitude - *(above - 1);
      const bool is_tie = to_above == to_below;
      if (to_below < to_above || (is_tie && code % 2 == 1)) --code;
    }
    if (code == 0 && !definition_.has_negative_zero) return 0;
    return code + (std::signbit(x) ? SignBit(definition_) : 0);
  }

 private:
  Definition definition_;
  std::vector<double> values_;
};

// Every value, every midpoint between neighbours and the floats on both sides of each midpoint,
// with both signs, and the ends of float's range.
std::vector<float> CriticalInputs(const std::vector<double>& values, Beyond beyond) {
  std::vector<float> inputs = {std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                               kInf};
  const auto add = [&inputs](double middle) {
    const float x = static_cast<float>(middle);
    inputs.insert(inputs.end(), {std::nextafter(x, 0.0f), x, std::nextafter(x, kInf)});
  };
  for (size_t i = 0; i < values.size(); ++i) {
    inputs.push_back(static_cast<float>(values[i]));
    if (i > 0) add((values[i - 1] + values[i]) / 2);
  }
  if (beyond == Beyond::kSaturates) {
    const double last = values.back();
    const double step = last - values[values.size() - 2];
    add(last + step / 2);
    add(last + step);
  }
  const size_t num_positive = inputs.size();
  for (size_t i = 0; i < num_positive; ++i) inputs.push_back(-inputs[i]);
  return inputs;
}

std::string Describe(const char* what, uint32_t input, double expected, double actual) {
  std::ostringstream text;
  text << what << " 0x" << std::hex << input << ": expected " << std::hexfloat << expected
       << ", got " << actual;
  return text.str();
}

// Empty where all inputs but NaNs encode to the nearest code.
template <class T>
std::string FirstEncodeMismatch(const std::vector<float>& inputs) {
  const NearestCode nearest(DefinitionOf<T>());
  for (const float x : inputs) {
    if (std::isnan(x)) continue;
    const uint32_t expected = nearest(x);
    const uint32_t actual = FromFloat<T>(x).bits;
    if (actual != expected) return Describe("float bits", FloatBits(x), expected, actual);
  }
  return "";
}

template <class T>
std::vector<float> AllValues() {
  std::vector<float> values;
  for (uint32_t code = 0; code < NumCodes(DefinitionOf<T>()); ++code) {
    values.push_back(ToFloat(FromCode<T>(code)));
  }
  return values;
}

struct Row {
  float input;
  uint32_t code;
};

template <class T>
void CheckTable(const std::vector<Row>& table) {
  for (const Row& row : table) {
    CAPTURE(row.input);
    CHECK(uint32_t{FromFloat<T>(row.input).bits} == row.code);
  }
}

#define LATHE_ALL_MINI_FORMATS \
  bfloat16, float16, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float4_e2m1

// ---- every format ----

TEMPLATE_TEST_CASE("every code decodes to the value its format defines", "[types]",
                   LATHE_ALL_MINI_FORMATS) {
  const Definition d = DefinitionOf<TestType>();
  std::string mismatch;
  for (uint32_t code = 0; code < NumCodes(d) && mismatch.empty(); ++code) {
    const double expected = ValueOf(d, code);
    const double actual = ToFloat(FromCode<TestType>(code));
    const bool same = std::isnan(expected)
                          ? std::isnan(actual)
                          : actual == expected && std::signbit(actual) == std::signbit(expected);
    if (!same) mismatch = Describe("code", code, expected, actual);
  }
  CHECK(mismatch == "");
}

TEMPLATE_TEST_CASE("every code that is not NaN survives the way to float and back", "[types]",
                   LATHE_ALL_MINI_FORMATS) {
  const Definition d = DefinitionOf<TestType>();
  for (uint32_t code = 0; code < NumCodes(d); ++code) {
    if (d.is_nan(code)) continue;
    if (d.is_infinity(code) && d.beyond == Beyond::kSaturates) continue;
    const uint32_t back = FromFloat<TestType>(ToFloat(FromCode<TestType>(code))).bits;
    if (back != code) FAIL_CHECK(Describe("code", code, code, back));
  }
}

TEMPLATE_TEST_CASE("every NaN code stays NaN on the way to float and back", "[types]", bfloat16,
                   float16, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2) {
  const Definition d = DefinitionOf<TestType>();
  uint32_t num_nans = 0;
  for (uint32_t code = 0; code < NumCodes(d); ++code) {
    if (!d.is_nan(code)) continue;
    ++num_nans;
    const uint32_t back = FromFloat<TestType>(ToFloat(FromCode<TestType>(code))).bits;
    if (!d.is_nan(back)) FAIL_CHECK(Describe("code", code, code, back));
    if ((back & SignBit(d)) != (code & SignBit(d))) FAIL_CHECK("sign of " << code);
  }
  CHECK(num_nans > 0);
}

TEMPLATE_TEST_CASE("values, midpoints and their neighbours round to the nearest even code",
                   "[types][A20][A24]", LATHE_ALL_MINI_FORMATS) {
  const Definition d = DefinitionOf<TestType>();
  const std::vector<float> inputs = CriticalInputs(NearestCode(d).values(), d.beyond);
  CHECK(FirstEncodeMismatch<TestType>(inputs) == "");
}

TEMPLATE_TEST_CASE("all bf16 and all f16 inputs round to the nearest even code", "[types][A20]",
                   LATHE_ALL_MINI_FORMATS) {
  CHECK(FirstEncodeMismatch<TestType>(AllValues<bfloat16>()) == "");
  CHECK(FirstEncodeMismatch<TestType>(AllValues<float16>()) == "");
}

TEMPLATE_TEST_CASE("floats from the whole range round to the nearest even code", "[types]",
                   LATHE_ALL_MINI_FORMATS) {
  std::vector<float> inputs;
  constexpr uint64_t kPrimeStep = 65521;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += kPrimeStep) {
    inputs.push_back(FloatFromBits(static_cast<uint32_t>(bits)));
  }
  CHECK(FirstEncodeMismatch<TestType>(inputs) == "");
}

// ---- format by format ----

TEST_CASE("float converts to itself", "[types]") {
  for (const uint32_t bits : {0u, 0x80000000u, 1u, 0x3F800001u, 0xFF800000u, 0x7FC00001u}) {
    CHECK(FloatBits(FromFloat<float>(ToFloat(FloatFromBits(bits)))) == bits);
  }
}

TEST_CASE("bf16 rounds to nearest even", "[types][A24]") {
  const float ulp = std::ldexp(1.0f, -8);
  CHECK(ToFloat(FromFloat<bfloat16>(1 + ulp)) == 1.0f);
  CHECK(ToFloat(FromFloat<bfloat16>(1 + 3 * ulp)) == 1.015625f);
  CHECK(ToFloat(FromFloat<bfloat16>(1 + ulp + std::ldexp(1.0f, -20))) == 1.0078125f);
  CHECK(ToFloat(FromFloat<bfloat16>(1.0f / 3)) == 0.333984375f);
}

TEST_CASE("bf16 overflows to infinity and keeps NaN, never turning it into infinity",
          "[types][A24]") {
  CheckTable<bfloat16>({{kInf, 0x7F80},
                        {-kInf, 0xFF80},
                        {std::numeric_limits<float>::max(), 0x7F80},
                        {FloatFromBits(0x7F7F7FFF), 0x7F7F},
                        {FloatFromBits(0x7F7F8000), 0x7F80},
                        {FloatFromBits(0x7F800001), 0x7FC0},
                        {FloatFromBits(0xFF800001), 0xFFC0},
                        {FloatFromBits(0x7FFFFFFF), 0x7FFF},
                        {FloatFromBits(0xFFC10000), 0xFFC1}});
}

TEST_CASE("f16 rounds to nearest even with subnormals and overflows to infinity", "[types]") {
  CheckTable<float16>({{1.0f, 0x3C00},
                       {1.0f / 3, 0x3555},
                       {-0.0f, 0x8000},
                       {65504.0f, 0x7BFF},
                       {std::nextafter(65520.0f, 0.0f), 0x7BFF},
                       {65520.0f, 0x7C00},
                       {-65520.0f, 0xFC00},
                       {kInf, 0x7C00},
                       {std::ldexp(1.0f, -14), 0x0400},
                       {std::ldexp(1.0f, -24), 0x0001},
                       {std::ldexp(1.0f, -25), 0x0000},
                       {std::ldexp(1.5f, -24), 0x0002},
                       {std::ldexp(1.0f, -126), 0x0000},
                       {FloatFromBits(0x7F800001), 0x7E00},
                       {FloatFromBits(0xFFFFFFFF), 0xFFFF}});
}

TEST_CASE("e4m3fn rounds to nearest even and saturates", "[types][A20]") {
  CheckTable<float8_e4m3fn>({{240, 0x77},
                             {256, 0x78},
                             {272, 0x78},
                             {288, 0x79},
                             {300, 0x79},
                             {304, 0x7A},
                             {336, 0x7A},
                             {448, 0x7E},
                             {449, 0x7E},
                             {464, 0x7E},
                             {465, 0x7E},
                             {1000, 0x7E},
                             {kInf, 0x7E},
                             {-1000, 0xFE},
                             {-kInf, 0xFE},
                             {std::ldexp(1.0f, -9), 0x01},
                             {std::ldexp(1.0f, -10), 0x00},
                             {std::ldexp(1.5f, -10), 0x01},
                             {std::ldexp(1.0f, -6), 0x08},
                             {-0.0f, 0x80}});
}

TEST_CASE("e4m3fn keeps NaN and its sign", "[types][A20]") {
  CheckTable<float8_e4m3fn>(
      {{kNaN, 0x7F}, {FloatFromBits(0xFFC00000), 0xFF}, {FloatFromBits(0x7F800001), 0x7F}});
}

TEST_CASE("e4m3fnuz saturates at 240, has one NaN and no negative zero", "[types]") {
  CheckTable<float8_e4m3fnuz>({{240, 0x7F},
                               {-240, 0xFF},
                               {248, 0x7F},
                               {1000, 0x7F},
                               {kInf, 0x7F},
                               {-kInf, 0xFF},
                               {kNaN, 0x80},
                               {FloatFromBits(0xFFC00000), 0x80},
                               {-0.0f, 0x00},
                               {std::ldexp(-1.0f, -11), 0x00},
                               {std::ldexp(-1.5f, -11), 0x81},
                               {1.0f, 0x40}});
}

TEST_CASE("e5m2 saturates although it has infinities, and keeps NaN and its sign", "[types]") {
  CheckTable<float8_e5m2>({{57344, 0x7B},
                           {61440, 0x7B},
                           {65536, 0x7B},
                           {kInf, 0x7B},
                           {-kInf, 0xFB},
                           {kNaN, 0x7F},
                           {FloatFromBits(0xFF800001), 0xFF},
                           {1.125f, 0x3C},
                           {1.375f, 0x3E},
                           {-0.0f, 0x80},
                           {std::ldexp(1.0f, -16), 0x01},
                           {std::ldexp(1.0f, -17), 0x00}});
  CHECK(ToFloat(float8_e5m2{0x7C}) == kInf);
  CHECK(ToFloat(float8_e5m2{0xFC}) == -kInf);
}

TEST_CASE("e2m1 has eight magnitudes, rounds to nearest even and saturates", "[types]") {
  const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint32_t code = 0; code < 8; ++code) {
    CHECK(ToFloat(FromCode<float4_e2m1>(code)) == magnitudes[code]);
    CHECK(ToFloat(FromCode<float4_e2m1>(code + 8)) == -magnitudes[code]);
  }
  CheckTable<float4_e2m1>({{0.25f, 0},
                           {0.75f, 2},
                           {1.25f, 2},
                           {1.75f, 4},
                           {2.5f, 4},
                           {3.5f, 6},
                           {5.0f, 6},
                           {5.5f, 7},
                           {100, 7},
                           {kInf, 7},
                           {-kInf, 15},
                           {-0.0f, 8}});
}

TEST_CASE("e2m1 has no NaN: it becomes the largest magnitude with its sign", "[types]") {
  CheckTable<float4_e2m1>({{kNaN, 7}, {FloatFromBits(0xFFC00000), 15}});
}

TEST_CASE("e2m1 reads the low four bits alone", "[types]") {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    CHECK(FloatBits(ToFloat(FromCode<float4_e2m1>(byte))) ==
          FloatBits(ToFloat(FromCode<float4_e2m1>(byte % 16))));
  }
}

// ---- e8m0 ----

TEST_CASE("every e8m0 byte is a power of two, 255 is NaN", "[types]") {
  for (int byte = 0; byte < 255; ++byte) {
    CHECK(ToFloat(float8_e8m0{static_cast<uint8_t>(byte)}) == std::ldexp(1.0, byte - 127));
  }
  CHECK(std::isnan(ToFloat(float8_e8m0{255})));
}

TEST_CASE("CeilPowerOfTwo gives the smallest power of two that is not below its argument",
          "[types]") {
  const auto search = [](float x) {
    int byte = 0;
    while (byte < 254 && std::ldexp(1.0, byte - 127) < x) ++byte;
    return byte;
  };
  std::vector<float> inputs;
  for (int exponent = -149; exponent <= 127; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    inputs.insert(inputs.end(),
                  {std::nextafter(power, 0.0f), power, std::nextafter(power, kInf), 1.5f * power});
  }
  for (const float x : AllValues<bfloat16>()) {
    if (x >= 0) inputs.push_back(x);
  }
  for (const float x : inputs) {
    const int byte = CeilPowerOfTwo(x).bits;
    if (byte != search(x)) FAIL_CHECK(Describe("float bits", FloatBits(x), search(x), byte));
  }
}

TEST_CASE("CeilPowerOfTwo clamps to the range of e8m0 and refuses NaN and negative numbers",
          "[types]") {
  const auto byte = [](float x) { return int{CeilPowerOfTwo(x).bits}; };
  CHECK(byte(0.0f) == 0);
  CHECK(byte(-0.0f) == 0);
  CHECK(byte(std::numeric_limits<float>::denorm_min()) == 0);
  CHECK(byte(std::numeric_limits<float>::max()) == 254);
  CHECK(byte(kInf) == 254);
  CHECK(byte(kNaN) == 255);
  CHECK(byte(FloatFromBits(0xFFC00000)) == 255);
  CHECK(byte(-std::numeric_limits<float>::denorm_min()) == 255);
  CHECK(byte(-1.0f) == 255);
  CHECK(byte(-kInf) == 255);
}

template <class T, class = void>
struct HasFromFloat : std::false_type {};
template <class T>
struct HasFromFloat<T, std::void_t<decltype(FromFloat<T>(0.0f))>> : std::true_type {};

TEST_CASE("e8m0 has no FromFloat, because scales are not rounded to nearest", "[types]") {
  STATIC_CHECK(HasFromFloat<float8_e4m3fn>::value);
  STATIC_CHECK_FALSE(HasFromFloat<float8_e8m0>::value);
}

// ---- the floating-point environment ----

// Codes of all critical inputs and bits of all values, computed by a call that the optimiser can
// neither move nor fold.
struct Outcome {
  std::vector<uint32_t> codes;
  std::vector<uint32_t> values;
  bool operator==(const Outcome& o) const { return codes == o.codes && values == o.values; }
};

template <class T>
Outcome ConvertAll(const std::vector<float>& inputs) {
  Outcome outcome;
  for (const float& x : inputs) outcome.codes.push_back(FromFloat<T>(x).bits);
  for (uint32_t code = 0; code < NumCodes(DefinitionOf<T>()); ++code) {
    outcome.values.push_back(FloatBits(ToFloat(FromCode<T>(code))));
  }
  return outcome;
}

Outcome ScaleAll(const std::vector<float>& inputs) {
  Outcome outcome;
  for (const float& x : inputs) outcome.codes.push_back(CeilPowerOfTwo(x).bits);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    outcome.values.push_back(FloatBits(ToFloat(FromCode<float8_e8m0>(byte))));
  }
  return outcome;
}

// Restores the environment before anything else runs.
template <class Enter>
std::pair<Outcome, Outcome> OutsideAndInside(Outcome (*convert)(const std::vector<float>&),
                                             const std::vector<float>& inputs, Enter enter) {
  Outcome (*volatile opaque)(const std::vector<float>&) = convert;
  std::pair<Outcome, Outcome> outcomes;
  outcomes.first = opaque(inputs);
  std::fenv_t saved;
  std::fegetenv(&saved);
  enter();
  outcomes.second = opaque(inputs);
  std::fesetenv(&saved);
  return outcomes;
}

template <class Enter>
void CheckUnchangedAfter(Enter enter) {
  const auto check = [&enter](const char* name, auto convert, const std::vector<float>& inputs) {
    CAPTURE(name);
    const auto outcomes = OutsideAndInside(convert, inputs, enter);
    CHECK(outcomes.first == outcomes.second);
  };
  const std::vector<float> bf16_values = AllValues<bfloat16>();
  const auto inputs_for = [](const Definition& d) {
    return CriticalInputs(NearestCode(d).values(), d.beyond);
  };
  check("bfloat16", ConvertAll<bfloat16>, inputs_for(DefinitionOf<bfloat16>()));
  check("float16", ConvertAll<float16>, inputs_for(DefinitionOf<float16>()));
  check("float8_e4m3fn", ConvertAll<float8_e4m3fn>, bf16_values);
  check("float8_e4m3fnuz", ConvertAll<float8_e4m3fnuz>, bf16_values);
  check("float8_e5m2", ConvertAll<float8_e5m2>, bf16_values);
  check("float4_e2m1", ConvertAll<float4_e2m1>, bf16_values);
  check("float8_e8m0", ScaleAll, bf16_values);
}

// a - b as computed inside, to show that the change of environment took place at all.
template <class Enter>
float DifferenceAfter(Enter enter, float a, float b) {
  const volatile float minuend = a;
  const volatile float subtrahend = b;
  std::fenv_t saved;
  std::fegetenv(&saved);
  enter();
  volatile float difference = minuend - subtrahend;
  std::fesetenv(&saved);
  return difference;
}

#if defined(__SSE2__)
TEST_CASE("conversions do not depend on flush-to-zero or denormals-are-zero", "[types]") {
  const auto flush_denormals = [] { _mm_setcsr(_mm_getcsr() | 0x8040u); };
  REQUIRE(FloatBits(DifferenceAfter(flush_denormals, FloatFromBits(3), FloatFromBits(1))) == 0);
  CheckUnchangedAfter(flush_denormals);
}
#endif

#if defined(FE_DOWNWARD)
TEST_CASE("conversions do not depend on the rounding mode", "[types]") {
  const auto round_down = [] { std::fesetround(FE_DOWNWARD); };
  REQUIRE(DifferenceAfter(round_down, 1.0f, std::numeric_limits<float>::min()) < 1.0f);
  CheckUnchangedAfter(round_down);
}
#endif

// ---- constant expressions and DType ----

static_assert(ToFloat(float8_e4m3fn{0x7E}) == 448.0f);
static_assert(ToFloat(float16{0x0001}) == 1.0f / (1 << 24));
static_assert(ToFloat(bfloat16{0xC040}) == -3.0f);
static_assert(ToFloat(float8_e8m0{128}) == 2.0f);
static_assert(FromFloat<float8_e4m3fn>(1000.0f).bits == 0x7E);
static_assert(FromFloat<bfloat16>(1.0f / 3).bits == 0x3EAB);
static_assert(FromFloat<float4_e2m1>(5.0f).bits == 6);
static_assert(CeilPowerOfTwo(3.0f).bits == 129);

static_assert(sizeof(bfloat16) == 2 && sizeof(float16) == 2);
static_assert(sizeof(float8_e4m3fn) == 1 && sizeof(float8_e4m3fnuz) == 1);
static_assert(sizeof(float8_e5m2) == 1 && sizeof(float4_e2m1) == 1 && sizeof(float8_e8m0) == 1);

static_assert(kDTypeOf<float> == DType::kFloat32);
static_assert(kDTypeOf<const float16> == DType::kFloat16);
static_assert(kDTypeOf<bfloat16> == DType::kBFloat16);

TEST_CASE("DType tells its size and name", "[types]") {
  CHECK(SizeOf(kDTypeOf<float>) == sizeof(float));
  CHECK(SizeOf(kDTypeOf<float16>) == sizeof(float16));
  CHECK(SizeOf(kDTypeOf<bfloat16>) == sizeof(bfloat16));
  CHECK(std::string(Name(DType::kFloat32)) == "float32");
  CHECK(std::string(Name(DType::kFloat16)) == "float16");
  CHECK(std::string(Name(DType::kBFloat16)) == "bfloat16");
}

TEST_CASE("a number that is no DType has size 0 and an unknown name", "[types]") {
  CHECK(SizeOf(static_cast<DType>(17)) == 0);
  CHECK(std::string(Name(static_cast<DType>(17))) == "unknown");
}

}  // namespace
}  // namespace lathe
