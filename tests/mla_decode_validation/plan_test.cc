// SPDX-License-Identifier: Apache-2.0
// What only planning can see: options, the contents of index arrays, plan memory.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include "support/decode_call.h"

namespace lathe::test {
namespace {

using Call = DecodeCall;

TEST_CASE("a plan refuses impossible shapes and options", "[mla_decode][validation]") {
  RequirePlanRefuses({
      {"invalid argument: shape.num_heads is 0, must be at least 1",
       [](Call& c) { c.shape.num_heads = 0; }},
      {"invalid argument: shape.num_heads is -16, must be at least 1",
       [](Call& c) { c.shape.num_heads = -16; }},
      {"invalid argument: shape.kv_lora_rank is 0, must be at least 1",
       [](Call& c) { c.shape.kv_lora_rank = 0; }},
      {"invalid argument: shape.qk_rope_head_dim is -1, must be at least 0",
       [](Call& c) { c.shape.qk_rope_head_dim = -1; }},
      {"invalid argument: options.softmax_scale is 0, must be finite and above 0 (it has no "
       "default)",
       [](Call& c) { c.options.softmax_scale = 0.0f; }},
      {"invalid argument: options.softmax_scale is -0.25, must be finite and above 0 (it has no "
       "default)",
       [](Call& c) { c.options.softmax_scale = -0.25f; }},
      {"invalid argument: options.softmax_scale is inf, must be finite and above 0 (it has no "
       "default)",
       [](Call& c) { c.options.softmax_scale = std::numeric_limits<float>::infinity(); }},
      {"invalid argument: options.softmax_scale is nan, must be finite and above 0 (it has no "
       "default)",
       [](Call& c) { c.options.softmax_scale = std::numeric_limits<float>::quiet_NaN(); }},
      {"invalid argument: options.soft_cap is -1, must be finite and at least 0 (0: none)",
       [](Call& c) { c.options.soft_cap = -1.0f; }},
      {"invalid argument: options.soft_cap is inf, must be finite and at least 0 (0: none)",
       [](Call& c) { c.options.soft_cap = std::numeric_limits<float>::infinity(); }},
      {"invalid argument: options.soft_cap is nan, must be finite and at least 0 (0: none)",
       [](Call& c) { c.options.soft_cap = std::numeric_limits<float>::quiet_NaN(); }},
      {"invalid argument: options.precision is 3, must be a known Precision",
       [](Call& c) { c.options.precision = static_cast<Precision>(3); }},
      {"invalid argument: num_workers is 0, must be at least 1",
       [](Call& c) { c.num_workers = 0; }},
      {"target unavailable: options.target is 77, must be auto or a target that runs here: no such "
       "target",
       [](Call& c) { c.options.target = static_cast<Target>(77); }},
  });
  Call call;
  REQUIRE(std::string(Format(PlanMlaDecode(call.shape, call.options, call.args, 2, call.plan_buffer,
                                           nullptr))
                          .c_str()) == "invalid argument: plan must not be null");
}

TEST_CASE("a plan refuses a target that this machine cannot run", "[mla_decode][validation]") {
  size_t num_refused = 0;
  for (const TargetInfo& info : Targets()) {
    CAPTURE(info.name);
    Call call;
    call.options.target = info.target;
    const Status status = call.Plan();
    if (info.runnable) {
      REQUIRE(status.ok());
      REQUIRE(PlanTarget(*call.plan) == info.target);
      continue;
    }
    ++num_refused;
    RequireRefused(status, "target unavailable: options.target is " + std::string(info.name) +
                               ", must be auto or a target that runs here: " + info.reason);
    REQUIRE(call.plan == nullptr);
  }
  REQUIRE(num_refused >= 2);  // no machine is both x86 and Arm
}

TEST_CASE("a plan refuses query rows that do not add up", "[mla_decode][validation]") {
  RequirePlanRefuses({
      {"invalid argument: query_start_loc[0] is 1, must be 0",
       [](Call& c) { c.query_start_loc[0] = 1; }},
      {"invalid argument: query_start_loc[0] is -1, must be 0",
       [](Call& c) { c.query_start_loc[0] = -1; }},
      {"invalid argument: query_start_loc[1] is -5, must be at least the entry before it, 0",
       [](Call& c) { c.query_start_loc[1] = -5; }},
      {"invalid argument: query_start_loc[2] is 3, must be at least the entry before it, 4",
       [](Call& c) { c.query_start_loc[1] = 4; }},
      {"invalid argument: query_start_loc[2] is 2, must be the number of query rows, 3",
       [](Call& c) { c.query_start_loc[2] = 2; }},
      {"invalid argument: query_start_loc[2] is 2147483647, must be the number of query rows, 3",
       [](Call& c) { c.query_start_loc[2] = std::numeric_limits<int32_t>::max(); }},
      {"invalid argument: query_start_loc.extent[0] is 0, must be at least 1",
       [](Call& c) { c.args.query_start_loc.extent[0] = 0; }},
      {"invalid argument: query_start_loc.extent[0] is -1, must be at least 0",
       [](Call& c) { c.args.query_start_loc.extent[0] = -1; }},
      {"invalid argument: query_start_loc.data must not be null",
       [](Call& c) { c.args.query_start_loc.data = nullptr; }},
      // Without it there is one row for each sequence: 3 rows, but tables of 2 sequences.
      {"invalid argument: keys.seq_lens.extent[0] is 2, must be 3",
       [](Call& c) { c.args.query_start_loc = {}; }},
      {"invalid argument: out.extent[0] is -1, must be at least 0",
       [](Call& c) { c.args.out.extent[0] = -1; }},
  });
}

TEST_CASE("a plan refuses lengths that the tables do not cover", "[mla_decode][validation]") {
  RequirePlanRefuses({
      {"invalid argument: keys.seq_lens[0] is -1, must be at least 0",
       [](Call& c) { c.seq_lens[0] = -1; }},
      {"invalid argument: keys.seq_lens[1] is -2147483648, must be at least 0",
       [](Call& c) { c.seq_lens[1] = std::numeric_limits<int32_t>::min(); }},
      {"index out of range: keys.seq_lens[1] is 7, must give at most as many keys as block_table "
       "covers, 6",
       [](Call& c) { c.seq_lens[1] = 7; }},
      {"index out of range: keys.seq_lens[0] is 2147483647, must give at most as many keys as "
       "block_table covers, 6",
       [](Call& c) { c.seq_lens[0] = std::numeric_limits<int32_t>::max(); }},
      {"index out of range: keys.topk_length[1] is 3, must be within 0 and keys.indices.extent[1] "
       "= 2",
       [](Call& c) { c.topk_length[1] = 3; }, [](Call& c) { c.GiveList(); }},
      {"index out of range: keys.topk_length[2] is -1, must be within 0 and keys.indices.extent[1] "
       "= 2",
       [](Call& c) { c.topk_length[2] = -1; }, [](Call& c) { c.GiveList(); }},
  });
  Call exact;
  exact.seq_lens[1] = 6;  // all that the table covers
  REQUIRE(exact.Plan().ok());
}

TEST_CASE("a plan refuses the same in int64 arrays", "[mla_decode][validation]") {
  Guarded<int64_t> starts(std::vector<int64_t>{0, 1, 3}), lens(std::vector<int64_t>{3, 5});
  Guarded<int64_t> table(std::vector<int64_t>{5, 0, 77777, 1, 4, 2});
  Call call;
  call.args.query_start_loc = Packed(starts.data(), 3);
  call.args.keys.seq_lens = Packed(lens.data(), 2);
  call.args.keys.block_table = Packed(table.data(), 2, 3);
  REQUIRE(call.Plan().ok());
  starts[1] = int64_t{1} << 40;
  RequireRefused(call.Plan(),
                 "invalid argument: query_start_loc[2] is 3, must be at least the entry before it, "
                 "1099511627776");
  starts[1] = 1;
  lens[1] = (int64_t{1} << 32) + 5;  // 5 if it were read in 32 bits
  RequireRefused(call.Plan(),
                 "index out of range: keys.seq_lens[1] is 4294967301, must give at most as many "
                 "keys as block_table covers, 6");
  lens[1] = kInt64Max;
  RequireRefused(
      call.Plan(),
      "index out of range: keys.seq_lens[1] is 9223372036854775807, must give at most as many "
      "keys as block_table covers, 6");
  lens[1] = 5;
  table[4] = (int64_t{1} << 32) + 1;
  RequireRefused(call.Plan(),
                 "index out of range: keys.block_table[4] is 4294967297, must be within 0 and "
                 "keys.cache.num_blocks - 1 = 5");
}

TEST_CASE("a plan refuses block ids outside the cache if asked to", "[mla_decode][validation]") {
  RequirePlanRefuses({
      {"index out of range: keys.block_table[1] is 6, must be within 0 and keys.cache.num_blocks - "
       "1 = "
       "5",
       [](Call& c) { c.block_table[1] = 6; }},
      {"index out of range: keys.block_table[5] is -1, must be within 0 and keys.cache.num_blocks "
       "- 1 "
       "= 5",
       [](Call& c) { c.block_table[5] = -1; }},
      {"index out of range: keys.block_table[3] is 2147483647, must be within 0 and "
       "keys.cache.num_blocks - 1 = 5",
       [](Call& c) { c.block_table[3] = std::numeric_limits<int32_t>::max(); }},
      {"index out of range: keys.block_table[0] is 5, must be within 0 and keys.cache.num_blocks - "
       "1 = "
       "-1",
       [](Call& c) { c.args.keys.cache.num_blocks = 0; }},
  });
  Call call;
  call.block_table[1] = 6;
  call.options.check_indices = false;
  REQUIRE(call.Plan().ok());
  // Entries past the last used one are never looked at: entry 2 is 77777 in every call.
  call.block_table[1] = 0;
  call.options.check_indices = true;
  REQUIRE(call.Plan().ok());
}

TEST_CASE("plan memory is refused one byte below what the message says",
          "[mla_decode][validation]") {
  Call call;
  const Buffer whole = call.plan_buffer;
  call.plan_buffer.bytes = 0;
  const auto needed = static_cast<size_t>(call.Plan().bound);
  REQUIRE((needed > 0 && needed <= whole.bytes));
  const std::string need = std::to_string(needed);
  RequireRefused(call.Plan(), "buffer too small: plan_memory.bytes is 0, must be at least " + need);
  // At the end of the memory, so that the guard page follows the last byte; any alignment.
  for (const size_t shift : {size_t{0}, size_t{1}, size_t{7}}) {
    std::byte* const end = call.plan_memory.end() - shift;
    call.plan_buffer = {end - needed + 1, needed - 1};
    const auto before = call.Snapshot();
    RequireRefused(call.Plan(), "buffer too small: plan_memory.bytes is " +
                                    std::to_string(needed - 1) + ", must be at least " + need);
    REQUIRE(SameBits(call.Snapshot(), before));
    call.plan_buffer = {end - needed, needed};
    REQUIRE(call.Plan().ok());
    REQUIRE(call.Run().ok());
  }
  call.plan_buffer = {nullptr, needed};
  RequireRefused(call.Plan(), "buffer too small: plan_memory.bytes is 0, must be at least " + need);
}

TEST_CASE("a plan needs no tensor data", "[mla_decode][validation]") {
  Call call;
  call.args.q.data = nullptr;
  call.args.out.data = nullptr;
  call.args.lse.data = nullptr;
  call.args.keys.cache.data = nullptr;
  REQUIRE(call.Plan().ok());
  call.GiveQueryInParts();
  call.args.q_nope.data = nullptr;
  call.args.q_pe.data = nullptr;
  REQUIRE(call.Plan().ok());
}

}  // namespace
}  // namespace lathe::test
