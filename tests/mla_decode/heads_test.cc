// SPDX-License-Identifier: Apache-2.0
// Heads are independent: each is what it would be alone, and none past the last is touched.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/mla_problem.h"

namespace lathe::test {
namespace {

TEMPLATE_TEST_CASE("each head equals its own call", "[mla_decode][A16]", float, float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t num_heads = GENERATE(1, 3, 4, 5, 8, 12, 16, 17, 20, 64, 96, 128);
  CAPTURE(Name(target), num_heads);
  MlaCase c{{num_heads, 512, 64}, {130, 5}};
  MlaProblem<TestType> together(c);
  together.options.target = target;
  together.Run();
  c.shape.num_heads = 1;
  MlaProblem<TestType> alone(c);
  alone.options.target = target;
  // All of a few heads, every seventh of many.
  for (int64_t head = 0; head<num_heads; head += num_heads> 20 ? 7 : 1) {
    alone.args.q =
        View<const TestType, 3>{together.Query(0, head), {2, 1, 576}, {num_heads * 576, 576, 1}};
    alone.Run();
    // As close as both must be to what is exact.
    for (size_t token = 0; token < 2; ++token) {
      const size_t row = token * static_cast<size_t>(num_heads) + static_cast<size_t>(head);
      const std::vector<double> expected(alone.out.begin() + token * 512,
                                         alone.out.begin() + (token + 1) * 512);
      RequireOut(std::vector<float>(together.out.begin() + row * 512,
                                    together.out.begin() + (row + 1) * 512),
                 expected, 512, together.bounds());
      RequireLse(std::vector<float>{together.lse[row]}, {static_cast<double>(alone.lse[token])},
                 together.bounds());
    }
  }
}

TEST_CASE("heads past the last are not written", "[mla_decode][A16]") {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t num_heads = GENERATE(1, 3, 5, 12, 17, 20);
  CAPTURE(Name(target), num_heads);
  MlaProblem<bfloat16> problem({{num_heads, 512, 64}, {130, 5}});
  problem.options.target = target;
  problem.Run();
  const MlaResult<float> expected = problem.Result();
  // The same in tensors with room for 24 heads, of which the rest is poison.
  constexpr int64_t kRoom = 24;
  Guarded<bfloat16> q(2 * kRoom * 576);
  Guarded<float> out(2 * kRoom * 512), lse(2 * kRoom);
  for (size_t token = 0; token < 2; ++token) {
    const auto count = static_cast<size_t>(num_heads * 576);
    std::copy(problem.q.begin() + token * count, problem.q.begin() + (token + 1) * count,
              q.begin() + token * kRoom * 576);
  }
  problem.args.q = View<bfloat16, 3>{q.data(), {2, num_heads, 576}, {kRoom * 576, 576, 1}};
  problem.args.out = View<float, 3>{out.data(), {2, num_heads, 512}, {kRoom * 512, 512, 1}};
  problem.args.lse = View<float, 2>{lse.data(), {2, num_heads}, {kRoom, 1}};
  REQUIRE(problem.TryRun().ok());
  const Guarded<float> poison(kRoom * 512);
  for (size_t token = 0; token < 2; ++token) {
    const auto rows = static_cast<size_t>(num_heads);
    const float* row = out.begin() + token * kRoom * 512;
    REQUIRE(std::memcmp(row, &expected.out[token * rows * 512], rows * 512 * sizeof(float)) == 0);
    REQUIRE(std::memcmp(row + rows * 512, poison.data(), (kRoom - rows) * 512 * sizeof(float)) ==
            0);
    const float* sums = lse.begin() + token * kRoom;
    REQUIRE(std::memcmp(sums, &expected.lse[token * rows], rows * sizeof(float)) == 0);
    REQUIRE(std::memcmp(sums + rows, poison.data(), (kRoom - rows) * sizeof(float)) == 0);
  }
}

}  // namespace
}  // namespace lathe::test
