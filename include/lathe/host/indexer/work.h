// SPDX-License-Identifier: Apache-2.0
// Work of an indexer, shared among workers by the real lengths of rows: blocks of rows that share keys,
// each cut into ranges of keys where a worker's share ends.
#ifndef LATHE_HOST_INDEXER_WORK_H_
#define LATHE_HOST_INDEXER_WORK_H_

#include <algorithm>

#include "lathe/host/indexer/check.h"
#include "lathe/host/parallel.h"

namespace lathe {
namespace detail {
namespace LATHE_ABI {

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

// f(task) for every block of rows, its keys being those that any of its rows sees.
template <class F>
void ForEachIndexerBlock(const IndexerInputs& inputs, const IndexerShape& shape, int64_t max_rows,
                         const F& f) {
  const IndexView<1>& starts = inputs.query_start_loc;
  for (int64_t seq = 0; seq < shape.num_seqs; ++seq) {
    IndexerTask task;
    task.seq = seq;
    task.token_begin = shape.is_ragged ? 0 : starts.empty() ? seq : starts(seq);
    const int64_t token_end = shape.is_ragged  ? shape.num_tokens
                              : starts.empty() ? seq + 1
                                               : starts(seq + 1);
    task.q_len = token_end - task.token_begin;
    for (int64_t row = 0; row < task.q_len; row += max_rows) {
      task.row_begin = row;
      task.num_rows = (std::min)(max_rows, task.q_len - row);
      task.key_begin = task.key_end = 0;
      for (int64_t i = row; i < row + task.num_rows; ++i) {
        const KeyRange keys = IndexerKeys(inputs, seq, task.q_len, i, task.token_begin + i);
        if (keys.begin >= keys.end) continue;
        const bool is_first = task.key_begin == task.key_end;
        task.key_begin = is_first ? keys.begin : (std::min)(task.key_begin, keys.begin);
        task.key_end = (std::max)(task.key_end, keys.end);
      }
      f(task);
    }
  }
}

// run(task, lane) for tasks that are all keys of all blocks; also for blocks without keys, as one task,
// if `with_empty`. `grain`: units that a task has at least, if there are as many.
template <class Run>
void ForEachIndexerTask(const Executor& executor, size_t max_lanes, const IndexerInputs& inputs,
                        const IndexerShape& shape, int64_t max_rows, int64_t grain, bool with_empty,
                        const Run& run) {
  const auto ranges = [with_empty](const IndexerTask& block) {
    const int64_t keys = block.key_end - block.key_begin;
    return (std::max)(CeilDiv(keys, kIndexerUnitKeys), int64_t{with_empty ? 1 : 0});
  };
  int64_t total = 0;
  ForEachIndexerBlock(inputs, shape, max_rows,
                      [&](const IndexerTask& block) { total += ranges(block) * block.num_rows; });
  const auto workers =
      static_cast<int64_t>((std::min)((std::max)(executor.num_workers, size_t{1}), max_lanes));
  // One worker has no use for pieces, which all pack their queries.
  const int64_t piece = (std::max)(grain, workers > 1 ? CeilDiv(total, 4 * workers) : total);
  ForEachItem(executor, max_lanes, CeilDiv(total, piece), [&](int64_t item, size_t lane) {
    int64_t begin = item * piece, end = begin + piece;
    ForEachIndexerBlock(inputs, shape, max_rows, [&](const IndexerTask& block) {
      // Range i of a block belongs to the piece that holds its unit i * num_rows.
      const int64_t rows = block.num_rows, count = ranges(block);
      const int64_t first = (std::min)(CeilDiv((std::max)(begin, int64_t{0}), rows), count);
      const int64_t last = (std::min)(CeilDiv((std::max)(end, int64_t{0}), rows), count);
      begin -= count * rows;
      end -= count * rows;
      if (first >= last) return;
      IndexerTask task = block;
      task.key_begin = block.key_begin + first * kIndexerUnitKeys;
      task.key_end = (std::min)(block.key_end, block.key_begin + last * kIndexerUnitKeys);
      task.is_first = first == 0;
      task.is_last = last == count;
      run(task, lane);
    });
  });
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_HOST_INDEXER_WORK_H_
