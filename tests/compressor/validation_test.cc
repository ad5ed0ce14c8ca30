// SPDX-License-Identifier: Apache-2.0
// What the compressor refuses: the whole message for each way to break a valid call, and no byte of state, cache,
// partials or workspace changed.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "compressor/compressor_problem.h"
#include "support/sizes.h"

namespace lathe::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Two sequences of ratio 2 with overlap, D = 4, C = 8: the first goes on from position 6 with 3 tokens, the
// second starts with 4. Entries: 3 of the first; 0 and 1 of the second. Rings of 3 pages of 2 rows.
struct Call {
  Call() {
    options.ratio = 2;
    options.overlap = true;
    args.kv = View<const float, 2>(Packed(kv.data(), 7, 8));
    args.score = View<const float, 2>(Packed(score.data(), 7, 8));
    args.ape = Packed(ape.data(), 2, 8);
    args.positions = Packed(positions.data(), 7);
    args.query_start_loc = Packed(starts.data(), 3);
    args.state = LatentPages(state.data(), 6, 2, 16);
    args.state_block_table = Packed(state_table.data(), 2, 3);
    args.transform.norm.kind = NormKind::kRms;
    args.transform.norm.weight = View<const float, 1>(Packed(weight.data(), 4));
    args.transform.rope.cos = View<const float, 2>(Packed(cos.data(), 8, 2));
    args.transform.rope.sin = View<const float, 2>(Packed(sin.data(), 8, 2));
    args.cache = LatentPages(cache.data(), 4, 2, 4);
    args.block_table = Packed(table.data(), 2, 2);
    workspace = {scratch.data(), scratch.size()};
    for (auto* floats : {&kv, &score, &ape, &weight, &cos, &sin}) {
      std::fill(floats->begin(), floats->end(), 1.0f);
    }
    Reset();
  }
  void Reset() {
    for (Guarded<float>* floats : {&state, &cache, &partials}) floats->Poison();
    scratch.Poison();
    for (size_t i = 0; i < state.size(); ++i) state[i] = 0.5f;  // rows that are read
  }
  void UsePartials() {
    args.partials = Packed(partials.data(), 3, 3, 4);
    args.cache = {};
    args.block_table = {};
    args.transform = {};
  }
  void UseSlots() {
    args.block_table = {};
    args.slot_mapping = Packed(slots.data(), 7);
  }
  bool IsUntouched() const {
    const auto is_poison = [](const auto& bytes) {
      const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
      return std::all_of(data, data + bytes.size() * sizeof(*bytes.data()),
                         [](std::byte b) { return b == static_cast<std::byte>(kPoison); });
    };
    return is_poison(cache) && is_poison(partials) && is_poison(scratch) &&
           std::all_of(state.begin(), state.end(), [](float x) { return x == 0.5f; });
  }

  Guarded<float> kv{7 * 8}, score{7 * 8}, ape{2 * 8}, weight{4}, cos{8 * 2}, sin{8 * 2};
  Guarded<int64_t> positions{std::vector<int64_t>{6, 7, 8, 0, 1, 2, 3}};
  Guarded<int64_t> starts{std::vector<int64_t>{0, 3, 7}};
  Guarded<int64_t> slots{std::vector<int64_t>{99, 3, 99, 99, 0, 99, -1}};
  Guarded<int32_t> state_table{std::vector<int32_t>{0, 2, 4, 1, 3, 5}};
  Guarded<int32_t> table{
      std::vector<int32_t>{-9, 2, 0, 77}};  // pages of entries not written are not read
  Guarded<float> state{6 * 2 * 16}, cache{4 * 2 * 4}, partials{3 * 3 * 4};
  Guarded<std::byte> scratch{1024};
  CompressorArgs args;
  CompressorOptions options;
  Buffer workspace;
  Executor executor;
};

struct Row {
  const char* message;
  void (*break_it)(Call& call);
};

