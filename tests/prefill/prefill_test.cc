// SPDX-License-Identifier: Apache-2.0
// Prefill equals the double reference: widths, types, ragged lengths, masks, heads, strides, results.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "prefill/prefill_problem.h"

namespace lathe::test {
namespace {

struct Widths {
  int64_t qk, v;
};

TEMPLATE_TEST_CASE("rows of any width equal the reference", "[prefill]", float, float16, bfloat16) {
  const auto [qk, v] =
      GENERATE(Widths{192, 128}, Widths{128, 128}, Widths{576, 32}, Widths{100, 72}, Widths{64, 64},
               Widths{33, 130}, Widths{16, 192}, Widths{2, 1});
  CAPTURE(qk, v);
  PrefillProblem<TestType> problem({{2, 0, qk, v}, {3, 40, 1}, {3, 150, 70}});
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("lengths may be ragged, and empty", "[prefill]", float, bfloat16) {
  // Blocks of 128 rows and what is left of them; no queries, no keys, more queries than keys.
  PrefillProblem<TestType> problem(
      {{2, 0, 64, 64}, {7, 0, 300, 9, 5, 1, 0, 140}, {7, 4, 300, 2, 0, 260, 0, 200}});
  problem.options.causal = GENERATE(true, false);
  CAPTURE(problem.options.causal);
  problem.CheckEveryTarget();
  if (problem.options.causal) {
    // The first of 9 queries see none of 2 keys.
    const MlaResult<float> result = problem.Result();
    for (size_t i = 0; i < 7 * 2; ++i) REQUIRE(result.lse[(307 * 2) + i] == -ref::kInf);
    for (size_t i = 0; i < 7 * 2 * 64; ++i) REQUIRE(result.out[(307 * 2 * 64) + i] == 0.0f);
  }
}

TEST_CASE("a batch of nothing", "[prefill]") {
  PrefillProblem<bfloat16> no_sequences({{2, 0, 64, 64}, {}, {}});
  no_sequences.Run(2);
  PrefillProblem<bfloat16> no_rows({{2, 0, 64, 64}, {0, 0}, {5, 0}});
  no_rows.Run(2);
}

TEMPLATE_TEST_CASE("a window is the last keys that causality leaves", "[prefill]", float,
                   bfloat16) {
  PrefillProblem<TestType> problem({{2, 0, 192, 128}, {150, 3, 9}, {400, 3, 4}});
  problem.options.window = GENERATE(1, 2, 100, 129, 1000);
  problem.options.causal = GENERATE(true, false);
  CAPTURE(problem.options.window, problem.options.causal);
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("heads may share keys and values", "[prefill]", float, float16, bfloat16) {
  const int64_t kv_heads = GENERATE(1, 2, 3, 6);
  CAPTURE(kv_heads);
  PrefillProblem<TestType> problem({{6, kv_heads, 64, 64}, {50, 3}, {90, 3}});
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("rows may lie anywhere", "[prefill]", float, float16, bfloat16) {
  const auto [qk, v] = GENERATE(Widths{192, 128}, Widths{100, 72});
  const bool is_one_tensor = GENERATE(false, true);
  CAPTURE(qk, v, is_one_tensor);
  PrefillProblem<TestType> problem({{3, 0, qk, v}, {20, 5}, {37, 5}, {3, 11}, is_one_tensor});
  problem.CheckEveryTarget();
  // Gaps of out are never written: as poisoned, all bits set.
  const auto* first = reinterpret_cast<const std::byte*>(problem.out.data());
  for (int64_t c = v; c < v + 3; ++c) {
    for (size_t byte = 0; byte < sizeof(float); ++byte) {
      REQUIRE(first[static_cast<size_t>(c) * sizeof(float) + byte] == std::byte{kPoison});
    }
  }
}

TEST_CASE("heads may lie outside of tokens", "[prefill]") {
  PrefillProblem<bfloat16> problem({{4, 0, 64, 64}, {20, 5}, {20, 5}});
  problem.options.target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(problem.options.target));
  // The same memory as [H, T, D].
  const auto transpose = [](auto& tensor) {
    tensor.stride[1] = tensor.extent[0] * tensor.extent[2];
    tensor.stride[0] = tensor.extent[2];
  };
  transpose(problem.args.q);
  transpose(problem.args.k);
  transpose(problem.args.v);
  transpose(problem.args.out);
  problem.options.softmax_scale = 0.01f;
  const ref::AttentionResult reference = problem.Reference();
  problem.Run(2);
  problem.RequireMatches(reference);
}

TEST_CASE("results in every type, with a sink and either base", "[prefill]") {
  const auto check = [](auto type) {
    using O = decltype(type);
    PrefillProblem<bfloat16, O> problem({{2, 0, 192, 128}, {20, 3}, {30, 1}});
    const Guarded<float> sinks(std::vector<float>{8.0f, 10.5f});
    problem.args.attn_sink = Packed(sinks.data(), 2);
    problem.CheckEveryTarget();
    const MlaResult<O> natural = problem.Result();
    problem.options.lse_policy = {true, 77.0f};
    problem.Run();
    const MlaResult<O> base2 = problem.Result();
    REQUIRE(SameBits(base2.out, natural.out));
    for (size_t i = 0; i < natural.lse.size(); ++i) {
      if (natural.lse[i] == -ref::kInf) {
        REQUIRE(base2.lse[i] == 77.0f);
      } else {
        REQUIRE(std::abs(base2.lse[i] - natural.lse[i] / std::log(2.0)) < 1e-5);
      }
    }
    problem.args.lse = {};
    problem.Run();
    REQUIRE(SameBits(problem.Result().out, natural.out));
  };
  check(float{});
  check(float16{});
  check(bfloat16{});
}

TEST_CASE("bfloat16 products on request, float32 ones on request", "[prefill]") {
  PrefillProblem<bfloat16> problem({{2, 0, 192, 128}, {40}, {1100}});
  problem.options.precision = Precision::kFloat32;
  problem.CheckEveryTarget();
  // Rounded weights miss the bounds of few keys; of 1100 equal ones their errors average out.
  problem.options.precision = Precision::kBFloat16;
  problem.options.softmax_scale = 1e-3f;
  problem.CheckEveryTarget();
}

TEST_CASE("queries and keys of different types", "[prefill]") {
  PrefillProblem<float> problem({{2, 0, 64, 64}, {20}, {40}});
  PrefillProblem<bfloat16> keys({{2, 0, 64, 64}, {20}, {40}});
  problem.args.k = keys.args.k;
  problem.args.v = keys.args.v;
  problem.CheckEveryTarget();
}

}  // namespace
}  // namespace lathe::test
