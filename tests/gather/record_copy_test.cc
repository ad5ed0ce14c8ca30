// SPDX-License-Identifier: Apache-2.0
// Copies of single records against a loop of memmove, byte for byte, in every format.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "formats/format_pages.h"
#include "lathe/latent_cache.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

// Pages of random bytes, records some bytes apart.
struct Records {
  Records(CacheFormat format, int64_t record_width, int64_t block_size, uint64_t seed)
      : width(record_width), bytes(0) {
    const auto align = static_cast<int64_t>(RecordAlignment(format));
    cache.format = format;
    cache.num_blocks = 24 / block_size + 1;
    cache.block_size = block_size;
    cache.row_stride = RecordBytes(format, width) + align;
    cache.block_stride = block_size * (cache.row_stride + SideBytes(format)) + 2 * align;
    bytes = Guarded<std::byte>(static_cast<size_t>(cache.num_blocks * cache.block_stride));
    Random random(seed);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.Next() >> 40);
    cache.data = bytes.data();
  }
  int64_t num_slots() const { return cache.num_blocks * cache.block_size; }

  // The same copy on other bytes of these pages, one record after another.
  void MoveInLoop(const std::vector<int64_t>& from, const std::vector<int64_t>& to,
                  std::vector<std::byte>& all) const {
    const auto row = [this](int64_t slot) {
      return slot / cache.block_size * cache.block_stride +
             slot % cache.block_size * cache.row_stride;
    };
    const auto side = [this](int64_t slot) {
      return slot / cache.block_size * cache.block_stride + cache.block_size * cache.row_stride +
             slot % cache.block_size * SideBytes(cache.format);
    };
    for (size_t i = 0; i < to.size(); ++i) {
      if (to[i] < 0) continue;
      std::memmove(&all[static_cast<size_t>(row(to[i]))], &all[static_cast<size_t>(row(from[i]))],
                   static_cast<size_t>(RecordBytes(cache.format, width)));
      if (SideBytes(cache.format) == 0) continue;
      std::memmove(&all[static_cast<size_t>(side(to[i]))], &all[static_cast<size_t>(side(from[i]))],
                   static_cast<size_t>(SideBytes(cache.format)));
    }
  }

  int64_t width;
  MutablePagedCache cache;
  Guarded<std::byte> bytes;
};

template <class Index>
RecordCopyArgs ArgsOf(const Records& records, const Guarded<Index>& from,
                      const Guarded<Index>& to) {
  RecordCopyArgs args;
  args.cache = records.cache;
  args.width = records.width;
  args.src_slots = Packed(static_cast<const Index*>(from.data()), from.size());
  args.dst_slots = Packed(static_cast<const Index*>(to.data()), to.size());
  return args;
}

constexpr size_t kWorkers[] = {1, 2, 5};

TEST_CASE("CA19: accepted records move to consecutive slots, and all others keep their bytes",
          "[gather][CA19]") {
  const FormatRow format = GENERATE(from_range(kFormats));
  const int64_t block_size = GENERATE(1, 4, 16);
  CAPTURE(format.name, block_size);
  struct Lists {
    std::vector<int64_t> from, to;
  };
  const Lists lists = GENERATE(Lists{{7, 9, 12, 17, 18}, {6, 7, 8, 9, 10}},  // a path
                               Lists{{7, 9, 12, 17}, {7, 8, 9, 10}},         // its first stays
                               Lists{{3, 4, 5}, {4, 5, 6}},            // each sees what was written
                               Lists{{5, -1, 99, 8}, {2, -1, -7, 3}},  // padded lists
                               Lists{{}, {}});
  for (const size_t workers : kWorkers) {
    CAPTURE(workers);
    Records records(format.format, WidthOf(format.format), block_size, 5);
    std::vector<std::byte> expected = records.bytes.Copy();
    records.MoveInLoop(lists.from, lists.to, expected);
    const Guarded<int64_t> from(lists.from), to(lists.to);
    REQUIRE(CopyCacheRecords(ArgsOf(records, from, to), ThreadExecutor(workers)).ok());
    REQUIRE(SameBits(records.bytes.Copy(), expected));
    REQUIRE(records.bytes.IsFrontIntact());
  }
}

