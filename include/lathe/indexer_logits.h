// SPDX-License-Identifier: Apache-2.0
// Logits of a lightning indexer (DeepSeek-V3.2, section 2.1; V4's compressed keys too): how much each query
// token wants to attend to each key, from a few cheap heads that share one key per token.
//
//   logit[t, s] = k_scale[s] * sum_h weights[t, h] * max(0, <q[t, h, :], k[s, :]>)
//
// k_scale is the scale that a format keeps for a whole key (kIndexerFp8) or cache (per-tensor fp8), else 1.
// weights may be negative. max(0, NaN) is NaN: a NaN in q[t] or weights[t] makes row t NaN, one in key s
// makes column s NaN, neither touches another.
#ifndef LATHE_INDEXER_LOGITS_H_
#define LATHE_INDEXER_LOGITS_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/executor.h"
#include "lathe/base/keys.h"
#include "lathe/base/plan.h"
#include "lathe/base/precision.h"
#include "lathe/base/status.h"
#include "lathe/base/target.h"
#include "lathe/base/view.h"

namespace lathe {

// num_heads: H >= 1 indexer heads, head_dim: D >= 1 columns of queries and keys. Any numbers, nothing is padded.
struct IndexerShape {
  int64_t num_heads = 0;
  int64_t head_dim = 128;
};

// T query rows (tokens) over B sequences, H indexer heads, D columns. Strides in elements.
//
//   q                [T, H, D] float32, float16 or bfloat16, innermost stride 1; or instead
//   q_fp8            [T, H, D] float8_e4m3fn, innermost stride 1; their scales are folded into weights
//   weights          [T, H] with all constant factors (D^-0.5, H^-0.5) folded in
//   query_start_loc  [B+1] rows of sequence b are [query_start_loc[b], query_start_loc[b+1]); not given: one row per
//                    sequence, or, where keys have no block_table, one sequence of all rows
//   keys             which keys each row sees (base/keys.h), without a list of indices; of kIndexerFp8, kIndexerMxfp4
//                    (D = 128) or any other format of width D. Keys of several documents side by side in one buffer:
//                    no block_table, row t sees the slots [row_starts[t], row_kv_lens[t])
//
// and of these optionally some blocks only:
//
//   candidate_blocks       [T, n] row t sees key s only if s / candidate_block_size is among them. Any order;
//                          entries < 0 or past the row's keys are skipped
//   candidate_block_size   keys of a candidate block, >= 1, with candidate_blocks, else 0; not the page size
struct IndexerInputs {
  In<3> q = {};
  View<const float8_e4m3fn, 3> q_fp8 = {};
  View<const float, 2> weights = {};
  IndexView<1> query_start_loc = {};
  KeySet keys = {};
  IndexView<2> candidate_blocks = {};
  int64_t candidate_block_size = 0;
};

//   logits  [T, max_len] cell [t, s] is the logit of key s of the row's sequence; innermost stride 1, any row stride. Cells of keys that row t does not see are left as they are, or
//           set to -inf (IndexerLogitsOptions::fill)
struct IndexerLogitsArgs {
  IndexerInputs inputs = {};
  View<float, 2> logits = {};
};

struct IndexerLogitsOptions {
  // bf16 products with kAuto: bfloat16 or fp8 queries and bfloat16, kIndexerFp8, kIndexerMxfp4 or per-tensor
  // fp8 keys, all exact, on targets that have them.
  Precision precision = Precision::kAuto;
  Target target = Target::kAuto;
  // Sets every cell of `logits` that is no logit to -inf.
  bool fill = false;
  // Every block id that the lengths reach is checked: O(B * blocks), some 1 ns each. false: the caller vouches for them.
  bool check_indices = true;
};

// Bytes of workspace with which ComputeIndexerLogits can use limits.num_workers workers, for up to
// limits.max_num_tokens rows; with less it uses fewer workers, but it needs what one takes. Other limits do not
// count. O(1). About 1 MB a worker for 64 heads x 128 and many rows, less for few.
// Refuses sizes and those two limits if they are not positive, num_heads * head_dim above 2^31 - 1, an unknown
// precision, a target that cannot run.
LATHE_API Status IndexerLogitsSizes(const IndexerShape& shape, const IndexerLogitsOptions& options,
                                    const Limits& limits, Sizes* sizes) noexcept;

// Computes the logits. O(sum over rows of keys seen * H * D): each key is decoded once for a block of some
// ten rows, each query packed once a task. Workspace: any alignment, one call at a time. A cell's bits
// depend on its query row, its key, the target and the precision alone, not on the executor, on the other
// rows and keys, nor on where they lie. No allocation, no lock, no exception.
// Refuses, before anything is written: null data, strides smaller than a row, misaligned data, logits
// overlapping an input, sizes that do not agree, both or neither of q and q_fp8, a list of indices; sequences of more
// keys than the block table or the cache covers, rows that see keys past logits.extent[1]; block ids outside the cache
// (with check_indices); a workspace too small.
LATHE_API Status ComputeIndexerLogits(const IndexerLogitsArgs& args,
                                      const IndexerLogitsOptions& options, Buffer workspace,
                                      const Executor& executor = {}) noexcept;

}  // namespace lathe

#endif  // LATHE_INDEXER_LOGITS_H_
