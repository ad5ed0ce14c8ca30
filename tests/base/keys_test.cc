// SPDX-License-Identifier: Apache-2.0
// Paged caches and key sets: strides in bytes, const and all, and when there is an index list.
#include "lathe/base/keys.h"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <type_traits>

#include "lathe/base/lse.h"
#include "lathe/cache/formats.h"

namespace lathe::test {
namespace {

TEMPLATE_TEST_CASE("LatentPages are dense, with strides in bytes", "[keys]", float, float16,
                   bfloat16) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(TestType));
  TestType data[1] = {};
  const auto dense = LatentPages(data, 7, 3, 10);
  REQUIRE(dense.data == reinterpret_cast<std::byte*>(data));
  REQUIRE((dense.num_blocks == 7 && dense.block_size == 3));
  REQUIRE((dense.row_stride == 10 * kBytes && dense.block_stride == 30 * kBytes));
}

TEST_CASE("LatentPages passes 2^32", "[keys]") {
  float* const nowhere = nullptr;
  const auto cache = LatentPages(nowhere, 1, int64_t{1} << 24, 576);
  REQUIRE(cache.block_stride == (int64_t{576} << 24) * 4);
}

TEST_CASE("LatentPages knows the format of its elements", "[keys]") {
  REQUIRE(LatentPages(static_cast<float*>(nullptr), 1, 1, 1).format == CacheFormat::kLatentFloat32);
  REQUIRE(LatentPages(static_cast<float16*>(nullptr), 1, 1, 1).format ==
          CacheFormat::kLatentFloat16);
  REQUIRE(LatentPages(static_cast<bfloat16*>(nullptr), 1, 1, 1).format ==
          CacheFormat::kLatentBFloat16);
}

TEST_CASE("a cache of const elements is read-only, a mutable one converts to it", "[keys]") {
  float data[4] = {};
  const float* const_data = data;
  STATIC_REQUIRE(std::is_same_v<decltype(LatentPages(data, 1, 1, 1)), MutablePagedCache>);
  STATIC_REQUIRE(std::is_same_v<decltype(LatentPages(const_data, 1, 1, 1)), PagedCache>);
  STATIC_REQUIRE(std::is_convertible_v<MutablePagedCache, PagedCache>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<PagedCache, MutablePagedCache>);
  const PagedCache cache = LatentPages(data, 2, 1, 2);
  REQUIRE(cache.data == reinterpret_cast<const std::byte*>(data));
  REQUIRE((cache.num_blocks == 2 && cache.block_size == 1 && cache.row_stride == 8));
  REQUIRE((cache.block_stride == 8 && cache.format == CacheFormat::kLatentFloat32));
}

TEST_CASE("records lie in rows of pages, their second parts behind all records of a page",
          "[keys]") {
  std::byte memory[1] = {};
  PagedCache cache;
  cache.data = memory;
  cache.block_size = 64;
  cache.block_stride = int64_t{1} << 33;
  cache.row_stride = 132;
  REQUIRE(cache.RecordAt(0, 0) == memory);
  REQUIRE(cache.RecordAt(3, 5) - memory == (int64_t{3} << 33) + 5 * 132);
  REQUIRE(cache.SideAt(3, 5, 8) - memory == (int64_t{3} << 33) + 64 * 132 + 5 * 8);
}

TEST_CASE("a key set has indices when a list is given, also one of no entries", "[keys]") {
  KeySet keys;
  REQUIRE_FALSE(keys.has_indices());
  keys.indices.extent[0] = 3;  // three rows of no entries: data may be null
  REQUIRE(keys.has_indices());
  const int32_t entries[4] = {};
  keys.indices = Packed(entries, 2, 2);
  REQUIRE(keys.has_indices());
  keys.indices = Packed(entries, 0, 2);
  REQUIRE(keys.has_indices());
  REQUIRE(keys.index_space == IndexSpace::kLogical);
  REQUIRE(keys.window == kNoWindow);
}

TEST_CASE("format numbers are stable, unknown ones have no record", "[keys]") {
  STATIC_REQUIRE(static_cast<int>(CacheFormat::kLatentFloat32) == 0);
  STATIC_REQUIRE(static_cast<int>(CacheFormat::kLatentFloat16) == 1);
  STATIC_REQUIRE(static_cast<int>(CacheFormat::kLatentBFloat16) == 2);
  STATIC_REQUIRE(RecordBytes(CacheFormat::kLatentFloat32, 576) == 2304);
  STATIC_REQUIRE(RecordBytes(CacheFormat::kLatentFloat16, 576) == 1152);
  STATIC_REQUIRE(RecordBytes(CacheFormat::kLatentBFloat16, 577) == 1154);
  STATIC_REQUIRE(RecordAlignment(CacheFormat::kLatentFloat32) == 4);
  STATIC_REQUIRE(RecordAlignment(CacheFormat::kLatentFloat16) == 2);
  STATIC_REQUIRE(RecordBytes(static_cast<CacheFormat>(99), 576) == 0);
  STATIC_REQUIRE(RecordAlignment(static_cast<CacheFormat>(99)) == 0);
}

TEST_CASE("lse is natural and -inf where nothing is seen unless said otherwise", "[keys]") {
  STATIC_REQUIRE_FALSE(LsePolicy{}.base2);
  STATIC_REQUIRE(LsePolicy{}.empty == -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace lathe::test