TEST_CASE("thousands of records move in list order with any number of workers", "[gather][CA19]") {
  const FormatRow format = GENERATE(from_range(kFormats));
  CAPTURE(format.name);
  for (const size_t workers : kWorkers) {
    Records records(format.format, WidthOf(format.format), 8, 6);
    Random random(7);
    std::vector<int64_t> from, to;
    for (int i = 0; i < 3000; ++i) {
      from.push_back(random.Below(records.num_slots()));
      to.push_back(random.Below(records.num_slots() + 3) - 3);
    }
    std::vector<std::byte> expected = records.bytes.Copy();
    records.MoveInLoop(from, to, expected);
    const Guarded<int64_t> sources(from), destinations(to);
    REQUIRE(CopyCacheRecords(ArgsOf(records, sources, destinations), ThreadExecutor(workers)).ok());
    REQUIRE(SameBits(records.bytes.Copy(), expected));
  }
}

TEST_CASE("records of many layers move in one call", "[gather][CA19]") {
  const Guarded<int32_t> from(std::vector<int32_t>{2, 5, 7}), to(std::vector<int32_t>{1, 2, 3});
  const Guarded<int32_t> none(size_t{0});
  for (const size_t workers : kWorkers) {
    CAPTURE(workers);
    std::vector<Records> records;
    records.reserve(kFormats.size());
    std::vector<RecordCopyArgs> layers;
    std::vector<std::vector<std::byte>> expected;
    for (const FormatRow& row : kFormats) {
      records.emplace_back(row.format, WidthOf(row.format), 3, 8);
      expected.push_back(records.back().bytes.Copy());
      const bool is_empty = layers.size() == 2;
      layers.push_back(ArgsOf(records.back(), is_empty ? none : from, is_empty ? none : to));
      if (!is_empty) records.back().MoveInLoop({2, 5, 7}, {1, 2, 3}, expected.back());
    }
    layers[2].cache = {};  // nothing is to be copied there
    REQUIRE(CopyCachesRecords(layers.data(), layers.size(), ThreadExecutor(workers)).ok());
    for (size_t i = 0; i < layers.size(); ++i) {
      REQUIRE(SameBits(records[i].bytes.Copy(), expected[i]));
    }
  }
}

TEST_CASE("A5: records past 2^31 and 2^32 bytes move", "[gather][A5]") {
  constexpr int64_t kWidth = 576, kBlock = 64, kBytes = kWidth * 2;
  constexpr int64_t kNum = (int64_t{1} << 32) / (kBlock * kBytes) + 3;
  SparseMemory memory(static_cast<size_t>(kNum * kBlock * kBytes));
  const Guarded<int64_t> from(std::vector<int64_t>{kNum * kBlock - 1, kNum * kBlock / 2 + 100});
  const Guarded<int64_t> to(std::vector<int64_t>{kNum * kBlock / 2 + 100, 3});
  RecordCopyArgs args;
  args.cache = LatentPages(reinterpret_cast<bfloat16*>(memory.data()), kNum, kBlock, kWidth);
  args.width = kWidth;
  args.src_slots = Packed(static_cast<const int64_t*>(from.data()), 2);
  args.dst_slots = Packed(static_cast<const int64_t*>(to.data()), 2);
  std::memset(memory.data() + from[0] * kBytes, 77, kBytes);
  REQUIRE(CopyCacheRecords(args, ThreadExecutor(2)).ok());
  REQUIRE(std::memcmp(memory.data() + 3 * kBytes, memory.data() + from[0] * kBytes, kBytes) == 0);
}

