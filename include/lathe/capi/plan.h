// SPDX-License-Identifier: Apache-2.0
// How much memory calls need, in the C interface: base/plan.h.
#ifndef LATHE_CAPI_PLAN_H_
#define LATHE_CAPI_PLAN_H_

#include "lathe/capi/common.h"

// num_workers: 0 means 1.
typedef struct lathe_limits {
  size_t struct_size;
  int64_t max_num_seqs;
  int64_t max_num_tokens;
  int64_t max_num_keys;
  size_t num_workers;
} lathe_limits;

typedef struct lathe_sizes {
  size_t struct_size;
  size_t plan_bytes;
  size_t workspace_bytes;
} lathe_sizes;

#endif  // LATHE_CAPI_PLAN_H_
