// SPDX-License-Identifier: Apache-2.0
// Limits and Sizes: how much memory the calls of an operation need, asked once at start-up. Every operation that
// needs plan memory or a workspace has a function
//
//   Status <Operation>Sizes(shape, options, limits, &sizes)
//
// which is O(1), refuses what no call could be, and gives bytes that suffice for every call with this shape and
// these options that is no larger than `limits`.
#ifndef LATHE_BASE_PLAN_H_
#define LATHE_BASE_PLAN_H_

#include <cstddef>
#include <cstdint>

namespace lathe {

// The largest call. Operations look at those numbers only that their memory depends on, as they say.
//
//   max_num_seqs    sequences of a batch, B
//   max_num_tokens  rows of the whole batch, T: query tokens, or tokens to be compressed
//   max_num_keys    keys that any one row chooses or attends from, those of all its key sets added up. Of a set
//                   without a list they are the keys of the row's sequence: its tokens, or tokens / compress_ratio, or
//                   window + q_len - 1 where a window without row_kv_lens leaves fewer; of a set with a list the entries of the list (K)
//   num_workers     workers that share a call: num_workers of the executor, or of Plan where there is one
struct Limits {
  int64_t max_num_seqs = 0;
  int64_t max_num_tokens = 0;
  int64_t max_num_keys = 0;
  size_t num_workers = 1;
};

// plan_bytes is 0 for operations without a plan.
struct Sizes {
  size_t plan_bytes = 0;
  size_t workspace_bytes = 0;
};

}  // namespace lathe

#endif  // LATHE_BASE_PLAN_H_