void RequireRefusals(std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    INFO("expected: " << row.message);
    Call call;
    {
      const Status status = CompressTokens(call.args, call.options, call.workspace, call.executor);
      INFO(Format(status).c_str());
      REQUIRE(status.ok());
    }
    call.Reset();
    row.break_it(call);
    const Status status = CompressTokens(call.args, call.options, call.workspace, call.executor);
    REQUIRE(std::string(Format(status).c_str()) == row.message);
    REQUIRE(call.IsUntouched());
  }
}

TEST_CASE("a compressor refuses wrong options", "[compressor][validation]") {
  RequireRefusals({
      {"invalid argument: options.ratio is 0, must be at least 1",
       [](Call& c) { c.options.ratio = 0; }},
      {"invalid argument: options.ratio is -4, must be at least 1",
       [](Call& c) { c.options.ratio = -4; }},
      {"invalid argument: options.ratio is 9223372036854775807, must be at most 2147483647",
       [](Call& c) { c.options.ratio = kMax; }},
      {"invalid argument: options.state_tokens is 3, must be at least 4",
       [](Call& c) { c.options.state_tokens = 3; }},
      {"invalid argument: options.state_tokens is -1, must be at least 4",
       [](Call& c) { c.options.state_tokens = -1; }},
      {"invalid argument: options.shard.world is 0, must be at least 1",
       [](Call& c) { c.options.shard.world = 0; }},
      {"invalid argument: options.shard.rank is 1, must be at most 0",
       [](Call& c) { c.options.shard.rank = 1; }},
      {"invalid argument: options.shard.rank is -1, must be at least 0",
       [](Call& c) { c.options.shard.rank = -1; }},
      {"invalid argument: options.shard.interleave is 0, must be at least 1",
       [](Call& c) { c.options.shard.interleave = 0; }},
      {"invalid argument: options.shard.world is 2, must be 1 without partials",
       [](Call& c) { c.options.shard.world = 2; }},
      {"target unavailable: options.target is 99, must be auto or a target that runs here: no such "
       "target",
       [](Call& c) { c.options.target = static_cast<Target>(99); }},
      {"invalid argument: executor.run must not be null",
       [](Call& c) { c.executor.run = nullptr; }},
  });
}

TEST_CASE("a compressor refuses wrong inputs", "[compressor][validation]") {
  RequireRefusals({
      {"invalid argument: kv.extent[1] is 0, must be at least 1", [](Call& c) { c.args.kv = {}; }},
      {"invalid argument: kv.extent[1] is 7, must be even with options.overlap",
       [](Call& c) { c.args.kv.extent[1] = 7; }},
      {"invalid argument: kv.extent[1] is 8194, must be at most 8192",
       [](Call& c) { c.args.kv.extent[1] = 8194; }},
      {"invalid argument: kv.data must not be null", [](Call& c) { c.args.kv.data = nullptr; }},
      {"invalid argument: kv.extent[0] is 6, must be at least positions.extent[0] = 7",
       [](Call& c) { c.args.kv.extent[0] = 6; }},
      {"invalid argument: kv.stride[0] is 7, must be at least a row's width, 8",
       [](Call& c) { c.args.kv.stride[0] = 7; }},
      {"invalid argument: kv.dtype is 9, must be a known DType",
       [](Call& c) { c.args.kv.dtype = static_cast<DType>(9); }},
      {"invalid argument: score.extent[1] is 4, must be 8",
       [](Call& c) { c.args.score.extent[1] = 4; }},
      {"invalid argument: score.data must be aligned to 4",
       [](Call& c) { c.args.score.data += 2; }},
      {"invalid argument: score.stride[1] is 2, must be 1",
       [](Call& c) { c.args.score.stride[1] = 2; }},
      {"invalid argument: ape.extent[0] is 0, must be 2", [](Call& c) { c.args.ape = {}; }},
      {"invalid argument: ape.extent[0] is 3, must be 2",
       [](Call& c) { c.args.ape.extent[0] = 3; }},
      {"invalid argument: ape.extent[1] is 4, must be 8",
       [](Call& c) { c.args.ape.extent[1] = 4; }},
      {"invalid argument: ape.data must not be null", [](Call& c) { c.args.ape.data = nullptr; }},
      {"invalid argument: transform.norm.weight.extent[0] is 3, must be 4",
       [](Call& c) { c.args.transform.norm.weight.extent[0] = 3; }},
      {"invalid argument: transform.rope.cos.extent[1] is 3, must be at most half of the row's "
       "width, 2",
       [](Call& c) {
         for (auto* table : {&c.args.transform.rope.cos, &c.args.transform.rope.sin}) {
           table->extent[1] = table->stride[0] = 3;
         }
       }},
      {"index out of range: positions[1] is 7, must have its entry's first token below "
       "transform.rope.cos.extent[0] = 6",
       [](Call& c) {
         c.args.transform.rope.cos.extent[0] = c.args.transform.rope.sin.extent[0] = 6;
       }},
  });
}

