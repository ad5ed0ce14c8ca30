// SPDX-License-Identifier: Apache-2.0
// The ways by which tiles are quantised without dividing, of every target that Highway has for this
// machine, against the scalar codecs: bfloat16 numbers by powers of two, and quotients by products.
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
#define HWY_TARGET_INCLUDE "formats/quantize_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lathe/cache/encode_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe {
namespace HWY_NAMESPACE {
namespace {

// A code for each bfloat16.
void EncodeBFloat16(int code, const bfloat16* x, int64_t n, float scale, std::byte* codes) {
  switch (code) {
    case 0:
      return EncodeTile<float8_e4m3fn>(x, n, scale, codes);
    case 1:
      return EncodeTile<float8_e4m3fnuz>(x, n, scale, codes);
    case 2:
      return EncodeTile<float8_e5m2>(x, n, scale, codes);
    default:
      return EncodeTile<float4_e2m1>(x, n, scale, codes);
  }
}

// Tiles of 32 with a scale each.
void EncodeFloatTiles(const float* x, const float* scales, std::byte* codes) {
  EncodeTiles<float8_e4m3fn, 32, 4>(x, scales, codes);
}
void EncodePackedTiles(const float* x, const float* scales, std::byte* codes) {
  EncodeTiles<float4_e2m1, 32, 4, true>(x, scales, codes);
}
void EncodeBFloat16Tiles(const bfloat16* x, const float* scales, std::byte* codes) {
  EncodeTiles<float8_e4m3fn, 32, 4>(x, scales, codes);
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

#include "support/memory.h"
#include "support/random.h"

namespace lathe {
HWY_EXPORT(EncodeBFloat16);
HWY_EXPORT(EncodeFloatTiles);
HWY_EXPORT(EncodePackedTiles);
HWY_EXPORT(EncodeBFloat16Tiles);

namespace test {
namespace {

template <class F>
void ForEachHighwayTarget(const F& f) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    INFO("Highway target " << hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    f();
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Flush-to-zero and denormals-are-zero while it lives, if asked for.
class Flushing {
 public:
#if HWY_ARCH_X86
  explicit Flushing(bool flushes) : before_(_mm_getcsr()) {
    if (flushes) _mm_setcsr(before_ | 0x8040);
  }
  ~Flushing() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  explicit Flushing(bool) {}
#endif
};

uint8_t Scalar(int code, float x) {
  switch (code) {
    case 0:
      return FromFloat<float8_e4m3fn>(x).bits;
    case 1:
      return FromFloat<float8_e4m3fnuz>(x).bits;
    case 2:
      return FromFloat<float8_e5m2>(x).bits;
    default:
      return FromFloat<float4_e2m1>(x).bits;
  }
}

TEST_CASE("all bfloat16 numbers become the scalar codes, by powers of two of any size",
          "[formats]") {
  const float scale = GENERATE(1.0f, 0x1p-8f, 0x1p5f, 0x1p-100f, 0x1p100f, 0x1p-101f, 0x1p101f,
                               0x1p-126f, 0x1p127f, 0.0137f);
  const int code = GENERATE(0, 1, 2, 3);
  const bool flushes = GENERATE(false, true);
  CAPTURE(scale, code, flushes);
  std::vector<bfloat16> x;
  std::vector<uint8_t> expected;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    // Neighbours in a vector are of every size, so that each of them meets every path.
    x.push_back(bfloat16{static_cast<uint16_t>(bits * 0x9E37u)});
    expected.push_back(Scalar(code, ToFloat(x.back()) / scale));
  }
  // In order, too: vectors of normal codes alone.
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    x.push_back(bfloat16{static_cast<uint16_t>(bits)});
    expected.push_back(Scalar(code, ToFloat(x.back()) / scale));
  }
  ForEachHighwayTarget([&] {
    Guarded<std::byte> codes(x.size());
    {
      const Flushing flushing(flushes);
      HWY_DYNAMIC_DISPATCH(EncodeBFloat16)
      (code, x.data(), static_cast<int64_t>(x.size()), scale, codes.data());
    }
    size_t i = 0;
    while (i < x.size() && codes[i] == std::byte{expected[i]}) ++i;
    CAPTURE(x[i % x.size()].bits);
    REQUIRE(i == x.size());
  });
}

// Scales with the significands that products handle and those that are divided by, and numbers
// about the midpoints of codes: x = scale * midpoint, and the floats next to it.
TEST_CASE("quotients of tiles have the codes of the correctly rounded ones", "[formats]") {
  const bool flushes = GENERATE(false, true);
  constexpr int64_t kN = 128;
  Random random(17, 3);
  for (int trial = 0; trial < 20000; ++trial) {
    float scales[4], x[kN];
    for (int tile = 0; tile < 4; ++tile) {
      auto bits = static_cast<uint32_t>(random.Next() >> 9) & detail::kFloatMantissa;
      // Near a multiple of 1/8, where the margin lies.
      if (trial % 2 == 0) bits = ((bits & 0x700000u) + (bits & 0x7Fu) - 64) & 0x7FFFFFu;
      const int exponent = trial % 5 == 0 ? static_cast<int>(random.Below(230)) + 10 : 120;
      scales[tile] = detail::FloatOf(bits | static_cast<uint32_t>(exponent) << 23);
      for (int i = 0; i < 32; ++i) {
        // Midpoints of e4m3 and e2m1, subnormal and normal: m / 16 times powers of two up to 448.
        const float m = static_cast<float>(16 + random.Below(16)) / 16.0f;
        const float exact =
            scales[tile] * m * std::ldexp(1.0f, static_cast<int>(random.Below(19)) - 11);
        const uint32_t near = detail::BitsOf(exact) + static_cast<uint32_t>(random.Below(5)) - 2u;
        x[32 * tile + i] = detail::FloatOf(i % 2 == 0 ? near : near | detail::kFloatSign);
      }
    }
    uint8_t e4m3[kN], e2m1[kN];
    for (int i = 0; i < kN; ++i) {
      e4m3[i] = Scalar(0, x[i] / scales[i / 32]);
      e2m1[i] = Scalar(3, x[i] / scales[i / 32]);
    }
    bfloat16 rounded[kN];
    uint8_t e4m3_rounded[kN];
    for (int i = 0; i < kN; ++i) {
      rounded[i] = FromFloat<bfloat16>(x[i]);
      e4m3_rounded[i] = Scalar(0, ToFloat(rounded[i]) / scales[i / 32]);
    }
    ForEachHighwayTarget([&] {
      std::byte codes[kN], packed[kN / 2], from_bfloat16[kN];
      {
        const Flushing flushing(flushes);
        HWY_DYNAMIC_DISPATCH(EncodeFloatTiles)(x, scales, codes);
        HWY_DYNAMIC_DISPATCH(EncodePackedTiles)(x, scales, packed);
        HWY_DYNAMIC_DISPATCH(EncodeBFloat16Tiles)(rounded, scales, from_bfloat16);
      }
      const auto is_right = [&](int i) {
        const auto pair = std::to_integer<int>(packed[i / 2]);
        return codes[i] == std::byte{e4m3[i]} && (i % 2 == 0 ? pair & 15 : pair >> 4) == e2m1[i] &&
               from_bfloat16[i] == std::byte{e4m3_rounded[i]};
      };
      int i = 0;
      while (i < kN && is_right(i)) ++i;
      const int at = i % static_cast<int>(kN);
      CAPTURE(detail::BitsOf(x[at]), detail::BitsOf(scales[at / 32]));
      REQUIRE(i == kN);
    });
  }
}

}  // namespace
}  // namespace test
}  // namespace lathe

#endif  // HWY_ONCE
