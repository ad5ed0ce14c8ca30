// SPDX-License-Identifier: Apache-2.0
// Soft cap: scores x become cap * tanh(x / cap) before masks and softmax, in decode and prefill alike.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "formats/format_pages.h"
#include "prefill/prefill_problem.h"
#include "support/merge_problem.h"
#include "support/mla_problem.h"

namespace lathe::test {
namespace {

// Scores of these cases lie about 8, up to 14 or so: bent hard, gently, not to be noticed.
float GenerateCap() { return GENERATE(2.0f, 12.0f, 50.0f, 1e6f); }

TEMPLATE_TEST_CASE("a decode with soft cap equals the reference", "[score_transform][mla_decode]",
                   float, float16, bfloat16) {
  const int64_t num_heads = GENERATE(1, 5, 16, 40);
  MlaProblem<TestType> problem({{num_heads, 128, 64}, {300, 0, 1500, 1}, {1, 2, 3, 1}});
  problem.options.soft_cap = GenerateCap();
  CAPTURE(num_heads, problem.options.soft_cap);
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("both key sets are capped, and the sink is not", "[score_transform][mla_decode]",
                   float, bfloat16) {
  MlaProblem<TestType> problem({{16, 128, 64}, {300, 70}, {2, 1}});
  problem.options.soft_cap = 6.0f;
  const int32_t first_entries[] = {5, 9, -1, 200, 5, 17, 120, 3, 44, 66, 12, 69};
  const Guarded<int32_t> indices(std::vector<int32_t>(first_entries, first_entries + 12));
  problem.args.extra_keys = problem.args.keys;
  problem.args.extra_keys.indices = Packed(indices.data(), 3, 4);
  problem.args.keys.window = 40;
  const Guarded<float> sink(std::vector<float>(16, 9.0f));
  problem.args.attn_sink = Packed(sink.data(), 16);
  problem.CheckEveryTarget();
}

// Codes of the first set count as code * 0.0137, rows of the second as they are.
TEST_CASE("a cap counts in scores, whatever the scale of a cache", "[score_transform][formats]") {
  MlaProblem<bfloat16> problem({{16, 512, 64}, {150, 33}});
  const KeySet plain = problem.args.keys;
  const FormatPages pages = MoveInto(problem, CacheFormat::kLatentFp8E4m3, 0.0137f);
  problem.args.extra_keys = plain;
  problem.args.extra_keys.window = 20;
  problem.options.soft_cap = 6.0f;
  problem.CheckEveryTarget();
}

// Shards capped one by one are parts of the whole: the cap is elementwise.
TEMPLATE_TEST_CASE("merging capped shards gives the capped whole",
                   "[score_transform][merge_states]", float, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const MlaCase the_case{{6, 64, 16}, {131, 70}, {3, 1}};
  constexpr size_t kRows = 4 * 6;
  MlaProblem<TestType> whole(the_case);
  whole.options.target = target;
  whole.options.soft_cap = GENERATE(3.0f, 30.0f);
  CAPTURE(Name(target), whole.options.soft_cap);
  Guarded<float> outs[3] = {Guarded<float>(kRows * 64), Guarded<float>(kRows * 64),
                            Guarded<float>(kRows * 64)};
  Guarded<float> lses[3] = {Guarded<float>(kRows), Guarded<float>(kRows), Guarded<float>(kRows)};
  MergePart parts[3];
  for (int32_t shard = 0; shard < 3; ++shard) {
    MlaProblem<TestType> part(the_case);
    part.options = whole.options;
    Guarded<int32_t> indices(4 * 131);  // keys dealt round robin
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto position = static_cast<int32_t>(i % 131);
      indices[i] = position % 3 == shard ? position : -1;
    }
    part.args.keys.indices = Packed(indices.data(), 4, 131);
    part.args.out = Packed(outs[shard].data(), 4, 6, 64);
    part.args.lse = Packed(lses[shard].data(), 4, 6);
    part.Run();
    parts[shard].out = Packed(static_cast<const float*>(outs[shard].data()), 4, 6, 64);
    parts[shard].lse = Packed(static_cast<const float*>(lses[shard].data()), 4, 6);
  }
  Guarded<float> out(kRows * 64), lse(kRows);
  MergeStatesArgs args;
  args.parts = parts;
  args.num_parts = 3;
  args.out = Packed(out.data(), 4, 6, 64);
  args.lse = Packed(lse.data(), 4, 6);
  REQUIRE(MergeStates(args).ok());
  const ref::AttentionResult reference = whole.Reference();
  RequireOut(out, reference.out, 64, whole.bounds());
  RequireLse(lse, reference.lse, whole.bounds());
}

TEST_CASE("scores of any size stay within the cap", "[score_transform][mla_decode]") {
  // Scores of 3e38, -3e38 and 0 count as 2, -2 and 0.
  MlaProblem<float> problem({{3, 64, 16}, {3}});
  problem.SetQuery(1e19f);
  problem.SetRow(0, 0, 3e19f, 1.0f);
  problem.SetRow(0, 1, -3e19f, 2.0f);
  problem.SetRow(0, 2, 0.0f, 4.0f);
  problem.options.soft_cap = 2.0f;
  const double sum = std::exp(2.0) + std::exp(-2.0) + 1.0;
  const double mean = (std::exp(2.0) + 2.0 * std::exp(-2.0) + 4.0) / sum;
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.Run();
    REQUIRE(Matches(problem.out[1], mean, 1e-5));
    REQUIRE(Matches(problem.lse[0], std::log(sum), 1e-5));
  }
}

TEMPLATE_TEST_CASE("a prefill with soft cap equals the reference", "[score_transform][prefill]",
                   float, float16, bfloat16) {
  PrefillProblem<TestType> problem({{2, 0, 192, 128}, {3, 140, 1, 9}, {300, 140, 0, 5}});
  problem.options.soft_cap = GenerateCap();
  problem.options.window = GENERATE(kNoWindow, int64_t{50});
  CAPTURE(problem.options.soft_cap, problem.options.window);
  problem.CheckEveryTarget();
}

}  // namespace
}  // namespace lathe::test
