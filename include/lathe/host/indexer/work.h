// SPDX-License-Identifier: Apache-2.0
// Work of an indexer, shared among workers by the real lengths of rows (share.h): blocks of rows that share keys,
// each cut into ranges of keys where a worker's share ends.
#ifndef LATHE_HOST_INDEXER_WORK_H_
#define LATHE_HOST_INDEXER_WORK_H_

#include <algorithm>

#include "lathe/host/indexer/check.h"
#include "lathe/host/parallel.h"
#include "lathe/host/share.h"

namespace lathe::detail {
namespace {

// Keys of a unit of work, for each row. Ranges start at multiples of it from the first key of the block.
constexpr int64_t kIndexerUnitKeys = 64;

inline int64_t UnitsOfKeys(const IndexerTask& block) {
  return CeilDiv((std::max)(block.key_end - block.key_begin, int64_t{0}), kIndexerUnitKeys);
}
// Units [first, last) of its keys.
inline IndexerTask UnitsOfBlock(const IndexerTask& block, int64_t first, int64_t last) {
  IndexerTask task = block;
  task.key_begin = block.key_begin + first * kIndexerUnitKeys;
  task.key_end = (std::min)(block.key_end, block.key_begin + last * kIndexerUnitKeys);
  return task;
}

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

// f(block) for rows [token_begin, token_end) of the batch in blocks of like size, at most max_rows. O(blocks + empty
// sequences between them + log B).
template <class Rows, class F>
void ForEachRowBlock(const Rows& all, int64_t token_begin, int64_t token_end, int64_t max_rows,
                     const F& f) {
  for (int64_t seq = all.batch.SeqOf(token_begin); token_begin < token_end; ++seq) {
    const QueryRows rows = all.batch.RowsOf(seq);
    const int64_t first = token_begin - rows.token_begin;
    const int64_t n = (std::min)(rows.token_end(), token_end) - token_begin;
    const int64_t num_blocks = CeilDiv(n, max_rows);
    for (int64_t i = 0; i < num_blocks; ++i) {
      const int64_t begin = n * i / num_blocks, end = n * (i + 1) / num_blocks;
      f(all.BlockAt(seq, first + begin, end - begin));
    }
    token_begin += n;
  }
}

// Some 2.5 us of work, in rows * keys of an indexer's heads: a piece that is worth starting has more.
inline int64_t IndexerPieceWork(int64_t num_heads, int64_t width) {
  return CeilDiv(kIndexerUnitKeys * 64 * 128, num_heads * width);
}

// All keys of all blocks of rows, shared among workers.
template <class Rows>
class IndexerPieces {
 public:
  // `with_empty`: blocks without keys are work, too.
  IndexerPieces(const Rows& rows, int64_t max_rows, int64_t piece_cost, bool with_empty,
                ShareTable* table)
      : rows_(rows), max_rows_(max_rows), least_units_(with_empty ? 1 : 0), table_(*table) {
    table->Fill(piece_cost, rows.batch.num_tokens, [&](const auto& add) {
      ForEachIndexerBlock(rows_, max_rows_, [&](const IndexerTask& block) {
        const int64_t units = UnitsOf(block);
        if (units > 0) add(TokenOf(block), units, block.num_rows * kIndexerUnitKeys);
      });
    });
  }

  int64_t num_pieces() const { return table_.num_shares(); }

  // f(task) for the tasks of a piece.
  template <class F>
  void ForEachTask(int64_t piece, const F& f) const {
    table_.Run(
        piece,
        [&](int64_t, int64_t token, int64_t first, int64_t last) {
          ForEachIndexerBlock(rows_, token, token + 1, max_rows_, [&](const IndexerTask& block) {
            f(TaskOf(block, first, (std::min)(last, UnitsOf(block))));
          });
        },
        [&](int64_t token_begin, int64_t token_end) {
          ForEachIndexerBlock(rows_, token_begin, token_end, max_rows_,
                              [&](const IndexerTask& block) {
                                const int64_t units = UnitsOf(block);
                                if (units > 0) f(TaskOf(block, 0, units));
                              });
        });
  }

 private:
  static int64_t TokenOf(const IndexerTask& block) { return block.token_begin + block.row_begin; }
  int64_t UnitsOf(const IndexerTask& block) const {
    return (std::max)(UnitsOfKeys(block), least_units_);
  }
  IndexerTask TaskOf(const IndexerTask& block, int64_t first, int64_t last) const {
    IndexerTask task = UnitsOfBlock(block, first, last);
    task.is_first = first == 0;
    task.is_last = last == UnitsOf(block);
    return task;
  }

  const Rows& rows_;
  int64_t max_rows_;
  int64_t least_units_;
  const ShareTable& table_;
};

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_INDEXER_WORK_H_
