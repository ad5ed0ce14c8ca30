// SPDX-License-Identifier: Apache-2.0
// Prefill: ragged attention of query tokens over keys and values that have been up-projected from the latents, heads
// of their own width each (DeepSeek-V2, arXiv 2405.04434, section 2.1: 192 and 128 columns), or of any model's
// dense keys. Returns log-sum-exp values, so that chunks of a long context can be merged (merge_states.h).
//
//   out[t,h,:] = sum_j softmax_j(softmax_scale * <q[t,h,:], k[j,g,:]>) * v[j,g,:]        g = h / (H / H_kv)
//   lse[t,h]   = log sum_j exp(softmax_scale * <q[t,h,:], k[j,g,:]>)
//
// j runs over the keys of t's sequence that causality and window leave. A prompt with a cached context, chunk by chunk:
//
//   own tokens       causal = true,  k and v of the new tokens            -> out_0, lse_0
//   each chunk       GatherLatentCache -> the caller's up-projection -> causal = false -> out_i, lse_i
//   MergeStates(out_0, lse_0, out_1, lse_1, ...), with the sink, if there is one
//
// The other way needs no up-projection: RunMlaDecode with q_len > 1, absorbed, straight on the paged cache;
// docs/performance.md says which of the two is faster when.
#ifndef LATHE_PREFILL_H_
#define LATHE_PREFILL_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/executor.h"
#include "lathe/base/keys.h"
#include "lathe/base/lse.h"
#include "lathe/base/plan.h"
#include "lathe/base/precision.h"
#include "lathe/base/status.h"
#include "lathe/base/target.h"
#include "lathe/base/view.h"

namespace lathe {

// num_heads: H >= 1. num_kv_heads: H_kv, of keys and values, which H is a multiple of: consecutive query heads share
// one. 0: as many as num_heads. Any widths work; rows with qk_head_dim a multiple of 16 and v_head_dim of 64 are read
// in place, others are copied, a tile at a time.
struct PrefillShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t qk_head_dim = 192;
  int64_t v_head_dim = 128;

  LATHE_INLINE constexpr int64_t kv_heads() const noexcept {
    return num_kv_heads == 0 ? num_heads : num_kv_heads;
  }
};

// May not change between Plan and Run.
struct PrefillOptions {
  // Multiplies <q, k>. Required, > 0.
  float softmax_scale = 0.0f;
  // Bottom-right causality: query i of a sequence with L keys and q_len queries sees keys 0 .. L - q_len + i. false:
  // every query sees all L keys, as those of an earlier chunk of the context.
  bool causal = true;
  // Keys a query sees at most, >= 1, the last ones that causality leaves, its own included. kNoWindow: all.
  int64_t window = kNoWindow;
  // kAuto takes bf16 products where q, k and v are bfloat16, and adds what rounding of weights loses
  // where some query of a block of 128 rows sees no more than 1024 keys, a fifth more work. kBFloat16 leaves that out.
  Precision precision = Precision::kAuto;
  LsePolicy lse_policy = {};
  Target target = Target::kAuto;
  // Score transforms, the rows of base/score_transforms.def. 0: none. soft_cap: scores x = softmax_scale * <q, k> become
  // soft_cap * tanh(x / soft_cap) before the softmax.
#define LATHE_SCORE_TRANSFORM(option, functor) float option = 0.0f;
#include "lathe/base/score_transforms.def"
#undef LATHE_SCORE_TRANSFORM
};

// The tensors of one call. T query rows (tokens) and S keys over B sequences. All strides in elements.
//
//   q                [T, H, qk_head_dim] float32, float16 or bfloat16, innermost stride 1
//   query_start_loc  [B+1] rows of sequence b are [query_start_loc[b], query_start_loc[b+1]), from 0 to T
//   k                [S, H_kv, qk_head_dim] float32, float16 or bfloat16, innermost stride 1
//   v                [S, H_kv, v_head_dim] of k's type, innermost stride 1; k and v may be parts of one tensor
//   kv_start_loc     [B+1] keys of sequence b are [kv_start_loc[b], kv_start_loc[b+1]), from 0 to S
//   attn_sink        [H] optional: a virtual key of that logit (not scaled) and value zero; lse stays without it. Not
//                    for chunks that are to be merged
//   out              [T, H, v_head_dim] float32, float16 or bfloat16, innermost stride 1; written whole
//   lse              [T, H] optional
//
// A row with no key gets out = 0 and lse = options.lse_policy.empty; q_len > L is normal, and so are empty sequences.
struct PrefillArgs {
  In<3> q = {};
  IndexView<1> query_start_loc = {};
  In<3> k = {};
  In<3> v = {};
  IndexView<1> kv_start_loc = {};
  View<const float, 1> attn_sink = {};
  Out<3> out = {};
  View<float, 2> lse = {};
};

// What a call is cut into; lives in the caller's plan memory, trivially destructible. All layers of a step share it.
class PrefillPlan;

// The target a plan chose, and the workspace its Run needs (at most what Sizes said).
LATHE_API Target PlanTarget(const PrefillPlan& plan) noexcept;
LATHE_API size_t PlanWorkspaceBytes(const PrefillPlan& plan) noexcept;

// Bytes of plan memory and workspace that suffice for every call within `limits`, of which all four count. O(1). Plan
// memory grows as max_num_tokens * H / 128; the workspace, for one worker, does not.
// Refuses sizes and limits that are not positive, a num_kv_heads that does not divide num_heads, an unknown precision, a target
// that cannot run.
LATHE_API Status PrefillSizes(const PrefillShape& shape, const PrefillOptions& options,
                              const Limits& limits, Sizes* sizes) noexcept;

// Cuts a call into tasks of up to 128 rows of one key head. Reads extents, strides, dtypes and starts, never tensor
// data: data of q, k, v, out and lse may be null. O(B + T * H / 128), no allocation; `*plan` lies inside `plan_memory`.
// Refuses whatever PrefillArgs and the options rule out, and plan memory that is too small (kBufferTooSmall).
LATHE_API Status PlanPrefill(const PrefillShape& shape, const PrefillOptions& options,
                             const PrefillArgs& args, size_t num_workers, Buffer plan_memory,
                             const PrefillPlan** plan) noexcept;

// Computes out and lse. O(H * (D + Dv) * sum over sequences of queries * keys); tiles that no row of a block sees, half
// of a causal square, are left out. Workspace: any alignment, PlanWorkspaceBytes(plan) bytes, one call at a time.
// Same bits for any executor, number of workers and company in the batch. No allocation, no lock, no exception.
// Refuses, before anything is written: null data, strides smaller than a row, misaligned data, out or lse overlapping
// an input or each other, extents, types or starts other than the plan's (kStalePlan), a workspace too small.
LATHE_API Status RunPrefill(const PrefillPlan& plan, const PrefillArgs& args, Buffer workspace,
                            const Executor& executor = {}) noexcept;

// RunPrefill for pools that are already inside a parallel region: call Part once for every ith of [0, nth), wait for
// all, then Merge once for every ith of its own nth, which uses up what Part has left in the workspace. nth is any
// number >= 1; with more than the plan's num_workers some have nothing to do in Part. Each refuses what RunPrefill
// refuses, and ith >= nth.
LATHE_API Status RunPrefillPart(const PrefillPlan& plan, const PrefillArgs& args, Buffer workspace,
                                size_t ith, size_t nth) noexcept;
LATHE_API Status RunPrefillMerge(const PrefillPlan& plan, const PrefillArgs& args, Buffer workspace,
                                 size_t ith, size_t nth) noexcept;

}  // namespace lathe

#endif  // LATHE_PREFILL_H_
