// SPDX-License-Identifier: Apache-2.0
// Gathering rows of a paged cache: which rows, which values, and nothing else read or written.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "gather/gather_problem.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

template <class T, class Index>
void CheckEveryTarget(const GatherCase& c) {
  GatherProblem<T, Index> problem(c);
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.Run();
    problem.Run(ThreadExecutor(3));
  }
}

TEMPLATE_TEST_CASE("gathered rows are the dequantised records, in every format", "[gather]", float,
                   float16, bfloat16) {
  const FormatRow row = GENERATE(from_range(kFormats));
  GatherCase c;
  c.format = row.format;
  c.block_size = GENERATE(1, 4, 64);
  c.scale = 0.0137f;
  CAPTURE(row.name, c.block_size);
  CheckEveryTarget<TestType, int32_t>(c);
}

TEST_CASE("gather reads no other table entry and writes no other row", "[gather]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  GatherCase c;
  c.format = row.format;
  c.block_size = GENERATE(3, 16);
  c.table_slack = GENERATE(0, 5);
  c.last_n = GENERATE(0, 1, 9, 1000);
  c.rows_between = 2;
  c.columns_after = 7;
  CAPTURE(row.name, c.block_size, c.table_slack, c.last_n);
  CheckEveryTarget<bfloat16, int64_t>(c);
}

TEST_CASE("chunks of a context make the whole", "[gather]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  CAPTURE(row.name);
  GatherCase c;
  c.format = row.format;
  c.gather_starts = {0, 0};
  c.gather_lens = {50, 23};
  GatherProblem<float, int32_t> problem(c);
  problem.Run();
  const std::vector<float> whole = problem.out.Packed();
  problem.out = Strided<float, 2>({73, WidthOf(c.format)}, {WidthOf(c.format), 1});
  problem.args.out = problem.out.view();
  for (int32_t first = 0; first < 50; first += 11) {
    const int32_t lens[2] = {50, 23};
    for (size_t b = 0; b < 2; ++b) {
      problem.gather_starts[b] = std::min(first, lens[b]);
      problem.gather_lens[b] = std::min(11, lens[b] - problem.gather_starts[b]);
      problem.out_start_loc[b] = (b == 0 ? 0 : 50) + problem.gather_starts[b];
    }
    REQUIRE(GatherLatentCache(problem.args).ok());
  }
  REQUIRE(SameBits(problem.out.Packed(), whole));

  // Without starts: from position 0 on.
  problem.args.gather_starts = {};
  for (size_t b = 0; b < 2; ++b) {
    problem.gather_lens[b] = b == 0 ? 50 : 23;
    problem.out_start_loc[b] = b == 0 ? 0 : 50;
  }
  problem.out = Strided<float, 2>({73, WidthOf(c.format)}, {WidthOf(c.format), 1});
  problem.args.out = problem.out.view();
  REQUIRE(GatherLatentCache(problem.args).ok());
  REQUIRE(SameBits(problem.out.Packed(), whole));
}

TEST_CASE("gather of nothing", "[gather]") {
  LatentGatherArgs args;
  args.cache.format = CacheFormat::kFp8Ds4;
  args.cache.block_size = 64;
  args.cache.row_stride = 576;
  args.out.extent[1] = 512;
  args.out.stride[1] = 1;
  const Status status = GatherLatentCache(args);
  INFO(Format(status).c_str());
  REQUIRE(status.ok());
  GatherCase c;
  c.gather_starts = {0, 4};
  c.gather_lens = {0, 0};
  c.rows_between = 1;
  CheckEveryTarget<float, int32_t>(c);
}

// Rows of no fixed width, none of them a multiple of a vector.
TEMPLATE_TEST_CASE("gather of rows of any width", "[gather]", float, float16, bfloat16) {
  const FormatRow row = GENERATE(from_range(kFormats));
  const int64_t width = GENERATE(1, 7, 31, 100, 1089);
  CAPTURE(row.name, width);
  if (FixedWidth(row.format) != 0) return;
  FormatPages pages(row.format, width, 2, 2, 0, 0.0137f);
  Random random(3);
  std::vector<float> rows(static_cast<size_t>(3 * width));
  for (float& x : rows) x = random.Normal();
  const int64_t slots[3] = {3, 0, 1};
  LatentWriteArgs write;
  write.kv_c = Packed(static_cast<const float*>(rows.data()), 3, width);
  write.slot_mapping = Packed(slots, 3);
  write.cache = pages.cache;
  REQUIRE(WriteLatentCache(write).ok());
  const int32_t table[2] = {0, 1}, start = 1, len = 3, loc = 0;
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    // Slots 1, 2 (poison) and 3.
    Strided<TestType, 2> out({3, width}, {width + 1, 1});
    LatentGatherArgs args;
    args.cache = pages.cache;
    args.block_table = Packed(table, 1, 2);
    args.gather_starts = Packed(&start, 1);
    args.gather_lens = Packed(&len, 1);
    args.out_start_loc = Packed(&loc, 1);
    args.out = out.view();
    LatentGatherOptions options;
    options.target = target;
    REQUIRE(GatherLatentCache(args, options).ok());
    REQUIRE(out.AreGapsIntact());
    const std::vector<TestType> have = out.Packed();
    for (int64_t i = 0; i < 3; ++i) {
      const std::vector<double> values = pages.Row(i + 1, width);
      for (int64_t c = 0; c < width; ++c) {
        CAPTURE(i, c);
        const float x = static_cast<float>(values[static_cast<size_t>(c)]);
        const TestType got = have[static_cast<size_t>(i * width + c)];
        if (std::isnan(x)) {
          REQUIRE(std::isnan(ToFloat(got)));
        } else {
          const TestType expected = FromFloat<TestType>(x);
          REQUIRE(std::memcmp(&got, &expected, sizeof(got)) == 0);
        }
      }
    }
  }
}

