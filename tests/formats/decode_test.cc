// SPDX-License-Identifier: Apache-2.0
// Attention over every cache format, against the reference over the same bytes.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/format_pages.h"

namespace lathe::test {
namespace {

constexpr float kTensorScale = 0.0137f;  // not a power of two; rows reach 3.5 / it = 255

TEST_CASE("decode attends over every format", "[formats]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  const int64_t num_heads = GENERATE(1, 5, 16);
  CAPTURE(row.name, num_heads);
  MlaProblem<bfloat16> problem({ShapeOf(row.format, num_heads), {1, 33, 0, 150, 1400}, {}, 16});
  ShiftScores(problem);
  const FormatPages pages = MoveInto(problem, row.format, kTensorScale);
  problem.CheckEveryTarget();
}

TEST_CASE("decode attends over every format in float32", "[formats]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  CAPTURE(row.name);
  MlaProblem<float> problem({ShapeOf(row.format, 6), {1, 2, 65, 300}, {1, 2, 3, 4}, 7});
  ShiftScores(problem);
  const FormatPages pages = MoveInto(problem, row.format, kTensorScale);
  problem.CheckEveryTarget();
}

// Where scales stay out of rows (scales_test.cc), weights are rounded otherwise.
TEST_CASE("bf16 products are those of the rows as bfloat16", "[formats]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  CAPTURE(row.name);
  if (BFloat16RowsOf(row.format) != BFloat16Rows::kExact) return;
  MlaProblem<bfloat16> problem({ShapeOf(row.format, 16), {3000, 40}});
  problem.options.precision = Precision::kBFloat16;
  const PagedCache plain = problem.args.keys.cache;
  const FormatPages pages = MoveInto(problem, row.format, 0.0625f);
  const PagedCache quantised = problem.args.keys.cache;
  for (int64_t seq = 0; seq < 2; ++seq) {
    for (int64_t i = 0; i < problem.seq_lens[static_cast<size_t>(seq)]; ++i) {
      const auto values = pages.Row(problem.Slot(seq, i), problem.width());
      for (size_t c = 0; c < values.size(); ++c) {
        problem.Row(seq, i)[c] = FromFloat<bfloat16>(static_cast<float>(values[c]));
      }
    }
  }
  for (const Target target : RunnableTargets()) {
    if (!HasNativeBf16(target)) continue;
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.args.keys.cache = quantised;
    problem.Run();
    const MlaResult<float> from_quantised = problem.Result();
    problem.args.keys.cache = plain;
    problem.Run();
    REQUIRE(SameBits(problem.Result(), from_quantised));
  }
}

// What lies past a sequence's end is 0xFF: NaN codes, NaN scales.
TEST_CASE("A1: tail rows of a page are not read, in every format", "[formats][A1]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  const int64_t block_size = GENERATE(4, 64);
  const int64_t seq_len = GENERATE(1, 5, 63, 64, 65);
  CAPTURE(row.name, block_size, seq_len);
  MlaProblem<float> problem({ShapeOf(row.format, 3), {seq_len}, {}, block_size});
  for (int64_t i = 0; i < seq_len; ++i) {
    problem.SetRow(0, i, 0.0f, static_cast<float>(i % 5 + 1));
  }
  problem.SetQuery(1.0f);
  const FormatPages pages = MoveInto(problem, row.format);
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.Run();
    problem.RequireMatchesReference();
    // 1 .. 5 are e4m3 numbers; in e2m1 they are so many sixths of an e4m3 scale, within 1/16, or
    // 1, 2, 3, 4 and, since it lies between two codes, 4.
    if (seq_len % 5 != 0) continue;
    const float mean = row.format == CacheFormat::kIndexerMxfp4 ? 2.8f : 3.0f;
    const bool is_rounded = IsFp4(row.format) && row.format != CacheFormat::kIndexerMxfp4;
    REQUIRE(std::abs(problem.out[1] - mean) <= mean * (is_rounded ? 1.0f / 16 : 1.0f / 256));
  }
}

TEST_CASE("A3: holes of an index list and poisoned slots, in every format", "[formats][A3]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  const int32_t filler = GENERATE(-1, 64, 2147480000, std::numeric_limits<int32_t>::min());
  CAPTURE(row.name, filler);
  for (const std::vector<int32_t>& list :
       {std::vector<int32_t>{filler, filler, 3, 7}, std::vector<int32_t>{3, filler, 7, filler},
        std::vector<int32_t>{3, 7, filler, filler}}) {
    MlaProblem<float> problem({ShapeOf(row.format, 2), {8}, {}, 64});
    problem.SetQuery(1.0f);
    FormatPages pages = MoveInto(problem, row.format);
    pages.bytes.Poison();
    const float columns[2] = {4.0f, 8.0f};
    const int64_t slots[2] = {3, 7};
    std::vector<float> rows(static_cast<size_t>(2 * problem.width()));
    for (size_t i = 0; i < 2; ++i) {
      rows[i * static_cast<size_t>(problem.width()) + 1] = columns[i];
    }
    LatentWriteArgs write;
    write.kv_c = Packed(static_cast<const float*>(rows.data()), 2, problem.width());
    write.slot_mapping = Packed(slots, 2);
    write.cache = pages.cache;
    REQUIRE(WriteLatentCache(write).ok());
    const Guarded<int32_t> indices(list);
    problem.args.keys.indices = Packed(indices.data(), 1, list.size());
    problem.args.keys.index_space = IndexSpace::kPhysical;
    problem.args.keys.cache.num_blocks = 1;
    for (const Target target : RunnableTargets()) {
      INFO("target " << Name(target));
      problem.options.target = target;
      problem.Run();
      problem.RequireMatchesReference();
      REQUIRE(std::abs(problem.lse[0] - 0.693147f) <= 1e-3f);
    }
  }
}

TEST_CASE("A5: pages past 2^31 and 2^32 bytes, in every format", "[formats][A5]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  CAPTURE(row.name);
  constexpr int64_t kBlockSize = 64;
  MlaProblem<float> problem({ShapeOf(row.format, 2), {1, 1, 1, 1}, {}, kBlockSize});
  problem.SetQuery(1.0f);
  const int64_t page = PayloadBytes(row.format, problem.width(), kBlockSize);
  const int64_t past31 = (int64_t{1} << 31) / page + 1, past32 = (int64_t{1} << 32) / page + 1;
  const int64_t num_blocks = past32 + 1;
  SparseMemory memory(static_cast<size_t>(num_blocks * page));
  MutablePagedCache cache;
  cache.data = memory.data();
  cache.format = row.format;
  cache.num_blocks = num_blocks;
  cache.block_size = kBlockSize;
  cache.row_stride = RecordBytes(row.format, problem.width());
  cache.block_stride = page;

  const int64_t blocks[4] = {past31 - 1, past31, past32 - 1, past32};
  std::vector<float> rows(static_cast<size_t>(4 * problem.width()));
  int64_t slots[4];
  for (size_t i = 0; i < 4; ++i) {
    // 6, 12, 24, 48: six times a power of two is a code of every format.
    rows[i * static_cast<size_t>(problem.width()) + 1] = static_cast<float>(6 << i);
    slots[i] = blocks[i] * kBlockSize;
    problem.block_table[i] = static_cast<int32_t>(blocks[i]);
  }
  LatentWriteArgs write;
  write.kv_c = Packed(static_cast<const float*>(rows.data()), 4, problem.width());
  write.slot_mapping = Packed(static_cast<const int64_t*>(slots), 4);
  write.cache = cache;
  problem.args.keys.cache = cache;
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    for (const int64_t block : blocks) {
      std::memset(memory.data() + block * page, 0xFF, static_cast<size_t>(page));
    }
    LatentWriteOptions options;
    options.target = target;
    REQUIRE(WriteLatentCache(write, options).ok());
    problem.options.target = target;
    problem.Run();
    for (int64_t token = 0; token < 4; ++token) {
      for (int64_t head = 0; head < 2; ++head) {
        problem.RequireKnownRow(token, head, static_cast<double>(6 << token), 0.0);
      }
    }
  }
}

