// SPDX-License-Identifier: Apache-2.0
// Sparse attention: each query row attends over a list of keys of its own (DeepSeek-V3.2, arXiv 2512.02556, over
// the top 2048 keys of an indexer). Decode and prefill alike are one call of mla_decode.h; here are its key sets.
//
//   MlaDecodeArgs args;
//   args.keys = ListedKeys(cache, block_table, seq_lens, indices);        or ListedSlots(cache, slots)
//   args.extra_keys = ...                                                 optional: a second cache
//   PlanMlaDecode(shape, options, args, ...); RunMlaDecode(...);
//
// With lists a task is one query row with all of its heads: rows of one sequence do not share decoded keys. Of the
// time that a random key of fp8_ds_mla or fp8_ds4 takes in bf16 products, decoding it is 27 to 31 % with 16 heads,
// 10 to 15 % with 64 and 5 to 9 % with 128 (Zen 4, one thread, cold); sharing can save no more than that.
#ifndef LATHE_SPARSE_MLA_H_
#define LATHE_SPARSE_MLA_H_

#include "lathe/base/config.h"
#include "lathe/mla_decode.h"

namespace lathe {

// Row t sees the keys indices[t, 0 : topk_length[t]] of its sequence, positions through the block table: what a
// top-k writes.
//
//   block_table  [B, max_blocks], seq_lens [B]: as in KeySet, which also says which entries are skipped
//   indices      [T, K] any K, int32 or int64
//   topk_length  [T] optional, not given: K
LATHE_INLINE KeySet ListedKeys(const PagedCache& cache, const IndexView<2>& block_table,
                               const IndexView<1>& seq_lens, const IndexView<2>& indices,
                               const IndexView<1>& topk_length = {}) noexcept {
  KeySet keys;
  keys.cache = cache;
  keys.block_table = block_table;
  keys.seq_lens = seq_lens;
  keys.indices = indices;
  keys.topk_length = topk_length;
  return keys;
}

// Row t sees the keys in the slots slots[t, 0 : topk_length[t]], block * cache.block_size + offset: lists already
// translated, or shared by several caches of one page table.
LATHE_INLINE KeySet ListedSlots(const PagedCache& cache, const IndexView<2>& slots,
                                const IndexView<1>& topk_length = {}) noexcept {
  KeySet keys;
  keys.cache = cache;
  keys.indices = slots;
  keys.topk_length = topk_length;
  keys.index_space = IndexSpace::kPhysical;
  return keys;
}

}  // namespace lathe

#endif  // LATHE_SPARSE_MLA_H_