TEST_CASE("a compressor refuses wrong positions and sequences", "[compressor][validation]") {
  RequireRefusals({
      {"invalid argument: positions[3] is -1, must be at least 0",
       [](Call& c) { c.positions[3] = -1; }},
      {"invalid argument: positions[1] is 5, must follow the position before it, be 7",
       [](Call& c) { c.positions[1] = 5; }},
      {"invalid argument: positions[6] is 4, must follow the position before it, be 3",
       [](Call& c) { c.positions[6] = 4; }},
      {"invalid argument: positions[0] is 9223372036854775807, must be at most 1099511627776",
       [](Call& c) { c.positions[0] = kMax; }},
      {"invalid argument: positions.data must not be null",
       [](Call& c) { c.args.positions.data = nullptr; }},
      {"index out of range: positions[1] is 9, must have its entry below block_table.extent[1] * "
       "cache.block_size = 4",
       [](Call& c) {
         c.positions[0] = 8, c.positions[1] = 9, c.positions[2] = 10;
         c.args.transform.rope = {};
       }},
      {"invalid argument: query_start_loc.extent[0] is 0, must be at least 1",
       [](Call& c) { c.args.query_start_loc.extent[0] = 0; }},
      {"invalid argument: query_start_loc[0] is 1, must be 0", [](Call& c) { c.starts[0] = 1; }},
      {"invalid argument: query_start_loc[1] is -1, must be at least the entry before it, 0",
       [](Call& c) { c.starts[1] = -1; }},
      {"invalid argument: query_start_loc[2] is 6, must be positions.extent[0] = 7",
       [](Call& c) { c.starts[2] = 6; }},
      {"invalid argument: state_block_table.extent[0] is 2, must be 7",
       [](Call& c) { c.args.query_start_loc = {}; }},
  });
}

TEST_CASE("a compressor refuses a state that lacks rows", "[compressor][validation]") {
  RequireRefusals({
      {"invalid argument: state.format is kLatentBFloat16, must be kLatentFloat32",
       [](Call& c) { c.args.state.format = CacheFormat::kLatentBFloat16; }},
      {"invalid argument: state.row_stride is 60, must be at least a record's bytes, 64",
       [](Call& c) { c.args.state.row_stride = 60; }},
      {"invalid argument: state.data must not be null",
       [](Call& c) { c.args.state.data = nullptr; }},
      {"invalid argument: state.block_size is 0, must be at least 1",
       [](Call& c) { c.args.state.block_size = 0; }},
      {"invalid argument: state_block_table.extent[1] is 1, must hold the rows of one entry, times "
       "state.block_size be at least 4",
       [](Call& c) { c.args.state_block_table.extent[1] = 1; }},
      {"invalid argument: state_block_table.extent[1] is 0, must hold the rows of one entry, times "
       "state.block_size be at least 4",
       [](Call& c) { c.args.state_block_table.extent[1] = 0; }},
      // Rows 4 and 5 of the first sequence, which entry 3 needs; rows that are saved.
      {"index out of range: state_block_table[2] is -1, must be within 0 and state.num_blocks - 1 "
       "= 5",
       [](Call& c) { c.state_table[2] = -1; }},
      {"index out of range: state_block_table[0] is 6, must be within 0 and state.num_blocks - 1 = "
       "5",
       [](Call& c) { c.state_table[0] = 6; }},
      {"index out of range: state_block_table[4] is 2147483647, must be within 0 and "
       "state.num_blocks - 1 = 5",
       [](Call& c) { c.state_table[4] = std::numeric_limits<int32_t>::max(); }},
  });
  Call call;
  call.state_table[5] = 99;  // rows 4 and 5 of the second, which it does not have yet
  REQUIRE(CompressTokens(call.args, call.options, call.workspace).ok());
}

