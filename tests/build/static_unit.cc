// SPDX-License-Identifier: Apache-2.0
// lathe/static.h under some flags: does it get the target that its documentation promises, and run?
#include "lathe/static.h"

namespace ops = lathe::st;
#include "tests/build/exercise.h"

static_assert(lathe::st::kStaticTarget == lathe::Target::LATHE_TEST_EXPECTED);

bool LATHE_TEST_ENTRY() {
  std::printf("%s:\n", lathe::st::kStaticTargetName);
  return lathe::st::BestTarget() == lathe::st::kStaticTarget && Exercise();
}
