// SPDX-License-Identifier: Apache-2.0
// Work of an indexer, shared among workers by the real lengths of rows: blocks of rows that share keys,
// each cut into ranges of keys where a worker's share ends. Wherever a worker begins, it finds its blocks without
// walking through those before.
#ifndef LATHE_HOST_INDEXER_WORK_H_
#define LATHE_HOST_INDEXER_WORK_H_

#include <algorithm>

#include "lathe/host/indexer/check.h"
#include "lathe/host/parallel.h"

namespace lathe::detail {
namespace {

// Keys of a unit of work, for each row. Ranges start at multiples of it from the first key of the block.
constexpr int64_t kIndexerUnitKeys = 128;

// Rows of a block: so many that decoding a key costs little beside its products, so few that their packed
// queries (half a megabyte) stay in L2.
inline int64_t IndexerBlockRows(int64_t num_heads, int64_t width, int64_t num_tokens,
                                bool has_candidates) {
  if (has_candidates) return 1;
  constexpr int64_t kElements = int64_t{512} * 1024 / 2, kMostRows = 64;
  const int64_t fitting = kElements / (num_heads * width);
  return (std::max)((std::min)({fitting, kMostRows, num_tokens}), int64_t{1});
}

// The query rows of a call and the keys they see.
struct IndexerRows {
  KeyRows keys;
  Batch batch;

  // Rows [row, row + num_rows) of sequence `seq`; its keys are from the first to the last that any of them sees.
  IndexerTask BlockAt(int64_t seq, int64_t row, int64_t num_rows) const {
    const QueryRows rows = batch.RowsOf(seq);
    IndexerTask task;
    task.seq = seq;
    task.token_begin = rows.token_begin;
    task.q_len = rows.q_len;
    task.row_begin = row;
    task.num_rows = num_rows;
    const KeyRange seen = VisibleKeysOfRows(keys, {}, PlaceOfQuery(keys, task, row), num_rows);
    task.key_begin = seen.begin;
    task.key_end = seen.end;
    return task;
  }
};

// f(block) for the blocks of up to max_rows rows that sequences are cut into, of these the ones that begin among rows
// [token_begin, token_end) of the batch. O(blocks + empty sequences between them + log B). `Rows`: IndexerRows, or what
// counts the blocks that are looked at.
template <class Rows, class F>
void ForEachIndexerBlock(const Rows& all, int64_t token_begin, int64_t token_end, int64_t max_rows,
                         const F& f) {
  if (token_begin >= token_end) return;
  for (int64_t seq = all.batch.SeqOf(token_begin); seq < all.batch.num_seqs; ++seq) {
    const QueryRows rows = all.batch.RowsOf(seq);
    if (rows.token_begin >= token_end) return;
    const int64_t passed = (std::max)(token_begin - rows.token_begin, int64_t{0});
    for (int64_t row = CeilDiv(passed, max_rows) * max_rows;
         row < (std::min)(rows.q_len, token_end - rows.token_begin); row += max_rows) {
      f(all.BlockAt(seq, row, (std::min)(max_rows, rows.q_len - row)));
    }
  }
}
template <class Rows, class F>
void ForEachIndexerBlock(const Rows& all, int64_t max_rows, const F& f) {
  ForEachIndexerBlock(all, 0, all.batch.num_tokens, max_rows, f);
}

// Where a piece of work begins: at a unit of the keys of the block that begins at a row of the batch.
struct IndexerPiece {
  int64_t token;
  int64_t unit;
};

// All keys of all blocks of rows, cut into pieces of like rows * keys.
template <class Rows>
class IndexerPieces {
 public:
  // Some for each worker, so that the last ones even out.
  static constexpr int64_t kPerWorker = 4;

  // `grain`: rows * units that a piece has at least, if there are as many. `with_empty`: blocks without keys are work,
  // too. `pieces`: room for kPerWorker of each worker.
  IndexerPieces(const Rows& rows, int64_t max_rows, int64_t grain, bool with_empty, int64_t workers,
                IndexerPiece* pieces)
      : rows_(rows), max_rows_(max_rows), least_units_(with_empty ? 1 : 0), pieces_(pieces) {
    int64_t total = 0;
    ForEachIndexerBlock(rows_, max_rows_, [&](const IndexerTask& block) {
      total += UnitsOf(block) * block.num_rows;
    });
    // One worker has no use for pieces, which all pack their queries.
    const int64_t size =
        (std::max)(grain, workers > 1 ? CeilDiv(total, kPerWorker * workers) : total);
    num_pieces_ = CeilDiv(total, size);
    int64_t before = 0, piece = 0;
    ForEachIndexerBlock(rows_, max_rows_, [&](const IndexerTask& block) {
      // Unit i of a block belongs to the piece that holds its first row * unit.
      const int64_t units = UnitsOf(block), num_rows = block.num_rows;
      for (; piece < num_pieces_; ++piece) {
        const int64_t unit = CeilDiv((std::max)(piece * size - before, int64_t{0}), num_rows);
        if (unit >= units) break;
        pieces_[piece] = {block.token_begin + block.row_begin, unit};
      }
      before += units * num_rows;
    });
    for (; piece < num_pieces_; ++piece) pieces_[piece] = End();
  }

  int64_t num_pieces() const { return num_pieces_; }

  // f(task) for the tasks of a piece.
  template <class F>
  void ForEachTask(int64_t piece, const F& f) const {
    const IndexerPiece begin = pieces_[piece];
    const IndexerPiece end = piece + 1 < num_pieces_ ? pieces_[piece + 1] : End();
    const int64_t token_end = end.token + (end.unit > 0 ? 1 : 0);
    ForEachIndexerBlock(rows_, begin.token, token_end, max_rows_, [&](const IndexerTask& block) {
      const int64_t token = block.token_begin + block.row_begin, units = UnitsOf(block);
      const int64_t first = token == begin.token ? begin.unit : 0;
      const int64_t last = token == end.token ? end.unit : units;
      if (first >= last) return;
      IndexerTask task = block;
      task.key_begin = block.key_begin + first * kIndexerUnitKeys;
      task.key_end = (std::min)(block.key_end, block.key_begin + last * kIndexerUnitKeys);
      task.is_first = first == 0;
      task.is_last = last == units;
      f(task);
    });
  }

 private:
  int64_t UnitsOf(const IndexerTask& block) const {
    const int64_t keys = (std::max)(block.key_end - block.key_begin, int64_t{0});
    return (std::max)(CeilDiv(keys, kIndexerUnitKeys), least_units_);
  }
  IndexerPiece End() const { return {rows_.batch.num_tokens, 0}; }

  const Rows& rows_;
  int64_t max_rows_;
  int64_t least_units_;
  IndexerPiece* pieces_;
  int64_t num_pieces_ = 0;
};

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_INDEXER_WORK_H_
