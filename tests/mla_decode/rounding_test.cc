// SPDX-License-Identifier: Apache-2.0
// bfloat16 rounds to nearest even on every target, and no target's errors lean to one side.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/mla_problem.h"

namespace lathe::test {
namespace {

float FloatOfBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

TEST_CASE("one key's value is stored rounded to nearest even", "[mla_decode][A24]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<float, bfloat16> problem({{1, 512, 64}, {1}});
  problem.options.target = target;
  problem.SetQuery(1.0f);
  problem.SetRow(0, 0, 0.0f, 0.0f);
  const float values[] = {1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, 1.0f + 0x1p-8f + 0x1p-20f, 1.0f / 3};
  const float rounded[] = {1.0f, 1.015625f, 1.0078125f, 0.333984375f};
  for (size_t i = 0; i < 4; ++i) {
    for (int64_t column = 1; column < 512; column += 60) {
      problem.Row(0, 0)[column] = values[i];
      problem.Run();
      REQUIRE(ToFloat(problem.out[static_cast<size_t>(column)]) == rounded[i]);
      problem.Row(0, 0)[column] = 0.0f;
    }
  }
  problem.Row(0, 0)[3] = FloatOfBits(0x7F800001);
  problem.Run();
  for (size_t c = 0; c < 512; ++c) REQUIRE(std::isnan(ToFloat(problem.out[c])));
}

// Values are made positive, so that whatever shrinks or grows the weights shows in the mean.
template <class T, class O>
void CheckUnbiased(Precision precision) {
  constexpr int64_t kLen = 700;
  MlaProblem<T, O> problem({{16, 512, 64}, {kLen}});
  problem.options.precision = precision;
  for (int64_t i = 0; i < kLen; ++i) {
    T* row = problem.Row(0, i);
    for (int64_t c = 0; c < 512; ++c) row[c] = FromFloat<T>(std::abs(ToFloat(row[c])));
  }
  const ref::AttentionResult reference = problem.Reference();
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.Run();
    const bool rounds_weights = problem.bounds().is_bf16_path && precision == Precision::kBFloat16;
    if (!rounds_weights) problem.RequireMatches(reference);
    double error = 0.0, sum = 0.0;
    for (size_t i = 0; i < reference.out.size(); ++i) {
      error += static_cast<double>(ToFloat(problem.out[i])) - reference.out[i];
      sum += reference.out[i];
    }
    // Five standard deviations of a mean of independent roundings to nearest, of at most `unit`
    // each: sixteen heads' weights, of which a few dozen keys carry most; and every element when
    // stored.
    const auto deviation = [](double unit, double count) {
      return 5.0 * unit / std::sqrt(3.0 * count);
    };
    double bound = 1e-6;  // float32 sums
    if (rounds_weights) bound += deviation(1.0 / 256, 16 * 24);
    if (sizeof(O) == 2) bound += deviation(1.0 / 256, 16 * 512);
    INFO("relative bias " << error / sum << " bound " << bound);
    REQUIRE(std::abs(error / sum) <= bound);
  }
}

TEST_CASE("errors of decode are not biased", "[mla_decode][A24]") {
  SECTION("float") { CheckUnbiased<float, float>(Precision::kAuto); }
  SECTION("float16") { CheckUnbiased<float16, float>(Precision::kAuto); }
  SECTION("bfloat16") { CheckUnbiased<bfloat16, float>(Precision::kAuto); }
  SECTION("bfloat16, weights rounded") { CheckUnbiased<bfloat16, float>(Precision::kBFloat16); }
  SECTION("bfloat16, stored as bfloat16") { CheckUnbiased<bfloat16, bfloat16>(Precision::kAuto); }
}

}  // namespace
}  // namespace lathe::test
