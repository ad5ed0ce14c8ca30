// SPDX-License-Identifier: Apache-2.0
// Prefill of the C interface: prefill.h.
#ifndef LATHE_CAPI_PREFILL_H_
#define LATHE_CAPI_PREFILL_H_

#include "lathe/capi/common.h"
#include "lathe/capi/plan.h"

LATHE_C_BEGIN

// num_kv_heads: 0 means num_heads. No other field has a default.
typedef struct lathe_prefill_shape {
  size_t struct_size;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t qk_head_dim;
  int64_t v_head_dim;
} lathe_prefill_shape;

// softmax_scale has no default. window: 0 means none. no_causal is the negation of
// the C++ field. Score transforms, soft_cap first, come last.
typedef struct lathe_prefill_options {
  size_t struct_size;
  float softmax_scale;
  int32_t no_causal;
  int64_t window;
  int32_t precision;
  int32_t target;
  lathe_lse_policy lse_policy;
#define LATHE_SCORE_TRANSFORM(option, functor) float option;
#include "lathe/base/score_transforms.def"
#undef LATHE_SCORE_TRANSFORM
} lathe_prefill_options;

typedef struct lathe_prefill_args {
  size_t struct_size;
  lathe_tensor q;
  lathe_tensor query_start_loc;
  lathe_tensor k;
  lathe_tensor v;
  lathe_tensor kv_start_loc;
  lathe_tensor attn_sink;
  lathe_tensor out;
  lathe_tensor lse;
} lathe_prefill_args;

// Lies in the caller's plan memory, and is gone with it.
typedef struct lathe_prefill_plan lathe_prefill_plan;

// PrefillSizes, PlanPrefill, PlanTarget, PlanWorkspaceBytes, RunPrefill, RunPrefillPart and RunPrefillMerge.
// `plan` must be one that lathe_plan_prefill gave.
LATHE_C_API int32_t lathe_prefill_sizes(const lathe_prefill_shape* shape,
                                        const lathe_prefill_options* options,
                                        const lathe_limits* limits, lathe_sizes* sizes,
                                        lathe_message* message);
LATHE_C_API int32_t lathe_plan_prefill(const lathe_prefill_shape* shape,
                                       const lathe_prefill_options* options,
                                       const lathe_prefill_args* args, size_t num_workers,
                                       lathe_buffer plan_memory, const lathe_prefill_plan** plan,
                                       lathe_message* message);
LATHE_C_API int32_t lathe_prefill_plan_target(const lathe_prefill_plan* plan);
LATHE_C_API size_t lathe_prefill_plan_workspace_bytes(const lathe_prefill_plan* plan);
LATHE_C_API int32_t lathe_run_prefill(const lathe_prefill_plan* plan,
                                      const lathe_prefill_args* args, lathe_buffer workspace,
                                      const lathe_executor* executor, lathe_message* message);
LATHE_C_API int32_t lathe_run_prefill_part(const lathe_prefill_plan* plan,
                                           const lathe_prefill_args* args, lathe_buffer workspace,
                                           size_t ith, size_t nth, lathe_message* message);
LATHE_C_API int32_t lathe_run_prefill_merge(const lathe_prefill_plan* plan,
                                            const lathe_prefill_args* args, lathe_buffer workspace,
                                            size_t ith, size_t nth, lathe_message* message);

LATHE_C_END

#endif  // LATHE_CAPI_PREFILL_H_
