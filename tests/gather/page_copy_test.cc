// SPDX-License-Identifier: Apache-2.0
// Copies of whole pages against a loop of memmove, byte for byte.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "lathe/latent_cache.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

// `num_blocks` pages of random bytes that end before an unmapped page.
struct Pages {
  Pages(int64_t n, int64_t page, int64_t gap, uint64_t seed)
      : num_blocks(n), stride(page + gap), bytes(static_cast<size_t>((n - 1) * stride + page)) {
    Random random(seed);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.Next() >> 40);
  }
  int64_t num_blocks, stride;
  Guarded<std::byte> bytes;
};

template <class Index>
PageCopyArgs ArgsOf(const Pages& source, Pages& destination, int64_t page_bytes,
                    const Guarded<Index>& pairs) {
  PageCopyArgs args;
  args.source = source.bytes.data();
  args.num_source_blocks = source.num_blocks;
  args.source_stride = source.stride;
  args.destination = destination.bytes.data();
  args.num_destination_blocks = destination.num_blocks;
  args.destination_stride = destination.stride;
  args.page_bytes = page_bytes;
  args.block_pairs = Packed(pairs.data(), pairs.size() / 2, 2);
  return args;
}

// `source` and `destination` may be one.
void CopyInLoop(const PageCopyArgs& args, const std::vector<std::byte>& source,
                std::vector<std::byte>& destination) {
  for (int64_t i = 0; i < args.block_pairs.extent[0]; ++i) {
    std::memmove(destination.data() + args.block_pairs(i, 1) * args.destination_stride,
                 source.data() + args.block_pairs(i, 0) * args.source_stride,
                 static_cast<size_t>(args.page_bytes));
  }
}

constexpr size_t kWorkers[] = {1, 2, 5};

TEST_CASE("pages are copied from one cache into another", "[gather]") {
  const int64_t page = GENERATE(1, 3, 656, 4095, 4097, 37376, 100000);
  const int64_t gap = GENERATE(0, 5);
  CAPTURE(page, gap);
  const Pages source(6, page, gap, 1);
  const Guarded<int32_t> pairs(std::vector<int32_t>{5, 0, 0, 3, 0, 1, 2, 3});
  for (const size_t workers : kWorkers) {
    CAPTURE(workers);
    Pages destination(4, page, 2 * gap, 2);
    std::vector<std::byte> expected = destination.bytes.Copy();
    const PageCopyArgs args = ArgsOf(source, destination, page, pairs);
    CopyInLoop(args, source.bytes.Copy(), expected);
    REQUIRE(CopyCachePages(args, ThreadExecutor(workers)).ok());
    REQUIRE(SameBits(destination.bytes.Copy(), expected));
    REQUIRE(destination.bytes.IsFrontIntact());
  }
}

TEST_CASE("inside a cache, a pair sees what those before it wrote", "[gather]") {
  const int64_t page = GENERATE(1, 656, 9000, 70000);
  CAPTURE(page);
  // A chain, a page onto itself, a swap with the help of a third.
  const Guarded<int64_t> pairs(
      std::vector<int64_t>{0, 1, 1, 2, 2, 3, 4, 4, 5, 7, 6, 5, 7, 6, 3, 0});
  for (const size_t workers : kWorkers) {
    CAPTURE(workers);
    Pages pages(8, page, 64, 3);
    std::vector<std::byte> expected = pages.bytes.Copy();
    const PageCopyArgs args = ArgsOf(pages, pages, page, pairs);
    CopyInLoop(args, expected, expected);
    REQUIRE(CopyCachePages(args, ThreadExecutor(workers)).ok());
    REQUIRE(SameBits(pages.bytes.Copy(), expected));
  }
}

TEST_CASE("pages of many layers in one call", "[gather]") {
  const int64_t page_bytes[] = {1, 8192, 584, 50000};
  const Guarded<int32_t> some(std::vector<int32_t>{1, 0, 0, 2}), none(size_t{0});
  for (const size_t workers : kWorkers) {
    CAPTURE(workers);
    std::vector<Pages> pages;
    std::vector<std::vector<std::byte>> expected;
    for (const int64_t bytes : page_bytes) pages.emplace_back(3, bytes, 8, 4);
    std::vector<PageCopyArgs> layers;
    for (size_t i = 0; i < 4; ++i) {
      layers.push_back(ArgsOf(pages[i], pages[i], page_bytes[i], i == 1 ? none : some));
      expected.push_back(pages[i].bytes.Copy());
      CopyInLoop(layers[i], expected[i], expected[i]);
    }
    REQUIRE(CopyCachesPages(layers.data(), 4, ThreadExecutor(workers)).ok());
    for (size_t i = 0; i < 4; ++i) REQUIRE(SameBits(pages[i].bytes.Copy(), expected[i]));
  }
}

