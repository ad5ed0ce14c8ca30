// SPDX-License-Identifier: Apache-2.0
// The metadata helpers through C: the numbers of C++.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "capi/mirror.h"

namespace lathe::test {
namespace {

TEST_CASE("lengths and positions through C are those of C++", "[capi]") {
  const int64_t ratio = GENERATE(1, 4, 128), window = GENERATE(3, 128);
  CAPTURE(ratio, window);
  for (int64_t p = 0; p < 300; ++p) {
    CAPTURE(p);
    REQUIRE(lathe_num_compressed(p, ratio) == NumCompressed(p, ratio));
    REQUIRE(lathe_compressed_length(p, ratio) == CompressedLength(p, ratio));
    REQUIRE((lathe_is_boundary(p, ratio) == 1) == IsBoundary(p, ratio));
    REQUIRE(lathe_num_boundaries(p, 7, ratio) == NumBoundaries(p, 7, ratio));
    REQUIRE(lathe_compressed_position(p, ratio) == CompressedPosition(p, ratio));
    REQUIRE(lathe_window_begin(p, window) == WindowBegin(p, window));
    REQUIRE(lathe_window_length(p, window) == WindowLength(p, window));
    REQUIRE(lathe_window_gather_length(p, 5, window) == WindowGatherLength(p, 5, window));
    REQUIRE(lathe_row_position(p, 5, 2) == RowPosition(p, 5, 2));
    REQUIRE(lathe_row_keys(p, 5, 2) == RowKeys(p, 5, 2));
    REQUIRE(lathe_row_compressed_keys(p, 5, 2, ratio) == RowCompressedKeys(p, 5, 2, ratio));
  }
}

TEST_CASE("slots through C are those of C++", "[capi]") {
  const std::vector<int32_t> pages = {9, 9, 9, 4, -1, 7};
  const IndexView<2> table = Packed(pages.data(), 2, 3);
  lathe_tensor c = Mirror(table);
  for (int64_t p = 0; p < 40; ++p) {
    CAPTURE(p);
    REQUIRE(lathe_block_table_slot(&c, 1, p, 4) == BlockTableSlot(table, 1, p, 4));
    REQUIRE(lathe_compressed_slot(&c, 1, p, 2, 4) == CompressedSlot(table, 1, p, 2, 4));
  }
  REQUIRE(lathe_block_table_slot(&c, 1, 1, 4) == 17);
  REQUIRE(lathe_block_table_slot(nullptr, 1, 1, 4) == -1);
  c.dtype = LATHE_DTYPE_FLOAT32;
  REQUIRE(lathe_block_table_slot(&c, 1, 1, 4) == -1);
  c.rank = 0;
  REQUIRE(lathe_compressed_slot(&c, 1, 1, 2, 4) == -1);
}

TEST_CASE("shards through C are those of C++", "[capi]") {
  const int64_t world = GENERATE(1, 3), interleave = GENERATE(1, 16);
  CAPTURE(world, interleave);
  for (int64_t rank = 0; rank < world; ++rank) {
    const ContextShard shard{world, rank, interleave};
    auto c = Sized<lathe_context_shard>();
    c.world = world;
    c.rank = rank;
    c.interleave = interleave;
    for (int64_t p = 0; p < 200; ++p) {
      CAPTURE(rank, p);
      REQUIRE((lathe_owns_position(&c, p) == 1) == OwnsPosition(shard, p));
      REQUIRE(lathe_local_length(&c, p) == LocalLength(shard, p));
      REQUIRE(lathe_local_position(&c, p) == LocalPosition(shard, p));
      REQUIRE(lathe_global_position(&c, p) == GlobalPosition(shard, p));
    }
  }
}

TEST_CASE("a null shard of C is a world of one, one of no size is none", "[capi]") {
  REQUIRE(lathe_owns_position(nullptr, 5) == 1);
  REQUIRE(lathe_local_length(nullptr, 5) == 5);
  REQUIRE(lathe_local_position(nullptr, 5) == 5);
  REQUIRE(lathe_global_position(nullptr, 5) == 5);
  const auto zero = Sized<lathe_context_shard>();
  REQUIRE(lathe_local_length(&zero, 5) == 5);
  const lathe_context_shard none{};
  REQUIRE(lathe_owns_position(&none, 5) == 0);
  REQUIRE(lathe_local_length(&none, 5) == -1);
  REQUIRE(lathe_local_position(&none, 5) == -1);
  REQUIRE(lathe_global_position(&none, 5) == -1);
}

}  // namespace
}  // namespace lathe::test
