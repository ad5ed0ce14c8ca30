// SPDX-License-Identifier: Apache-2.0
// Merging against the double reference: numbers of parts, sizes, types, layouts, log bases, sinks.
#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/merge_problem.h"
#include "support/targets.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

TEST_CASE("any number of parts merges", "[merge_states]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (size_t num_parts = 1; num_parts <= 33; ++num_parts) {
    CAPTURE(Name(target), num_parts);
    MergeProblem<float> problem({2, 3, 64, num_parts, false, static_cast<uint32_t>(num_parts)});
    problem.options.target = target;
    problem.RunAndRequireReference();
  }
}

TEST_CASE("more parts merge than weights are kept for", "[merge_states]") {
  const Target target = LATHE_GENERATE_TARGET();
  const size_t num_parts = GENERATE(size_t{64}, size_t{65}, size_t{130});
  CAPTURE(Name(target), num_parts);
  MergeProblem<float> problem({2, 3, 64, num_parts});
  problem.options.target = target;
  problem.RunAndRequireReference();
}

TEMPLATE_TEST_CASE("all types and sizes merge", "[merge_states]", (std::pair<float, float>),
                   (std::pair<float, float16>), (std::pair<float, bfloat16>),
                   (std::pair<float16, float>), (std::pair<float16, float16>),
                   (std::pair<float16, bfloat16>), (std::pair<bfloat16, float>),
                   (std::pair<bfloat16, float16>), (std::pair<bfloat16, bfloat16>)) {
  const Target target = LATHE_GENERATE_TARGET();
  const bool is_transposed = GENERATE(false, true);
  for (const int64_t v_dim : {1, 7, 512, 1000}) {
    for (const int64_t num_heads : {1, 5}) {
      CAPTURE(Name(target), v_dim, num_heads, is_transposed);
      MergeProblem<typename TestType::first_type, typename TestType::second_type> problem(
          {3, num_heads, v_dim, 3, is_transposed});
      problem.options.target = target;
      problem.RunAndRequireReference();
      problem.GiveSink();
      problem.RunAndRequireReference();
    }
  }
}

TEST_CASE("parts of different types merge", "[merge_states]") {
  MergeProblem<float> floats({3, 5, 100, 1});
  MergeProblem<float16> halves({3, 5, 100, 1, false, 2});
  MergeProblem<bfloat16> brains({3, 5, 100, 1, true, 3});
  const MergePart parts[] = {floats.parts[0], halves.parts[0], brains.parts[0]};
  floats.args.parts = parts;
  floats.args.num_parts = 3;
  floats.RunAndRequireReference();
}

TEST_CASE("strided rows merge and gaps keep their bytes", "[merge_states]") {
  MergeProblem<float> problem({3, 2, 7, 2});
  const ref::AttentionResult reference = problem.Reference();
  Guarded<float> wide_out(3 * 100), wide_lse(3 * 20);
  problem.args.out = View<float, 3>{wide_out.data(), {3, 2, 7}, {100, 9, 1}};
  problem.args.lse = View<float, 2>{wide_lse.data(), {3, 2}, {20, 3}};
  problem.Run();
  std::vector<float> out, lse;
  const uint32_t poison = 0xFFFFFFFFu;
  const auto take = [&poison](Guarded<float>& memory, size_t at, std::vector<float>& to) {
    to.push_back(memory[at]);
    std::memcpy(&memory[at], &poison, sizeof(poison));
  };
  for (size_t t = 0; t < 3; ++t) {
    for (size_t h = 0; h < 2; ++h) {
      for (size_t c = 0; c < 7; ++c) take(wide_out, t * 100 + h * 9 + c, out);
      take(wide_lse, t * 20 + h * 3, lse);
    }
  }
  RequireOut(out, reference.out, 7, {});
  RequireLse(lse, reference.lse, {});
  for (const Guarded<float>* memory : {&wide_out, &wide_lse}) {
    for (const float& x : *memory) REQUIRE(std::memcmp(&x, &poison, sizeof(x)) == 0);
  }
}

TEST_CASE("each part and the result have a log base of their own", "[merge_states]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (unsigned bases = 0; bases < 16; ++bases) {
    CAPTURE(Name(target), bases);
    MergeProblem<float> problem({2, 3, 33, 3});
    problem.options.target = target;
    for (size_t i = 0; i < 3; ++i) problem.parts[i].lse_policy.base2 = (bases >> i & 1) != 0;
    problem.options.lse_policy.base2 = (bases >> 3 & 1) != 0;
    problem.RunAndRequireReference();
  }
}

TEST_CASE("A8: two parts of equal scores weigh by their keys", "[merge_states][A8]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  for (unsigned bases = 0; bases < 8; ++bases) {
    MergeProblem<float> problem({1, 1, 2, 2});
    problem.options.target = target;
    const float keys[] = {2, 8};
    for (size_t i = 0; i < 2; ++i) {
      const bool base2 = (bases >> i & 1) != 0;
      problem.parts[i].lse_policy.base2 = base2;
      problem.part_lse[i][0] = base2 ? std::log2(keys[i]) : std::log(keys[i]);
      problem.part_out[i][0] = 0;
      problem.part_out[i][1] = static_cast<float>(i);
    }
    problem.options.lse_policy.base2 = (bases >> 2 & 1) != 0;
    problem.Run();
    REQUIRE(std::abs(problem.out[1] - 0.8f) <= 1e-6f);
    const double expected =
        problem.options.lse_policy.base2 ? 3.321928094887362 : 2.302585092994046;
    REQUIRE(std::abs(static_cast<double>(problem.lse[0]) - expected) <= 1e-6);
  }
}