TEST_CASE("a compressor refuses wrong places for entries", "[compressor][validation]") {
  RequireRefusals({
      {"invalid argument: cache.format is 99, must be a known CacheFormat",
       [](Call& c) { c.args.cache.format = static_cast<CacheFormat>(99); }},
      {"invalid argument: cache.format is kFp8Ds4, must be one for the width in use; this one's is "
       "512",
       [](Call& c) { c.args.cache.format = CacheFormat::kFp8Ds4; }},
      {"invalid argument: cache.data must not be null",
       [](Call& c) { c.args.cache.data = nullptr; }},
      {"invalid argument: block_table.extent[0] is 0, must be 2",
       [](Call& c) { c.args.block_table = {}; }},
      {"index out of range: block_table[1] is 4, must be within 0 and cache.num_blocks - 1 = 3",
       [](Call& c) { c.table[1] = 4; }},
      {"index out of range: block_table[2] is -1, must be within 0 and cache.num_blocks - 1 = 3",
       [](Call& c) { c.table[2] = -1; }},
      {"invalid argument: block_table must not be given beside slot_mapping",
       [](Call& c) { c.args.slot_mapping = Packed(c.slots.data(), 7); }},
      {"invalid argument: slot_mapping.extent[0] is 6, must be 7",
       [](Call& c) {
         c.UseSlots();
         c.args.slot_mapping.extent[0] = 6;
       }},
      {"index out of range: slot_mapping[1] is 8, must be below cache.num_blocks * "
       "cache.block_size = 8",
       [](Call& c) {
         c.UseSlots();
         c.slots[1] = 8;
       }},
      {"invalid argument: block_table must not be given beside partials",
       [](Call& c) { c.args.partials = Packed(c.partials.data(), 3, 3, 4); }},
      {"invalid argument: slot_mapping must not be given beside partials",
       [](Call& c) {
         c.UsePartials();
         c.args.slot_mapping = Packed(c.slots.data(), 7);
       }},
      {"invalid argument: partials.extent[0] is 2, must be at least the number of entries, 3",
       [](Call& c) {
         c.UsePartials();
         c.args.partials.extent[0] = 2;
       }},
      {"invalid argument: partials.extent[1] is 2, must be 3",
       [](Call& c) {
         c.UsePartials();
         c.args.partials.extent[1] = 2;
       }},
      {"invalid argument: partials.extent[2] is 8, must be 4",
       [](Call& c) {
         c.UsePartials();
         c.args.partials.extent[2] = 8;
       }},
      {"invalid argument: partials.data must not be null",
       [](Call& c) {
         c.UsePartials();
         c.args.partials.data = nullptr;
       }},
  });
}

TEST_CASE("a compressor refuses a small workspace", "[compressor][validation]") {
  RequireRefusals({
      {"buffer too small: workspace.bytes is 0, must be at least 447",
       [](Call& c) { c.workspace.data = nullptr; }},
      {"buffer too small: workspace.bytes is 446, must be at least 447",
       [](Call& c) { c.workspace.bytes = 446; }},
  });
  Call call;
  call.workspace.bytes = 447;
  REQUIRE(CompressTokens(call.args, call.options, call.workspace).ok());
  REQUIRE(CompressorWorkspaceFor(call.options, 7, 2, 4) >= 447);
  // Tokens that complete nothing need none.
  Call none;
  none.args.positions.extent[0] = 1;
  none.starts[1] = none.starts[2] = 1;
  none.positions[0] = 6;
  REQUIRE(CompressTokens(none.args, none.options, {}).ok());
}

