// SPDX-License-Identifier: Apache-2.0
// A DeepSeek-V3 layer as an implementation that shares nothing with lathe computed it
// (golden/README.md).
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "mla_decode/shapes.h"
#include "support/mla_problem.h"
#include "support/npy.h"

namespace lathe::test {
namespace {

constexpr int64_t kHeads = 16, kRank = 512, kRope = 64, kTokens = 333, kVHeadDim = 32;
constexpr double kGoldenError = 2e-6;  // of the golden tensors themselves

struct MlaV3 {
  static std::vector<float> Load(const char* name) {
    return ReadNpy<float>(std::string(LATHE_GOLDEN_DIR "/mla_v3/") + name + ".npy").values;
  }
  std::vector<int32_t> rows =
      ReadNpy<int32_t>(std::string(LATHE_GOLDEN_DIR "/mla_v3/rows.npy")).values;
  std::vector<float> q = Load("q"), kv_c = Load("kv_c"), k_pe = Load("k_pe");
  std::vector<float> out_latent = Load("out_latent"), lse = Load("lse");
  std::vector<float> w_uv = Load("w_uv"), out = Load("out");
};

// How the kept query rows are told apart.
enum class Rows { kSequences, kKeyCounts };

// Every kept row as a sequence of its own over the same pages, or all as the rows of one sequence.
template <class T>
struct GoldenProblem {
  GoldenProblem(const MlaV3& golden, Rows rows, int64_t block_size)
      : problem(Case(golden, block_size)) {
    for (int64_t position = 0; position < kTokens; ++position) {
      T* row = problem.Row(0, position);
      const auto at = static_cast<size_t>(position);
      for (size_t c = 0; c < kRank; ++c) row[c] = FromFloat<T>(golden.kv_c[at * kRank + c]);
      for (size_t c = 0; c < kRope; ++c) row[kRank + c] = FromFloat<T>(golden.k_pe[at * kRope + c]);
    }
    for (size_t i = 0; i < golden.q.size(); ++i) q[i] = FromFloat<T>(golden.q[i]);
    problem.options.softmax_scale = 0.07216878364870322f;
    problem.args.q = Packed(q.data(), num_rows, kHeads, kRank + kRope);
    problem.args.out = Packed(problem.out.data(), num_rows, kHeads, kRank);
    problem.args.lse = Packed(problem.lse.data(), num_rows, kHeads);
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = golden.rows[i] + 1;
    if (rows == Rows::kKeyCounts) {
      problem.args.keys.row_kv_lens = Packed(counts.data(), num_rows);
      return;
    }
    problem.args.query_start_loc = {};
    problem.args.keys.seq_lens = Packed(counts.data(), num_rows);
    problem.args.keys.block_table.extent[0] = num_rows;
    problem.args.keys.block_table.stride[0] = 0;
  }
  static MlaCase Case(const MlaV3& golden, int64_t block_size) {
    return {
        {kHeads, kRank, kRope}, {kTokens}, {static_cast<int64_t>(golden.rows.size())}, block_size};
  }