TEST_CASE("a sink is applied once, however many parts there are", "[merge_states][A19]") {
  // Four keys Row(0, 1) of score 0 and a sink of 0: 4 / 5.
  for (const size_t num_parts : {1u, 2u, 4u}) {
    MergeProblem<float> problem({1, 1, 2, num_parts});
    for (size_t i = 0; i < num_parts; ++i) {
      problem.part_lse[i][0] = std::log(4.0f / static_cast<float>(num_parts));
      problem.part_out[i][0] = 0;
      problem.part_out[i][1] = 1;
    }
    problem.sink[0] = 0;
    problem.GiveSink();
    problem.Run();
    REQUIRE(std::abs(problem.out[1] - 0.8f) <= 1e-6f);
    REQUIRE(std::abs(problem.lse[0] - 1.386294f) <= 1e-6f);
    problem.sink[0] = -kInfinity;
    problem.Run();
    REQUIRE(std::abs(problem.out[1] - 1.0f) <= 1e-6f);
    problem.sink[0] = kInfinity;
    problem.Run();
    REQUIRE(problem.out[1] == 0.0f);
    REQUIRE(std::abs(problem.lse[0] - 1.386294f) <= 1e-6f);
  }
}

TEST_CASE("large and far apart lse values do not overflow", "[merge_states]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const float offset : {-1e30f, -1000.0f, 0.0f, 1000.0f, 1e30f}) {
    CAPTURE(Name(target), offset);
    MergeProblem<float> problem({1, 1, 1, 3});
    problem.options.target = target;
    for (size_t i = 0; i < 3; ++i) {
      problem.part_lse[i][0] = offset;
      problem.part_out[i][0] = static_cast<float>(4 * i);  // 0, 4, 8
    }
    problem.Run();
    REQUIRE(std::abs(problem.out[0] - 4.0f) <= 4e-6f);
    REQUIRE(std::abs(problem.lse[0] - (offset + 1.098612f)) <= 1e-6f * std::abs(offset) + 1e-6f);
    problem.part_lse[0][0] = offset - 500.0f - std::abs(offset);  // of no weight
    problem.Run();
    REQUIRE(std::abs(problem.out[0] - 6.0f) <= 6e-6f);
    REQUIRE(std::abs(problem.lse[0] - (offset + 0.693147f)) <= 1e-6f * std::abs(offset) + 1e-6f);
  }
}

TEST_CASE("a merge without lse gives the same out", "[merge_states]") {
  MergeProblem<float> problem({2, 3, 40, 3});
  problem.Run();
  const std::vector<float> expected = problem.out.Copy();
  for (float& x : problem.out) x = 0;
  problem.args.lse = {};
  problem.Run();
  REQUIRE(SameBits(problem.out, expected));
}

TEST_CASE("threads change no bit", "[merge_states][A27]") {
  ThreadPerTask pool;
  for (const int64_t num_tokens : {int64_t{1}, int64_t{700}}) {
    MergeProblem<bfloat16> problem({num_tokens, 11, 24, 4});
    problem.GiveSink();
    problem.Run();
    const auto expected = problem.out.Copy();
    const auto expected_lse = problem.lse.Copy();
    for (const size_t num_workers : {0u, 1u, 2u, 3u, 16u, 1000u}) {
      CAPTURE(num_tokens, num_workers);
      std::memset(problem.out.data(), kPoison, problem.out.size() * sizeof(bfloat16));
      problem.Run(CallableExecutor(pool, num_workers));
      REQUIRE(SameBits(problem.out, expected));
      REQUIRE(SameBits(problem.lse, expected_lse));
    }
  }
}

TEST_CASE("a row does not depend on its neighbours", "[merge_states][A25]") {
  MergeProblem<float> problem({4, 3, 65, 3});
  problem.Run();
  const std::vector<float> expected = problem.out.Copy();
  const std::vector<float> expected_lse = problem.lse.Copy();
  // All rows but one become NaN: in out, or in lse.
  constexpr size_t kRow = 7;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = 0; i < 3; ++i) {
    for (size_t row = 0; row < 12; ++row) {
      if (row == kRow) continue;
      if (row % 2 == 0) problem.part_lse[i][row] = nan;
      for (size_t c = 0; c < 65; ++c) problem.part_out[i][row * 65 + c] = nan;
    }
  }
  problem.Run();
  REQUIRE(std::memcmp(&problem.out[kRow * 65], &expected[kRow * 65], 65 * sizeof(float)) == 0);
  REQUIRE(problem.lse[kRow] == expected_lse[kRow]);
  for (size_t row = 0; row < 12; ++row) {  // and NaN is not laundered
    if (row == kRow) continue;
    for (size_t c = 0; c < 65; ++c) REQUIRE(std::isnan(problem.out[row * 65 + c]));
    REQUIRE(std::isnan(problem.lse[row]) == (row % 2 == 0));
  }
}

TEST_CASE("no rows: nothing to do", "[merge_states]") {
  MergePart part;
  part.out = View<const float, 3>{nullptr, {0, 4, 8}, {32, 8, 1}};
  part.lse = View<const float, 2>{nullptr, {0, 4}, {4, 1}};
  MergeStatesArgs args;
  args.parts = &part;
  args.num_parts = 1;
  args.out = View<float, 3>{nullptr, {0, 4, 8}, {32, 8, 1}};
  REQUIRE(MergeStates(args).ok());
}

}  // namespace
}  // namespace lathe::test
