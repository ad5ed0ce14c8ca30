// SPDX-License-Identifier: Apache-2.0
// Records of pages in two parts may lie apart: scales begin behind the last record's gap.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <vector>

#include "formats/format_pages.h"
#include "indexer/indexer_problem.h"
#include "support/targets.h"

namespace lathe::test {
namespace {

std::vector<FormatRow> TwoPartFormats() {
  std::vector<FormatRow> rows;
  for (const FormatRow& row : kFormats) {
    if (SideBytes(row.format) > 0) rows.push_back(row);
  }
  return rows;
}

// The same records and side rows, each record followed by a gap of poison.
struct PaddedPages {
  explicit PaddedPages(FormatPages& dense, int64_t width) : cache(dense.cache) {
    const int64_t gap = 2 * static_cast<int64_t>(RecordAlignment(cache.format));
    cache.row_stride += gap;
    cache.block_stride = cache.block_size * (cache.row_stride + SideBytes(cache.format));
    bytes = Guarded<std::byte>(static_cast<size_t>(cache.num_blocks * cache.block_stride));
    cache.data = bytes.data();
    for (int64_t slot = 0; slot < cache.num_blocks * cache.block_size; ++slot) {
      std::byte* page = cache.data + slot / cache.block_size * cache.block_stride;
      const int64_t at = slot % cache.block_size;
      std::memcpy(page + at * cache.row_stride, dense.Record(slot),
                  static_cast<size_t>(RecordBytes(cache.format, width)));
      std::memcpy(page + cache.block_size * cache.row_stride + at * SideBytes(cache.format),
                  dense.Side(slot), static_cast<size_t>(SideBytes(cache.format)));
    }
  }
  Guarded<std::byte> bytes{0};
  MutablePagedCache cache;
};

TEST_CASE("attention over padded records is attention over dense ones",
          "[reliability][mla_decode][formats]") {
  const FormatRow row = GENERATE(from_range(TwoPartFormats()));
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(row.name, Name(target));
  MlaProblem<bfloat16> problem({ShapeOf(row.format, 3), {70, 5}, {2, 1}, 16});
  FormatPages dense = MoveInto(problem, row.format);
  problem.options.target = target;
  problem.Run();
  const MlaResult<float> expected = problem.Result();
  const PaddedPages padded(dense, problem.width());
  problem.args.keys.cache = padded.cache;
  problem.Run();
  REQUIRE(SameBits(problem.Result(), expected));
}

TEST_CASE("logits over padded records are logits over dense ones",
          "[reliability][indexer][formats]") {
  const FormatRow row = GENERATE(from_range(TwoPartFormats()));
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(row.name, Name(target));
  IndexerCase c;
  c.format = row.format;
  c.heads = 4;
  c.width = FixedWidth(row.format);
  c.seq_lens = {200, 33};
  IndexerProblem problem(c);
  problem.options.target = target;
  problem.Run();
  const std::vector<float> expected = problem.logits.Copy();
  const PaddedPages padded(problem.pages, c.width);
  problem.args.inputs.keys.cache = padded.cache;
  problem.Run();
  REQUIRE(SameBits(problem.logits.Copy(), expected));
}

}  // namespace
}  // namespace lathe::test