  MlaProblem<T> problem;
  int64_t num_rows = problem.num_tokens();
  Guarded<T> q{static_cast<size_t>(num_rows * kHeads * (kRank + kRope))};
  Guarded<int32_t> counts{static_cast<size_t>(num_rows)};
};

TEST_CASE("a float32 cache gives the golden output", "[mla_decode][golden]") {
  const MlaV3 golden;
  REQUIRE(golden.rows.size() == 10);
  const Target target = LATHE_GENERATE_TARGET();
  const Rows rows = GENERATE(Rows::kSequences, Rows::kKeyCounts);
  const int64_t block_size = GENERATE(from_range(kBlockSizes));
  CAPTURE(Name(target), block_size);
  GoldenProblem<float> golden_problem(golden, rows, block_size);
  MlaProblem<float>& problem = golden_problem.problem;
  problem.options.target = target;
  problem.RunOnThreads(2);
  for (size_t i = 0; i < golden.lse.size(); ++i) {
    REQUIRE(std::abs(problem.lse[i] - golden.lse[i]) <=
            1e-5 * std::abs(golden.lse[i]) + kGoldenError);
  }
  for (size_t row = 0; row < golden.lse.size(); ++row) {
    double row_max = 0.0;
    for (size_t c = 0; c < kRank; ++c) {
      row_max =
          std::max(row_max, std::abs(static_cast<double>(golden.out_latent[row * kRank + c])));
    }
    const double tolerance = 1e-5 * row_max + kGoldenError;
    for (size_t c = 0; c < kRank; ++c) {
      const double error = problem.out[row * kRank + c] - golden.out_latent[row * kRank + c];
      if (!(std::abs(error) <= tolerance)) REQUIRE(std::abs(error) <= tolerance);
    }
    // Projected by W_UV, what the module itself gave on: through full K and V, without absorption.
    for (size_t v = 0; v < kVHeadDim; ++v) {
      const float* w = &golden.w_uv[(row % kHeads * kVHeadDim + v) * kRank];
      double sum = 0.0, norm = 0.0;
      for (size_t c = 0; c < kRank; ++c) {
        sum += static_cast<double>(w[c]) * static_cast<double>(problem.out[row * kRank + c]);
        norm += static_cast<double>(w[c]) * static_cast<double>(w[c]);
      }
      // Errors of the latent columns add up like random ones.
      const double error = sum - static_cast<double>(golden.out[row * kVHeadDim + v]);
      REQUIRE(std::abs(error) <= tolerance * std::sqrt(norm) + kGoldenError);
    }
  }
}

// What rounding of query and cache to bfloat16 (relative errors uniform within 2^-8) may change in
// column c of a row, eight standard deviations. Per key: the score's products, twice, then the
// value. And a query's column has the same error for all keys, which its own value column does not
// average out.
struct RoundingEffect {
  std::vector<double> out;
  double lse;
};

RoundingEffect EffectOfRounding(const MlaV3& golden, size_t row) {
  constexpr double kUnit = 1.0 / 256 / 1.7320508, kScale = 0.07216878364870322, kSigmas = 8.0;
  const float* q = &golden.q[row * (kRank + kRope)];
  RoundingEffect effect{std::vector<double>(kRank), 0.0};
  std::vector<double> second_moment(kRank);
  for (size_t j = 0; j <= static_cast<size_t>(golden.rows[row / kHeads]); ++j) {
    const float* latent = &golden.kv_c[j * kRank];
    double score = 0.0, squares = 0.0;
    for (size_t c = 0; c < kRank + kRope; ++c) {
      const double k =
          static_cast<double>(c < kRank ? latent[c] : golden.k_pe[j * kRope + c - kRank]);
      score += q[c] * k;
      squares += 2.0 * (q[c] * k) * (q[c] * k);
    }
    const double weight = std::exp(kScale * score - static_cast<double>(golden.lse[row]));
    const double score_error = kScale * kUnit * std::sqrt(squares);
    effect.lse += weight * score_error;
    for (size_t c = 0; c < kRank; ++c) {
      const double v = static_cast<double>(latent[c]);
      const double away = v - static_cast<double>(golden.out_latent[row * kRank + c]);
      effect.out[c] +=
          weight * weight * (score_error * score_error * away * away + kUnit * kUnit * v * v);
      second_moment[c] += weight * away * away;
    }
  }
  for (size_t c = 0; c < kRank; ++c) {
    const double own = kScale * kUnit * static_cast<double>(q[c]) * second_moment[c];
    effect.out[c] = kSigmas * std::sqrt(effect.out[c] + own * own) + 8e-4;
  }
  effect.lse *= kSigmas;
  return effect;
}

TEST_CASE("a bfloat16 cache gives the golden output but for its rounding", "[mla_decode][golden]") {
  const MlaV3 golden;
  const Rows rows = GENERATE(Rows::kSequences, Rows::kKeyCounts);
  GoldenProblem<bfloat16> golden_problem(golden, rows, GENERATE(1, 64));
  MlaProblem<bfloat16>& problem = golden_problem.problem;
  const ref::AttentionResult reference = problem.Reference();
  std::vector<RoundingEffect> effects;
  for (size_t row = 0; row < golden.lse.size(); ++row)
    effects.push_back(EffectOfRounding(golden, row));
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.RunOnThreads(2);
    problem.RequireMatches(reference);  // of the rounded data
    for (size_t row = 0; row < golden.lse.size(); ++row) {
      INFO("row " << row);
      REQUIRE(std::abs(problem.lse[row] - golden.lse[row]) <= effects[row].lse);
      for (size_t c = 0; c < kRank; ++c) {
        const double error = problem.out[row * kRank + c] - golden.out_latent[row * kRank + c];
        INFO("column " << c);
        REQUIRE(std::abs(error) <= effects[row].out[c]);
      }
    }
  }
}

}  // namespace
}  // namespace lathe::test
