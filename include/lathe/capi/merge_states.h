// SPDX-License-Identifier: Apache-2.0
// Merging partial results in the C interface: merge_states.h.
#ifndef LATHE_CAPI_MERGE_STATES_H_
#define LATHE_CAPI_MERGE_STATES_H_

#include "lathe/capi/common.h"

LATHE_C_BEGIN

typedef struct lathe_merge_part {
  size_t struct_size;
  lathe_tensor out;
  lathe_tensor lse;
  lathe_lse_policy lse_policy;
} lathe_merge_part;

// `parts` are num_parts structs side by side.
typedef struct lathe_merge_states_args {
  size_t struct_size;
  const lathe_merge_part* parts;
  size_t num_parts;
  lathe_tensor attn_sink;
  lathe_tensor out;
  lathe_tensor lse;
} lathe_merge_states_args;

typedef struct lathe_merge_states_options {
  size_t struct_size;
  int32_t target;
  lathe_lse_policy lse_policy;
} lathe_merge_states_options;

// workspace: lathe_array_workspace_bytes(args->num_parts) bytes.
LATHE_C_API int32_t lathe_merge_states(const lathe_merge_states_args* args,
                                       const lathe_merge_states_options* options,
                                       lathe_buffer workspace, const lathe_executor* executor,
                                       lathe_message* message);

LATHE_C_END

#endif  // LATHE_CAPI_MERGE_STATES_H_
