// SPDX-License-Identifier: Apache-2.0
// What Sizes refuses, and numbers near the ends of int64 everywhere: refused or harmless, and no
// arithmetic overflows on the way (the undefined-behaviour build is the judge of that).
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include "support/decode_call.h"

namespace lathe::test {
namespace {

using Call = DecodeCall;

struct SizesCall {
  MlaShape shape{2, 4, 2};
  MlaDecodeOptions options;
  Limits limits;
  Sizes sizes{111, 222};

  SizesCall() {
    options.softmax_scale = 0.5f;
    limits = {2, 3, 100, 2};
  }
  Status Ask() { return MlaDecodeSizes(shape, options, limits, &sizes); }
};

TEST_CASE("Sizes refuses what no call could be", "[mla_decode][validation]") {
  struct Row {
    const char* message;
    void (*break_it)(SizesCall& call);
  };
  const Row rows[] = {
      {"invalid argument: limits.max_num_seqs is 0, must be at least 1",
       [](SizesCall& c) { c.limits.max_num_seqs = 0; }},
      {"invalid argument: limits.max_num_seqs is -9223372036854775808, must be at least 1",
       [](SizesCall& c) { c.limits.max_num_seqs = kInt64Min; }},
      {"invalid argument: limits.max_num_tokens is 0, must be at least 1",
       [](SizesCall& c) { c.limits.max_num_tokens = 0; }},
      {"invalid argument: limits.max_num_keys is -1, must be at least 1",
       [](SizesCall& c) { c.limits.max_num_keys = -1; }},
      {"invalid argument: limits.num_workers is 0, must be at least 1",
       [](SizesCall& c) { c.limits.num_workers = 0; }},
      {"invalid argument: shape.num_heads is 0, must be at least 1",
       [](SizesCall& c) { c.shape.num_heads = 0; }},
      {"invalid argument: shape.num_heads is 9223372036854775807, must be at most 2147483647",
       [](SizesCall& c) { c.shape.num_heads = kInt64Max; }},
      {"invalid argument: shape.kv_lora_rank is -9223372036854775808, must be at least 1",
       [](SizesCall& c) { c.shape.kv_lora_rank = kInt64Min; }},
      {"invalid argument: shape.kv_lora_rank is 9223372036854775807, must be at most 2147483647",
       [](SizesCall& c) { c.shape.kv_lora_rank = kInt64Max; }},
      {"invalid argument: shape.qk_rope_head_dim is -1, must be at least 0",
       [](SizesCall& c) { c.shape.qk_rope_head_dim = -1; }},
      {"invalid argument: shape.qk_rope_head_dim is 9223372036854775807, must be at most "
       "2147483647",
       [](SizesCall& c) { c.shape.qk_rope_head_dim = kInt64Max; }},
      {"invalid argument: options.softmax_scale is 0, must be finite and above 0 (it has no "
       "default)",
       [](SizesCall& c) { c.options.softmax_scale = 0; }},
      {"invalid argument: options.precision is 9, must be a known Precision",
       [](SizesCall& c) { c.options.precision = static_cast<Precision>(9); }},
      {"target unavailable: options.target is 200, must be auto or a target that runs here: no "
       "such "
       "target",
       [](SizesCall& c) { c.options.target = static_cast<Target>(200); }},
  };
  for (const Row& row : rows) {
    INFO("expected: " << row.message);
    SizesCall call;
    row.break_it(call);
    RequireRefused(call.Ask(), row.message);
    REQUIRE((call.sizes.plan_bytes == 111 && call.sizes.workspace_bytes == 222));
  }
  SizesCall call;
  REQUIRE(call.Ask().ok());
  REQUIRE((call.sizes.plan_bytes != 111 && call.sizes.workspace_bytes != 222));
  RequireRefused(MlaDecodeSizes(call.shape, call.options, call.limits, nullptr),
                 "invalid argument: sizes must not be null");
}

TEST_CASE("a plan refuses extents that no memory has", "[mla_decode][validation]") {
  RequirePlanRefuses({
      {"invalid argument: shape.num_heads is 9223372036854775807, must be at most 2147483647",
       [](Call& c) { c.shape.num_heads = kInt64Max; }},
      {"invalid argument: shape.kv_lora_rank is 9223372036854775807, must be at most 2147483647",
       [](Call& c) { c.shape.kv_lora_rank = kInt64Max; }},
      {"invalid argument: out.extent[0] is 9223372036854775807, must be at most "
       "1152921504606846975",
       [](Call& c) { c.args.out.extent[0] = kInt64Max; }},
      {"invalid argument: query_start_loc.extent[0] is 9223372036854775807, must be at most "
       "1152921504606846975",
       [](Call& c) { c.args.query_start_loc.extent[0] = kInt64Max; }},
      {"invalid argument: keys.block_table.extent[1] is 9223372036854775807, must be at most "
       "1152921504606846975",
       [](Call& c) { c.args.keys.block_table.extent[1] = kInt64Max; }},
      // One page id repeated: no memory, but as many entries.
      {"invalid argument: keys.block_table.extent[1] is 9223372036854775807, must be at most "
       "1152921504606846975",
       [](Call& c) {
         c.args.keys.block_table.extent[1] = kInt64Max;
         c.args.keys.block_table.stride[1] = 0;
       }},
      {"invalid argument: keys.block_table.stride[0] is 9223372036854775807, must not lead beyond "
       "the "
       "address space with .extent 2",
       [](Call& c) { c.args.keys.block_table.stride[0] = kInt64Max; }},
      {"invalid argument: keys.indices.extent[1] is 9223372036854775807, must be at most "
       "1152921504606846975",
       [](Call& c) { c.args.keys.indices.extent[1] = kInt64Max; }, [](Call& c) { c.GiveList(); }},
  });
}

TEST_CASE("a plan refuses caches that no memory has", "[mla_decode][validation]") {
  RequirePlanRefuses({
      {"invalid argument: keys.cache.block_stride is 48, must not lead beyond the address space "
       "with "
       ".num_blocks 9223372036854775807",
       [](Call& c) { c.args.keys.cache.num_blocks = kInt64Max; }},
      {"invalid argument: keys.cache.block_stride is 48, must be at least a page's bytes, "
       "9223372036854775807",
       [](Call& c) { c.args.keys.cache.block_size = kInt64Max; }},
      // Pages 48 bytes apart, rows far beyond all of them: no records meet, so that is no fault.
      {"invalid argument: keys.cache.row_stride is 9223372036854775807, must not lead beyond the "
       "address space with .block_size 2",
       [](Call& c) { c.args.keys.cache.row_stride = kInt64Max; }},
      {"invalid argument: keys.cache.block_stride is 9223372036854775804, must not lead beyond the "
       "address space with .num_blocks 6",
       [](Call& c) { c.args.keys.cache.block_stride = kInt64Max - 3; }},
      {"invalid argument: keys.cache.block_stride is -9223372036854775808, must be at least a "
       "page's "
       "bytes, 48",
       [](Call& c) { c.args.keys.cache.block_stride = kInt64Min; }},
      {"invalid argument: keys.cache.row_stride is 24, must not lead beyond the address space with "
       ".block_size 9223372036854775807",
       [](Call& c) {
         c.args.keys.cache.num_blocks = 1;
         c.args.keys.cache.block_size = kInt64Max;
       }},
      {"invalid argument: keys.cache.row_stride is 9223372036854775804, must not lead beyond the "
       "address space with .block_size 2",
       [](Call& c) {
         c.args.keys.cache.num_blocks = 1;
         c.args.keys.cache.row_stride = kInt64Max - 3;
       }},
      // No blocks, so any page size fits; the ids do not.
      {"index out of range: keys.block_table[0] is 5, must be within 0 and keys.cache.num_blocks - "
       "1 "
       "= -1",
       [](Call& c) {
         c.args.keys.cache.num_blocks = 0;
         c.args.keys.cache.block_size = kInt64Max;
       }},
  });
}

TEST_CASE("a plan refuses more work than its sums can hold", "[mla_decode][validation]") {
  Guarded<int64_t> lens(std::vector<int64_t>{int64_t{1} << 45, int64_t{1} << 50});
  Call call;
  call.options.check_indices = false;
  call.args.keys.seq_lens = Packed(lens.data(), 2);
  call.args.keys.block_table.extent[1] = int64_t{1} << 55;
  call.args.keys.block_table.stride[0] = 0;
  call.args.keys.block_table.stride[1] = 0;
  RequireRefused(call.Plan(),
                 "invalid argument: keys.seq_lens[0] is 35184372088832, must keep the sum of query "
                 "rows * keys at most 17592186044416");
  lens[0] = 1;
  RequireRefused(
      call.Plan(),
      "invalid argument: keys.seq_lens[1] is 1125899906842624, must keep the sum of query "
      "rows * keys at most 17592186044416");
  lens[1] = 5;
  REQUIRE(call.Plan().ok());
  call.GiveList();
  call.args.keys.indices.extent[1] = int64_t{1} << 50;
  call.args.keys.indices.stride[1] = 0;
  RequireRefused(
      call.Plan(),
      "invalid argument: keys.indices.extent[1] is 1125899906842624, must keep the sum of "
      "query rows * keys at most 17592186044416");
}

TEST_CASE("large numbers that mean everything are harmless", "[mla_decode][validation]") {
  Call plain;
  REQUIRE(plain.Plan().ok());
  REQUIRE(plain.Run().ok());

  Call call;
  call.args.keys.window = kInt64Max;
  REQUIRE(call.Plan().ok());
  REQUIRE(call.Run().ok());
  REQUIRE(SameBits(call.out, plain.out));
  REQUIRE(SameBits(call.lse, plain.lse));

  Guarded<int64_t> row_lens(std::vector<int64_t>{kInt64Max, 4, kInt64Max});
  call.args.keys.row_kv_lens = Packed(row_lens.data(), 3);
  REQUIRE(call.Plan().ok());
  REQUIRE(call.Run().ok());
  REQUIRE(SameBits(call.out, plain.out));

  row_lens[0] = row_lens[1] = row_lens[2] = kInt64Min;
  REQUIRE(call.Plan().ok());
  REQUIRE(call.Run().ok());
  for (const float x : call.out) REQUIRE(x == 0.0f);
  for (const float x : call.lse) REQUIRE(x == -std::numeric_limits<float>::infinity());
}

TEST_CASE("index entries at the ends of int64 are holes", "[mla_decode][validation]") {
  Guarded<int64_t> entries(std::vector<int64_t>{kInt64Min, 1, kInt64Max, 1, 1, -1});
  for (const IndexSpace space : {IndexSpace::kLogical, IndexSpace::kPhysical}) {
    Call call;
    call.args.attn_sink = {};
    call.args.keys.indices = Packed(entries.data(), 3, 2);
    call.args.keys.index_space = space;
    REQUIRE(call.Plan().ok());
    REQUIRE(call.Run().ok());
    for (const float x : call.out) REQUIRE(x == 0.5f);  // all rows of the cache are 0.5
  }
}

TEST_CASE("strides of dimensions without a second element do not count",
          "[mla_decode][validation]") {
  Call call;
  call.args.query_start_loc = {};
  call.args.keys.cache.num_blocks = 1;
  call.args.keys.cache.block_stride = kInt64Min;
  call.args.keys.seq_lens = {View<const int32_t, 1>{call.seq_lens.data() + 1, {1}, {kInt64Max}}};
  call.args.keys.block_table = {
      View<const int32_t, 2>{call.block_table.data() + 1, {1, 1}, {kInt64Min, kInt64Max}}};
  call.args.keys.cache.block_size = 6;
  call.args.q = View<const float, 3>{call.q.data(), {1, 2, 6}, {kInt64Min, 6, 1}};
  call.args.out = View<float, 3>{call.out.data(), {1, 2, 4}, {kInt64Max, 4, 1}};
  call.args.lse = View<float, 2>{call.lse.data(), {1, 2}, {kInt64Max, 1}};
  REQUIRE(std::string(Format(call.Plan()).c_str()) == "ok");
  REQUIRE(call.Run().ok());
  REQUIRE(call.out[0] > 0.0f);
}

}  // namespace
}  // namespace lathe::test
