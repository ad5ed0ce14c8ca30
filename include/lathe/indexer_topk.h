// SPDX-License-Identifier: Apache-2.0
// Logits of a lightning indexer and the selection of the k best keys of each row in one: what sparse attention
// (DeepSeek-V3.2, V4) reads. As ComputeIndexerLogits (indexer_logits.h), then SelectTopk (topk.h), with the same
// indices, but logits exist only for a tile of keys at a time, and rows that see at most k keys are not
// scored at all.
#ifndef LATHE_INDEXER_TOPK_H_
#define LATHE_INDEXER_TOPK_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/indexer_logits.h"
#include "lathe/topk.h"

namespace lathe {

// T query rows, see IndexerInputs; W >= options.k places.
//
//   inputs       queries and keys, without candidate_blocks
//   indices      [T, W] int32 or int64 that can hold every key. All places are written: keys
//                ascending, then -1. A key is its number in the row's sequence, see options.index_base
//   counts       [T] optional: places that are not padding
//
// Optional translation of keys to slots of a paged cache, the attention's, as in TopkArgs:
//
//   block_table  [B, max_blocks], sequences those of inputs; where inputs.keys has no block_table, any sequences, and
//   row_seq      [T] optional, there only: the sequence of each row; default: row t is sequence t
//   block_size, num_blocks   of that cache, which need not be those of inputs.keys.cache
struct IndexerTopkArgs {
  IndexerInputs inputs = {};
  MutableIndexView<2> indices = {};
  MutableIndexView<1> counts = {};
  IndexView<2> block_table = {};
  int64_t block_size = 0;
  int64_t num_blocks = 0;
  IndexView<1> row_seq = {};
};

//   k               keys to select, any number >= 0
//   index_base      what indices count from: key 0 or the row's first
//   check_indices   block ids that the rows' keys reach are checked, of both block tables; false: the caller vouches
//                   for them
//   allow_holes     ids of the translation's table that are out of range are no fault: their keys become holes, -1
struct IndexerTopkOptions {
  int64_t k = 0;
  TopkIndexBase index_base = TopkIndexBase::kColumn;
  Precision precision = Precision::kAuto;
  Target target = Target::kAuto;
  bool check_indices = true;
  bool allow_holes = false;
};

// Bytes of workspace that suffice for every call within `limits` of at most options.k; 0 where no row can see more
// than k keys. max_num_seqs does not count. For each worker the megabyte of IndexerLogitsSizes, and some 80 k bytes
// for candidates of its own and those of ranges that workers share. O(1). Refuses what IndexerLogitsSizes does, a
// negative k, and a max_num_keys that is negative or above 2^31 - 1.
LATHE_API Status IndexerTopkSizes(const IndexerShape& shape, const IndexerTopkOptions& options,
                                  const Limits& limits, Sizes* sizes) noexcept;

// Selects, for each row, the k keys of the highest logits: equal ones by the lower key, NaN below every
// number. The result is the same for any executor and company in the batch, and that of SelectTopk over the
// logits. O(T + B + sum over rows of more than k keys of keys * H * D). Rows are shared among workers, and a long
// row by ranges of keys. Workspace: any alignment, IndexerTopkSizes for the call's rows and keys and
// executor.num_workers, one call at a time. No allocation, no lock, no exception.
// Refuses, before anything is written, what ComputeIndexerLogits and SelectTopk refuse of their arguments;
// candidate_blocks; more than 2^31 - 1 keys in a row.
LATHE_API Status SelectIndexerTopk(const IndexerTopkArgs& args, const IndexerTopkOptions& options,
                                   Buffer workspace, const Executor& executor = {}) noexcept;

}  // namespace lathe

#endif  // LATHE_INDEXER_TOPK_H_
