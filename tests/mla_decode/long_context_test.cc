// SPDX-License-Identifier: Apache-2.0
// Real sizes, against one reference for all targets, page sizes and thread counts; everything past
// each length is NaN.
#include <catch2/catch_template_test_macros.hpp>

#include "mla_decode/shapes.h"
#include "support/mla_problem.h"

namespace lathe::test {
namespace {

template <class T>
void CheckPageSizes(int64_t batch, int64_t seq_len, int64_t num_heads) {
  MlaCase c{{num_heads, 512, 64}, std::vector<int64_t>(static_cast<size_t>(batch), seq_len)};
  const ref::AttentionResult reference = MlaProblem<T>(c).Reference();
  for (const int64_t block_size : kBlockSizes) {
    INFO("block_size " << block_size);
    c.block_size = block_size;
    MlaProblem<T> problem(c);
    for (const Target target : RunnableTargets()) {
      INFO("target " << Name(target));
      problem.options.target = target;
      problem.RunOnThreads(static_cast<size_t>(block_size % 3 + 1));
      problem.RequireMatches(reference);
    }
  }
}

#define LATHE_LONG_CASE(name) \
  TEMPLATE_TEST_CASE(name, "[mla_decode][contexts][long]", float, float16, bfloat16)

LATHE_LONG_CASE("batch 1, 64000 keys, 16 heads") { CheckPageSizes<TestType>(1, 64000, 16); }
LATHE_LONG_CASE("batch 1, 54321 keys, 16 heads") { CheckPageSizes<TestType>(1, 54321, 16); }
LATHE_LONG_CASE("batch 1, 1243 keys, 5 heads") { CheckPageSizes<TestType>(1, 1243, 5); }
LATHE_LONG_CASE("batch 3, 1234 keys, 16 heads") { CheckPageSizes<TestType>(3, 1234, 16); }
LATHE_LONG_CASE("batch 30, 2048 keys, 16 heads") { CheckPageSizes<TestType>(30, 2048, 16); }

}  // namespace
}  // namespace lathe::test
