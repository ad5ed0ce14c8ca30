// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V4's attention: a sliding window of recent keys beside compressed entries of all that lies further
// back, under one softmax with a sink. Everything follows from lengths and block tables: no index tensors, but for
// the entries that an indexer picks. Decode and prefill alike are one call of mla_decode.h; here are its key sets.
//
//   layer        keys                                      extra_keys
//   window       WindowKeys(window cache, ..., 128)        none
//   ratio 4      the same                                  ListedEntries(cache, ..., 4, top-k of the indexer)
//   ratio 128    the same                                  CompressedKeys(cache, ..., 128)
//
//   MlaShape shape{64, 512, 0};                       // value = the whole key row, its rotated part included
//   MlaDecodeOptions options; options.softmax_scale = 1 / sqrt(512)
//   MlaDecodeArgs args;                               // q, query_start_loc, attn_sink, out
//   args.keys = WindowKeys(window_cache, block_table, seq_lens, 128);
//   args.extra_keys = CompressedKeys(cache, entry_block_table, seq_lens, 128);
//   args.out_rope.cos = cos; args.out_rope.sin = sin;
//   args.out_rope.inverse = true;                     // undoes the rotation of the values
//   PlanMlaDecode(shape, options, args, ...); RunMlaDecode(...);
//
// What a window and the entries have in common is not removed: they are different keys. Any window goes with any
// model, also with the 576 columns of V2 and V3; the caches may be of any two formats. Up to 128 query rows, 2 tokens
// of 64 heads, share every key that is decoded for them: decoding fp8_ds4 is 2 to 3 % of the work by then.
#ifndef LATHE_SLIDING_WINDOW_H_
#define LATHE_SLIDING_WINDOW_H_

#include "lathe/base/config.h"
#include "lathe/mla_decode.h"
#include "lathe/sparse_mla.h"

namespace lathe {

// The `window` last keys up to a query's own position p: max(0, p - window + 1) .. p.
//
//   block_table  [B, max_blocks] page ids by position / block_size. With `wraps` a ring: page p in column
//                p % max_blocks, for caches that keep no more than the window; max_blocks pages must hold a window
//                and the queries of a call, wherever in a page it begins: ceil((window + q_len - 2) / block_size) + 1
//   seq_lens     [B] tokens of each sequence, with those of this call
//   window       >= 1 (PlanMlaDecode refuses others)
LATHE_INLINE KeySet WindowKeys(const PagedCache& cache, const IndexView<2>& block_table,
                               const IndexView<1>& seq_lens, int64_t window,
                               bool wraps = false) noexcept {
  KeySet keys;
  keys.cache = cache;
  keys.block_table = block_table;
  keys.wraps = wraps;
  keys.seq_lens = seq_lens;
  keys.window = window;
  return keys;
}

// All entries that are complete at a query's position p: 0 .. floor((p + 1) / ratio) - 1.
//
//   block_table  [B, max_blocks] page ids by entry / block_size
//   seq_lens     [B] tokens, as above, not entries
//   ratio        >= 1 (PlanMlaDecode refuses others)
LATHE_INLINE KeySet CompressedKeys(const PagedCache& cache, const IndexView<2>& block_table,
                                   const IndexView<1>& seq_lens, int64_t ratio) noexcept {
  KeySet keys = WindowKeys(cache, block_table, seq_lens, kNoWindow);
  keys.compress_ratio = ratio;
  return keys;
}

// Entries that are complete at a query's position, as CompressedKeys gives them, of which row t sees those in its list,
// by number of the entry; other numbers in it are skipped.
LATHE_INLINE KeySet ListedEntries(const PagedCache& cache, const IndexView<2>& block_table,
                                  const IndexView<1>& seq_lens, int64_t ratio,
                                  const IndexView<2>& indices,
                                  const IndexView<1>& topk_length = {}) noexcept {
  KeySet keys = ListedKeys(cache, block_table, seq_lens, indices, topk_length);
  keys.compress_ratio = ratio;
  return keys;
}

}  // namespace lathe

#endif  // LATHE_SLIDING_WINDOW_H_
