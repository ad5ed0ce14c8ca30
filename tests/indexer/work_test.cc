// SPDX-License-Identifier: Apache-2.0
// How an indexer's work is cut: every row and key once, and in a number of looks at blocks of rows that grows with the
// rows, not with rows times tasks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstddef>
#include <vector>

#include "lathe/host/indexer/topk_plan.h"
#include "support/random.h"

namespace lathe::test {
namespace {

// Rows of sequences that see all keys of their sequence, and how many blocks of them have been looked at.
struct CountedRows : detail::IndexerRows {
  CountedRows(const std::vector<int32_t>& lens, const std::vector<int32_t>& start_loc)
      : detail::IndexerRows{{},
                            detail::BatchOf(start_loc.back(),
                                            Packed(start_loc.data(), start_loc.size()), false)},
        num_looks(0) {
    keys.seq_lens = Packed(lens.data(), lens.size());
  }
  detail::IndexerTask BlockAt(int64_t seq, int64_t row, int64_t num_rows) const {
    ++num_looks;
    return detail::IndexerRows::BlockAt(seq, row, num_rows);
  }
  mutable int64_t num_looks;
};

struct Cut {
  std::vector<int32_t> lens, starts{0};
};

// 4096 sequences of one row (CASES.md D6); as many in a batch of which every other one is empty and one is long.
Cut ManySequences(bool is_mixed) {
  Cut cut;
  Random random(3);
  for (int32_t b = 0; b < 4096; ++b) {
    cut.lens.push_back(is_mixed && b == 77 ? 500000 : 300 + static_cast<int32_t>(random.Below(50)));
    cut.starts.push_back(cut.starts.back() + (is_mixed ? b % 2 * 3 : 1));
  }
  return cut;
}

// A table with memory of its own, as much as the sizes say.
struct Table {
  explicit Table(int64_t workers)
      : memory(static_cast<size_t>(workers) * detail::ShareTable::BytesPerWorker() + 63),
        arena(memory.data()),
        table(arena, workers) {
    REQUIRE(arena.bytes() <= memory.size());
  }
  std::vector<std::byte> memory;
  Arena arena;
  detail::ShareTable table;
};

// Keys that the tasks have taken of each row; a block's rows see different numbers of them, so of the row that sees
// most.
using Taken = std::vector<int64_t>;
void Take(const detail::IndexerTask& task, Taken* taken) {
  for (int64_t r = 0; r < task.num_rows; ++r) {
    const auto token = static_cast<size_t>(task.token_begin + task.row_begin + r);
    REQUIRE((*taken)[token] == task.key_begin);
    (*taken)[token] = task.key_end;
  }
}

TEST_CASE("pieces of logits cover every row in a linear number of looks", "[indexer][D6]") {
  const Cut cut = ManySequences(GENERATE(false, true));
  const int64_t workers = GENERATE(1, 2, 16, 64);
  const int64_t max_rows = GENERATE(1, 2, 28);
  CAPTURE(workers, max_rows);
  const CountedRows rows(cut.lens, cut.starts);
  const int64_t num_tokens = rows.batch.num_tokens;
  Table table(workers);
  const detail::IndexerPieces<CountedRows> pieces(rows, max_rows, 1, false, &table.table);
  Taken taken(static_cast<size_t>(num_tokens), 0);
  for (int64_t i = 0; i < pieces.num_pieces(); ++i) {
    pieces.ForEachTask(i, [&](const detail::IndexerTask& task) { Take(task, &taken); });
  }
  for (int64_t b = 0; b < rows.batch.num_seqs; ++b) {
    const detail::QueryRows of = rows.batch.RowsOf(b);
    for (int64_t i = 0; i < of.q_len; ++i) {
      REQUIRE(taken[static_cast<size_t>(of.token_begin + i)] >=
              cut.lens[static_cast<size_t>(b)] - of.q_len + i + 1);
    }
  }
  REQUIRE(rows.num_looks <= 3 * num_tokens + pieces.num_pieces());
}

TEST_CASE("items of a selection cover every row in a linear number of looks", "[indexer][D6]") {
  const bool is_mixed = GENERATE(false, true);
  const Cut cut = ManySequences(is_mixed);
  const int64_t workers = GENERATE(1, 2, 16, 2000);
  CAPTURE(workers);
  const CountedRows rows(cut.lens, cut.starts);
  const int64_t num_tokens = rows.batch.num_tokens;
  Table table(workers);
  const detail::IndexerTopkPlan<CountedRows> plan(rows, {64, 128, rows.batch}, 100, &table.table);
  if (workers == 2000 && is_mixed) REQUIRE(table.table.num_cuts() > 0);
  Taken taken(static_cast<size_t>(num_tokens), 0);
  int64_t num_parts = 0;
  for (int64_t share = 0; share < table.table.num_shares(); ++share) {
    plan.Run(
        share,
        [&](const detail::IndexerTask& task, int64_t part) {
          REQUIRE(part == num_parts++);
          Take(task, &taken);
        },
        [&](const detail::IndexerTask& block) { Take(block, &taken); });
  }
  REQUIRE(num_parts == table.table.num_parts());
  for (const int64_t keys : taken) REQUIRE(keys > 0);
  REQUIRE(rows.num_looks <= 3 * num_tokens + table.table.num_shares());
}

}  // namespace
}  // namespace lathe::test