TEST_CASE("A5: gather from pages past 2^31 and 2^32 bytes, in every format", "[gather][A5]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  CAPTURE(row.name);
  constexpr int64_t kBlockSize = 64;
  const int64_t width = WidthOf(row.format), page = PayloadBytes(row.format, width, kBlockSize);
  const int64_t past31 = (int64_t{1} << 31) / page + 1, past32 = (int64_t{1} << 32) / page + 1;
  SparseMemory memory(static_cast<size_t>((past32 + 1) * page));
  const int64_t blocks[4] = {past31 - 1, past31, past32 - 1, past32};
  int64_t slots[4], locs[4];
  std::vector<float> rows(static_cast<size_t>(4 * width));
  for (size_t i = 0; i < 4; ++i) {
    // Six times a power of two is a code of every format.
    rows[i * static_cast<size_t>(width) + 1] = static_cast<float>(6 << i);
    slots[i] = blocks[i] * kBlockSize;
    locs[i] = static_cast<int64_t>(i);
  }
  MutablePagedCache cache{memory.data(), row.format, past32 + 1,
                          kBlockSize,    page,       RecordBytes(row.format, width)};
  LatentWriteArgs write;
  write.kv_c = Packed(static_cast<const float*>(rows.data()), 4, width);
  write.slot_mapping = Packed(static_cast<const int64_t*>(slots), 4);
  write.cache = cache;
  REQUIRE(WriteLatentCache(write).ok());
  const int32_t lens[4] = {1, 1, 1, 1};
  Guarded<float> out(static_cast<size_t>(4 * width));
  LatentGatherArgs args;
  args.cache = cache;
  args.block_table = Packed(static_cast<const int64_t*>(blocks), 4, 1);
  args.gather_lens = Packed(lens, 4);
  args.out_start_loc = Packed(static_cast<const int64_t*>(locs), 4);
  args.out = Packed(out.data(), 4, width);
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    out.Poison();
    LatentGatherOptions options;
    options.target = target;
    REQUIRE(GatherLatentCache(args, options).ok());
    for (size_t i = 0; i < out.size(); ++i) {
      const float x = rows[i];
      REQUIRE(std::abs(out[i] - x) <= x * 0x1p-20f);
    }
  }
}

// Attention over a quantised cache is that over its gathered rows, bit for bit.
TEST_CASE("decode over gathered rows is decode over the cache", "[gather]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  CAPTURE(row.name);
  MlaProblem<float> problem({ShapeOf(row.format, 5), {1, 70, 200}, {1, 2, 1}, 16});
  const FormatPages pages = MoveInto(problem, row.format, 0.03125f);
  problem.options.precision = Precision::kFloat32;
  const int64_t width = problem.width();
  const int64_t locs[3] = {0, 16, 96};  // whole pages
  Guarded<float> rows(static_cast<size_t>(304 * width));
  LatentGatherArgs gather;
  gather.cache = pages.cache;
  gather.block_table = problem.args.keys.block_table;
  gather.gather_lens = problem.args.keys.seq_lens;
  gather.out_start_loc = Packed(locs, 3);
  gather.out = Packed(rows.data(), 304, width);
  std::vector<int32_t> table(3 * 13, -1);
  for (size_t b = 0; b < 3; ++b) {
    for (size_t page = 0; page < 13; ++page) {
      table[b * 13 + page] = static_cast<int32_t>(locs[b] / 16) + static_cast<int32_t>(page);
    }
  }
  const KeySet quantised = problem.args.keys;
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.args.keys = quantised;
    problem.Run();
    const MlaResult<float> from_quantised = problem.Result();
    rows.Poison();
    LatentGatherOptions options;
    options.target = target;
    REQUIRE(GatherLatentCache(gather, options).ok());
    problem.args.keys.cache = LatentPages(static_cast<const float*>(rows.data()), 19, 16, width);
    problem.args.keys.block_table = Packed(static_cast<const int32_t*>(table.data()), 3, 13);
    problem.Run();
    REQUIRE(SameBits(problem.Result(), from_quantised));
  }
}

}  // namespace
}  // namespace lathe::test
