// SPDX-License-Identifier: Apache-2.0
// The metadata helpers against lists: every token and entry written down, then counted.
#include "lathe/v4_metadata.h"

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <vector>

namespace lathe::test {
namespace {

constexpr int64_t kPositions = 600;

TEST_CASE("compressed entries are counted as they are completed", "[v4_metadata]") {
  const int64_t ratio = GENERATE(1, 2, 3, 4, 5, 128);
  CAPTURE(ratio);
  int64_t complete = 0, tokens_of_entry = 0;
  for (int64_t position = 0; position <= kPositions; ++position) {
    CAPTURE(position);
    REQUIRE(CompressedPosition(position, ratio) == position - tokens_of_entry);
    ++tokens_of_entry;
    REQUIRE(IsBoundary(position, ratio) == (tokens_of_entry == ratio));
    if (tokens_of_entry == ratio) {
      REQUIRE(position / ratio == complete);
      ++complete;
      tokens_of_entry = 0;
    }
    REQUIRE(CompressedLength(position, ratio) == complete);
    REQUIRE(NumCompressed(position + 1, ratio) == complete);
  }
  for (int64_t first = 0; first < 300; first += 7) {
    int64_t boundaries = 0;
    for (int64_t count = 0; count < 300; ++count) {
      REQUIRE(NumBoundaries(first, count, ratio) == boundaries);
      boundaries += IsBoundary(first + count, ratio) ? 1 : 0;
    }
  }
}

TEST_CASE("a window is the last keys up to the query's own", "[v4_metadata]") {
  const int64_t window = GENERATE(1, 2, 3, 127, 128, 129, 1000);
  CAPTURE(window);
  std::vector<int64_t> keys;
  for (int64_t position = 0; position <= kPositions; ++position) {
    CAPTURE(position);
    keys.push_back(position);
    if (static_cast<int64_t>(keys.size()) > window) keys.erase(keys.begin());
    REQUIRE(WindowBegin(position, window) == keys.front());
    REQUIRE(WindowLength(position, window) == static_cast<int64_t>(keys.size()));
  }
  for (int64_t prefix = 0; prefix < 300; ++prefix) {
    for (int64_t q_len = 1; q_len < 300; q_len += 13) {
      const int64_t first = WindowBegin(prefix, window);
      REQUIRE(WindowGatherLength(prefix, q_len, window) == prefix + q_len - first);
    }
  }
}

TEST_CASE("rows see the keys before them, and entries complete by then", "[v4_metadata]") {
  const int64_t ratio = GENERATE(1, 4, 128);
  for (const int64_t seq_len : {0, 1, 3, 4, 130, 600}) {
    for (const int64_t q_len : {1, 2, 5, 300}) {
      for (int64_t i = 0; i < q_len; ++i) {
        CAPTURE(ratio, seq_len, q_len, i);
        // The rows of a sequence end together with its keys; those that stick out in front see nothing.
        const int64_t after = q_len - 1 - i;
        const int64_t keys = after < seq_len ? seq_len - after : 0;
        REQUIRE(RowKeys(seq_len, q_len, i) == keys);
        int64_t entries = 0;
        while ((entries + 1) * ratio <= keys) ++entries;
        REQUIRE(RowCompressedKeys(seq_len, q_len, i, ratio) == entries);
        if (keys > 0) REQUIRE(RowPosition(seq_len, q_len, i) == keys - 1);
      }
    }
  }
}

TEST_CASE("slots follow the block table, whose columns may be a ring", "[v4_metadata]") {
  const int64_t block_size = GENERATE(1, 3, 64);
  const int64_t columns = GENERATE(1, 2, 7);
  CAPTURE(block_size, columns);
  std::vector<int32_t> pages(static_cast<size_t>(2 * columns));
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(1000 - 3 * i);
  const IndexView<2> table(View<const int32_t, 2>(Packed(pages.data(), 2, columns)));
  for (int64_t row = 0; row < 2; ++row) {
    int64_t column = 0, offset = 0;
    for (int64_t index = 0; index <= kPositions; ++index) {
      const int64_t page = pages[static_cast<size_t>(row * columns + column)];
      const int64_t slot = page * block_size + offset;
      REQUIRE(BlockTableSlot(table, row, index, block_size) == slot);
      for (const int64_t ratio : {1, 4, 128}) {
        for (int64_t inside = 0; inside < ratio; ++inside) {
          REQUIRE(CompressedSlot(table, row, index * ratio + inside, ratio, block_size) ==
                  (inside == ratio - 1 ? slot : -1));
        }
      }
      if (++offset == block_size) {
        offset = 0;
        column = column + 1 == columns ? 0 : column + 1;
      }
    }
  }
  pages[0] = -1;
  REQUIRE(BlockTableSlot(table, 0, 0, block_size) == -1);
}

TEST_CASE("slots beyond 2^31 are right", "[v4_metadata]") {
  const int32_t page = 2'000'000'000;
  const IndexView<2> table(View<const int32_t, 2>(Packed(&page, 1, 1)));
  REQUIRE(BlockTableSlot(table, 0, 63, 64) == int64_t{2'000'000'000} * 64 + 63);
}

TEST_CASE("ranks deal tokens out among themselves", "[v4_metadata]") {
  const int64_t world = GENERATE(1, 2, 3, 8);
  const int64_t interleave = GENERATE(1, 2, 5, 64);
  CAPTURE(world, interleave);
  std::map<int64_t, std::vector<int64_t>> tokens_of;
  int64_t rank = 0, in_turn = 0;
  for (int64_t position = 0; position <= kPositions; ++position) {
    CAPTURE(position);
    for (int64_t r = 0; r < world; ++r) {
      const ContextShard shard{world, r, interleave};
      REQUIRE(LocalLength(shard, position) == static_cast<int64_t>(tokens_of[r].size()));
      REQUIRE(OwnsPosition(shard, position) == (r == rank));
    }
    const ContextShard owner{world, rank, interleave};
    const auto local = static_cast<int64_t>(tokens_of[rank].size());
    REQUIRE(LocalPosition(owner, position) == local);
    REQUIRE(GlobalPosition(owner, local) == position);
    tokens_of[rank].push_back(position);
    if (++in_turn == interleave) {
      in_turn = 0;
      rank = (rank + 1) % world;
    }
  }
}

static_assert(CompressedLength(2, 4) == 0 && CompressedLength(3, 4) == 1);
static_assert(CompressedLength(126, 128) == 0 && CompressedLength(127, 128) == 1);
static_assert(WindowBegin(5, 3) == 3 && WindowLength(5, 3) == 3);
static_assert(LocalLength({4, 3, 2}, 6) == 0 && LocalLength({4, 3, 2}, 8) == 2);

}  // namespace
}  // namespace lathe::test
