// SPDX-License-Identifier: Apache-2.0
// Options: precision, conventions of lse, sink.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "support/mla_problem.h"

namespace lathe::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST_CASE("precision kFloat32 keeps float32 bounds on every target", "[mla_decode]") {
  MlaProblem<bfloat16> problem({{GENERATE(5, 16), 512, 64}, {1, 17, 129, 300, 2500}});
  problem.options.precision = Precision::kFloat32;
  problem.CheckEveryTarget();
}

TEST_CASE("bfloat16 products keep their bounds at any length", "[mla_decode]") {
  MlaProblem<bfloat16> problem(
      {{8, 512, 64}, {1, 2, 4, 8, 16, 32, 200, 500, 1000, 1024, 1025, 2048, 5000}});
  problem.CheckEveryTarget();
}

// Sum of weight * |value| for a row and column, of the same keys and queries.
std::vector<double> AbsoluteMeans(MlaProblem<bfloat16>& problem,
                                  const ref::AttentionResult& reference, int64_t seq_len) {
  std::vector<double> sums(reference.out.size());
  const auto v_dim = static_cast<size_t>(problem.v_dim());
  for (int64_t head = 0; head < problem.num_heads(); ++head) {
    for (int64_t j = 0; j < seq_len; ++j) {
      const bfloat16* row = problem.Row(0, j);
      double score = 0.0;
      for (int64_t c = 0; c < problem.width(); ++c) {
        score += ref::At(problem.args.q, 0, head, c) * static_cast<double>(ToFloat(row[c]));
      }
      const auto h = static_cast<size_t>(head);
      const double weight =
          std::exp(static_cast<double>(problem.options.softmax_scale) * score - reference.lse[h]);
      for (size_t c = 0; c < v_dim; ++c) {
        sums[h * v_dim + c] += weight * static_cast<double>(std::abs(ToFloat(row[c])));
      }
    }
  }
  return sums;
}

TEST_CASE("precision kBFloat16 rounds queries and weights once, at any length", "[mla_decode]") {
  const int64_t len = GENERATE(1, 16, 300, 2500);
  CAPTURE(len);
  MlaProblem<bfloat16> problem({{16, 512, 64}, {len}});
  // A float query a little off its bfloat16 neighbours: the reference is that of the rounded one.
  const ref::AttentionResult reference = problem.Reference();
  const std::vector<double> absolute = AbsoluteMeans(problem, reference, len);
  Guarded<float> q(problem.q.size());
  for (size_t i = 0; i < q.size(); ++i) q[i] = ToFloat(problem.q[i]) * (1.0f + 1.0f / 1024);
  problem.args.q = Packed(q.data(), 1, 16, 576);
  problem.options.precision = Precision::kBFloat16;
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    if (!HasNativeBf16(target)) continue;  // float32 products of the query as it is
    problem.options.target = target;
    problem.Run();
    RequireLse(problem.lse, reference.lse, {true, DType::kFloat32});
    for (size_t i = 0; i < reference.out.size(); ++i) {
      // Rounding to nearest moves a weight by 2^-8 of itself at most.
      const double bound = absolute[i] * (1.0 / 256 + 1e-5);
      INFO("element " << i << ": " << problem.out[i] << " instead of " << reference.out[i]);
      REQUIRE(std::abs(static_cast<double>(problem.out[i]) - reference.out[i]) <= bound);
    }
  }
}

TEST_CASE("precision kBFloat16 leaves other caches and targets in float32", "[mla_decode]") {
  MlaProblem<float> problem({{5, 512, 64}, {200, 5}});
  problem.options.precision = Precision::kBFloat16;
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("lse in base 2, and of empty rows, as the policy says", "[mla_decode]", float,
                   float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const size_t num_workers = GENERATE(1, 3);
  CAPTURE(Name(target));
  MlaProblem<TestType> problem({{3, 512, 64}, {300, 0, 1500, 1}});
  problem.options.target = target;
  ref::AttentionResult reference = problem.Reference();
  problem.options.lse_policy = {true, kInf};
  problem.RunOnThreads(num_workers);
  for (double& x : reference.lse) x = x == -ref::kInf ? ref::kInf : x / std::log(2.0);
  problem.RequireMatches(reference);
  problem.options.lse_policy = {false, -1234.5f};
  problem.RunOnThreads(num_workers);
  for (size_t h = 0; h < 3; ++h) REQUIRE(problem.lse[3 + h] == -1234.5f);
}

TEMPLATE_TEST_CASE("a sink of each head scales the output alone", "[mla_decode]", float, float16,
                   bfloat16) {
  MlaProblem<TestType> problem({{6, 512, 64}, {300, 0, 1500, 1}, {2, 1, 1, 1}});
  const Guarded<float> sinks(std::vector<float>{-kInf, -3.0f, 0.0f, 12.0f, 100.0f, kInf});
  problem.args.attn_sink = Packed(sinks.data(), 6);
  const ref::AttentionResult reference = problem.Reference();
  problem.CheckEveryTarget(reference);
  // +inf leaves nothing of any row, and an empty row stays one.
  for (size_t token = 0; token < 5; ++token) {
    for (size_t c = 0; c < 512; ++c) REQUIRE(problem.out[(token * 6 + 5) * 512 + c] == 0.0f);
  }
  for (int64_t h = 0; h < 6; ++h) problem.RequireEmptyRow(2, h);
}

TEMPLATE_TEST_CASE("a sink of -inf has no effect, nor has any sink on lse", "[mla_decode]", float,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<TestType> problem({{6, 512, 64}, {300, 0, 70}});
  problem.options.target = target;
  problem.Run();
  const MlaResult<float> without = problem.Result();
  Guarded<float> sinks(std::vector<float>(6, -kInf));
  problem.args.attn_sink = Packed(sinks.data(), 6);
  problem.Run();
  REQUIRE(SameBits(problem.Result(), without));
  std::fill(sinks.begin(), sinks.end(), 5.0f);
  problem.Run();
  REQUIRE(SameBits(problem.lse.Copy(), without.lse));
  REQUIRE_FALSE(SameBits(problem.out.Copy(), without.out));
}

TEMPLATE_TEST_CASE("one leaf or many, within the bounds", "[mla_decode]", float, float16,
                   bfloat16) {
  MlaCase c{{16, 512, 64}, {5000, 129, 0, 2049}, {1, 3, 1, 1}};
  MlaProblem<TestType> problem(c);
  const ref::AttentionResult reference = problem.Reference();
  problem.CheckEveryTarget(reference);
}

}  // namespace
}  // namespace lathe::test
