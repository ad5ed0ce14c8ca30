// SPDX-License-Identifier: Apache-2.0
// The vector codecs of every target that Highway has for this machine, more than lathe dispatches
// to, against the scalar ones of base/types.h: all codes, all bfloat16 inputs, all rounding
// midpoints.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

// Not for vectors of SVE, which have no size, nor for SCALAR, in whose place kernels take EMU128 (dispatch/abi.h).
#define HWY_DISABLED_TARGETS HWY_ALL_SVE
#define HWY_BROKEN_EMU128 0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "formats/codec_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lathe/cache/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe {
namespace HWY_NAMESPACE {
namespace {

// f(FormatTag<Code>) for the code type of a number.
template <class F>
void VisitCode(int code, const F& f) {
  switch (code) {
    case 0:
      return f(FormatTag<float8_e4m3fn>());
    case 1:
      return f(FormatTag<float8_e4m3fnuz>());
    case 2:
      return f(FormatTag<float8_e5m2>());
    case 3:
      return f(FormatTag<float4_e2m1>());
    default:
      return;
  }
}

void Encode(int code, const float* x, int64_t n, float scale, std::byte* codes) {
  VisitCode(code, [&](auto tag) { EncodeTile<typename decltype(tag)::Type>(x, n, scale, codes); });
}
void DecodeToFloat(int code, const std::byte* codes, int64_t n, float* row) {
  VisitCode(code, [&](auto tag) {
    DecodeCodes<typename decltype(tag)::Type>(codes, n, Unscaled(), row);
  });
}
void DecodeToBFloat16(int code, const std::byte* codes, int64_t n, bfloat16* row) {
  VisitCode(code, [&](auto tag) {
    DecodeCodes<typename decltype(tag)::Type>(codes, n, Unscaled(), row);
  });
}
void RecordToFloat(CacheFormat format, const std::byte* record, const std::byte* side,
                   int64_t width, float* row) {
  VisitFormat(format, [&](auto tag) {
    DecodeRecord(typename decltype(tag)::Type(), record, side, width, row);
  });
}
void RecordToBFloat16(CacheFormat format, const std::byte* record, const std::byte* side,
                      int64_t width, bfloat16* row) {
  VisitFormat(format, [&](auto tag) {
    DecodeRecord(typename decltype(tag)::Type(), record, side, width, row);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lathe
HWY_AFTER_NAMESPACE();
#include "lathe/simd/end_pass.h"

#if HWY_ONCE

#if HWY_ARCH_X86
#include <xmmintrin.h>
#endif

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/format_pages.h"

namespace lathe {
HWY_EXPORT(Encode);
HWY_EXPORT(DecodeToFloat);
HWY_EXPORT(DecodeToBFloat16);
HWY_EXPORT(RecordToFloat);
HWY_EXPORT(RecordToBFloat16);

namespace test {
namespace {

constexpr int kNumCodes = 4;

// f() with each of Highway's targets in turn.
template <class F>
void ForEachHighwayTarget(const F& f) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    INFO("Highway target " << hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    f();
  }
  hwy::SetSupportedTargetsForTest(0);
}

// The caller's floating-point modes while it lives: flush-to-zero, denormals-are-zero, and on
// request rounding down.
class Modes {
 public:
#if HWY_ARCH_X86
  explicit Modes(unsigned bits) : before_(_mm_getcsr()) { _mm_setcsr(before_ | bits); }
  ~Modes() { _mm_setcsr(before_); }
  // All but the sticky exception flags.
  static unsigned Control() { return _mm_getcsr() & 0xFFC0; }

 private:
  unsigned before_;
#else
  explicit Modes(unsigned) {}
  static unsigned Control() { return 0; }
#endif
};
constexpr unsigned kFlush = 0x8040, kRoundDown = 0x2000;

template <class F>
void VisitCode(int code, const F& f) {
  switch (code) {
    case 0:
      return f(FormatTag<float8_e4m3fn>());
    case 1:
      return f(FormatTag<float8_e4m3fnuz>());
    case 2:
      return f(FormatTag<float8_e5m2>());
    default:
      return f(FormatTag<float4_e2m1>());
  }
}
uint8_t ScalarEncode(int code, float x) {
  uint8_t bits = 0;
  VisitCode(code, [&](auto tag) { bits = FromFloat<typename decltype(tag)::Type>(x).bits; });
  return bits;
}
uint32_t ScalarDecode(int code, uint8_t bits) {
  uint32_t result = 0;
  VisitCode(code, [&](auto tag) {
    using Code = typename decltype(tag)::Type;
    result = detail::BitsOf(ToFloat(Code{bits}));
  });
  return result;
}

// All bfloat16 numbers; all codes; the midpoints of neighbouring codes; and the float next to each,
// on both sides.
std::vector<float> Inputs() {
  std::vector<float> inputs;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) inputs.push_back(detail::FloatOf(bits << 16));
  const auto add = [&inputs](float x) {
    if (!std::isfinite(x)) return;
    const uint32_t bits = detail::BitsOf(x);
    for (const uint32_t near : {bits - 1, bits, bits + 1}) {
      for (const uint32_t sign : {0u, detail::kFloatSign}) {
        inputs.push_back(detail::FloatOf((near & ~detail::kFloatSign) | sign));
      }
    }
  };
  for (int code = 0; code < kNumCodes; ++code) {
    for (int i = 0; i < 128; ++i) {
      const float a = detail::FloatOf(ScalarDecode(code, static_cast<uint8_t>(i)));
      const float b = detail::FloatOf(ScalarDecode(code, static_cast<uint8_t>(i + 1)));
      add(a);
      add(a + (b - a) / 2);
    }
  }
  for (const float x : {464.0f, 480.0f, 248.0f, 61440.0f, 7.0f, 0x1p-126f, 0x1p-149f}) add(x);
  return inputs;
}

TEST_CASE("vector encoders are the scalar ones for every input", "[formats]") {
  const std::vector<float> inputs = Inputs();
  const int code = GENERATE(0, 1, 2, 3);
  const unsigned modes = GENERATE(0u, kFlush);
  CAPTURE(code, modes);
  std::vector<uint8_t> expected;
  for (const float x : inputs) expected.push_back(ScalarEncode(code, x));
  ForEachHighwayTarget([&] {
    // From the start, and moved by one: each input meets vectors and the rest of a row.
    for (const size_t first : {size_t{0}, size_t{1}}) {
      const size_t n = inputs.size() - first;
      Guarded<std::byte> codes(n);
      {
        const Modes mode(modes);
        const unsigned before = Modes::Control();
        HWY_DYNAMIC_DISPATCH(Encode)
        (code, &inputs[first], static_cast<int64_t>(n), 1.0f, codes.data());
        REQUIRE(Modes::Control() == before);
      }
      for (size_t i = 0; i < n; ++i) {
        if (codes[i] == std::byte{expected[first + i]}) continue;
        CAPTURE(detail::BitsOf(inputs[first + i]), int{expected[first + i]});
        REQUIRE(std::to_integer<int>(codes[i]) == int{expected[first + i]});
      }
    }
  });
}

// x / scale rounded to float, then to a code; whatever flushes.
TEST_CASE("quantisation divides exactly, by scales of any size", "[formats]") {
  const float scale = GENERATE(1.0f, 0.75f, 448.0f, 3e38f, 0x1p127f, 0x1p-100f, 0x1.8p-101f,
                               0x1p-126f, 0x1.8p-126f, 0x1p-149f, 1e-42f);
  const int code = GENERATE(0, 1, 2, 3);
  const unsigned modes = GENERATE(0u, kFlush);
  CAPTURE(scale, code, modes);
  std::vector<float> inputs;
  Random random(3, 4);
  for (int i = 0; i < 4000; ++i) {
    inputs.push_back(detail::FloatOf(static_cast<uint32_t>(random.Next())));
    inputs.push_back(random.Normal() * scale);
    inputs.push_back(random.Normal() * scale * 0x1p-7f);
  }
  std::vector<uint8_t> expected;
  for (const float x : inputs) expected.push_back(ScalarEncode(code, x / scale));
  ForEachHighwayTarget([&] {
    std::vector<std::byte> codes(inputs.size());
    {
      const Modes mode(modes);
      HWY_DYNAMIC_DISPATCH(Encode)
      (code, inputs.data(), static_cast<int64_t>(inputs.size()), scale, codes.data());
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (codes[i] == std::byte{expected[i]}) continue;
      CAPTURE(detail::BitsOf(inputs[i]), int{expected[i]});
      REQUIRE(std::to_integer<int>(codes[i]) == int{expected[i]});
    }
  });
}

TEST_CASE("vector decoders are the scalar ones for every code", "[formats]") {
  const int code = GENERATE(0, 1, 2, 3);
  const unsigned modes = GENERATE(0u, kFlush, kRoundDown);
  // Every residue of vector lengths, and every code at every place of a vector.
  const int64_t n = GENERATE(256, 256 + 64, 255, 257, 17, 1, 96, 512);
  CAPTURE(code, modes, n);
  const bool is_packed = code == 3;
  for (int shift = 0; shift < 64; ++shift) {
    Guarded<std::byte> codes(static_cast<size_t>(is_packed ? (n + 1) / 2 : n));
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<std::byte>(i + static_cast<size_t>(shift) * 5);
    }
    const auto code_at = [&](int64_t i) -> uint8_t {
      if (!is_packed) return std::to_integer<uint8_t>(codes[static_cast<size_t>(i)]);
      const auto pair = std::to_integer<unsigned>(codes[static_cast<size_t>(i / 2)]);
      return static_cast<uint8_t>(i % 2 == 0 ? pair & 15 : pair >> 4);
    };
    ForEachHighwayTarget([&] {
      Guarded<float> floats(static_cast<size_t>(n));
      Guarded<bfloat16> bfloats(static_cast<size_t>(n));
      {
        const Modes mode(modes);
        HWY_DYNAMIC_DISPATCH(DecodeToFloat)(code, codes.data(), n, floats.data());
        HWY_DYNAMIC_DISPATCH(DecodeToBFloat16)(code, codes.data(), n, bfloats.data());
      }
      for (int64_t i = 0; i < n; ++i) {
        const uint32_t expected = ScalarDecode(code, code_at(i));
        const uint32_t value = detail::BitsOf(floats[static_cast<size_t>(i)]);
        const uint32_t upper = uint32_t{bfloats[static_cast<size_t>(i)].bits} << 16;
        // The lower half of a NaN's payload is not kept, and NaN may become quiet.
        const bool is_nan = (expected & ~detail::kFloatSign) > detail::kFloatInfinity;
        const uint32_t mask = is_nan ? 0xFFBF0000u : 0xFFFFFFFFu;
        if ((value & mask) == (expected & mask) && (upper & mask) == (expected & mask)) continue;
        CAPTURE(i, int{code_at(i)}, expected, value, upper);
        REQUIRE((value & mask) == (expected & mask));
        REQUIRE((upper & mask) == (expected & mask));
      }
    });
  }
}

// Any bytes are a record: every code meets every scale there is, NaN and powers beyond a float's
// range included.
TEST_CASE("records of any bytes decode to what their columns are", "[formats]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  CAPTURE(row.name);
  const int64_t width = ShapeOf(row.format, 1).head_dim();
  Random random(9, 9);
  for (int trial = 0; trial < 60; ++trial) {
    FormatPages pages(row.format, width, 1, 1);
    for (std::byte& b : pages.bytes) b = static_cast<std::byte>(random.Next() >> 32);
    if (row.format == CacheFormat::kFp8DsMla && trial % 2 == 0) {
      // Random floats are extreme; these are like those of a model.
      for (int i = 0; i < 4; ++i) {
        const float scale = std::abs(random.Normal()) * 0.01f;
        std::memcpy(pages.Record(0) + 512 + 4 * i, &scale, sizeof(scale));
      }
    }
    std::vector<float> expected;
    VisitFormat(row.format, [&](auto tag) {
      using Format = typename decltype(tag)::Type;
      for (int64_t c = 0; c < width; ++c) {
        expected.push_back(Format::DecodeColumn(pages.Record(0), pages.Side(0), c));
      }
    });
    const bool is_rounded = BFloat16RowsOf(row.format) != BFloat16Rows::kExact;
    ForEachHighwayTarget([&] {
      Guarded<float> floats(static_cast<size_t>(width));
      Guarded<bfloat16> bfloats(static_cast<size_t>(width));
      HWY_DYNAMIC_DISPATCH(RecordToFloat)
      (row.format, pages.Record(0), pages.Side(0), width, floats.data());
      HWY_DYNAMIC_DISPATCH(RecordToBFloat16)
      (row.format, pages.Record(0), pages.Side(0), width, bfloats.data());
      for (int64_t c = 0; c < width; ++c) {
        const auto at = static_cast<size_t>(c);
        const float x = expected[at], f = floats[at], b = ToFloat(bfloats[at]);
        const bool is_float_right =
            std::isnan(x) ? std::isnan(f) : detail::BitsOf(f) == detail::BitsOf(x);
        const float rounded = ToFloat(FromFloat<bfloat16>(x));
        // float's subnormals have fewer bits than a code.
        const bool is_bfloat16_right = std::isnan(x)
                                           ? std::isnan(b)
                                           : (is_rounded ? b == rounded || std::abs(x) < 0x1p-126f
                                                         : b == x || std::abs(x) < 0x1p-126f);
        if (is_float_right && is_bfloat16_right) continue;
        CAPTURE(c, x, f, b);
        if (!is_float_right) REQUIRE(detail::BitsOf(f) == detail::BitsOf(x));
        if (!is_bfloat16_right) REQUIRE(b == x);
      }
    });
  }
}

}  // namespace
}  // namespace test
}  // namespace lathe

#endif  // HWY_ONCE
