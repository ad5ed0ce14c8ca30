// SPDX-License-Identifier: Apache-2.0
// Parts without keys, and merging in place: what must come through bit for bit.
#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/merge_problem.h"
#include "support/targets.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

template <class O>
void RequireEmpty(const MergeProblem<O>& problem, float empty_lse) {
  for (const O& x : problem.out) REQUIRE(std::memcmp(&x, "\0\0\0\0", sizeof(O)) == 0);
  for (const float x : problem.lse) REQUIRE(x == empty_lse);
}

TEMPLATE_TEST_CASE("A7: one live part among empty ones keeps its bits", "[merge_states][A7]", float,
                   float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t v_dim = GENERATE(1, 7, 512, 1000);
  for (const size_t num_parts : {1u, 2u, 8u}) {
    for (size_t live = 0; live < num_parts; ++live) {
      CAPTURE(Name(target), v_dim, num_parts, live);
      MergeProblem<TestType> problem({2, 3, v_dim, num_parts});
      problem.options.target = target;
      problem.part_out[live][0] = FromFloat<TestType>(-0.0f);
      for (size_t i = 0; i < num_parts; ++i) {
        if (i != live) problem.MakeEmpty(i);
      }
      problem.Run();
      REQUIRE(SameBits(problem.out, problem.part_out[live]));
      REQUIRE(SameBits(problem.lse, problem.part_lse[live]));
    }
  }
}

TEST_CASE("A7: bits are kept in base 2 as well", "[merge_states][A7]") {
  MergeProblem<float> problem({50, 7, 3, 3});
  for (size_t i = 0; i < 3; ++i) {
    problem.parts[i].lse_policy.base2 = true;
    if (i != 1) problem.MakeEmpty(i);
  }
  problem.options.lse_policy.base2 = true;
  problem.Run();
  REQUIRE(SameBits(problem.out, problem.part_out[1]));
  REQUIRE(SameBits(problem.lse, problem.part_lse[1]));
}

TEMPLATE_TEST_CASE("A7: no live part gives zero and the empty lse", "[merge_states][A7]", float,
                   float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  for (const size_t num_parts : {1u, 2u, 8u}) {
    CAPTURE(Name(target), num_parts);
    MergeProblem<TestType> problem({2, 3, 70, num_parts});
    problem.options.target = target;
    for (size_t i = 0; i < num_parts; ++i) problem.MakeEmpty(i);
    problem.Run();
    RequireEmpty(problem, -kInfinity);
    problem.GiveSink();
    problem.Run();
    RequireEmpty(problem, -kInfinity);
    problem.sink[0] = kInfinity;
    problem.sink[1] = -kInfinity;
    problem.options.lse_policy = {true, kInfinity};
    problem.Run();
    RequireEmpty(problem, kInfinity);
  }
}

TEST_CASE("each part has a convention of its own for empty", "[merge_states]") {
  // Part 0 says +inf, part 1 says -inf, part 2 says -1e30; each row has one of them empty.
  const float empties[] = {kInfinity, -kInfinity, -1e30f};
  for (const float own_empty : empties) {
    CAPTURE(own_empty);
    MergeProblem<float> problem({1, 4, 30, 3});
    problem.options.lse_policy.empty = own_empty;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (size_t i = 0; i < 3; ++i) {
      problem.parts[i].lse_policy.empty = empties[i];
      for (const size_t row : {i, size_t{3}}) {  // of row 3, all are empty
        problem.part_lse[i][row] = empties[i];
        for (size_t c = 0; c < 30; ++c) problem.part_out[i][row * 30 + c] = nan;
      }
    }
    problem.RunAndRequireReference();
    REQUIRE(problem.lse[3] == own_empty);
  }
}

TEST_CASE("an lse of -inf is empty whatever the convention", "[merge_states]") {
  MergeProblem<float> problem({1, 1, 20, 2});
  problem.parts[0].lse_policy.empty = kInfinity;
  problem.MakeEmpty(0);
  problem.part_lse[0][0] = -kInfinity;
  problem.Run();
  REQUIRE(SameBits(problem.out, problem.part_out[1]));
  REQUIRE(SameBits(problem.lse, problem.part_lse[1]));
}

TEMPLATE_TEST_CASE("merging in place of any part gives the same bits", "[merge_states]", float,
                   float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const bool is_transposed = GENERATE(false, true);
  ThreadPerTask pool;
  for (const int64_t v_dim : {1, 7, 512, 1000}) {
    for (const size_t num_parts : {1u, 2u, 5u}) {
      for (size_t place = 0; place < num_parts; ++place) {
        CAPTURE(Name(target), is_transposed, v_dim, num_parts, place);
        const MergeCase c{4, 5, v_dim, num_parts, is_transposed};
        MergeProblem<TestType> apart(c), in_place(c);
        for (MergeProblem<TestType>* problem : {&apart, &in_place}) {
          problem->options.target = target;
          problem->GiveSink();
          for (const size_t row : {3u, 8u}) {
            for (size_t i = 0; i < num_parts; ++i) problem->part_lse[i][row] = -kInfinity;
          }
          problem->part_lse[num_parts / 2][5] = -kInfinity;
        }
        apart.Run();
        in_place.args.out = in_place.Shaped(in_place.part_out[place].data());
        in_place.args.lse = in_place.ShapedLse(in_place.part_lse[place].data());
        in_place.Run(CallableExecutor(pool, 3));
        REQUIRE(SameBits(in_place.part_out[place], apart.out));
        REQUIRE(SameBits(in_place.part_lse[place], apart.lse));
        for (size_t i = 0; i < num_parts; ++i) {
          if (i != place) REQUIRE(SameBits(in_place.part_out[i], apart.part_out[i]));
        }
      }
    }
  }
}

TEST_CASE("out may lie in one part and lse in another", "[merge_states]") {
  const MergeCase c{3, 4, 600, 3};
  MergeProblem<float> apart(c), in_place(c);
  apart.Run();
  in_place.args.out = in_place.Shaped(in_place.part_out[2].data());
  in_place.args.lse = in_place.ShapedLse(in_place.part_lse[0].data());
  in_place.Run();
  REQUIRE(SameBits(in_place.part_out[2], apart.out));
  REQUIRE(SameBits(in_place.part_lse[0], apart.lse));
}

}  // namespace
}  // namespace lathe::test
