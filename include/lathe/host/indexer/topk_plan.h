// SPDX-License-Identifier: Apache-2.0
// How logits with top-k are cut: blocks of rows, and parts of long rows, as items to be shared among workers.
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

// A row that workers share: its parts are first_part and those that follow.
struct IndexerCutRow {
  IndexerTask row;
  int64_t first_part;
  int64_t num_parts;
};

// Rows that are cut, and their parts: at most two for each worker and one more for each row.
constexpr int64_t MostIndexerCutRows(int64_t workers) { return workers > 1 ? 2 * workers : 0; }
constexpr int64_t MostIndexerParts(int64_t workers) { return 2 * MostIndexerCutRows(workers); }

// How a call is cut into items: first the parts of rows that are cut, then all other blocks, of as many rows of the
// batch at a time as a block has at most.
template <class Rows>
class IndexerTopkPlan {
 public:
  // `cut_rows`: room for MostIndexerCutRows(workers).
  IndexerTopkPlan(const Rows& rows, const IndexerBatch& shape, int64_t k, int64_t workers,
                  IndexerCutRow* cut_rows)
      : rows_(rows), k_(k), cut_rows_(cut_rows) {
    const int64_t num_tokens = rows.batch.num_tokens;
    const int64_t most = IndexerTopkRows(shape.num_heads, shape.width, num_tokens, k);
    // Some four blocks for each worker.
    const int64_t wanted = workers > 1 ? num_tokens / (4 * workers) : most;
    block_rows_ = (std::max)((std::min)(most, wanted), int64_t{1});
    if (workers > 1 && block_rows_ == 1) CutRows(shape, workers);
    num_items_ = num_parts_ + CeilDiv(num_tokens, block_rows_);
  }

  int64_t num_items() const { return num_items_; }
  int64_t num_cut_rows() const { return num_cut_rows_; }
  const IndexerCutRow& cut_row(int64_t i) const { return cut_rows_[i]; }

  // run_part(task, part) for an item that is a part, else run_block(block) for its blocks.
  template <class RunPart, class RunBlock>
  void Run(int64_t item, const RunPart& run_part, const RunBlock& run_block) const {
    if (item < num_parts_) {
      const IndexerCutRow* cut = std::upper_bound(
          cut_rows_, cut_rows_ + num_cut_rows_, item,
          [](int64_t part, const IndexerCutRow& row) { return part < row.first_part; });
      return run_part(PartOf(*(cut - 1), item), item);
    }
    const int64_t token = (item - num_parts_) * block_rows_;
    ForEachIndexerBlock(rows_, token, (std::min)(token + block_rows_, rows_.batch.num_tokens),
                        block_rows_, [&](const IndexerTask& block) {
                          if (!IsCut(block)) run_block(block);
                        });
  }

 private:
  // Rows are few, and blocks single rows.
  void CutRows(const IndexerBatch& shape, int64_t workers) {
    int64_t total = 0;
    ForEachIndexerBlock(rows_, 1, [&](const IndexerTask& row) {
      const int64_t keys = row.key_end - row.key_begin;
      if (keys > k_) total += keys;
    });
    // Some 70 us.
    const int64_t least = CeilDiv(int64_t{1024} * 64 * 128, shape.num_heads * shape.width);
    part_keys_ = (std::max)(least, CeilDiv(total, 2 * workers));
    ForEachIndexerBlock(rows_, 1, [&](const IndexerTask& row) {
      if (!IsCut(row)) return;
      const int64_t num_parts = CeilDiv(row.key_end - row.key_begin, part_keys_);
      cut_rows_[num_cut_rows_++] = {row, num_parts_, num_parts};
      num_parts_ += num_parts;
    });
  }

  bool IsCut(const IndexerTask& block) const {
    return block.key_end - block.key_begin > (std::max)(k_, part_keys_);
  }
  IndexerTask PartOf(const IndexerCutRow& cut, int64_t part) const {
    IndexerTask task = cut.row;
    task.key_begin += (part - cut.first_part) * part_keys_;
    task.key_end = (std::min)(task.key_begin + part_keys_, cut.row.key_end);
    return task;
  }

  const Rows& rows_;
  int64_t k_;
  IndexerCutRow* cut_rows_;
  int64_t block_rows_ = 1;
  int64_t part_keys_ = kLargest;
  int64_t num_cut_rows_ = 0;
  int64_t num_parts_ = 0;
  int64_t num_items_ = 0;
};

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_INDEXER_TOPK_PLAN_H_
