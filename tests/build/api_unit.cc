// SPDX-License-Identifier: Apache-2.0
// One of several units of a program: uses the API headers, knows nothing of the implementation.
#include "lathe/lathe.h"

namespace ops = lathe;
#include "tests/build/exercise.h"

bool LATHE_TEST_ENTRY() { return Exercise(); }
