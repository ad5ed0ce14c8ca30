// SPDX-License-Identifier: Apache-2.0
// Top-k selection in the C interface: topk.h.
#ifndef LATHE_CAPI_TOPK_H_
#define LATHE_CAPI_TOPK_H_

#include "lathe/capi/common.h"
#include "lathe/capi/plan.h"

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
  int32_t allow_holes;
  int32_t target;
} lathe_topk_options;

LATHE_C_API int32_t lathe_topk_sizes(const lathe_topk_options* options, const lathe_limits* limits,
                                     lathe_sizes* sizes, lathe_message* message);
LATHE_C_API int32_t lathe_select_topk(const lathe_topk_args* args,
                                      const lathe_topk_options* options, lathe_buffer workspace,
                                      const lathe_executor* executor, lathe_message* message);

LATHE_C_END

#endif  // LATHE_CAPI_TOPK_H_
