// SPDX-License-Identifier: Apache-2.0
// A decode step whose tensors the test has laid out itself, with memory of its own for plan and workspace.
#ifndef LATHE_TESTS_SUPPORT_RUN_DECODE_H_
#define LATHE_TESTS_SUPPORT_RUN_DECODE_H_

#include <vector>

#include "lathe/mla_decode.h"
#include "support/require_ok.h"
#include "support/threads.h"

namespace lathe::test {

// On as many threads as the plan has workers.
inline void RunDecode(const MlaShape& shape, const MlaDecodeOptions& options,
                      const MlaDecodeArgs& args, size_t num_workers = 1) {
  std::vector<std::byte> plan_memory(1 << 20);
  const MlaDecodePlan* plan = nullptr;
  RequireOk(PlanMlaDecode(shape, options, args, num_workers,
                          {plan_memory.data(), plan_memory.size()}, &plan));
  std::vector<std::byte> workspace(PlanWorkspaceBytes(*plan));
  RequireOk(
      RunMlaDecode(*plan, args, {workspace.data(), workspace.size()}, ThreadExecutor(num_workers)));
}

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_RUN_DECODE_H_
