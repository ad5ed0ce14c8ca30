// SPDX-License-Identifier: Apache-2.0
// Upper ends of what Sizes and Plan take, and a query whose rope part changed
// its type.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include "support/decode_call.h"

namespace lathe::test {
namespace {

using Call = DecodeCall;

TEST_CASE("Sizes refuses limits that no memory has", "[mla_decode][validation]") {
  struct Row {
    const char *message;
    void (*break_it)(Limits &limits);
  };
  const Row rows[] = {
      {"invalid argument: limits.max_num_seqs is 9223372036854775807, must be "
       "at most 2147483647",
       [](Limits &l) { l.max_num_seqs = kInt64Max; }},
      {"invalid argument: limits.max_num_tokens is 9223372036854775807, must "
       "be at most 2147483647",
       [](Limits &l) { l.max_num_tokens = kInt64Max; }},
      {"invalid argument: limits.max_num_keys is 9223372036854775807, must be "
       "at most 1099511627776",
       [](Limits &l) { l.max_num_keys = kInt64Max; }},
      {"invalid argument: limits.num_workers is 65537, must be at most 65536",
       [](Limits &l) { l.num_workers = 65537; }},
      {"invalid argument: limits.num_workers is 9223372036854775807, must be "
       "at most 65536",
       [](Limits &l) { l.num_workers = SIZE_MAX; }},
  };
  for (const Row &row : rows) {
    INFO("expected: " << row.message);
    MlaDecodeOptions options;
    options.softmax_scale = 1;
    Limits limits{2, 3, 100, 2};
    row.break_it(limits);
    Sizes sizes{111, 222};
    RequireRefused(MlaDecodeSizes({2, 4, 2}, options, limits, &sizes), row.message);
    REQUIRE((sizes.plan_bytes == 111 && sizes.workspace_bytes == 222));
  }
}

TEST_CASE("the largest sizes are counted without overflow", "[mla_decode][validation]") {
  constexpr int64_t kMaxDim = std::numeric_limits<int32_t>::max();
  MlaDecodeOptions options;
  options.softmax_scale = 1;
  Sizes sizes, smaller;
  const MlaShape shape{kMaxDim, kMaxDim, kMaxDim};
  REQUIRE(MlaDecodeSizes(shape, options, {kMaxDim, kMaxDim, int64_t{1} << 40, 65536}, &sizes).ok());
  REQUIRE(MlaDecodeSizes(shape, options, {kMaxDim, kMaxDim / 2, int64_t{1} << 40, 65535}, &smaller)
              .ok());
  REQUIRE(sizes.plan_bytes > smaller.plan_bytes);
  REQUIRE(sizes.workspace_bytes > smaller.workspace_bytes);
}

TEST_CASE("a plan refuses more workers than there are anywhere", "[mla_decode][validation]") {
  RequirePlanRefuses({
      {"invalid argument: num_workers is 65537, must be at most 65536",
       [](Call &c) { c.num_workers = 65537; }},
      {"invalid argument: num_workers is 9223372036854775807, must be at most "
       "65536",
       [](Call &c) { c.num_workers = SIZE_MAX; }},
  });
}

TEST_CASE("a plan is stale when the rope part changed its type", "[mla_decode][validation]") {
  const auto in_parts = [](Call &c) { c.GiveQueryInParts(); };
  RequireRunRefuses(
      {{"stale plan: q_pe.dtype is bfloat16, must be what the plan was made for, float32",
        [](Call &c) { c.args.q_pe.dtype = DType::kBFloat16; }, in_parts}});
}

TEST_CASE("a run refuses an executor without a function", "[mla_decode][validation]") {
  Call call;
  REQUIRE(call.Plan().ok());
  Executor executor;
  executor.run = nullptr;
  RequireRefused(RunMlaDecode(*call.plan, call.args, call.workspace_buffer, executor),
                 "invalid argument: executor.run must not be null");
}

}  // namespace
}  // namespace lathe::test
