// SPDX-License-Identifier: Apache-2.0
// Every target that this machine runs, as a Catch2 generator: the object code users get, forced in
// turn through options.
#ifndef LATHE_TESTS_SUPPORT_TARGETS_H_
#define LATHE_TESTS_SUPPORT_TARGETS_H_

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "lathe/base/target.h"
#include "support/bounds.h"

namespace lathe::test {

// LATHE_TEST_TARGET in the environment leaves only the target of that name.
inline std::vector<Target> RunnableTargets() {
  const char* only = std::getenv("LATHE_TEST_TARGET");
  std::vector<Target> targets;
  for (const TargetInfo& info : Targets()) {
    if (only != nullptr && std::strcmp(only, info.name) != 0) continue;
    if (info.runnable) targets.push_back(info.target);
  }
  if (targets.empty()) SKIP("the target asked for does not run here: " << only);
  return targets;
}

}  // namespace lathe::test

// const Target target = LATHE_GENERATE_TARGET(); the name shows in the failure messages.
#define LATHE_GENERATE_TARGET() GENERATE(from_range(::lathe::test::RunnableTargets()))

#endif  // LATHE_TESTS_SUPPORT_TARGETS_H_
