// SPDX-License-Identifier: Apache-2.0
// Paged caches, key sets and row transforms of the C interface: base/keys.h, base/rope.h, base/row_transform.h.
#ifndef LATHE_CAPI_KEYS_H_
#define LATHE_CAPI_KEYS_H_

#include "lathe/capi/common.h"

// Strides in bytes. scale: 0 means 1.
typedef struct lathe_paged_cache {
  size_t struct_size;
  void* data;
  int32_t format;  // lathe_format
  float scale;
  int64_t num_blocks;
  int64_t block_size;
  int64_t block_stride;
  int64_t row_stride;
} lathe_paged_cache;

typedef enum lathe_index_space {
  LATHE_INDEX_SPACE_LOGICAL = 0,
  LATHE_INDEX_SPACE_PHYSICAL = 1
} lathe_index_space;

// compress_ratio: 0 means 1. window: 0 means none. A window of V4, a list of V3.2, ...: sliding_window.h and
// sparse_mla.h say which fields make them.
typedef struct lathe_key_set {
  size_t struct_size;
  const lathe_paged_cache* cache;
  lathe_tensor block_table;
  lathe_tensor seq_lens;
  lathe_tensor row_kv_lens;
  lathe_tensor row_starts;
  lathe_tensor indices;
  lathe_tensor topk_length;
  int64_t compress_ratio;
  int64_t window;
  int32_t index_space;
  int32_t wraps;
} lathe_key_set;

// is_neox_style: pairs (i, i + r / 2), else (2i, 2i + 1).
typedef struct lathe_rope {
  size_t struct_size;
  lathe_tensor cos;
  lathe_tensor sin;
  int32_t is_neox_style;
  int32_t leading;
  int32_t inverse;
} lathe_rope;

typedef enum lathe_norm_kind {
  LATHE_NORM_NONE = 0,
  LATHE_NORM_RMS = 1,
  LATHE_NORM_LAYER = 2
} lathe_norm_kind;

// eps is taken as it is: 0 is 0.
typedef struct lathe_row_norm {
  size_t struct_size;
  int32_t kind;
  float eps;
  lathe_tensor weight;
  lathe_tensor bias;
} lathe_row_norm;

typedef struct lathe_row_transform {
  size_t struct_size;
  const lathe_row_norm* norm;
  const lathe_rope* rope;
  int32_t hadamard;
  int32_t round_to_bfloat16;
} lathe_row_transform;

#endif  // LATHE_CAPI_KEYS_H_
