// SPDX-License-Identifier: Apache-2.0
// Windows, per-row key counts, and what they have in common: rows of one sequence that see
// different keys.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/mla_problem.h"

namespace lathe::test {
namespace {

TEMPLATE_TEST_CASE("a window counts the query's own key", "[mla_decode][A18]", float, float16,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<TestType> problem({{2, 512, 64}, {6}});
  problem.options.target = target;
  problem.SetQuery(1.0f);
  for (int p = 0; p <= 5; ++p) problem.SetRow(0, p, 0.0f, static_cast<float>(p));
  problem.args.keys.window = 3;
  problem.Run();
  for (int64_t h = 0; h < 2; ++h) problem.RequireKnownRow(0, h, 4.0, 1.098612);
  problem.args.keys.window = 1;
  problem.Run();
  for (int64_t h = 0; h < 2; ++h) problem.RequireKnownRow(0, h, 5.0, 0.0);
}

TEMPLATE_TEST_CASE("windows of any width equal the reference", "[mla_decode][A18]", float, float16,
                   bfloat16) {
  const int64_t window = GENERATE(1, 2, 3, 64, 127, 128, 129, 1000);
  CAPTURE(window);
  MlaProblem<TestType> problem(
      {{5, 512, 64}, {0, 1, 5, 129, 300, 1100, 400}, {1, 1, 2, 4, 1, 2, 20}, 16});
  problem.args.keys.window = window;
  problem.CheckEveryTarget();
}

TEST_CASE("a window without causality ends at the last key for every row", "[mla_decode]") {
  MlaProblem<bfloat16> problem({{5, 512, 64}, {300, 40}, {4, 2}});
  problem.args.keys.window = 50;
  problem.options.causal = false;
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("rows may have a first key of their own", "[mla_decode]", float, bfloat16) {
  MlaProblem<TestType> problem({{5, 512, 64}, {0, 300, 1100, 40}, {1, 3, 3, 50}, 16});
  std::vector<int32_t> starts{0, 0, 299, 298, -5, 700, 128}, lengths{0, 10, 300, 250, 5, 1100, 129};
  for (int32_t i = 0; i < 50; ++i) {
    starts.push_back(i % 7 * 9);
    lengths.push_back(50 - i);
  }
  const Guarded<int32_t> first(starts), last(lengths);
  problem.args.keys.row_starts = Packed(first.data(), first.size());
  if (GENERATE(false, true)) problem.args.keys.row_kv_lens = Packed(last.data(), last.size());
  problem.args.keys.window = GENERATE(int64_t{20}, kNoWindow);
  problem.options.causal = GENERATE(false, true);
  problem.CheckEveryTarget();
}

TEST_CASE("keys in front of every window are not read", "[mla_decode]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<bfloat16> problem({{16, 512, 64}, {700}, {3}, 16});
  problem.options.target = target;
  problem.args.keys.window = 200;
  const ref::AttentionResult reference = problem.Reference();
  for (int64_t position = 0; position < 700 - 200 - 2; ++position) {
    bfloat16* row = problem.Row(0, position);
    std::fill(row, row + problem.width(), bfloat16{0x7FC0});
  }
  // Nor the table's entries for pages wholly in front. (Plan checks the whole table on request.)
  problem.options.check_indices = false;
  for (size_t page = 0; page < (700 - 202) / 16; ++page) problem.block_table[page] = 0x7FFFFFF0;
  problem.RunOnThreads(3);
  problem.RequireMatches(reference);
}

TEMPLATE_TEST_CASE("per-row key counts are clamped to the sequence", "[mla_decode]", float, float16,
                   bfloat16) {
  const int64_t window = GENERATE(kNoWindow, int64_t{70});
  CAPTURE(window);
  MlaProblem<TestType> problem({{5, 512, 64}, {300, 129, 0, 64}, {6, 4, 1, 2}, 61});
  const Guarded<int32_t> counts(
      std::vector<int32_t>{300, 0, 1, 128, -1, 1000000, 129, 64, -2147483647, 130, 5, 63, 65});
  problem.args.keys.row_kv_lens = Packed(counts.data(), counts.size());
  problem.args.keys.window = window;
  problem.CheckEveryTarget();
}

TEST_CASE("per-row key counts take the place of causality", "[mla_decode]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<float> problem({{4, 512, 64}, {200}, {3}});
  problem.options.target = target;
  const Guarded<int64_t> counts(std::vector<int64_t>{200, 200, 200});
  problem.args.keys.row_kv_lens = Packed(counts.data(), 3);
  problem.Run();
  const MlaResult<float> counted = problem.Result();
  problem.args.keys.row_kv_lens = {};
  problem.options.causal = false;
  problem.Run();
  REQUIRE(SameBits(counted, problem.Result()));
}

}  // namespace
}  // namespace lathe::test
