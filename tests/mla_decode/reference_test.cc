// SPDX-License-Identifier: Apache-2.0
// Decode against the double reference over shapes, formats and lengths, on every target.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/mla_problem.h"

namespace lathe::test {
namespace {

TEMPLATE_TEST_CASE("decode equals the reference for every format", "[mla_decode]", float, float16,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t num_heads = GENERATE(1, 5, 16, 20);
  CAPTURE(Name(target), num_heads);
  MlaProblem<TestType> problem({{num_heads, 512, 64}, {0, 1, 63, 64, 65, 300}});
  problem.options.target = target;
  problem.Run();
  problem.RequireMatchesReference();
}

}  // namespace
}  // namespace lathe::test
