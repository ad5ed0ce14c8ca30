// SPDX-License-Identifier: Apache-2.0
// Index lists: logical and physical, holes anywhere, any order, duplicates, lengths of their own.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "mla_decode/shapes.h"
#include "support/mla_problem.h"

namespace lathe::test {
namespace {

// [T, K] entries in memory that ends with the last one.
template <class Index>
struct IndexList {
  IndexList(int64_t num_rows, int64_t length)
      : entries(static_cast<size_t>(num_rows * length)), k(length) {}
  Index& operator()(int64_t row, int64_t i) { return entries[static_cast<size_t>(row * k + i)]; }
  View<const Index, 2> view() const {
    return Packed(entries.data(), k == 0 ? 0 : static_cast<int64_t>(entries.size()) / k, k);
  }
  Guarded<Index> entries;
  int64_t k;
};

TEMPLATE_TEST_CASE("invalid entries are skipped, wherever they are", "[mla_decode][A3]", float,
                   float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const int32_t filler = GENERATE(-1, 64, 2147480000, std::numeric_limits<int32_t>::min());
  const size_t place = GENERATE(0, 1, 2);
  const bool physical = GENERATE(false, true);
  CAPTURE(Name(target), filler, place, physical);
  const std::vector<int32_t> lists[] = {
      {filler, filler, 3, 7}, {3, 7, filler, filler}, {3, filler, filler, 7}};

  // 64 slots in four pages, poisoned but for two; where the list is logical, all are within the
  // length.
  MlaProblem<TestType> problem({{3, 512, 64}, {64}, {}, 16});
  problem.options.target = target;
  problem.cache.Poison();
  std::iota(problem.block_table.begin(), problem.block_table.end(), 0);
  problem.args.keys.cache.num_blocks = 4;
  problem.SetSlot(3, 0.0f, 4.0f);
  problem.SetSlot(7, 0.0f, 8.0f);
  problem.SetQuery(1.0f);
  const Guarded<int32_t> indices(lists[place]);
  problem.args.keys.indices = Packed(indices.data(), 1, 4);
  problem.args.keys.index_space = physical ? IndexSpace::kPhysical : IndexSpace::kLogical;
  problem.Run();
  for (int64_t h = 0; h < 3; ++h) problem.RequireKnownRow(0, h, 6.0, 0.693147);
}

TEMPLATE_TEST_CASE("a masked front does not matter", "[mla_decode][A10]", float, float16,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<TestType> problem({{3, 512, 64}, {200}});
  problem.options.target = target;
  problem.SetQuery(1.0f);

  SECTION("one valid entry after many invalid ones") {
    problem.SetRow(0, 9, 2.0f, 5.0f);
    const int64_t n = GENERATE(1, 15, 16, 17, 63, 64, 128, 511);
    CAPTURE(n);
    IndexList<int32_t> list(1, n + 1);
    for (int64_t i = 0; i < n; ++i) list(0, i) = -1;
    list(0, n) = 9;
    problem.args.keys.indices = list.view();
    problem.Run();
    for (int64_t h = 0; h < 3; ++h) problem.RequireKnownRow(0, h, 5.0, 2.0);
  }
  SECTION("a masked chunk between two valid ones") {
    for (int64_t i = 0; i < 200; ++i) problem.SetRow(0, i, 2.0f, i < 100 ? 4.0f : 6.0f);
    IndexList<int32_t> list(1, 600);
    for (int64_t i = 0; i < 600; ++i) list(0, i) = -1;
    for (int i = 0; i < 100; ++i) {
      list(0, i) = i;
      list(0, 500 + i) = 100 + i;
    }
    problem.args.keys.indices = list.view();
    problem.Run();
    for (int64_t h = 0; h < 3; ++h) problem.RequireKnownRow(0, h, 5.0, 2.0 + std::log(200.0));
  }
}

// Shuffled, with holes, duplicates and entries past the row's keys.
template <class Index>
void FillRandom(IndexList<Index>& list, int64_t num_rows, int64_t limit, uint64_t seed) {
  Random random(seed);
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t i = 0; i < list.k; ++i) {
      const int64_t kind = random.Below(8);
      int64_t entry = random.Below(limit);
      if (kind == 0) entry = -1 - random.Below(1000);
      if (kind == 1) entry = limit + random.Below(1000);
      if (kind == 2 && i > 0) entry = static_cast<int64_t>(list(row, i - 1));
      list(row, i) = static_cast<Index>(entry);
    }
  }
}