TEST_CASE("A5: pages past 2^31 and 2^32 bytes are copied", "[gather][A5]") {
  constexpr int64_t kPage = 42000, kNum = 102300;
  SparseMemory memory(static_cast<size_t>(kPage * kNum));
  const Guarded<int32_t> pairs(std::vector<int32_t>{51131, 102299, 102298, 3});
  PageCopyArgs args;
  args.source = args.destination = memory.data();
  args.num_source_blocks = args.num_destination_blocks = kNum;
  args.source_stride = args.destination_stride = args.page_bytes = kPage;
  args.block_pairs = Packed(pairs.data(), 2, 2);
  for (const int64_t block : {51131, 102298}) {
    std::memset(memory.data() + block * kPage, static_cast<int>(block % 199), kPage);
  }
  REQUIRE(CopyCachePages(args, ThreadExecutor(2)).ok());
  REQUIRE(std::memcmp(memory.data() + 51131 * kPage, memory.data() + 102299 * kPage, kPage) == 0);
  REQUIRE(std::memcmp(memory.data() + 102298 * kPage, memory.data() + 3 * kPage, kPage) == 0);
}

TEST_CASE("what a page copy refuses", "[gather][validation]") {
  struct Row {
    const char* message;
    void (*break_it)(PageCopyArgs& args);
  };
  using Args = PageCopyArgs;
  const Row rows[] = {
      {"invalid argument: page_bytes is 0, must be within 1 and 4611686018427387903",
       [](Args& a) { a.page_bytes = 0; }},
      {"invalid argument: source must not be null", [](Args& a) { a.source = nullptr; }},
      {"invalid argument: destination must not be null", [](Args& a) { a.destination = nullptr; }},
      {"invalid argument: num_source_blocks is -1, must be at least 0",
       [](Args& a) { a.num_source_blocks = -1; }},
      {"invalid argument: source_stride is 99, must be at least page_bytes = 100",
       [](Args& a) { a.source_stride = 99; }},
      {"invalid argument: destination_stride is -100, must be at least page_bytes = 100",
       [](Args& a) { a.destination_stride = -100; }},
      {"invalid argument: destination_stride is 4611686018427387903, must not lead beyond the "
       "address space with 3",
       [](Args& a) { a.destination_stride = PTRDIFF_MAX / 2; }},
      {"invalid argument: block_pairs.extent[1] is 3, must be 2",
       [](Args& a) { a.block_pairs.extent[1] = 3; }},
      {"invalid argument: block_pairs.data must not be null",
       [](Args& a) { a.block_pairs.data = nullptr; }},
      {"index out of range: block_pairs[2] is 2, must be within 0 and num_source_blocks - 1 = 1",
       [](Args& a) { a.num_source_blocks = 2; }},
      {"index out of range: block_pairs[3] is 1, must be within 0 and num_destination_blocks - 1 "
       "= 0",
       [](Args& a) { a.num_destination_blocks = 1; }},
      {"invalid argument: source must not overlap destination, or be the same pages",
       [](Args& a) { a.source = a.destination + 1; }},
      {"invalid argument: block_pairs must not overlap destination",
       [](Args& a) { a.block_pairs.data = a.destination; }},
  };
  const Guarded<int32_t> pairs(std::vector<int32_t>{0, 0, 2, 1});
  const Pages source(3, 100, 0, 1);
  for (const Row& row : rows) {
    INFO("expected: " << row.message);
    Pages destination(3, 100, 0, 2);
    const std::vector<std::byte> before = destination.bytes.Copy();
    PageCopyArgs args = ArgsOf(source, destination, 100, pairs);
    row.break_it(args);
    const Status status = CopyCachePages(args);
    REQUIRE_FALSE(status.ok());
    REQUIRE(std::string(Format(status).c_str()) == row.message);
    REQUIRE(SameBits(destination.bytes.Copy(), before));
  }
  Pages destination(3, 100, 0, 2);
  const PageCopyArgs args = ArgsOf(source, destination, 100, pairs);
  Executor executor;
  executor.run = nullptr;
  REQUIRE(std::string(Format(CopyCachePages(args, executor)).c_str()) ==
          "invalid argument: executor.run must not be null");
  REQUIRE(std::string(Format(CopyCachesPages(nullptr, 1)).c_str()) ==
          "invalid argument: layers must not be null");
  REQUIRE(CopyCachesPages(nullptr, 0).ok());
}

}  // namespace
}  // namespace lathe::test
