// SPDX-License-Identifier: Apache-2.0
// What a call with two key sets, a ring or a rotated output refuses, and what it says.
#include <catch2/catch_test_macros.hpp>

#include "support/decode_call.h"

namespace lathe::test {
namespace {

using Call = DecodeCall;

void GiveExtra(Call& c) { c.GiveExtra(); }
void GiveRing(Call& c) {
  c.args.keys.window = 2;
  c.args.keys.wraps = true;
}
void GiveRope(Call& c) { c.GiveRope(); }
void GiveRopeAndPositions(Call& c) {
  c.GiveRope();
  c.GivePositions();
}

TEST_CASE("windows and ratios below one are refused", "[sliding_window][validation]") {
  const std::initializer_list<Refusal> refusals = {
      {"invalid argument: keys.window is 0, must be at least 1",
       [](Call& c) { c.args.keys.window = 0; }},
      {"invalid argument: keys.window is -5, must be at least 1",
       [](Call& c) { c.args.keys.window = -5; }},
      {"invalid argument: keys.compress_ratio is 0, must be at least 1",
       [](Call& c) { c.args.keys.compress_ratio = 0; }},
      {"invalid argument: extra_keys.window is 0, must be at least 1",
       [](Call& c) { c.args.extra_keys.window = 0; }, GiveExtra},
      {"invalid argument: extra_keys.compress_ratio is -4, must be at least 1",
       [](Call& c) { c.args.extra_keys.compress_ratio = -4; }, GiveExtra}};
  RequirePlanRefuses(refusals);
  RequireRunRefuses(refusals);
}

TEST_CASE("a second key set is checked as the first is", "[sliding_window][validation]") {
  const std::initializer_list<Refusal> refusals = {
      {"invalid argument: extra_keys.cache.format is 250, must be a known CacheFormat",
       [](Call& c) { c.args.extra_keys.cache.format = static_cast<CacheFormat>(250); }, GiveExtra},
      {"invalid argument: extra_keys.cache.block_size is -1, must be at least 1",
       [](Call& c) { c.args.extra_keys.cache.block_size = -1; }, GiveExtra},
      {"invalid argument: extra_keys.seq_lens.extent[0] is 1, must be 2",
       [](Call& c) { c.args.extra_keys.seq_lens.extent[0] = 1; }, GiveExtra},
      {"invalid argument: extra_keys.block_table.extent[0] is 3, must be 2",
       [](Call& c) { c.args.extra_keys.block_table.extent[0] = 3; }, GiveExtra},
      {"invalid argument: extra_keys.topk_length must not be given without extra_keys.indices",
       [](Call& c) { c.args.extra_keys.topk_length = Packed(c.topk_length.data(), 3); }, GiveExtra},
      {"invalid argument: extra_keys.indices.extent[0] is 2, must be 3",
       [](Call& c) { c.args.extra_keys.indices = Packed(c.indices.data(), 2, 2); }, GiveExtra},
      {"invalid argument: extra_keys.cache must not overlap out",
       [](Call& c) { c.args.extra_keys.cache.data = c.out_bytes(); }, GiveExtra}};
  RequirePlanRefuses(refusals);
  RequireRunRefuses(refusals);
}

TEST_CASE("entries that a second cache's pages do not cover are refused",
          "[sliding_window][validation]") {
  RequirePlanRefuses(
      {{"index out of range: extra_keys.seq_lens[1] is 6, must give at most as many keys as "
        "block_table covers, 2",
        [](Call& c) { c.seq_lens[1] = 6; }, GiveExtra},
       {"index out of range: extra_keys.block_table[3] is 3, must be within 0 and "
        "extra_keys.cache.num_blocks - 1 = 2",
        [](Call& c) { c.extra_block_table[3] = 3; }, GiveExtra},
       {"index out of range: extra_keys.block_table[0] is -1, must be within 0 and "
        "extra_keys.cache.num_blocks - 1 = 2",
        [](Call& c) { c.extra_block_table[0] = -1; }, GiveExtra}});
}

TEST_CASE("a run is for the key sets that its plan was made for", "[sliding_window][validation]") {
  const char* kStale =
      "stale plan: plan must be made for these lengths, positions, windows, masks, page and list "
      "sizes";
  RequireRunRefuses(
      {{kStale, [](Call& c) { c.args.extra_keys = {}; }, GiveExtra},
       {kStale, [](Call& c) { c.GiveExtra(); }, [](Call& c) { c.args.keys.window = 2; }},
       {kStale, [](Call& c) { c.args.extra_keys.compress_ratio = 3; }, GiveExtra},
       {kStale, [](Call& c) { c.args.extra_keys.window = 1; }, GiveExtra},
       {kStale, [](Call& c) { c.args.keys.wraps = false; }, GiveRing},
       {kStale, [](Call& c) { c.positions[0] = 9; }, GiveRopeAndPositions},
       {kStale, [](Call& c) { c.args.positions = {}; }, GiveRopeAndPositions},
       {kStale, [](Call& c) { c.args.out_rope.cos.extent[0] = c.args.out_rope.sin.extent[0] = 7; },
        GiveRope},
       {"stale plan: extra_keys.cache.format is kLatentBFloat16, must be what the plan was made "
        "for, kLatentFloat32",
        [](Call& c) { c.args.extra_keys.cache.format = CacheFormat::kLatentBFloat16; },
        GiveExtra}});
}

TEST_CASE("a ring that does not hold what rows see is refused", "[sliding_window][validation]") {
  RequirePlanRefuses(
      {{"index out of range: keys.seq_lens[0] is 3, must leave its rows' keys in at most as many "
        "pages as a ring has, 1",
        [](Call& c) { c.args.keys.block_table.extent[1] = 1; }, GiveRing},
       {"invalid argument: keys.wraps must be false beside a list of indices",
        [](Call& c) { c.GiveList(); }, GiveRing}});
}

TEST_CASE("an output is rotated where there are angles", "[sliding_window][validation]") {
  const std::initializer_list<Refusal> both = {
      {"invalid argument: out_rope.cos.extent[1] is 3, must be at most half of the row's width, 2",
       [](Call& c) {
         c.args.out_rope.cos = Packed(c.angles.data(), 5, 3);
         c.args.out_rope.sin = Packed(c.angles.data(), 5, 3);
       },
       GiveRope},
      {"invalid argument: out_rope.sin.extent[0] is 7, must be 8",
       [](Call& c) { c.args.out_rope.sin.extent[0] = 7; }, GiveRope},
      {"invalid argument: out_rope.cos.data must not be null",
       [](Call& c) { c.args.out_rope.cos.data = nullptr; }, GiveRope},
      {"invalid argument: positions.extent[0] is 2, must be 3",
       [](Call& c) { c.args.positions.extent[0] = 2; }, GiveRopeAndPositions},
      {"invalid argument: out_rope.cos must not overlap out",
       [](Call& c) { c.args.out_rope.cos = Packed(c.out.data(), 8, 2); }, GiveRope},
      {"invalid argument: positions must be given with out_rope where keys.indices are physical",
       [](Call& c) { c.args.positions = {}; },
       [](Call& c) {
         c.GiveRope();
         c.GivePositions();
         c.GiveList();
         c.args.keys.index_space = IndexSpace::kPhysical;
       }}};
  RequirePlanRefuses(both);
  RequireRunRefuses(both);
  RequirePlanRefuses(
      {{"index out of range: positions[1] is 8, must be below the rope's cos.extent[0] = 8",
        [](Call& c) { c.positions[1] = 8; }, GiveRopeAndPositions},
       {"index out of range: positions[2] is -1, must be at least 0",
        [](Call& c) { c.positions[2] = -1; }, GiveRopeAndPositions},
       {"index out of range: keys.seq_lens[1] is 5, must be at most out_rope.cos.extent[0] = 4",
        [](Call& c) { c.args.out_rope.cos.extent[0] = c.args.out_rope.sin.extent[0] = 4; },
        GiveRope},
       {"index out of range: keys.seq_lens[1] is 1, must be at least the sequence's number of "
        "queries, for out_rope, 2",
        [](Call& c) {
          c.seq_lens[1] = 1;
          c.options.causal = false;
        },
        GiveRope}});
}

}  // namespace
}  // namespace lathe::test
