// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V4's compressor in the C interface: compressor.h.
#ifndef LATHE_CAPI_COMPRESSOR_H_
#define LATHE_CAPI_COMPRESSOR_H_

#include "lathe/capi/common.h"
#include "lathe/capi/keys.h"
#include "lathe/capi/plan.h"
#include "lathe/capi/v4_metadata.h"

LATHE_C_BEGIN

// head_dim has no default.
typedef struct lathe_compressor_shape {
  size_t struct_size;
  int64_t head_dim;
} lathe_compressor_shape;

// state is required; cache is optional with partials.
typedef struct lathe_compressor_args {
  size_t struct_size;
  lathe_tensor kv;
  lathe_tensor score;
  lathe_tensor ape;
  lathe_tensor positions;
  lathe_tensor query_start_loc;
  const lathe_paged_cache* state;
  lathe_tensor state_block_table;
  const lathe_row_transform* transform;
  const lathe_paged_cache* cache;
  lathe_tensor block_table;
  lathe_tensor slot_mapping;
  lathe_tensor partials;
} lathe_compressor_args;

// ratio has no default. A null shard is a world of one.
typedef struct lathe_compressor_options {
  size_t struct_size;
  int64_t ratio;
  int32_t overlap;
  int32_t power_of_two_scales;
  int64_t state_tokens;
  const lathe_context_shard* shard;
  int32_t target;
} lathe_compressor_options;

LATHE_C_API int32_t lathe_compressor_sizes(const lathe_compressor_shape* shape,
                                           const lathe_compressor_options* options,
                                           const lathe_limits* limits, lathe_sizes* sizes,
                                           lathe_message* message);
LATHE_C_API int32_t lathe_compress_tokens(const lathe_compressor_args* args,
                                          const lathe_compressor_options* options,
                                          lathe_buffer workspace, const lathe_executor* executor,
                                          lathe_message* message);

// `parts` are num_parts tensors side by side.
typedef struct lathe_compressed_merge_args {
  size_t struct_size;
  const lathe_tensor* parts;
  size_t num_parts;
  lathe_tensor positions;
  lathe_tensor slot_mapping;
  const lathe_row_transform* transform;
  const lathe_paged_cache* cache;
} lathe_compressed_merge_args;

typedef struct lathe_compressed_merge_options {
  size_t struct_size;
  int64_t ratio;
  int32_t power_of_two_scales;
  int32_t target;
} lathe_compressed_merge_options;

// workspace: lathe_array_workspace_bytes(args->num_parts) bytes.
LATHE_C_API int32_t lathe_merge_compressed(const lathe_compressed_merge_args* args,
                                           const lathe_compressed_merge_options* options,
                                           lathe_buffer workspace, const lathe_executor* executor,
                                           lathe_message* message);

LATHE_C_END

#endif  // LATHE_CAPI_COMPRESSOR_H_
