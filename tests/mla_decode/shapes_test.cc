// SPDX-License-Identifier: Apache-2.0
// Sizes are free: any number of heads, keys and query rows, any row, any page.
#include "mla_decode/shapes.h"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/mla_problem.h"

namespace lathe::test {
namespace {

TEMPLATE_TEST_CASE("decode takes any number of heads", "[mla_decode]", float, float16, bfloat16) {
  const int64_t num_heads = GENERATE(from_range(kHeadCounts));
  CAPTURE(num_heads);
  MlaProblem<TestType> problem({{num_heads, 512, 64}, {33, 1, 150}});
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("decode takes any length and any page size", "[mla_decode]", float, float16,
                   bfloat16) {
  MlaCase c{{5, 512, 64}, kSeqLens};
  const ref::AttentionResult reference = MlaProblem<TestType>(c).Reference();
  for (const int64_t block_size : kBlockSizes) {
    CAPTURE(block_size);
    c.block_size = block_size;
    MlaProblem<TestType>(c).CheckEveryTarget(reference);
  }
}

TEMPLATE_TEST_CASE("decode takes any key row and value width", "[mla_decode]", float, float16,
                   bfloat16) {
  MlaShape shape = GENERATE(from_range(kRowShapes));
  shape.num_heads = GENERATE(1, 6, 16);
  CAPTURE(shape.num_heads, shape.kv_lora_rank, shape.qk_rope_head_dim);
  MlaProblem<TestType> problem({shape, {20, 67, 131}, {}, 16});
  // Float32 bounds are relative to a row's largest column; one or two columns may all cancel to
  // nothing.
  if (shape.kv_lora_rank <= 2) {
    for (TestType& x : problem.cache) x = FromFloat<TestType>(std::abs(ToFloat(x)));
  }
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("decode takes any number of query rows, causal or not", "[mla_decode]", float,
                   float16, bfloat16) {
  const bool causal = GENERATE(true, false);
  const int64_t num_heads = GENERATE(3, 16);
  CAPTURE(causal, num_heads);
  // q_len > L leaves the first rows empty; q_len 0 is a sequence without a query this step.
  MlaProblem<TestType> problem({{num_heads, 512, 64},
                                {5, 129, 130, 64, 300, 7, 3, 0, 128, 10},
                                {1, 2, 3, 4, 20, 0, 20, 2, 2, 0},
                                16});
  problem.options.causal = causal;
  problem.CheckEveryTarget();
}

TEST_CASE("many rows of one sequence span several row blocks", "[mla_decode]") {
  const int64_t num_heads = GENERATE(64, 130);
  CAPTURE(num_heads);
  MlaProblem<bfloat16> problem({{num_heads, 512, 64}, {200}, {5}});
  problem.CheckEveryTarget();
}

TEST_CASE("without query_start_loc every sequence has one row", "[mla_decode]") {
  MlaProblem<bfloat16> problem({{16, 512, 64}, {10, 0, 70}});
  problem.args.query_start_loc = {};
  problem.CheckEveryTarget();
}

TEST_CASE("an empty batch is a call that does nothing", "[mla_decode]") {
  MlaProblem<float> problem({{4, 512, 64}, {}});
  problem.options.target = LATHE_GENERATE_TARGET();
  problem.Run();
}

TEMPLATE_TEST_CASE("rows whose scores reach far apart", "[mla_decode]", float, float16, bfloat16) {
  // A few keys take nearly all the weight, so nothing averages out. Quarters make every sum of
  // products exact in float32: what can err is the softmax.
  const float spread = GENERATE(4.0f, 12.0f);
  CAPTURE(spread);
  MlaCase c{{16, 512, 64}, {1, 65, 300, 1500}};
  c.score_spread = spread;
  MlaProblem<TestType> problem(c);
  const auto to_quarters = [](TestType& x) {
    x = FromFloat<TestType>(std::round(ToFloat(x) * 4.0f) / 4.0f);
  };
  std::for_each(problem.q.begin(), problem.q.end(), to_quarters);
  std::for_each(problem.cache.begin(), problem.cache.end(), to_quarters);
  problem.CheckEveryTarget();
}

}  // namespace
}  // namespace lathe::test
