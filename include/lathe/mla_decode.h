// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention of query rows over a paged latent cache, absorbed form (DeepSeek-V2,
// arXiv 2405.04434, section 2.1.2): every head attends over the same keys, and the value is the first
// kv_lora_rank columns of the key row.
//
//   out[t,h,:] = sum_j softmax_j(softmax_scale * <q[t,h,:], row_j>) * row_j[0 : kv_lora_rank]
//   lse[t,h]   = log sum_j exp(softmax_scale * <q[t,h,:], row_j>)
//
// j runs over the keys that one or two KeySets give row t: dense, windowed, compressed or listed. Usage, per step and per layer:
//
//   MlaDecodeSizes(shape, options, limits, &sizes)                  once, at start-up
//   PlanMlaDecode(shape, options, args, workers, memory, &plan)     once per step; all layers share it
//   RunMlaDecode(*plan, args, workspace, executor)                  per layer
#ifndef LATHE_MLA_DECODE_H_
#define LATHE_MLA_DECODE_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "lathe/base/config.h"
#include "lathe/base/executor.h"
#include "lathe/base/keys.h"
#include "lathe/base/lse.h"
#include "lathe/base/plan.h"
#include "lathe/base/precision.h"
#include "lathe/base/rope.h"
#include "lathe/base/status.h"
#include "lathe/base/target.h"
#include "lathe/base/view.h"

namespace lathe {

// num_heads: H >= 1, any count, nothing is padded. The key row has D = kv_lora_rank + qk_rope_head_dim
// columns and the value is its first kv_lora_rank. Models whose value is the whole row (V4: 512) say
// kv_lora_rank = 512, qk_rope_head_dim = 0. Any sizes work; rows of (576, 512), (512, 512), (320, 256),
// (1088, 1024), and all others with D a multiple of 16 and kv_lora_rank of 64, are read in place.
struct MlaShape {
  int64_t num_heads = 0;
  int64_t kv_lora_rank = 512;
  int64_t qk_rope_head_dim = 64;

