// SPDX-License-Identifier: Apache-2.0
// MLA decode of the C interface: mla_decode.h.
#ifndef LATHE_CAPI_MLA_DECODE_H_
#define LATHE_CAPI_MLA_DECODE_H_

#include "lathe/capi/common.h"
#include "lathe/capi/keys.h"
#include "lathe/capi/plan.h"

LATHE_C_BEGIN

// No field has a default.
typedef struct lathe_mla_shape {
  size_t struct_size;
  int64_t num_heads;
  int64_t kv_lora_rank;
  int64_t qk_rope_head_dim;
} lathe_mla_shape;

// softmax_scale has no default. no_causal and no_check_indices are the negations of
// the C++ fields. Score transforms, soft_cap first, come last.
typedef struct lathe_mla_decode_options {
  size_t struct_size;
  float softmax_scale;
  int32_t no_causal;
  int32_t precision;
  int32_t target;
  lathe_lse_policy lse_policy;
  int32_t no_check_indices;
#define LATHE_SCORE_TRANSFORM(option, functor) float option;
#include "lathe/base/score_transforms.def"
#undef LATHE_SCORE_TRANSFORM
} lathe_mla_decode_options;

// keys is required, extra_keys and out_rope are optional. tree_mask has dtype uint64.
typedef struct lathe_mla_decode_args {
  size_t struct_size;
  lathe_tensor q;
  lathe_tensor q_nope;
  lathe_tensor q_pe;
  lathe_tensor query_start_loc;
  const lathe_key_set* keys;
  const lathe_key_set* extra_keys;
  lathe_tensor attn_sink;
  const lathe_rope* out_rope;
  lathe_tensor positions;
  lathe_tensor out;
  lathe_tensor lse;
  lathe_tensor tree_mask;
} lathe_mla_decode_args;

// Lies in the caller's plan memory, and is gone with it.
typedef struct lathe_mla_decode_plan lathe_mla_decode_plan;

// MlaDecodeSizes, PlanMlaDecode, PlanTarget, PlanWorkspaceBytes, RunMlaDecode, RunMlaDecodePart and
// RunMlaDecodeMerge. `plan` must be one that lathe_plan_mla_decode gave.
LATHE_C_API int32_t lathe_mla_decode_sizes(const lathe_mla_shape* shape,
                                           const lathe_mla_decode_options* options,
                                           const lathe_limits* limits, lathe_sizes* sizes,
                                           lathe_message* message);
LATHE_C_API int32_t lathe_plan_mla_decode(const lathe_mla_shape* shape,
                                          const lathe_mla_decode_options* options,
                                          const lathe_mla_decode_args* args, size_t num_workers,
                                          lathe_buffer plan_memory,
                                          const lathe_mla_decode_plan** plan,
                                          lathe_message* message);
LATHE_C_API int32_t lathe_mla_decode_plan_target(const lathe_mla_decode_plan* plan);
LATHE_C_API size_t lathe_mla_decode_plan_workspace_bytes(const lathe_mla_decode_plan* plan);
LATHE_C_API int32_t lathe_run_mla_decode(const lathe_mla_decode_plan* plan,
                                         const lathe_mla_decode_args* args, lathe_buffer workspace,
                                         const lathe_executor* executor, lathe_message* message);
LATHE_C_API int32_t lathe_run_mla_decode_part(const lathe_mla_decode_plan* plan,
                                              const lathe_mla_decode_args* args,
                                              lathe_buffer workspace, size_t ith, size_t nth,
                                              lathe_message* message);
LATHE_C_API int32_t lathe_run_mla_decode_merge(const lathe_mla_decode_plan* plan,
                                               const lathe_mla_decode_args* args,
                                               lathe_buffer workspace, size_t ith, size_t nth,
                                               lathe_message* message);

LATHE_C_END

#endif  // LATHE_CAPI_MLA_DECODE_H_
