// SPDX-License-Identifier: Apache-2.0
// Query preparation in the C interface: query_prep.h.
#ifndef LATHE_CAPI_QUERY_PREP_H_
#define LATHE_CAPI_QUERY_PREP_H_

#include "lathe/capi/common.h"
#include "lathe/capi/keys.h"

LATHE_C_BEGIN

// codes has dtype uint8.
typedef struct lathe_query_prep_args {
  size_t struct_size;
  lathe_tensor q;
  const lathe_row_transform* transform;
  lathe_tensor positions;
  lathe_tensor out;
  lathe_tensor codes;
  lathe_tensor q_scales;
  lathe_tensor weights;
  lathe_tensor weights_out;
} lathe_query_prep_args;

// softmax_scale, head_scale: 0 means 1.
typedef struct lathe_query_prep_options {
  size_t struct_size;
  int32_t target;
  int32_t power_of_two_scales;
  float softmax_scale;
  float head_scale;
} lathe_query_prep_options;

LATHE_C_API int32_t lathe_prepare_queries(const lathe_query_prep_args* args,
                                          const lathe_query_prep_options* options,
                                          const lathe_executor* executor, lathe_message* message);

LATHE_C_END

#endif  // LATHE_CAPI_QUERY_PREP_H_
