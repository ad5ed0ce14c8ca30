// SPDX-License-Identifier: Apache-2.0
// What only Run, Part and Merge can see: missing data, a stale plan, the workspace.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include "support/decode_call.h"

namespace lathe::test {
namespace {

using Call = DecodeCall;

TEST_CASE("a run refuses missing data", "[mla_decode][validation]") {
  const auto in_parts = [](Call& c) { c.GiveQueryInParts(); };
  RequireRunRefuses({
      {"invalid argument: out.data must not be null", [](Call& c) { c.args.out.data = nullptr; }},
      {"invalid argument: q.data must not be null", [](Call& c) { c.args.q.data = nullptr; }},
      {"invalid argument: q_nope.data must not be null",
       [](Call& c) { c.args.q_nope.data = nullptr; }, in_parts},
      {"invalid argument: q_pe.data must not be null", [](Call& c) { c.args.q_pe.data = nullptr; },
       in_parts},
      {"invalid argument: lse.data must not be null", [](Call& c) { c.args.lse.data = nullptr; }},
      {"invalid argument: keys.cache.data must not be null",
       [](Call& c) { c.args.keys.cache.data = nullptr; }},
  });
}

TEST_CASE("a run refuses a plan made for another batch", "[mla_decode][validation]") {
  RequireRunRefuses({
      {"stale plan: out.extent[0] is 2, must be what the plan was made for, 3",
       [](Call& c) { c.args.out.extent[0] = 2; }},
      {"stale plan: query_start_loc.extent[0] is 2, must be what the plan was made for, 3",
       [](Call& c) { c.args.query_start_loc.extent[0] = 2; }},
      {"stale plan: query_start_loc.extent[0] is 4, must be what the plan was made for, 3",
       [](Call& c) { c.args.query_start_loc = {}; }},
      {"stale plan: q.dtype is float16, must be what the plan was made for, float32",
       [](Call& c) { c.args.q.dtype = DType::kFloat16; }},
      {"stale plan: keys.cache.format is kLatentBFloat16, must be what the plan was made for, "
       "kLatentFloat32",
       [](Call& c) { c.args.keys.cache.format = CacheFormat::kLatentBFloat16; }},
      {"stale plan: keys.cache.format is kLatentFloat16, must be what the plan was made for, "
       "kLatentFloat32",
       [](Call& c) { c.args.keys.cache.format = CacheFormat::kLatentFloat16; }},
  });
}

TEST_CASE("a run refuses a plan made for other lengths", "[mla_decode][validation]") {
  constexpr const char* kStale =
      "stale plan: plan must be made for these lengths, positions, windows, masks, page and list "
      "sizes";
  const auto with_list = [](Call& c) {
    c.GiveList();
    c.GiveRowLengths();
  };
  RequireRunRefuses({
      {kStale, [](Call& c) { c.seq_lens[0] = 2; }},
      {kStale, [](Call& c) { c.seq_lens[1] = 6; }},
      {kStale, [](Call& c) { std::swap(c.seq_lens[0], c.seq_lens[1]); }},
      {kStale, [](Call& c) { c.query_start_loc[1] = 2; }},
      {kStale, [](Call& c) { c.args.keys.window = 2; }},
      {kStale, [](Call& c) { c.args.keys.cache.num_blocks = 5; }},
      {kStale,
       [](Call& c) {
         c.args.keys.cache.block_size = 1;
         c.args.keys.cache.block_stride = 24;
       }},
      {kStale, [](Call& c) { c.args.keys.block_table.extent[1] = 2; }},
      {kStale, [](Call& c) { c.GiveRowLengths(); }},
      {kStale, [](Call& c) { c.GiveList(); }},
      {kStale, [](Call& c) { c.args.keys.row_starts = Packed(c.row_kv_lens.data(), 3); }},
      {kStale, [](Call& c) { c.row_kv_lens[2] = 3; },
       [](Call& c) { c.args.keys.row_starts = Packed(c.row_kv_lens.data(), 3); }},
      {kStale, [](Call& c) { c.args.keys.row_kv_lens = {}; }, with_list},
      {kStale, [](Call& c) { c.row_kv_lens[2] = 3; }, with_list},
      {kStale, [](Call& c) { c.topk_length[0] = 1; }, with_list},
      {kStale, [](Call& c) { c.args.keys.topk_length = {}; }, with_list},
      {kStale, [](Call& c) { c.args.keys.indices.extent[1] = 1; }, with_list},
      {kStale, [](Call& c) { c.args.keys.index_space = IndexSpace::kPhysical; }, with_list},
      {kStale,
       [](Call& c) {
         c.args.keys.indices = {};
         c.args.keys.topk_length = {};
       },
       with_list},
  });
}

TEST_CASE("a plan stays good for other tensors of the same sizes", "[mla_decode][validation]") {
  Call call;
  REQUIRE(call.Plan().ok());
  REQUIRE(call.Run().ok());
  const std::vector<float> expected = call.out.Copy(), expected_lse = call.lse.Copy();
  // Another layer: other memory, int64 lengths of the same values, query in parts, no lse.
  Guarded<float> cache(call.cache.Copy()), out(24);
  Guarded<int64_t> lens(std::vector<int64_t>{3, 5});
  call.args.keys.cache.data = reinterpret_cast<const std::byte*>(cache.data());
  call.args.keys.seq_lens = Packed(lens.data(), 2);
  call.args.out = Packed(out.data(), 3, 2, 4);
  call.args.lse = {};
  call.GiveQueryInParts();
  REQUIRE(call.Run().ok());
  REQUIRE(SameBits(out, expected));
}

TEST_CASE("a workspace is refused one byte below what the message says",
          "[mla_decode][validation]") {
  Call call;
  REQUIRE(call.Plan().ok());
  const size_t needed = PlanWorkspaceBytes(*call.plan);
  const std::string need = std::to_string(needed);
  REQUIRE((needed > 0 && needed <= call.workspace.size()));
  const auto require_all_refuse = [&](const std::string& message) {
    const auto before = call.Snapshot();
    RequireRefused(call.Run(), message);
    RequireRefused(call.Part(0, 2), message);
    RequireRefused(call.Merge(0, 2), message);
    REQUIRE(SameBits(call.Snapshot(), before));
  };
  call.workspace_buffer = {nullptr, needed};
  require_all_refuse("buffer too small: workspace.bytes is 0, must be at least " + need);
  call.workspace_buffer = {call.workspace.data(), 0};
  require_all_refuse("buffer too small: workspace.bytes is 0, must be at least " + need);
  for (const size_t shift : {size_t{0}, size_t{1}, size_t{7}}) {
    std::byte* const end = call.workspace.end() - shift;
    call.workspace_buffer = {end - needed + 1, needed - 1};
    require_all_refuse("buffer too small: workspace.bytes is " + std::to_string(needed - 1) +
                       ", must be at least " + need);
    call.workspace_buffer = {end - needed, needed};
    REQUIRE(call.Run().ok());
  }
}

TEST_CASE("Part and Merge refuse a place outside of their threads", "[mla_decode][validation]") {
  Call call;
  REQUIRE(call.Plan().ok());
  const auto before = call.Snapshot();
  const auto require_both_refuse = [&](size_t ith, size_t nth, const std::string& message) {
    RequireRefused(call.Part(ith, nth), message);
    RequireRefused(call.Merge(ith, nth), message);
    REQUIRE(SameBits(call.Snapshot(), before));
  };
  require_both_refuse(0, 0, "invalid argument: nth is 0, must be at least 1");
  require_both_refuse(2, 2, "invalid argument: ith is 2, must be below nth = 2");
  require_both_refuse(99, 2, "invalid argument: ith is 99, must be below nth = 2");
}

TEST_CASE("a refused part leaves the others to finish the call", "[mla_decode][validation]") {
  Call call;
  REQUIRE(call.Plan().ok());
  REQUIRE(call.Run().ok());
  const std::vector<float> expected = call.out.Copy();
  for (float& x : call.out) x = 0;
  REQUIRE_FALSE(call.Part(2, 2).ok());
  for (size_t ith = 0; ith < 2; ++ith) REQUIRE(call.Part(ith, 2).ok());
  for (size_t ith = 0; ith < 2; ++ith) REQUIRE(call.Merge(ith, 2).ok());
  REQUIRE(SameBits(call.out, expected));
}

}  // namespace
}  // namespace lathe::test
