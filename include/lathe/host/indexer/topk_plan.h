// SPDX-License-Identifier: Apache-2.0
// How logits with top-k are shared among workers: rows, and parts of long rows.
#ifndef LATHE_HOST_INDEXER_TOPK_PLAN_H_
#define LATHE_HOST_INDEXER_TOPK_PLAN_H_

#include <algorithm>

#include "lathe/host/indexer/work.h"

namespace lathe::detail {
namespace {

// Rows of a block at most: their candidates, too, should stay in L2.
inline int64_t IndexerTopkRows(int64_t num_heads, int64_t width, int64_t num_tokens, int64_t k) {
  constexpr int64_t kCandidates = 65536;
  const int64_t rows = IndexerBlockRows(num_heads, width, num_tokens, false);
  return (std::min)(rows, (std::max)(kCandidates / (2 * k + 1024), int64_t{1}));
}

// Keys of the longest row.
template <class Rows>
int64_t LongestRow(const Rows& rows) {
  int64_t longest = 0;
  ForEachIndexerBlock(rows, 1, [&longest](const IndexerTask& row) {
    longest = (std::max)(longest, row.key_end - row.key_begin);
  });
  return longest;
}

// How a call is shared among workers: every row that is to be scored by units of its keys, so that a long one has parts;
// the whole rows of a share in blocks.
template <class Rows>
class IndexerTopkPlan {
 public:
  IndexerTopkPlan(const Rows& rows, const IndexerBatch& shape, int64_t k, ShareTable* table)
      : rows_(rows),
        block_rows_(IndexerTopkRows(shape.num_heads, shape.width, rows.batch.num_tokens, k)),
        table_(*table) {
    // Starting a part, choosing its k best, and merging them.
    const int64_t piece_cost =
        IndexerPieceWork(shape.num_heads, shape.width) * (8 + k / kIndexerUnitKeys) / 8;
    table->Fill(piece_cost, rows.batch.num_tokens, [&](const auto& add) {
      ForEachIndexerBlock(rows_, 1, [&](const IndexerTask& row) {
        const int64_t token = row.token_begin + row.row_begin;
        if (row.key_end - row.key_begin > k) {
          add(token, UnitsOfKeys(row), kIndexerUnitKeys);
        } else {
          add(token, 1, 1 + k / 64);  // it is listed, not scored
        }
      });
    });
  }

  // run_part(task, part) for the parts of rows of a share, and run_block(block) for its blocks.
  template <class RunPart, class RunBlock>
  void Run(int64_t share, const RunPart& run_part, const RunBlock& run_block) const {
    table_.Run(
        share,
        [&](int64_t part, int64_t token, int64_t first, int64_t last) {
          const IndexerTask row = RowAt(token);
          run_part(UnitsOfBlock(row, first, (std::min)(last, UnitsOfKeys(row))), part);
        },
        [&](int64_t token_begin, int64_t token_end) {
          ForEachRowBlock(rows_, token_begin, token_end, block_rows_, run_block);
        });
  }

  IndexerTask RowAt(int64_t token) const {
    const int64_t seq = rows_.batch.SeqOf(token);
    return rows_.BlockAt(seq, token - rows_.batch.RowsOf(seq).token_begin, 1);
  }

 private:
  const Rows& rows_;
  int64_t block_rows_;
  const ShareTable& table_;
};

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_INDEXER_TOPK_PLAN_H_