TEST_CASE("what a record copy refuses", "[gather][validation]") {
  struct Row {
    const char* message;
    void (*break_it)(RecordCopyArgs& args);
  };
  using Args = RecordCopyArgs;
  const Row rows[] = {
      {"invalid argument: width is 0, must be within 1 and 2147483647",
       [](Args& a) { a.width = 0; }},
      {"invalid argument: cache.row_stride is 100, must be at least a record's bytes, 120",
       [](Args& a) { a.width = 30; }},
      {"invalid argument: cache.data must not be null", [](Args& a) { a.cache.data = nullptr; }},
      {"invalid argument: cache.format is kFp8DsMla, must be one for the width in use; this one's "
       "is 576",
       [](Args& a) { a.cache.format = CacheFormat::kFp8DsMla; }},
      {"invalid argument: dst_slots.extent[0] is 1, must be 2",
       [](Args& a) { a.dst_slots.extent[0] = 1; }},
      {"invalid argument: src_slots.data must not be null",
       [](Args& a) { a.src_slots.data = nullptr; }},
      {"invalid argument: dst_slots.data must not be null",
       [](Args& a) { a.dst_slots.data = nullptr; }},
      {"index out of range: src_slots[1] is 7, must be within 0 and cache.num_blocks * "
       "cache.block_size - 1 = 5",
       [](Args& a) { a.cache.num_blocks = 3; }},
      {"index out of range: src_slots[1] is 7, must be within 0 and cache.num_blocks * "
       "cache.block_size - 1 = 6",
       [](Args& a) { a.cache.block_size = 1, a.cache.num_blocks = 7; }},
      {"index out of range: dst_slots[0] is 2, must be below cache.num_blocks * cache.block_size = "
       "2",
       [](Args& a) { a.cache.num_blocks = 1; }},
      {"invalid argument: src_slots must not overlap cache",
       [](Args& a) { a.src_slots.data = a.cache.data + 8; }},
      {"invalid argument: dst_slots must not overlap cache",
       [](Args& a) { a.dst_slots.data = a.cache.data + 8; }},
  };
  const Guarded<int32_t> from(std::vector<int32_t>{3, 7}), to(std::vector<int32_t>{2, 3});
  for (const Row& row : rows) {
    INFO("expected: " << row.message);
    std::vector<float> pages(8 * 25);
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<float>(i);
    const std::vector<float> before = pages;
    RecordCopyArgs args;
    args.cache = LatentPages(pages.data(), 4, 2, 25);
    args.width = 25;
    args.src_slots = Packed(static_cast<const int32_t*>(from.data()), 2);
    args.dst_slots = Packed(static_cast<const int32_t*>(to.data()), 2);
    row.break_it(args);
    const Status status = CopyCacheRecords(args);
    CHECK(std::string(Format(status).c_str()) == row.message);
    REQUIRE_FALSE(status.ok());
    REQUIRE(SameBits(pages, before));
  }
  std::vector<float> pages(8 * 25);
  RecordCopyArgs args;
  args.cache = LatentPages(pages.data(), 4, 2, 25);
  args.width = 25;
  args.src_slots = Packed(static_cast<const int32_t*>(from.data()), 2);
  args.dst_slots = Packed(static_cast<const int32_t*>(to.data()), 2);
  Executor executor;
  executor.run = nullptr;
  REQUIRE(std::string(Format(CopyCacheRecords(args, executor)).c_str()) ==
          "invalid argument: executor.run must not be null");
  // A list in another layer's cache.
  std::vector<float> others(8 * 25);
  RecordCopyArgs layers[2] = {args, args};
  layers[1].cache = LatentPages(others.data(), 4, 2, 25);
  layers[0].src_slots.data = others.data();
  REQUIRE(std::string(Format(CopyCachesRecords(layers, 2)).c_str()) ==
          "invalid argument: src_slots must not overlap cache");
  REQUIRE(std::string(Format(CopyCachesRecords(nullptr, 1)).c_str()) ==
          "invalid argument: layers must not be null");
  REQUIRE(CopyCachesRecords(nullptr, 0).ok());
}

}  // namespace
}  // namespace lathe::test
