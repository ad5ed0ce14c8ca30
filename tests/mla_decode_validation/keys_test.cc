// SPDX-License-Identifier: Apache-2.0
// Caches, tables and lists that both planning and running refuse, with the same words.
#include <catch2/catch_test_macros.hpp>

#include "support/decode_call.h"

namespace lathe::test {
namespace {

using Call = DecodeCall;

void RequireBothRefuse(std::initializer_list<Refusal> refusals) {
  RequirePlanRefuses(refusals);
  RequireRunRefuses(refusals);
}

TEST_CASE("a decode refuses a wrong cache", "[mla_decode][validation]") {
  RequireBothRefuse({
      {"invalid argument: keys.cache.format is 99, must be a known CacheFormat",
       [](Call& c) { c.args.keys.cache.format = static_cast<CacheFormat>(99); }},
      {"invalid argument: keys.cache.num_blocks is -1, must be at least 0",
       [](Call& c) { c.args.keys.cache.num_blocks = -1; }},
      {"invalid argument: keys.cache.block_size is 0, must be at least 1",
       [](Call& c) { c.args.keys.cache.block_size = 0; }},
      {"invalid argument: keys.cache.block_size is -64, must be at least 1",
       [](Call& c) { c.args.keys.cache.block_size = -64; }},
      {"invalid argument: keys.cache.row_stride is 20, must be at least a record's bytes, 24",
       [](Call& c) { c.args.keys.cache.row_stride = 20; }},
      {"invalid argument: keys.cache.row_stride is -24, must be at least a record's bytes, 24",
       [](Call& c) { c.args.keys.cache.row_stride = -24; }},
      {"invalid argument: keys.cache.block_stride is 44, must be at least a page's bytes, 48",
       [](Call& c) { c.args.keys.cache.block_stride = 44; }},
      {"invalid argument: keys.cache.block_stride is -48, must be at least a page's bytes, 48",
       [](Call& c) { c.args.keys.cache.block_stride = -48; }},
      {"invalid argument: keys.cache.row_stride is 26, must be a multiple of 4",
       [](Call& c) { c.args.keys.cache.row_stride = 26, c.args.keys.cache.block_stride = 52; }},
      {"invalid argument: keys.cache.block_stride is 49, must be a multiple of 4",
       [](Call& c) { c.args.keys.cache.block_stride = 49; }},
      {"invalid argument: keys.cache.data must be aligned to 4",
       [](Call& c) { c.args.keys.cache.data = Shifted(c.args.keys.cache.data, 2); }},
  });
}

TEST_CASE("interleaved pages are refused only where records meet", "[mla_decode][validation]") {
  // Slot 0 of all six pages first: rows 24 bytes apart, slots 6 * 24 = 144.
  const auto interleave = [](Call& c) {
    c.args.keys.cache.block_stride = 24;
    c.args.keys.cache.row_stride = 144;
  };
  Call call;
  interleave(call);
  REQUIRE(call.Plan().ok());
  REQUIRE(call.Run().ok());
  RequireBothRefuse({
      {"invalid argument: keys.cache.block_stride is 24, must be at least a page's bytes, 164",
       [](Call& c) { c.args.keys.cache.row_stride = 140; }, interleave},
      {"invalid argument: keys.cache.block_stride is 20, must be at least a page's bytes, 168",
       [](Call& c) { c.args.keys.cache.block_stride = 20; }, interleave},
  });
}

TEST_CASE("a decode refuses wrong block tables and lengths", "[mla_decode][validation]") {
  RequireBothRefuse({
      {"invalid argument: keys.seq_lens.extent[0] is 3, must be 2",
       [](Call& c) { c.args.keys.seq_lens.extent[0] = 3; }},
      {"invalid argument: keys.seq_lens.extent[0] is 0, must be 2",
       [](Call& c) { c.args.keys.seq_lens = {}; }},
      {"invalid argument: keys.seq_lens.data must not be null",
       [](Call& c) { c.args.keys.seq_lens.data = nullptr; }},
      {"invalid argument: keys.seq_lens.data must be aligned to 4",
       [](Call& c) { c.args.keys.seq_lens.data = Shifted(c.seq_lens.data(), 2); }},
      {"invalid argument: keys.seq_lens.data must be aligned to 8",
       [](Call& c) {
         c.args.keys.seq_lens.data = Shifted(c.block_table.data(), 4);
         c.args.keys.seq_lens.is_int64 = true;
       }},
      {"invalid argument: keys.seq_lens.stride[0] is -1, must be at least 0",
       [](Call& c) { c.args.keys.seq_lens.stride[0] = -1; }},
      {"invalid argument: keys.block_table.extent[0] is 1, must be 2",
       [](Call& c) { c.args.keys.block_table.extent[0] = 1; }},
      {"invalid argument: keys.block_table.extent[1] is -3, must be at least 0",
       [](Call& c) { c.args.keys.block_table.extent[1] = -3; }},
      {"invalid argument: keys.block_table.data must not be null",
       [](Call& c) { c.args.keys.block_table.data = nullptr; }},
      {"invalid argument: keys.block_table.data must be aligned to 4",
       [](Call& c) { c.args.keys.block_table.data = Shifted(c.block_table.data(), 1); }},
      {"invalid argument: keys.block_table.stride[0] is -3, must be at least 0",
       [](Call& c) { c.args.keys.block_table.stride[0] = -3; }},
      {"invalid argument: query_start_loc.data must be aligned to 4",
       [](Call& c) { c.args.query_start_loc.data = Shifted(c.query_start_loc.data(), 1); }},
      {"invalid argument: query_start_loc.stride[0] is -1, must be at least 0",
       [](Call& c) { c.args.query_start_loc.stride[0] = -1; }},
      {"invalid argument: keys.window is 0, must be at least 1",
       [](Call& c) { c.args.keys.window = 0; }},
      {"invalid argument: keys.index_space is 9, must be a known IndexSpace",
       [](Call& c) { c.args.keys.index_space = static_cast<IndexSpace>(9); }},
  });
}

TEST_CASE("a decode refuses wrong row lengths and lists", "[mla_decode][validation]") {
  const auto prepare = [](Call& c) {
    c.GiveList();
    c.GiveRowLengths();
  };
  RequireBothRefuse({
      {"invalid argument: keys.row_kv_lens.extent[0] is 2, must be 3",
       [](Call& c) { c.args.keys.row_kv_lens.extent[0] = 2; }, prepare},
      {"invalid argument: keys.row_kv_lens.data must not be null",
       [](Call& c) { c.args.keys.row_kv_lens.data = nullptr; }, prepare},
      {"invalid argument: keys.row_kv_lens.data must be aligned to 4",
       [](Call& c) { c.args.keys.row_kv_lens.data = Shifted(c.row_kv_lens.data(), 1); }, prepare},
      {"invalid argument: keys.indices.extent[0] is 2, must be 3",
       [](Call& c) { c.args.keys.indices.extent[0] = 2; }, prepare},
      {"invalid argument: keys.indices.extent[1] is -1, must be at least 0",
       [](Call& c) { c.args.keys.indices.extent[1] = -1; }, prepare},
      {"invalid argument: keys.indices.data must not be null",
       [](Call& c) { c.args.keys.indices.data = nullptr; }, prepare},
      {"invalid argument: keys.indices.data must be aligned to 4",
       [](Call& c) { c.args.keys.indices.data = Shifted(c.indices.data(), 1); }, prepare},
      {"invalid argument: keys.indices.stride[1] is -1, must be at least 0",
       [](Call& c) { c.args.keys.indices.stride[1] = -1; }, prepare},
      {"invalid argument: keys.topk_length.extent[0] is 4, must be 3",
       [](Call& c) { c.args.keys.topk_length.extent[0] = 4; }, prepare},
      {"invalid argument: keys.topk_length.data must not be null",
       [](Call& c) { c.args.keys.topk_length.data = nullptr; }, prepare},
      {"invalid argument: keys.topk_length must not be given without keys.indices",
       [](Call& c) { c.args.keys.indices = {}; }, prepare},
  });
}

TEST_CASE("a decode refuses first keys of rows beside lists and trees",
          "[mla_decode][validation]") {
  const auto give_starts = [](Call& c) {
    c.args.keys.row_starts = Packed(c.row_kv_lens.data(), 3);
  };
  RequireBothRefuse({
      {"invalid argument: keys.row_starts.extent[0] is 2, must be 3",
       [](Call& c) { c.args.keys.row_starts.extent[0] = 2; }, give_starts},
      {"invalid argument: keys.row_starts.data must be aligned to 4",
       [](Call& c) { c.args.keys.row_starts.data = Shifted(c.row_kv_lens.data(), 1); },
       give_starts},
      {"invalid argument: keys.row_starts must not be given beside a list of indices",
       [](Call& c) { c.GiveList(); }, give_starts},
      {"invalid argument: keys.row_starts must not be given beside tree_mask",
       [](Call& c) {
         static constexpr uint64_t kMask[3] = {};
         c.args.tree_mask = Packed(kMask, 3, 1);
       },
       give_starts},
      {"invalid argument: keys.row_starts must not overlap out",
       [](Call& c) {
         c.args.keys.row_starts = Packed(reinterpret_cast<const int32_t*>(c.args.out.data), 3);
       }},
  });
}

TEST_CASE("a decode refuses what does not go without a block table", "[mla_decode][validation]") {
  const auto one_sequence = [](Call& c) {
    c.args.query_start_loc = {};
    c.args.keys.block_table = {};
    c.args.keys.seq_lens = {};
  };
  RequirePlanRefuses({
      {"invalid argument: keys.block_table must be given where there are several sequences",
       [](Call& c) { c.args.query_start_loc = Packed(c.query_start_loc.data(), 3); }, one_sequence},
  });
  RequireBothRefuse({
      {"invalid argument: keys.seq_lens.extent[0] is 2, must be 1",
       [](Call& c) { c.args.keys.seq_lens = Packed(c.seq_lens.data(), 2); }, one_sequence},
      {"invalid argument: keys.compress_ratio is 2, must be, without seq_lens, 1",
       [](Call& c) { c.args.keys.compress_ratio = 2; }, one_sequence},
      {"invalid argument: keys.wraps must be false without a block_table",
       [](Call& c) { c.args.keys.wraps = true; }, one_sequence},
  });
  static constexpr int32_t kLength = 13;  // of 12 slots
  Call call;
  one_sequence(call);
  call.args.keys.seq_lens = Packed(&kLength, 1);
  RequireRefused(
      call.Plan(),
      "index out of range: keys.seq_lens[0] is 13, must give at most as many keys as the "
      "cache has slots, 12");
}

TEST_CASE("what physical lists do not use is checked where it is given",
          "[mla_decode][validation]") {
  const auto physical = [](Call& c) {
    c.GiveList();
    c.args.keys.index_space = IndexSpace::kPhysical;
  };
  RequireBothRefuse({
      {"invalid argument: keys.seq_lens.data must not be null",
       [](Call& c) { c.args.keys.seq_lens.data = nullptr; }, physical},
      {"invalid argument: keys.seq_lens.extent[0] is -2, must be at least 0",
       [](Call& c) { c.args.keys.seq_lens.extent[0] = -2; }, physical},
      {"invalid argument: keys.block_table.stride[1] is -1, must be at least 0",
       [](Call& c) { c.args.keys.block_table.stride[1] = -1; }, physical},
  });
  Call call;
  physical(call);
  call.args.keys.seq_lens = {};
  call.args.keys.block_table = {};
  REQUIRE(call.Plan().ok());
  REQUIRE(call.Run().ok());
  const Guarded<int32_t> nothing(0);  // where nothing may be read
  call.args.keys.seq_lens = Packed(nothing.data(), 0);
  call.args.keys.block_table = Packed(nothing.data(), 0, 0);
  REQUIRE(call.Plan().ok());
  REQUIRE(call.Run().ok());
}

}  // namespace
}  // namespace lathe::test
