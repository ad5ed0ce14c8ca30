// SPDX-License-Identifier: Apache-2.0
// Where records and tables may lie: gaps, interleaved pages, bad alignment, huge offsets, tight
// ends.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "mla_decode/shapes.h"
#include "support/mla_problem.h"
#include "support/strided.h"

namespace lathe::test {
namespace {

TEMPLATE_TEST_CASE("records may lie apart, pages interleaved", "[mla_decode]", float, float16,
                   bfloat16) {
  MlaCase c{{16, 512, 64}, {200, 5, 64}};
  const ref::AttentionResult reference = MlaProblem<TestType>(c).Reference();
  c.block_size = GENERATE(from_range(kBlockSizes));
  c.interleaves_pages = GENERATE(false, true);
  // Odd gaps leave 16-bit records on any multiple of two bytes, float ones on any of four.
  c.row_gap = GENERATE(0, 1, 64);
  c.page_gap = c.row_gap == 64 ? 0 : 3;
  CAPTURE(c.block_size, c.interleaves_pages, c.row_gap, c.page_gap);
  MlaProblem<TestType>(c).CheckEveryTarget(reference);
}

TEMPLATE_TEST_CASE("narrow records may lie apart too", "[mla_decode]", float, float16, bfloat16) {
  MlaCase c{{5, 100, 7}, {200, 5, 64}, {}, 16};
  c.row_gap = GENERATE(0, 1, 6);
  c.page_gap = 1;
  MlaProblem<TestType>(c).CheckEveryTarget();
}

TEMPLATE_TEST_CASE("tables and lengths may be of 64 bits, and strided", "[mla_decode]", int32_t,
                   int64_t) {
  MlaProblem<bfloat16> problem({{4, 512, 64}, {200, 5, 64}, {2, 1, 3}, 16});
  const KeySet& keys = problem.args.keys;
  const int64_t columns = keys.block_table.extent[1];
  const Guarded<int32_t> counts(std::vector<int32_t>{200, 130, 5, 64, 64, 1});
  Strided<TestType, 2> table({3, columns}, {1, 4}, problem.block_table);
  Strided<TestType, 1> lengths({3}, {3}, problem.seq_lens);
  Strided<TestType, 1> starts({4}, {2}, problem.query_start_loc);
  Strided<TestType, 1> row_counts({6}, {5}, counts);
  problem.args.keys.block_table = table.view();
  problem.args.keys.seq_lens = lengths.view();
  problem.args.query_start_loc = starts.view();
  SECTION("causal") { problem.CheckEveryTarget(); }
  SECTION("with counts of each row") {
    problem.args.keys.row_kv_lens = row_counts.view();
    problem.CheckEveryTarget();
  }
}

TEMPLATE_TEST_CASE("tables and caches may end at their last entry", "[mla_decode][A6]", float,
                   float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t len = GENERATE(65, 128);
  CAPTURE(Name(target), len);
  MlaCase c{{16, 512, 64}, {len}};
  c.min_table_columns = 40;
  c.spare_pages = 5;
  MlaProblem<TestType> roomy(c);
  c.min_table_columns = 1;
  c.spare_pages = 0;
  MlaProblem<TestType> tight(c);
  REQUIRE(tight.args.keys.block_table.extent[1] == 2);
  for (auto* problem : {&roomy, &tight}) {
    problem->options.target = target;
    problem->RunOnThreads(2);
  }
  REQUIRE(SameBits(tight.Result(), roomy.Result()));
}

TEMPLATE_TEST_CASE("offsets past 2^31 and 2^32 elements", "[mla_decode][A5]", float, float16,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  constexpr int64_t kBlocks = 116510, kBlockSize = 64;
  const int32_t blocks[] = {58254, 58255, 116509};
  SparseMemory memory(static_cast<size_t>(kBlocks * kBlockSize * 576) * sizeof(TestType));
  auto* elements = reinterpret_cast<TestType*>(memory.data());

  MlaProblem<TestType> problem({{2, 512, 64}, {1, 1, 1}});
  problem.options.target = target;
  problem.SetQuery(1.0f);
  problem.args.keys.cache =
      LatentPages(static_cast<const TestType*>(elements), kBlocks, kBlockSize, 576);
  for (size_t b = 0; b < 3; ++b) {
    problem.block_table[b] = blocks[b];
    elements[blocks[b] * kBlockSize * 576 + 1] = FromFloat<TestType>(7.0f + static_cast<float>(b));
  }
  const auto require_known = [&] {
    problem.Run();
    for (int64_t b = 0; b < 3; ++b) {
      for (int64_t h = 0; h < 2; ++h)
        problem.RequireKnownRow(b, h, 7.0 + static_cast<double>(b), 0.0);
    }
  };
  SECTION("through the block table") { require_known(); }
  SECTION("as physical slots") {
    Guarded<int32_t> slots(3);
    for (size_t b = 0; b < 3; ++b) slots[b] = blocks[b] * static_cast<int32_t>(kBlockSize);
    problem.args.keys.indices = Packed(slots.data(), 3, 1);
    problem.args.keys.index_space = IndexSpace::kPhysical;
    require_known();
  }
}

// Keys of several documents side by side, as prompts without a cache of pages have them.
TEST_CASE("without a block table the cache holds the keys of one sequence", "[mla_decode]") {
  const int64_t block_size = GENERATE(1, 16, 320);
  const bool has_length = GENERATE(false, true);
  CAPTURE(block_size, has_length);
  MlaProblem<bfloat16> problem({{5, 512, 64}, {320}, {7}, block_size});
  problem.Run();
  const MlaResult<float> paged = problem.Result();
  Guarded<bfloat16> rows(320 * 576);
  for (int64_t i = 0; i < 320; ++i) {
    std::copy_n(problem.Row(0, i), 576, rows.begin() + i * 576);
  }
  KeySet& keys = problem.args.keys;
  keys.cache =
      LatentPages(static_cast<const bfloat16*>(rows.data()), 320 / block_size, block_size, 576);
  keys.block_table = {};
  if (!has_length) keys.seq_lens = {};
  if (GENERATE(false, true)) problem.args.query_start_loc = {};
  problem.Run();
  REQUIRE(SameBits(problem.Result(), paged));
  SECTION("of which every row sees some") {
    const Guarded<int32_t> starts(std::vector<int32_t>{0, 0, 100, 100, 250, 250, 250});
    const Guarded<int32_t> ends(std::vector<int32_t>{99, 100, 249, 250, 318, 319, 320});
    keys.row_starts = Packed(starts.data(), 7);
    keys.row_kv_lens = Packed(ends.data(), 7);
    problem.CheckEveryTarget();
  }
}

TEST_CASE("page strides past 2^32 bytes", "[mla_decode][A5]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  constexpr int64_t kStride = (int64_t{1} << 32) + 576;  // elements of two bytes
  SparseMemory memory(static_cast<size_t>(kStride + 2 * 576) * sizeof(bfloat16));
  auto* elements = reinterpret_cast<bfloat16*>(memory.data());
  MlaProblem<bfloat16> problem({{2, 512, 64}, {2}, {}, 1});
  problem.options.target = target;
  problem.SetQuery(1.0f);
  problem.args.keys.cache = LatentPages(static_cast<const bfloat16*>(elements), 2, 1, 576);
  problem.args.keys.cache.block_stride = kStride * 2;
  problem.block_table[0] = 1;
  problem.block_table[1] = 0;
  elements[1] = FromFloat<bfloat16>(3.0f);
  elements[kStride + 1] = FromFloat<bfloat16>(5.0f);
  problem.Run();
  problem.RequireKnownRow(0, 0, 4.0, 0.693147);
}

}  // namespace
}  // namespace lathe::test
