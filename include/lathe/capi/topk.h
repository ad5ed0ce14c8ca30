// SPDX-License-Identifier: Apache-2.0
// Top-k selection in the C interface: topk.h.
#ifndef LATHE_CAPI_TOPK_H_
#define LATHE_CAPI_TOPK_H_

#include "lathe/capi/common.h"

LATHE_C_BEGIN

typedef enum lathe_topk_index_base {
  LATHE_TOPK_INDEX_BASE_COLUMN = 0,
  LATHE_TOPK_INDEX_BASE_ROW_START = 1
} lathe_topk_index_base;

typedef struct lathe_topk_args {
  size_t struct_size;
  lathe_tensor logits;
  lathe_tensor row_starts;
  lathe_tensor row_ends;
  lathe_tensor row_lens;
  lathe_tensor indices;
  lathe_tensor counts;
  lathe_tensor values;
  lathe_tensor block_table;
  int64_t block_size;
  int64_t num_blocks;
  lathe_tensor row_seq;
} lathe_topk_args;

// pool_size: 0 means 1. no_check_indices is the negation of the C++ field.
typedef struct lathe_topk_options {
  size_t struct_size;
  int64_t k;
  int64_t append_newest;
  int64_t pool_size;
  int32_t index_base;  // lathe_topk_index_base
  int32_t no_check_indices;
  int32_t target;
} lathe_topk_options;

// num_workers: 0 means 1.
typedef struct lathe_topk_limits {
  size_t struct_size;
  int64_t max_columns;
  int64_t k;
  size_t num_workers;
} lathe_topk_limits;

// SIZE_MAX, too, for limits that are null or of no size.
LATHE_C_API size_t lathe_topk_workspace_bytes(const lathe_topk_limits* limits);
LATHE_C_API int32_t lathe_topk(const lathe_topk_args* args, const lathe_topk_options* options,
                               lathe_buffer workspace, const lathe_executor* executor,
                               lathe_message* message);

LATHE_C_END

#endif  // LATHE_CAPI_TOPK_H_
