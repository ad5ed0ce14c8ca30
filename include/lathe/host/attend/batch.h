// SPDX-License-Identifier: Apache-2.0
// The row blocks of a batch, and the leaves of keys that each attends over.
#ifndef LATHE_HOST_ATTEND_BATCH_H_
#define LATHE_HOST_ATTEND_BATCH_H_

#include <algorithm>
#include <cstdint>

#include "lathe/host/batch.h"
#include "lathe/kernel/kernel_table.h"

namespace lathe::detail {
namespace {

// Sequences, heads and lengths of a call: all that its tasks follow from. Of `call` it takes what tells who sees
// which keys.
struct AttendBatch {
  AttendCall call;
  Batch batch;
  int64_t num_heads;

  int64_t num_kv_heads() const { return num_heads / call.unit_heads; }

  // From the first to the last key of one set that any of queries [i, i + num_queries) of sequence b sees.
  KeyRange KeysOf(int set, int64_t b, const QueryRows& rows, int64_t i, int64_t num_queries) const {
    const KeyRows& keys = call.keys[set];
    const int64_t token = rows.token_begin + i;
    if (keys.has_indices()) {
      return {0, keys.topk_length.empty() ? keys.indices.extent[1] : keys.topk_length(token)};
    }
    return VisibleKeysOfRows(keys, call.causality, {keys.SeqLen(b), rows.q_len, i, token},
                             num_queries);
  }

  // f(AttendTask) for every block of one head, or one group of heads, each with all of its leaves.
  template <class F>
  void ForEachBlock(int64_t leaf_keys, const F& f) const {
    for (int64_t b = 0; b < batch.num_seqs; ++b) {
      const QueryRows rows = batch.RowsOf(b);
      const int64_t step = call.is_per_token ? 1 : rows.q_len;
      for (int64_t i = 0; i < rows.q_len; i += step) {
        const int64_t row_end = (i + step) * call.unit_heads;
        for (int64_t row = i * call.unit_heads; row < row_end; row += kMaxBlockRows) {
          f(BlockOf(b, rows, row, (std::min)(kMaxBlockRows, row_end - row), leaf_keys));
        }
      }
    }
  }

  AttendTask BlockOf(int64_t b, const QueryRows& rows, int64_t row_begin, int64_t num_rows,
                     int64_t leaf_keys) const {
    AttendTask task;
    task.seq = b;
    task.token_begin = rows.token_begin;
    task.q_len = rows.q_len;
    task.row_begin = row_begin;
    task.num_rows = num_rows;
    const int64_t first = row_begin / call.unit_heads;
    const int64_t last = (row_begin + num_rows - 1) / call.unit_heads;
    for (int set = 0; set < call.num_key_sets; ++set) {
      task.keys[set] = KeysOf(set, b, rows, first, last - first + 1);
      task.leaves[set] = LeavesOf(task.keys[set], leaf_keys);
    }
    task.work = num_rows * (NumKeys(task.keys) + 1);
    return task;
  }
};

inline int64_t NumLeaves(const AttendTask& block) {
  return NumKeys(block.leaves[0]) + NumKeys(block.leaves[1]);
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_ATTEND_BATCH_H_
