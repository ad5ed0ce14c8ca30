// SPDX-License-Identifier: Apache-2.0
// Formats whose scales attention applies to scores and weights, so that codes stay exact in bfloat16: bf16 products by
// default, within their bounds, and no scale reaches a row that does not see its key.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>

#include "formats/format_pages.h"

namespace lathe::test {
namespace {

// A scale a tile of columns, and one a row, in a second part of the page.
constexpr CacheFormat kScaled[] = {CacheFormat::kFp8DsMla, CacheFormat::kIndexerFp8};

TEST_CASE("formats with scales are those that are exact without them", "[formats]") {
  for (const FormatRow& row : kFormats) {
    CAPTURE(row.name);
    const bool is_scaled =
        row.format == CacheFormat::kFp8DsMla || row.format == CacheFormat::kIndexerFp8;
    REQUIRE((BFloat16UnscaledRowsOf(row.format) != BFloat16RowsOf(row.format)) == is_scaled);
  }
}

TEST_CASE("formats with scales take bf16 products by default", "[formats]") {
  const CacheFormat format = GENERATE(from_range(kScaled));
  const int64_t num_heads = GENERATE(3, 16);
  CAPTURE(static_cast<int>(format), num_heads);
  MlaProblem<bfloat16> problem({ShapeOf(format, num_heads), {1500}});
  const FormatPages pages = MoveInto(problem, format);
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    problem.options.target = target;
    const auto run = [&](Precision precision) {
      problem.options.precision = precision;
      problem.Run();
      return problem.Result();
    };
    const MlaResult<float> by_default = run(Precision::kAuto);
    REQUIRE(SameBits(by_default, run(Precision::kFloat32)) == !HasNativeBf16(target));
  }
}

// Few keys, and such that one has almost all the weight; up to scores that float32 sums keep to the bound of float32
// products (docs/numerics.md).
TEST_CASE("rows that rest on a few keys with scales keep the bounds", "[formats]") {
  const CacheFormat format = GENERATE(from_range(kScaled));
  const float spread = GENERATE(1.0f, 2.0f);
  CAPTURE(static_cast<int>(format), spread);
  MlaCase c{ShapeOf(format, 16), {1, 2, 3, 16, 100, 1024, 1500, 3000}};
  c.score_spread = spread;
  MlaProblem<bfloat16> problem(c);
  ShiftScores(problem);
  const FormatPages pages = MoveInto(problem, format);
  problem.CheckEveryTarget();
}

// Scores of standard deviation 9: out of reach for the bound of float32 products, with scales in keys or not.
TEST_CASE("rows that rest on one key with scales keep the bounds of bf16 products", "[formats]") {
  const CacheFormat format = GENERATE(from_range(kScaled));
  MlaCase c{ShapeOf(format, 16), {1, 2, 3, 16, 100, 1024, 1500, 3000}};
  c.score_spread = 5.0f;
  MlaProblem<bfloat16> problem(c);
  ShiftScores(problem);
  const FormatPages pages = MoveInto(problem, format);
  const ref::AttentionResult reference = problem.Reference();
  for (const Target target : RunnableTargets()) {
    if (!HasNativeBf16(target)) continue;
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.Run();
    problem.RequireMatches(reference);
  }
}

TEST_CASE("a set with scales beside one without", "[formats]") {
  const bool is_first = GENERATE(true, false);
  const int64_t num_heads = GENERATE(2, 40);
  CAPTURE(is_first, num_heads);
  MlaProblem<bfloat16> problem({ShapeOf(CacheFormat::kFp8DsMla, num_heads), {200, 33}, {3, 1}});
  KeySet plain = problem.args.keys;
  plain.window = 50;
  const FormatPages pages = MoveInto(problem, CacheFormat::kFp8DsMla);
  problem.args.extra_keys = is_first ? plain : problem.args.keys;
  if (!is_first) problem.args.keys = plain;
  problem.CheckEveryTarget();
}

// The last key has it; of three queries the last alone sees that key.
TEST_CASE("a scale that is no number stays with the rows that see its key", "[formats]") {
  const float scale =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  const int64_t tile = GENERATE(0, 3);
  const int64_t num_heads = GENERATE(2, 16);
  CAPTURE(scale, tile, num_heads);
  MlaProblem<bfloat16> problem({ShapeOf(CacheFormat::kFp8DsMla, num_heads), {40}, {3}});
  ShiftScores(problem);
  FormatPages pages = MoveInto(problem, CacheFormat::kFp8DsMla);
  std::memcpy(pages.Record(problem.Slot(0, 39)) + 512 + tile * 4, &scale, sizeof(scale));
  problem.CheckEveryTarget();
  const auto row = static_cast<size_t>(num_heads * problem.v_dim());
  REQUIRE(std::isfinite(problem.out[2 * row - 1]));
  REQUIRE(std::isnan(problem.out[2 * row]));
}

}  // namespace
}  // namespace lathe::test
