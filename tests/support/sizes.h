// SPDX-License-Identifier: Apache-2.0
// The workspace that an operation asks for.
#ifndef LATHE_TESTS_SUPPORT_SIZES_H_
#define LATHE_TESTS_SUPPORT_SIZES_H_

#include <catch2/catch_test_macros.hpp>

#include "lathe/lathe.h"
#include "support/require_ok.h"

namespace lathe::test {

// WorkspaceFor(CompressorSizes, shape, options, limits)
template <class SizesOf, class... What>
size_t WorkspaceFor(SizesOf sizes_of, const What&... what) {
  Sizes sizes;
  RequireOk(sizes_of(what..., &sizes));
  if (sizes.plan_bytes != 0) REQUIRE(sizes.plan_bytes == 0);
  return sizes.workspace_bytes;
}

inline size_t TopkWorkspaceFor(int64_t num_columns, int64_t k, size_t num_workers = 1) {
  TopkOptions options;
  options.k = k;
  return WorkspaceFor(TopkSizes, options, Limits{0, 0, num_columns, num_workers});
}

inline size_t CompressorWorkspaceFor(const CompressorOptions& options, int64_t num_tokens,
                                     int64_t num_seqs, int64_t head_dim) {
  return WorkspaceFor(CompressorSizes, CompressorShape{head_dim}, options,
                      Limits{num_seqs, num_tokens, 0, 1});
}

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_SIZES_H_
