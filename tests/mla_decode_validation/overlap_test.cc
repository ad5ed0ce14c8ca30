// SPDX-License-Identifier: Apache-2.0
// Outputs that touch an input or each other, in Plan (which sees the pointers already) and in Run.
#include <catch2/catch_test_macros.hpp>

#include "support/decode_call.h"

namespace lathe::test {
namespace {

using Call = DecodeCall;

void RequireBothRefuse(std::initializer_list<Refusal> refusals) {
  RequirePlanRefuses(refusals);
  RequireRunRefuses(refusals);
}

void PrepareAll(Call& c) {
  c.GiveList();
  c.GiveRowLengths();
}
void PrepareParts(Call& c) { c.GiveQueryInParts(); }

TEST_CASE("an input must not overlap out", "[mla_decode][validation]") {
  RequireBothRefuse({
      {"invalid argument: q must not overlap out", [](Call& c) { c.args.q.data = c.out_bytes(); }},
      {"invalid argument: q_nope must not overlap out",
       [](Call& c) { c.args.q_nope.data = c.out_bytes(); }, PrepareParts},
      {"invalid argument: q_pe must not overlap out",
       [](Call& c) { c.args.q_pe.data = c.out_bytes(); }, PrepareParts},
      {"invalid argument: keys.cache must not overlap out",
       [](Call& c) { c.args.keys.cache.data = c.out_bytes(); }},
      {"invalid argument: query_start_loc must not overlap out",
       [](Call& c) { c.args.query_start_loc.data = c.out.data(); }},
      {"invalid argument: keys.block_table must not overlap out",
       [](Call& c) { c.args.keys.block_table.data = c.out.data(); }},
      {"invalid argument: keys.seq_lens must not overlap out",
       [](Call& c) { c.args.keys.seq_lens.data = c.out.data(); }},
      {"invalid argument: keys.row_kv_lens must not overlap out",
       [](Call& c) { c.args.keys.row_kv_lens.data = c.out.data(); }, PrepareAll},
      {"invalid argument: keys.indices must not overlap out",
       [](Call& c) { c.args.keys.indices.data = c.out.data(); }, PrepareAll},
      {"invalid argument: keys.topk_length must not overlap out",
       [](Call& c) { c.args.keys.topk_length.data = c.out.data(); }, PrepareAll},
      {"invalid argument: attn_sink must not overlap out",
       [](Call& c) { c.args.attn_sink.data = c.out.data(); }},
  });
}

TEST_CASE("an input must not overlap lse", "[mla_decode][validation]") {
  RequireBothRefuse({
      {"invalid argument: q must not overlap lse", [](Call& c) { c.args.lse.data = c.q.data(); }},
      {"invalid argument: q_nope must not overlap lse",
       [](Call& c) { c.args.lse.data = c.q_nope.data(); }, PrepareParts},
      {"invalid argument: q_pe must not overlap lse",
       [](Call& c) { c.args.lse.data = c.q_pe.data(); }, PrepareParts},
      {"invalid argument: keys.cache must not overlap lse",
       [](Call& c) { c.args.lse.data = c.cache.data(); }},
      {"invalid argument: query_start_loc must not overlap lse",
       [](Call& c) { c.args.query_start_loc.data = c.lse.data(); }},
      {"invalid argument: keys.block_table must not overlap lse",
       [](Call& c) { c.args.keys.block_table.data = c.lse.data(); }},
      {"invalid argument: keys.seq_lens must not overlap lse",
       [](Call& c) { c.args.keys.seq_lens.data = c.lse.data(); }},
      {"invalid argument: keys.row_kv_lens must not overlap lse",
       [](Call& c) { c.args.keys.row_kv_lens.data = c.lse.data(); }, PrepareAll},
      {"invalid argument: keys.indices must not overlap lse",
       [](Call& c) { c.args.keys.indices.data = c.lse.data(); }, PrepareAll},
      {"invalid argument: keys.topk_length must not overlap lse",
       [](Call& c) { c.args.keys.topk_length.data = c.lse.data(); }, PrepareAll},
      {"invalid argument: attn_sink must not overlap lse",
       [](Call& c) { c.args.attn_sink.data = c.lse.data(); }},
      {"invalid argument: lse must not overlap out",
       [](Call& c) { c.args.lse.data = c.out.data(); }},
  });
}

TEST_CASE("one shared element is an overlap", "[mla_decode][validation]") {
  RequireBothRefuse({
      {"invalid argument: lse must not overlap out",
       [](Call& c) { c.args.lse.data = c.out.data() + 3 * 2 * 4 - 1; }},
      {"invalid argument: q must not overlap lse",
       [](Call& c) { c.args.lse.data = c.q.data() + 3 * 2 * 6 - 1; }},
  });
}

TEST_CASE("arrays that only touch are fine", "[mla_decode][validation]") {
  Call call;
  REQUIRE(call.Plan().ok());
  REQUIRE(call.Run().ok());
  const std::vector<float> expected = call.out.Copy(), expected_lse = call.lse.Copy();
  Guarded<float> joined(24 + 6 + 36 + 2);  // out, lse, q, sink
  float* const lse = joined.data() + 24;
  float* const q = lse + 6;
  std::memcpy(q, call.q.data(), 36 * sizeof(float));
  std::memcpy(q + 36, call.sink.data(), 2 * sizeof(float));
  call.args.out = Packed(joined.data(), 3, 2, 4);
  call.args.lse = Packed(lse, 3, 2);
  call.args.q = Packed(q, 3, 2, 6);
  call.args.attn_sink = Packed(q + 36, 2);
  REQUIRE(call.Plan().ok());
  REQUIRE(call.Run().ok());
  REQUIRE(SameBits(std::vector<float>(joined.data(), lse), expected));
  REQUIRE(SameBits(std::vector<float>(lse, q), expected_lse));
}

TEST_CASE("inputs may share memory", "[mla_decode][validation]") {
  // The query's two parts as slices of one tensor.
  Call call;
  call.GiveQueryInParts();
  call.args.q_nope = View<const float, 3>{call.q.data(), {3, 2, 4}, {12, 6, 1}};
  call.args.q_pe = View<const float, 3>{call.q.data() + 4, {3, 2, 2}, {12, 6, 1}};
  REQUIRE(call.Plan().ok());
  REQUIRE(call.Run().ok());
}

}  // namespace
}  // namespace lathe::test
