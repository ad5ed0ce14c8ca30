// SPDX-License-Identifier: Apache-2.0
// A gather in adversarial memory: only what it may read holds anything but poison.
#ifndef LATHE_TESTS_GATHER_GATHER_PROBLEM_H_
#define LATHE_TESTS_GATHER_GATHER_PROBLEM_H_

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "formats/format_pages.h"
#include "support/strided.h"

namespace lathe::test {

struct GatherCase {
  CacheFormat format = CacheFormat::kFp8DsMla;
  int64_t block_size = 4;
  std::vector<int64_t> gather_starts = {0, 3, 7, 2, 0};
  std::vector<int64_t> gather_lens = {5, 0, 33, 1, 64};
  int64_t last_n = 0;
  int64_t table_slack = 0;    // entries of a table's row that no token needs
  int64_t rows_between = 0;   // rows of out that nobody gets, before each sequence
  int64_t columns_after = 0;  // of a row
  float scale = 1.0f;
};

// T: of out; Index: of the index arrays.
template <class T, class Index>
class GatherProblem {
 public:
  explicit GatherProblem(const GatherCase& c)
      : case_(c),
        width_(WidthOf(c.format)),
        num_seqs_(static_cast<int64_t>(c.gather_lens.size())),
        max_blocks_(MaxBlocks(c)),
        pages(c.format, width_, num_seqs_ * max_blocks_, c.block_size, 64, c.scale),
        block_table(static_cast<size_t>(num_seqs_ * max_blocks_)),
        gather_lens(Cast(c.gather_lens)),
        gather_starts(Cast(c.gather_starts)),
        out_start_loc(c.gather_lens.size() + 1),
        out(Extents(), Strides()) {
    int64_t row = 0;
    for (int64_t b = 0; b < num_seqs_; ++b) {
      row += c.rows_between;
      out_start_loc[static_cast<size_t>(b)] = static_cast<Index>(row);
      row += Count(b);
    }
    FillTables();
    FillCache();
    args.cache = pages.cache;
    args.block_table = View<const Index, 2>(Packed(block_table.data(), num_seqs_, max_blocks_));
    args.gather_lens = View<const Index, 1>(Packed(gather_lens.data(), num_seqs_));
    args.gather_starts = View<const Index, 1>(Packed(gather_starts.data(), num_seqs_));
    args.last_n = c.last_n;
    args.out_start_loc = View<const Index, 1>(Packed(out_start_loc.data(), num_seqs_ + 1));
    args.out = out.view();
  }

  int64_t Count(int64_t b) const {
    const int64_t n = case_.gather_lens[static_cast<size_t>(b)];
    return case_.last_n > 0 ? std::min(n, case_.last_n) : n;
  }
  // The position of row i of sequence b.
  int64_t Position(int64_t b, int64_t i) const {
    const auto at = static_cast<size_t>(b);
    return case_.gather_starts[at] + case_.gather_lens[at] - Count(b) + i;
  }
  int64_t Slot(int64_t b, int64_t position) const {
    const auto page = static_cast<size_t>(b * max_blocks_ + position / case_.block_size);
    return int64_t{block_table[page]} * case_.block_size + position % case_.block_size;
  }

  // All rows of out, those of nobody as the poison they were.
  std::vector<T> Expected() const {
    std::vector<T> expected(static_cast<size_t>(args.out.extent[0] * width_));
    std::memset(static_cast<void*>(expected.data()), kPoison, expected.size() * sizeof(T));
    for (int64_t b = 0; b < num_seqs_; ++b) {
      for (int64_t i = 0; i < Count(b); ++i) {
        const std::vector<double> row = pages.Row(Slot(b, Position(b, i)), width_);
        T* to = &expected[static_cast<size_t>((int64_t{out_start_loc[static_cast<size_t>(b)]} + i) *
                                              width_)];
        for (const double x : row) *to++ = FromFloat<T>(static_cast<float>(x));
      }
    }
    return expected;
  }

  void Run(const Executor& executor = {}) {
    out = Strided<T, 2>(Extents(), Strides());
    args.out = out.view();
    const Status status = GatherLatentCache(args, options, executor);
    INFO(Format(status).c_str());
    REQUIRE(status.ok());
    REQUIRE(SameBits(out.Packed(), Expected()));
    REQUIRE(out.AreGapsIntact());
  }

 private:
  static int64_t MaxBlocks(const GatherCase& c) {
    int64_t max = 0;
    for (size_t b = 0; b < c.gather_lens.size(); ++b) {
      max =
          std::max(max, (c.gather_starts[b] + c.gather_lens[b] + c.block_size - 1) / c.block_size);
    }
    return max + c.table_slack;
  }
  static std::vector<Index> Cast(const std::vector<int64_t>& values) {
    return std::vector<Index>(values.begin(), values.end());
  }
  std::array<int64_t, 2> Extents() const {
    int64_t rows = 0;
    for (int64_t b = 0; b < num_seqs_; ++b) rows += Count(b) + case_.rows_between;
    return {rows, width_};
  }
  std::array<int64_t, 2> Strides() const { return {width_ + case_.columns_after, 1}; }

  // Pages of gathered tokens have an id of their own; other entries stay -1.
  void FillTables() {
    std::vector<Index> ids(block_table.size());
    std::iota(ids.begin(), ids.end(), Index{0});
    Random(9).Shuffle(ids);
    for (int64_t b = 0; b < num_seqs_; ++b) {
      for (int64_t i = 0; i < Count(b); ++i) {
        const auto page = static_cast<size_t>(b * max_blocks_ + Position(b, i) / case_.block_size);
        block_table[page] = ids[page];
      }
    }
  }

  void FillCache() {
    std::vector<float> rows;
    std::vector<int64_t> slots;
    for (int64_t b = 0; b < num_seqs_; ++b) {
      for (int64_t i = 0; i < Count(b); ++i) slots.push_back(Slot(b, Position(b, i)));
    }
    Random random(10);
    for (size_t i = 0; i < slots.size() * static_cast<size_t>(width_); ++i) {
      rows.push_back(random.Normal());
    }
    LatentWriteArgs write;
    write.kv_c = Packed(static_cast<const float*>(rows.data()), slots.size(), width_);
    write.slot_mapping = Packed(static_cast<const int64_t*>(slots.data()), slots.size());
    write.cache = pages.cache;
    REQUIRE(WriteLatentCache(write).ok());
  }

  GatherCase case_;
  int64_t width_, num_seqs_, max_blocks_;

 public:
  FormatPages pages;
  Guarded<Index> block_table, gather_lens, gather_starts, out_start_loc;
  Strided<T, 2> out;
  LatentGatherArgs args;
  LatentGatherOptions options;
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_GATHER_GATHER_PROBLEM_H_
