// SPDX-License-Identifier: Apache-2.0
// The lightning indexer in the C interface: indexer_logits.h and indexer_topk.h. Its keys are
// written by lathe_write_latent_cache.
#ifndef LATHE_CAPI_INDEXER_H_
#define LATHE_CAPI_INDEXER_H_

#include "lathe/capi/common.h"
#include "lathe/capi/keys.h"
#include "lathe/capi/plan.h"
#include "lathe/capi/topk.h"

LATHE_C_BEGIN

// No field has a default.
typedef struct lathe_indexer_shape {
  size_t struct_size;
  int64_t num_heads;
  int64_t head_dim;
} lathe_indexer_shape;

// q_fp8 has dtype uint8.
typedef struct lathe_indexer_inputs {
  size_t struct_size;
  lathe_tensor q;
  lathe_tensor q_fp8;
  lathe_tensor weights;
  lathe_tensor query_start_loc;
  const lathe_key_set* keys;
  lathe_tensor candidate_blocks;
  int64_t candidate_block_size;
} lathe_indexer_inputs;

typedef struct lathe_indexer_logits_args {
  size_t struct_size;
  const lathe_indexer_inputs* inputs;
  lathe_tensor logits;
} lathe_indexer_logits_args;

// no_check_indices is the negation of the C++ field.
typedef struct lathe_indexer_logits_options {
  size_t struct_size;
  int32_t precision;
  int32_t target;
  int32_t fill;
  int32_t no_check_indices;
} lathe_indexer_logits_options;

LATHE_C_API int32_t lathe_indexer_logits_sizes(const lathe_indexer_shape* shape,
                                               const lathe_indexer_logits_options* options,
                                               const lathe_limits* limits, lathe_sizes* sizes,
                                               lathe_message* message);
LATHE_C_API int32_t lathe_compute_indexer_logits(const lathe_indexer_logits_args* args,
                                                 const lathe_indexer_logits_options* options,
                                                 lathe_buffer workspace,
                                                 const lathe_executor* executor,
                                                 lathe_message* message);

typedef struct lathe_indexer_topk_args {
  size_t struct_size;
  const lathe_indexer_inputs* inputs;
  lathe_tensor indices;
  lathe_tensor counts;
  lathe_tensor block_table;
  int64_t block_size;
  int64_t num_blocks;
  lathe_tensor row_seq;
} lathe_indexer_topk_args;

// no_check_indices is the negation of the C++ field.
typedef struct lathe_indexer_topk_options {
  size_t struct_size;
  int64_t k;
  int32_t index_base;  // lathe_topk_index_base
  int32_t precision;
  int32_t target;
  int32_t no_check_indices;
  int32_t allow_holes;
} lathe_indexer_topk_options;

LATHE_C_API int32_t lathe_indexer_topk_sizes(const lathe_indexer_shape* shape,
                                             const lathe_indexer_topk_options* options,
                                             const lathe_limits* limits, lathe_sizes* sizes,
                                             lathe_message* message);
LATHE_C_API int32_t lathe_select_indexer_topk(const lathe_indexer_topk_args* args,
                                              const lathe_indexer_topk_options* options,
                                              lathe_buffer workspace,
                                              const lathe_executor* executor,
                                              lathe_message* message);

LATHE_C_END

#endif  // LATHE_CAPI_INDEXER_H_
