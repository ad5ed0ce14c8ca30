// SPDX-License-Identifier: Apache-2.0
// The arithmetic around DeepSeek-V4's attention and context parallelism in the C interface: v4_metadata.h. As there,
// nothing is validated.
#ifndef LATHE_CAPI_V4_METADATA_H_
#define LATHE_CAPI_V4_METADATA_H_

#include "lathe/capi/common.h"

LATHE_C_BEGIN

LATHE_C_API int64_t lathe_num_compressed(int64_t seq_len, int64_t ratio);
LATHE_C_API int64_t lathe_compressed_length(int64_t position, int64_t ratio);
LATHE_C_API int32_t lathe_is_boundary(int64_t position, int64_t ratio);
LATHE_C_API int64_t lathe_num_boundaries(int64_t position, int64_t count, int64_t ratio);
LATHE_C_API int64_t lathe_compressed_position(int64_t position, int64_t ratio);
LATHE_C_API int64_t lathe_window_begin(int64_t position, int64_t window);
LATHE_C_API int64_t lathe_window_length(int64_t position, int64_t window);
LATHE_C_API int64_t lathe_window_gather_length(int64_t prefix_len, int64_t q_len, int64_t window);
LATHE_C_API int64_t lathe_row_position(int64_t seq_len, int64_t q_len, int64_t i);
LATHE_C_API int64_t lathe_row_keys(int64_t seq_len, int64_t q_len, int64_t i);
LATHE_C_API int64_t lathe_row_compressed_keys(int64_t seq_len, int64_t q_len, int64_t i,
                                              int64_t ratio);

// block_table: [B, columns] int32 or int64; -1, too, for any other tensor.
LATHE_C_API int64_t lathe_block_table_slot(const lathe_tensor* block_table, int64_t row,
                                           int64_t index, int64_t block_size);
LATHE_C_API int64_t lathe_compressed_slot(const lathe_tensor* block_table, int64_t row,
                                          int64_t position, int64_t ratio, int64_t block_size);

// world, interleave: 0 means 1.
typedef struct lathe_context_shard {
  size_t struct_size;
  int64_t world;
  int64_t rank;
  int64_t interleave;
} lathe_context_shard;

// A null shard is a world of one. One of no size owns nothing, and has lengths and positions of -1.
LATHE_C_API int32_t lathe_owns_position(const lathe_context_shard* shard, int64_t position);
LATHE_C_API int64_t lathe_local_length(const lathe_context_shard* shard, int64_t length);
LATHE_C_API int64_t lathe_local_position(const lathe_context_shard* shard, int64_t position);
LATHE_C_API int64_t lathe_global_position(const lathe_context_shard* shard, int64_t local);

LATHE_C_END

#endif  // LATHE_CAPI_V4_METADATA_H_