  LATHE_INLINE constexpr int64_t head_dim() const noexcept {
    return kv_lora_rank + qk_rope_head_dim;
  }
};

// May not change between Plan and Run.
struct MlaDecodeOptions {
  // Multiplies <q, row>. Required, > 0: no default can be derived from the row's width (DeepSeek's comes
  // from qk_nope + qk_rope = 192, times YaRN's mscale squared).
  float softmax_scale = 0.0f;
  // Bottom-right causality: query i of a sequence with L keys and q_len queries sees positions
  // 0 .. L - q_len + i. false: every query sees all L keys.
  bool causal = true;
  // With kAuto weights are rounded to bfloat16, but rows with up to 1024 keys, where errors do not average
  // out, add what that loses in a second pass: errors stay below 8e-4 or 2.01/128 relative, unless a
  // handful of many keys carries all the weight (docs/numerics.md). kBFloat16 rounds at every length.
  Precision precision = Precision::kAuto;
  LsePolicy lse_policy = {};
  // The engine's target; kAuto takes the best. A target that cannot run is refused by Plan.
  Target target = Target::kAuto;
  // Plan checks every block id that the lengths reach: O(B * blocks), some 1 ns each. false: the caller vouches for
  // them; lengths and everything else are checked all the same, and entries of lists are never trusted.
  bool check_indices = true;
  // Score transforms, the rows of base/score_transforms.def. 0: none. soft_cap: scores x = softmax_scale * <q, row> become
  // soft_cap * tanh(x / soft_cap) before the softmax.
#define LATHE_SCORE_TRANSFORM(option, functor) float option = 0.0f;
#include "lathe/base/score_transforms.def"
#undef LATHE_SCORE_TRANSFORM
};

// The tensors of one call. T query rows (tokens) over B sequences, H heads. All strides in elements.
//
//   q                [T, H, D] float32, float16 or bfloat16, innermost stride 1; or instead
//   q_nope, q_pe     [T, H, kv_lora_rank] (already multiplied by W_UK) and [T, H, qk_rope_head_dim] apart
//   query_start_loc  [B+1] rows of sequence b are [query_start_loc[b], query_start_loc[b+1]); not
//                    given: one row per sequence, or, where no key set has a block_table, one sequence of all rows
//   keys             the key set
//   extra_keys       a second one, of a cache of any other format and page size, under the same softmax:
//                    compressed entries beside a window (sliding_window.h), a second list (sparse_mla.h).
//                    Not given: its cache.block_size is 0. Where either set is an index list, both are
//                    resolved for each query row apart
//   attn_sink        [H] optional: a virtual key of that logit (not scaled) and value zero. Multiplies
//                    out by 1 / (1 + exp(sink - lse)); lse itself stays without it
//   out_rope         optional rotation of every row of out at its query's position, before it is rounded: the
//                    inverse rope of DeepSeek-V4, whose values are rotated keys
//   positions        [T] optional: of the queries, for out_rope alone. Not given: query i of a sequence stands
//                    at keys.seq_lens[b] - q_len + i, or with tree_mask at the end of its path
//   tree_mask        [T, ceil(q_len / 64)] optional, for queries that are a tree of drafted tokens (speculative
//                    decoding) in the order in which they lie in the cache: bit j % 64 of word j / 64 of a query's row
//                    is set where it sees the key of query j of its sequence, at position seq_lens[b] - q_len + j; a
//                    query that sees its own key says so. All keys in front of the queries are seen. q_len: the
//                    largest of the batch; bits past a sequence's own q_len are ignored. It takes the place of the
//                    causal count, so options.causal must be true; a mask of ones up to the diagonal gives the causal
//                    bits. A row's path are the tokens that it sees, in order; its position is their number - 1. Then
//                      window          the last `window` tokens of the path
//                      compress_ratio  above 1 (V4): the path's length / compress_ratio keys. Entries that drafted
//                                      tokens complete differ between paths: limit them by row_kv_lens, or leave them
//                                      to the caller's choice
//                      indices         logical entries that the mask hides are skipped as well
//                      row_kv_lens     takes the place of the mask, too
//                      row_starts      are refused
//   out              [T, H, kv_lora_rank] float32, float16 or bfloat16, innermost stride 1; written whole
//   lse              [T, H] optional
//
// A row with no live key gets out = 0 and lse = options.lse_policy.empty.
struct MlaDecodeArgs {
  In<3> q = {};
  In<3> q_nope = {};
  In<3> q_pe = {};
  IndexView<1> query_start_loc = {};
  KeySet keys = {};
  KeySet extra_keys = {};
  View<const float, 1> attn_sink = {};
  Rope out_rope = {};
  IndexView<1> positions = {};
  View<const uint64_t, 2> tree_mask = {};
  Out<3> out = {};
  View<float, 2> lse = {};
};

// What a step is cut into; lives in the caller's plan memory, trivially destructible. Every Run of the
// step may share it, from several threads at once.
class MlaDecodePlan;

// The target a plan chose, and the workspace its Run needs (at most what Sizes said).
LATHE_API Target PlanTarget(const MlaDecodePlan& plan) noexcept;
LATHE_API size_t PlanWorkspaceBytes(const MlaDecodePlan& plan) noexcept;

// Bytes of plan memory and workspace that suffice for every call within `limits`, of which all four count. O(1).
// Refuses sizes and limits that are not positive, an unknown precision, a target that cannot run.
LATHE_API Status MlaDecodeSizes(const MlaShape& shape, const MlaDecodeOptions& options,
                                const Limits& limits, Sizes* sizes) noexcept;

// Cuts a step into tasks of about equal work. Reads extents, strides, dtypes, lengths and (with
// check_indices) block ids, never tensor data, so q.data, out.data, lse.data and keys.cache.data may
// still be null. O(T + B + blocks checked); no allocation; `*plan` lies inside `plan_memory`.
// Refuses whatever MlaDecodeArgs, KeySet and the options rule out, lengths that the block table does not
// cover, block ids outside the cache, and plan memory that is too small (kBufferTooSmall, both sizes named).
LATHE_API Status PlanMlaDecode(const MlaShape& shape, const MlaDecodeOptions& options,
                               const MlaDecodeArgs& args, size_t num_workers, Buffer plan_memory,
                               const MlaDecodePlan** plan) noexcept;

// Computes out and lse. O(sum over sequences of rows * keys * (D + kv_lora_rank)). Workspace: any
// alignment, PlanWorkspaceBytes(plan) bytes, one call at a time. Same bits for any executor, number of
// workers and company in the batch. No allocation, no lock, no exception.
// Refuses, before anything is written: null data, strides smaller than a row, misaligned data, out or lse
// overlapping an input or each other, extents other than the plan's, lengths other than the plan's
// (kStalePlan), a workspace too small. An executor may have fewer workers than the plan, or more, of which then some
// have nothing to do.
LATHE_API Status RunMlaDecode(const MlaDecodePlan& plan, const MlaDecodeArgs& args,
                              Buffer workspace, const Executor& executor = {}) noexcept;

// RunMlaDecode for pools that are already inside a parallel region: call Part once for every ith of [0, nth), each on
// a thread of its own or not, wait for all (the pool's own barrier), then Merge once for every ith of its own nth, which
// uses up what Part has left in the workspace. nth is any number >= 1; with more than the plan's num_workers some have
// nothing to do in Part. Each refuses what RunMlaDecode refuses, and ith >= nth.
LATHE_API Status RunMlaDecodePart(const MlaDecodePlan& plan, const MlaDecodeArgs& args,
                                  Buffer workspace, size_t ith, size_t nth) noexcept;
LATHE_API Status RunMlaDecodeMerge(const MlaDecodePlan& plan, const MlaDecodeArgs& args,
                                   Buffer workspace, size_t ith, size_t nth) noexcept;

}  // namespace lathe

#endif  // LATHE_MLA_DECODE_H_
