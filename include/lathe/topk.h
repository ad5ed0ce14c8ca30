// SPDX-License-Identifier: Apache-2.0
// Exact top-k selection over rows of scores: which keys a sparse attention reads (the lightning indexer of
// DeepSeek-V3.2 and V4; GLM's pooled index keys with an unscored tail).
#ifndef LATHE_TOPK_H_
#define LATHE_TOPK_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/executor.h"
#include "lathe/base/plan.h"
#include "lathe/base/status.h"
#include "lathe/base/target.h"
#include "lathe/base/view.h"

namespace lathe {

// What the written indices count from.
enum class TopkIndexBase : uint8_t {
  kColumn,    // column 0 of logits
  kRowStart,  // the row's first column, max(0, row_starts[t])
};

// T rows of L columns. A column is the score of one position (a token), or of pool_size consecutive ones.
//
//   logits       [T, L] float32, inner stride 1, L <= 2^31 - 1; read in [start, end) of each row only, and
//                only where there is a choice to make or `values` to write
//   row_starts   [T] optional: first column of row t; not given, or negative: 0
//   row_ends     [T] optional: the column that row t ends before; not given, or past L: L. Any values are allowed: a row
//                whose start is not below its end is empty
//   row_lens     [T] optional: positions of row t, counted from index_base; default: up to the last
//                position of its last column. Columns that start at or past it do not count (a causal
//                limit in tokens), a pool that crosses it is cut, and what it leaves past the last
//                column is the unscored tail. Negative is empty
//   indices      [T, W] int32 or int64 that can hold every position (or slot), W >= k * pool_size +
//                append_newest. All W places of every row are written: ascending, then -1
//   counts       [T] optional: places that are not padding
//   values       [T, W] optional: the score of each place's column, its bits as they are; +inf for
//                appended positions, -inf where there is none
//
// Optional translation of positions to slots of a paged cache, block_table[s, position / block_size] *
// block_size + position % block_size:
//
//   block_table  [B, max_blocks]; must cover the positions of every row, of which it is read at those
//                that are written (and checked, see check_indices)
//   block_size   >= 1
//   num_blocks   of the cache; ids must be in [0, num_blocks)
//   row_seq      [T] optional: the sequence, in [0, B), of each row; default: row t is sequence t, B = T
struct TopkArgs {
  View<const float, 2> logits = {};
  IndexView<1> row_starts = {};
  IndexView<1> row_ends = {};
  IndexView<1> row_lens = {};
  MutableIndexView<2> indices = {};
  MutableIndexView<1> counts = {};
  View<float, 2> values = {};
  IndexView<2> block_table = {};
  int64_t block_size = 0;
  int64_t num_blocks = 0;
  IndexView<1> row_seq = {};
};

//   k              columns to select, any number >= 0
//   append_newest  E: the newest positions of a row, [r, row length) with r the first multiple of pool_size
//                  at or past length - E, are always in, after the selected ones and whatever their
//                  scores, which are not read; selection is among the columns before r. Without pools
//                  that is E positions. Pools are not split: with pool_size 4 and E 3 it is what lies past
//                  the last complete pool, 0 to 3 positions (GLM: k = 512, a list of 2048 + 3)
//   pool_size      p: column c stands for the positions [c * p, (c + 1) * p), all of which are written
//   check_indices  block ids that the rows' positions reach are checked; false: the caller vouches for them
//   allow_holes    ids of the table that are out of range are no fault: their positions become holes, -1
struct TopkOptions {
  int64_t k = 0;
  int64_t append_newest = 0;
  int64_t pool_size = 1;
  TopkIndexBase index_base = TopkIndexBase::kColumn;
  bool check_indices = true;
  bool allow_holes = false;
  Target target = Target::kAuto;
};

// Bytes of workspace that suffice for every call of at most options.k, limits.max_num_keys columns (L) and
// limits.num_workers workers, whatever the number of rows. 0 where no row can have more than k columns. For each worker
// some 24 k + 64 KiB, and 64 k more where several may share a row. O(1). Refuses options that SelectTopk
// refuses, a max_num_keys that is negative or above 2^31 - 1, a num_workers of 0 or above 65536.
LATHE_API Status TopkSizes(const TopkOptions& options, const Limits& limits, Sizes* sizes) noexcept;

// Selects the k best of every row's n columns: by score, equal scores by the lower index; +0 and -0 are
// equal, all NaN are equal and below every number, -inf is a number. n <= k: all of them, without looking
// at scores. The result is unique, so it is the same for any executor, target and company in the batch.
// O(columns + k log(columns)), and in the worst order of scores some 20 times as long as in a random one
// (measured, Zen 4); rows run side by side, and workers share each long row where there are fewer rows.
// Workspace: any alignment, TopkSizes for L columns and executor.num_workers, one call at a time; no allocation, no
// lock, no exception. Of more than 65536 workers so many are used.
// Refuses, before anything is written: negative numbers, null data, extents that differ, strides that let
// elements overlap, misaligned data, index types too narrow, a table that is too short, sequences and
// (with check_indices, without allow_holes) block ids out of range, outputs that overlap anything, a workspace too
// small.
LATHE_API Status SelectTopk(const TopkArgs& args, const TopkOptions& options, Buffer workspace,
                            const Executor& executor = {}) noexcept;

}  // namespace lathe

#endif  // LATHE_TOPK_H_