TEMPLATE_TEST_CASE("logical lists equal the reference", "[mla_decode]", float, float16, bfloat16) {
  const int64_t k = GENERATE(1, 2, 3, 127, 128, 129, 700);
  const int64_t block_size = GENERATE(from_range(kBlockSizes));
  CAPTURE(k, block_size);
  // Causality limits the rows of a sequence apart.
  MlaProblem<TestType> problem({{5, 512, 64}, {300, 7, 0, 64}, {2, 3, 1, 1}, block_size});
  IndexList<int64_t> list(problem.num_tokens(), k);
  FillRandom(list, problem.num_tokens(), 310, 5);
  problem.args.keys.indices = list.view();
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("physical lists equal the reference", "[mla_decode]", float, float16, bfloat16) {
  const int64_t block_size = GENERATE(1, 61, 64);
  CAPTURE(block_size);
  MlaCase c{{16, 512, 64}, {300, 200, 64}, {2, 1, 1}, block_size};
  c.row_gap = 5;
  c.page_gap = 7;
  MlaProblem<TestType> problem(c);
  IndexList<int32_t> list(problem.num_tokens(), 400);
  Random random(3);
  for (int64_t row = 0; row < problem.num_tokens(); ++row) {
    for (int64_t i = 0; i < list.k; ++i) {
      const int64_t seq = random.Below(3);
      const bool hole = random.Below(5) == 0;
      list(row, i) = static_cast<int32_t>(
          hole ? problem.num_blocks() * block_size + random.Below(9)
               : problem.Slot(seq,
                              random.Below(problem.the_case().seq_lens[static_cast<size_t>(seq)])));
    }
  }
  problem.args.keys.indices = list.view();
  problem.args.keys.index_space = IndexSpace::kPhysical;
  // Physical slots need neither table nor lengths; the list is the whole truth.
  problem.args.keys.block_table = {};
  problem.args.keys.seq_lens = {};
  problem.args.query_start_loc = {};
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("a list ends where its row says", "[mla_decode]", float, bfloat16) {
  MlaProblem<TestType> problem({{9, 512, 64}, {300, 130}, {3, 3}});
  IndexList<int32_t> list(6, 300);
  FillRandom(list, 6, 300, 11);
  const Guarded<int32_t> lengths(std::vector<int32_t>{0, 1, 127, 128, 129, 300});
  // Past the lengths: entries that would be valid, and poisoned.
  problem.args.keys.indices = list.view();
  problem.args.keys.topk_length = Packed(lengths.data(), 6);
  problem.CheckEveryTarget();
  const MlaResult<float> before = problem.Result();
  for (int64_t row = 0; row < 6; ++row) {
    for (int64_t i = lengths[static_cast<size_t>(row)]; i < list.k; ++i) list(row, i) = 0x7FFFFFFF;
  }
  problem.Run();
  REQUIRE(SameBits(before, problem.Result()));
  for (int64_t h = 0; h < 9; ++h) problem.RequireEmptyRow(0, h);
}

TEST_CASE("rows of a list may lie apart", "[mla_decode]") {
  MlaProblem<bfloat16> problem({{4, 512, 64}, {100}, {3}});
  IndexList<int32_t> wide(3, 64);
  FillRandom(wide, 3, 100, 2);
  View<const int32_t, 2> half = wide.view();
  half.extent[1] = 32;
  problem.args.keys.indices = half;
  problem.CheckEveryTarget();
}

TEST_CASE("a list of no entries sees nothing, and may have no data", "[mla_decode]") {
  const Target target = LATHE_GENERATE_TARGET();
  const IndexSpace space = GENERATE(IndexSpace::kLogical, IndexSpace::kPhysical);
  CAPTURE(Name(target));
  MlaProblem<bfloat16> problem({{4, 512, 64}, {100}, {2}});
  problem.options.target = target;
  problem.args.keys.indices.extent[0] = 2;
  problem.args.keys.index_space = space;
  problem.Run();
  for (int64_t token = 0; token < 2; ++token) {
    for (int64_t h = 0; h < 4; ++h) problem.RequireEmptyRow(token, h);
  }
}

TEMPLATE_TEST_CASE("a full ascending list gives the bits of the dense call", "[mla_decode]", float,
                   float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t len = GENERATE(1, 64, 129, 1025, 3000);
  const IndexSpace space = GENERATE(IndexSpace::kLogical, IndexSpace::kPhysical);
  CAPTURE(Name(target), len);
  MlaProblem<TestType> problem({{20, 512, 64}, {len}});
  problem.options.target = target;
  problem.RunOnThreads(3);
  const MlaResult<float> dense = problem.Result();
  IndexList<int32_t> list(1, len);
  for (int64_t i = 0; i < len; ++i) {
    list(0, i) = static_cast<int32_t>(space == IndexSpace::kLogical ? i : problem.Slot(0, i));
  }
  problem.args.keys.indices = list.view();
  problem.args.keys.index_space = space;
  problem.RunOnThreads(3);
  REQUIRE(SameBits(problem.Result(), dense));
}

}  // namespace
}  // namespace lathe::test
