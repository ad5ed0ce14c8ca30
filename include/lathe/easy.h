// SPDX-License-Identifier: Apache-2.0
// First contact: one call that plans, allocates and runs. Engines plan once per step and keep their own
// buffers instead (mla_decode.h).
#ifndef LATHE_EASY_H_
#define LATHE_EASY_H_

#include <cstddef>
#include <vector>

#include "lathe/mla_decode.h"

namespace lathe {
namespace easy {

// MlaDecode of `args`, see RunMlaDecode, with memory of its own: allocates plan and workspace at every call
// (std::bad_alloc comes through). Refuses what Plan and Run refuse.
inline Status MlaDecode(const MlaShape& shape, const MlaDecodeOptions& options,
                        const MlaDecodeArgs& args, const Executor& executor = {}) {
  MlaDecodeLimits limits;
  limits.num_workers = executor.num_workers;
  limits.max_num_tokens = args.out.extent[0] > 0 ? args.out.extent[0] : 1;
  limits.max_num_seqs = args.query_start_loc.extent[0] > 1 ? args.query_start_loc.extent[0] - 1
                                                           : limits.max_num_tokens;
  const KeySet& keys = args.keys;
  limits.max_seq_len = 1;
  for (const int64_t keys_at_most :
       {keys.block_table.extent[1] * keys.cache.block_size, keys.indices.extent[1]}) {
    if (keys_at_most > limits.max_seq_len) limits.max_seq_len = keys_at_most;
  }
  Sizes sizes;
  if (const Status status = MlaDecodeSizes(shape, options, limits, &sizes); !status.ok()) {
    return status;
  }
  std::vector<std::byte> plan_memory(sizes.plan_bytes);
  const MlaDecodePlan* plan = nullptr;
  const Status planned = PlanMlaDecode(shape, options, args, limits.num_workers,
                                       {plan_memory.data(), plan_memory.size()}, &plan);
  if (!planned.ok()) return planned;
  std::vector<std::byte> workspace(PlanWorkspaceBytes(*plan));
  return RunMlaDecode(*plan, args, {workspace.data(), workspace.size()}, executor);
}

}  // namespace easy
}  // namespace lathe

#endif  // LATHE_EASY_H_