// A cache of floats that holds what the quantised one decodes to gives the same bits: the
// arithmetic of the float32 engine does not know where its rows come from.
TEST_CASE("a quantised cache is the cache of its dequantised rows", "[formats]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  CAPTURE(row.name);
  MlaProblem<float> problem({ShapeOf(row.format, 5), {1, 70, 200}, {1, 2, 1}, 16});
  const PagedCache plain = problem.args.keys.cache;
  const bool has_scale = HasTensorScale(row.format);
  const FormatPages pages = MoveInto(problem, row.format, has_scale ? 0.03125f : 1.0f);
  problem.options.precision = Precision::kFloat32;
  const PagedCache quantised = problem.args.keys.cache;
  for (size_t b = 0; b < problem.the_case().seq_lens.size(); ++b) {
    for (int64_t i = 0; i < problem.the_case().seq_lens[b]; ++i) {
      const auto seq = static_cast<int64_t>(b);
      const auto values = pages.Row(problem.Slot(seq, i), problem.width());
      for (size_t c = 0; c < values.size(); ++c) {
        problem.Row(seq, i)[c] = static_cast<float>(values[c]);
      }
    }
  }
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.args.keys.cache = quantised;
    problem.Run();
    const MlaResult<float> from_quantised = problem.Result();
    problem.args.keys.cache = plain;
    problem.Run();
    // A scale of a power of two on the scores and the output instead of the rows: the same bits,
    // too.
    REQUIRE(SameBits(problem.Result(), from_quantised));
  }
}

}  // namespace
}  // namespace lathe::test