TEST_CASE("a compressor refuses memory that overlaps", "[compressor][validation]") {
  RequireRefusals({
      {"invalid argument: kv must not overlap state",
       [](Call& c) { c.args.kv.data = reinterpret_cast<std::byte*>(c.state.data()); }},
      {"invalid argument: score must not overlap workspace",
       [](Call& c) { c.args.score.data = c.scratch.data() + 64; }},
      {"invalid argument: ape must not overlap state",
       [](Call& c) { c.args.ape.data = c.state.data() + 3; }},
      {"invalid argument: kv must not overlap partials",
       [](Call& c) {
         c.UsePartials();
         c.args.partials.data = c.kv.data() + 20;
       }},
      {"invalid argument: transform must not overlap cache",
       [](Call& c) {
         c.args.transform.norm.weight.data = reinterpret_cast<std::byte*>(c.cache.data());
       }},
      {"invalid argument: partials must not overlap state",
       [](Call& c) {
         c.UsePartials();
         c.args.partials.data = c.state.data();
       }},
      {"invalid argument: workspace must not overlap cache",
       [](Call& c) { c.args.cache.data = c.scratch.data(); }},
  });
}

// Two parts of three entries, D = 4.
struct MergeCall {
  MergeCall() {
    for (auto* part : {&first, &second}) std::fill(part->begin(), part->end(), 1.0f);
    parts[0] = View<const float, 3>(Packed(first.data(), 3, 3, 4));
    parts[1] = View<const float, 3>(Packed(second.data(), 3, 3, 4));
    args.parts = parts;
    args.num_parts = 2;
    args.positions = Packed(positions.data(), 3);
    args.slot_mapping = Packed(slots.data(), 3);
    args.cache = LatentPages(cache.data(), 2, 2, 4);
    options.ratio = 2;
  }
  Guarded<float> first{3 * 3 * 4}, second{3 * 3 * 4}, cache{2 * 2 * 4}, angles{8 * 2};
  Guarded<int32_t> positions{std::vector<int32_t>{1, 3, -5}};
  Guarded<int32_t> slots{std::vector<int32_t>{0, 3, -1}};
  View<const float, 3> parts[2];
  CompressedMergeArgs args;
  CompressedMergeOptions options;
};

