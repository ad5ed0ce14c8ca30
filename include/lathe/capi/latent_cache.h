// SPDX-License-Identifier: Apache-2.0
// Cache writes, gathers and copies of the C interface: latent_cache.h.
#ifndef LATHE_CAPI_LATENT_CACHE_H_
#define LATHE_CAPI_LATENT_CACHE_H_

#include "lathe/capi/common.h"
#include "lathe/capi/keys.h"

LATHE_C_BEGIN

// cache is required, transform is optional.
typedef struct lathe_latent_write_args {
  size_t struct_size;
  lathe_tensor kv_c;
  lathe_tensor k_pe;
  lathe_tensor slot_mapping;
  const lathe_paged_cache* cache;
  const lathe_row_transform* transform;
  lathe_tensor positions;
} lathe_latent_write_args;

typedef struct lathe_latent_write_options {
  size_t struct_size;
  int32_t target;
  int32_t power_of_two_scales;
} lathe_latent_write_options;

LATHE_C_API int32_t lathe_write_latent_cache(const lathe_latent_write_args* args,
                                             const lathe_latent_write_options* options,
                                             const lathe_executor* executor,
                                             lathe_message* message);

// `layers` are num_layers structs side by side. workspace: lathe_array_workspace_bytes(num_layers) bytes.
LATHE_C_API int32_t lathe_write_latent_caches(const lathe_latent_write_args* layers,
                                              size_t num_layers,
                                              const lathe_latent_write_options* options,
                                              lathe_buffer workspace,
                                              const lathe_executor* executor,
                                              lathe_message* message);

// cache is required.
typedef struct lathe_latent_gather_args {
  size_t struct_size;
  const lathe_paged_cache* cache;
  lathe_tensor block_table;
  lathe_tensor gather_lens;
  lathe_tensor gather_starts;
  int64_t last_n;
  lathe_tensor out_start_loc;
  lathe_tensor out;
} lathe_latent_gather_args;

typedef struct lathe_latent_gather_options {
  size_t struct_size;
  int32_t target;
} lathe_latent_gather_options;

LATHE_C_API int32_t lathe_gather_latent_cache(const lathe_latent_gather_args* args,
                                              const lathe_latent_gather_options* options,
                                              const lathe_executor* executor,
                                              lathe_message* message);

typedef struct lathe_page_copy_args {
  size_t struct_size;
  const void* source;
  int64_t num_source_blocks;
  int64_t source_stride;
  void* destination;
  int64_t num_destination_blocks;
  int64_t destination_stride;
  int64_t page_bytes;
  lathe_tensor block_pairs;
} lathe_page_copy_args;

LATHE_C_API int32_t lathe_copy_cache_pages(const lathe_page_copy_args* args,
                                           const lathe_executor* executor, lathe_message* message);

// `layers` are num_layers structs side by side. workspace: lathe_array_workspace_bytes(num_layers) bytes.
LATHE_C_API int32_t lathe_copy_caches_pages(const lathe_page_copy_args* layers, size_t num_layers,
                                            lathe_buffer workspace, const lathe_executor* executor,
                                            lathe_message* message);

// cache is required.
typedef struct lathe_record_copy_args {
  size_t struct_size;
  const lathe_paged_cache* cache;
  int64_t width;
  lathe_tensor src_slots;
  lathe_tensor dst_slots;
} lathe_record_copy_args;

LATHE_C_API int32_t lathe_copy_cache_records(const lathe_record_copy_args* args,
                                             const lathe_executor* executor,
                                             lathe_message* message);

// `layers` are num_layers structs side by side. workspace: lathe_array_workspace_bytes(num_layers) bytes.
LATHE_C_API int32_t lathe_copy_caches_records(const lathe_record_copy_args* layers,
                                              size_t num_layers, lathe_buffer workspace,
                                              const lathe_executor* executor,
                                              lathe_message* message);

LATHE_C_END

#endif  // LATHE_CAPI_LATENT_CACHE_H_
