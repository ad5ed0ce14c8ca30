// SPDX-License-Identifier: Apache-2.0
// First contact: one call that plans, allocates and runs. Engines plan once per step and keep their own
// buffers instead (mla_decode.h).
#ifndef LATHE_EASY_H_
#define LATHE_EASY_H_

#include <cstddef>
#include <vector>

#include "lathe/mla_decode.h"

namespace lathe::easy {

// RunMlaDecode of `args` (mla_decode.h), with plan and workspace of the sizes that this very call needs, which it
// allocates and frees (std::bad_alloc comes through). Refuses what PlanMlaDecode and RunMlaDecode refuse.
LATHE_INLINE Status MlaDecode(const MlaShape& shape, const MlaDecodeOptions& options,
                              const MlaDecodeArgs& args, const Executor& executor = {}) {
  std::vector<std::byte> plan_memory, workspace;
  const MlaDecodePlan* plan = nullptr;
  const auto make_plan = [&] {
    return PlanMlaDecode(shape, options, args, executor.num_workers,
                         {plan_memory.data(), plan_memory.size()}, &plan);
  };
  Status status = make_plan();
  if (status.code == StatusCode::kBufferTooSmall) {
    plan_memory.resize(static_cast<size_t>(status.bound));
    status = make_plan();
  }
  if (!status.ok()) return status;
  workspace.resize(PlanWorkspaceBytes(*plan));
  return RunMlaDecode(*plan, args, {workspace.data(), workspace.size()}, executor);
}

}  // namespace lathe::easy

#endif  // LATHE_EASY_H_