TEST_CASE("a merge of partials refuses what is wrong", "[compressor][validation]") {
  struct MergeRow {
    const char* message;
    void (*break_it)(MergeCall& call);
  };
  const MergeRow rows[] = {
      {"invalid argument: options.ratio is 0, must be at least 1",
       [](MergeCall& c) { c.options.ratio = 0; }},
      {"invalid argument: num_parts is 0, must be at least 1",
       [](MergeCall& c) { c.args.num_parts = 0; }},
      {"invalid argument: parts must not be null", [](MergeCall& c) { c.args.parts = nullptr; }},
      {"invalid argument: slot_mapping.extent[0] is 2, must be 3",
       [](MergeCall& c) { c.args.slot_mapping.extent[0] = 2; }},
      {"invalid argument: parts[0].extent[2] is 0, must be at least 1",
       [](MergeCall& c) { c.parts[0].extent[2] = 0; }},
      {"invalid argument: parts[1].stats.extent[2] is 3, must be 4",
       [](MergeCall& c) { c.parts[1].extent[2] = 3; }},
      {"invalid argument: parts[1].stats.extent[0] is 2, must be at least the number of entries, 3",
       [](MergeCall& c) { c.parts[1].extent[0] = 2; }},
      {"invalid argument: parts[1].stats.data must not be null",
       [](MergeCall& c) { c.parts[1].data = nullptr; }},
      {"invalid argument: parts[0].stats must not overlap cache",
       [](MergeCall& c) { c.parts[0].data = c.cache.data(); }},
      {"invalid argument: positions must not overlap cache",
       [](MergeCall& c) { c.args.positions.data = c.cache.data(); }},
      {"invalid argument: slot_mapping must not overlap cache",
       [](MergeCall& c) { c.args.slot_mapping.data = c.cache.data(); }},
      {"invalid argument: cache.block_size is 0, must be at least 1",
       [](MergeCall& c) { c.args.cache.block_size = 0; }},
      {"index out of range: slot_mapping[1] is 4, must be below cache.num_blocks * "
       "cache.block_size = 4",
       [](MergeCall& c) { c.slots[1] = 4; }},
      {"invalid argument: positions[1] is -1, must be at least 0",
       [](MergeCall& c) { c.positions[1] = -1; }},
      {"index out of range: positions[1] is 3, must have its entry's first token below "
       "transform.rope.cos.extent[0] = 2",
       [](MergeCall& c) {
         c.args.transform.rope.cos = View<const float, 2>(Packed(c.angles.data(), 2, 2));
         c.args.transform.rope.sin = c.args.transform.rope.cos;
       }},
      {"target unavailable: options.target is 99, must be auto or a target that runs here: no such "
       "target",
       [](MergeCall& c) { c.options.target = static_cast<Target>(99); }},
  };
  for (const MergeRow& row : rows) {
    INFO("expected: " << row.message);
    MergeCall call;
    {
      const Status status = MergeCompressed(call.args, call.options);
      INFO(Format(status).c_str());
      REQUIRE(status.ok());
    }
    call.cache.Poison();
    row.break_it(call);
    REQUIRE(std::string(Format(MergeCompressed(call.args, call.options)).c_str()) == row.message);
    for (const float x : call.cache) REQUIRE(std::isnan(x));
  }
}

TEST_CASE("sizes of a compressor", "[compressor][validation]") {
  struct SizesRow {
    const char* message;
    CompressorShape shape;
    int64_t ratio;
    Limits limits;
  };
  const SizesRow rows[] = {
      {"invalid argument: shape.head_dim is 0, must be at least 1", {0}, 4, {1, 1, 0, 1}},
      {"invalid argument: shape.head_dim is 4097, must be at most 4096", {4097}, 4, {1, 1, 0, 1}},
      {"invalid argument: options.ratio is 0, must be at least 1", {4}, 0, {1, 1, 0, 1}},
      {"invalid argument: limits.max_num_seqs is 0, must be at least 1", {4}, 4, {0, 1, 0, 1}},
      {"invalid argument: limits.max_num_tokens is -1, must be at least 1", {4}, 4, {1, -1, 0, 1}},
      {"invalid argument: limits.max_num_tokens is 9223372036854775807, must be at most 2147483647",
       {4},
       4,
       {1, kMax, 0, 1}},
  };
  for (const SizesRow& row : rows) {
    CompressorOptions options;
    options.ratio = row.ratio;
    Sizes sizes;
    REQUIRE(std::string(Format(CompressorSizes(row.shape, options, row.limits, &sizes)).c_str()) ==
            row.message);
    REQUIRE(sizes.workspace_bytes == 0);
  }
  CompressorOptions options;
  options.ratio = 4;
  REQUIRE(std::string(Format(CompressorSizes({4}, options, {1, 1, 0, 1}, nullptr)).c_str()) ==
          "invalid argument: sizes must not be null");
  const size_t bytes = CompressorWorkspaceFor(options, 4096, 3, 512);
  REQUIRE(bytes > 0);
  REQUIRE(bytes >= CompressorWorkspaceFor(options, 4095, 3, 512));
  REQUIRE(bytes >= CompressorWorkspaceFor(options, 4096, 2, 512));
  REQUIRE(bytes >= CompressorWorkspaceFor(options, 4096, 3, 511));
}

}  // namespace
}  // namespace lathe::test
