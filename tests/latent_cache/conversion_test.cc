// SPDX-License-Identifier: Apache-2.0
// Every source type into every cache type: the bits of the scalar codecs, on every target, for all
// 16-bit inputs and all float32 inputs that a rounding rule can get wrong.
#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>
#include <vector>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "lathe/latent_cache.h"
#include "support/memory.h"
#include "support/targets.h"

namespace lathe::test {
namespace {

float FloatOfBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

template <class T>
std::vector<T> EveryCode() {
  std::vector<T> values;
  for (uint32_t code = 0; code < 0x10000; ++code) values.push_back(T{static_cast<uint16_t>(code)});
  return values;
}

// float32 inputs: around each representable number of the narrow types and each midpoint of two,
// and the ends of float32 itself.
std::vector<float> CriticalFloats() {
  std::vector<float> values;
  const auto add_around = [&values](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    for (const uint32_t step : {uint32_t{0}, uint32_t{1}, ~uint32_t{0}}) {
      values.push_back(FloatOfBits(bits + step));
    }
  };
  for (uint32_t code = 0; code < 0x10000; ++code) {
    add_around(FloatOfBits(code << 16));             // a bfloat16, NaN and infinity included
    add_around(FloatOfBits((code << 16) | 0x8000));  // halfway to the next
  }
  for (uint32_t code = 0; code < 0x7C00; ++code) {  // the finite float16
    const float here = ToFloat(float16{static_cast<uint16_t>(code)});
    const float next =
        code == 0x7BFF ? 65536.0f : ToFloat(float16{static_cast<uint16_t>(code + 1)});
    for (const float sign : {1.0f, -1.0f}) {
      add_around(sign * here);
      add_around(sign * (here + (next - here) / 2));
    }
  }
  for (const uint32_t bits : {0x00000001u, 0x007FFFFFu, 0x00800000u, 0x7F7FFFFFu, 0x7F800000u,
                              0x7F800001u, 0x7FBFFFFFu, 0x7FC00000u, 0x7FFFFFFFu}) {
    values.push_back(FloatOfBits(bits));
    values.push_back(FloatOfBits(bits | 0x80000000u));
  }
  return values;
}

template <class From>
const std::vector<From>& Inputs() {
  static const std::vector<From> inputs = [] {
    if constexpr (sizeof(From) == 4) {
      return CriticalFloats();
    } else {
      return EveryCode<From>();
    }
  }();
  return inputs;
}

// All inputs as records of `width` columns.
template <class From, class To>
std::vector<To> Write(const std::vector<From>& inputs, Target target, int64_t width) {
  const int64_t num_tokens = (static_cast<int64_t>(inputs.size()) + width - 1) / width;
  std::vector<From> source(inputs);
  source.resize(static_cast<size_t>(num_tokens * width), From{});
  std::vector<To> cache(source.size(), To{});
  std::vector<int32_t> slots(static_cast<size_t>(num_tokens));
  for (int64_t i = 0; i < num_tokens; ++i) slots[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  LatentWriteArgs args;
  args.kv_c = Packed(static_cast<const From*>(source.data()), num_tokens, width);
  args.slot_mapping = Packed(slots.data(), num_tokens);
  args.cache = LatentPages(cache.data(), num_tokens, 1, width);
  LatentWriteOptions options;
  options.target = target;
  REQUIRE(WriteLatentCache(args, options).ok());
  cache.resize(inputs.size());
  return cache;
}

bool IsNan(float x) { return x != x; }

template <class From, class To>
void RequireScalarBits(const std::vector<From>& inputs, const std::vector<To>& outputs) {
  REQUIRE(outputs.size() == inputs.size());
  size_t num_wrong = 0, first_wrong = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const float value = ToFloat(inputs[i]);
    const To expected = FromFloat<To>(value);
    const bool is_right = IsNan(value) ? IsNan(ToFloat(outputs[i]))
                                       : std::memcmp(&outputs[i], &expected, sizeof(To)) == 0;
    if (!is_right && num_wrong++ == 0) first_wrong = i;
  }
  INFO("first wrong: input " << first_wrong << ", value " << ToFloat(inputs[first_wrong])
                             << ", written " << ToFloat(outputs[first_wrong]));
  REQUIRE(num_wrong == 0);
}

TEMPLATE_TEST_CASE("every input converts to the bits of the scalar codecs", "[latent_cache]",
                   (std::pair<float, float>), (std::pair<float, float16>),
                   (std::pair<float, bfloat16>), (std::pair<float16, float>),
                   (std::pair<float16, float16>), (std::pair<float16, bfloat16>),
                   (std::pair<bfloat16, float>), (std::pair<bfloat16, float16>),
                   (std::pair<bfloat16, bfloat16>)) {
  using From = typename TestType::first_type;
  using To = typename TestType::second_type;
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  // 512 columns are whole vectors; of 7 none is on any target that has more than 7 lanes.
  for (const int64_t width : {512, 7}) {
    RequireScalarBits(Inputs<From>(), Write<From, To>(Inputs<From>(), target, width));
  }
}

TEMPLATE_TEST_CASE("a cache of the source's type takes its bits as they are", "[latent_cache]",
                   float, float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  const auto& inputs = Inputs<TestType>();
  const auto written = Write<TestType, TestType>(inputs, target, 100);
  REQUIRE(SameBits(written, inputs));
}

TEST_CASE("A24: bf16 rounds to nearest even on every target", "[latent_cache][A24]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  const float tiny = 1.0f / 256;
  const std::vector<float> values = {1 + tiny, 1 + 3 * tiny, 1 + tiny + 1.0f / (1 << 20), 1.0f / 3};
  const std::vector<float> expected = {1.0f, 1.015625f, 1.0078125f, 0.333984375f};
  for (const int64_t width : {1, 4, 64}) {
    std::vector<float> source;
    while (source.size() < 64) source.insert(source.end(), values.begin(), values.end());
    const auto written = Write<float, bfloat16>(source, target, width);
    for (size_t i = 0; i < source.size(); ++i) REQUIRE(ToFloat(written[i]) == expected[i % 4]);
    const std::vector<float> nans(64, FloatOfBits(0x7F800001u));
    for (const bfloat16 x : Write<float, bfloat16>(nans, target, width)) {
      REQUIRE(IsNan(ToFloat(x)));
    }
  }
}

#if defined(__SSE2__)
constexpr unsigned kStickyFlags = 0x3F;

// Sets flush-to-zero and denormals-are-zero, as many engines do, for one scope.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned saved_;
};

template <class From, class To>
void RequireSameBitsWhenFlushing(Target target) {
  const auto& inputs = Inputs<From>();
  const std::vector<To> expected = Write<From, To>(inputs, target, 509);
  std::vector<To> flushed;
  unsigned before = 0, after = 0;
  {
    const FlushDenormals flush;
    before = _mm_getcsr();
    flushed = Write<From, To>(inputs, target, 509);
    after = _mm_getcsr();
  }
  REQUIRE(SameBits(flushed, expected));
  REQUIRE((before & ~kStickyFlags) == (after & ~kStickyFlags));
}

TEST_CASE("flushed denormals change no bit of a record", "[latent_cache]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  RequireSameBitsWhenFlushing<float, bfloat16>(target);
  RequireSameBitsWhenFlushing<float, float16>(target);
  RequireSameBitsWhenFlushing<float16, float>(target);
  RequireSameBitsWhenFlushing<float16, bfloat16>(target);
  RequireSameBitsWhenFlushing<bfloat16, float>(target);
  RequireSameBitsWhenFlushing<bfloat16, float16>(target);
  RequireSameBitsWhenFlushing<float, float>(target);
}
#endif

}  // namespace
}  // namespace lathe::test
