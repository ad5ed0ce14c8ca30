// SPDX-License-Identifier: Apache-2.0
// Uses Highway's own dispatch in one unit and lathe's, compiled in another with other targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/build/foreign_unit.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tests/build/foreign.h"

#if HWY_ONCE
#include "lathe/lathe.h"
namespace ops = lathe;
#include "tests/build/exercise.h"
#include "tests/build/foreign_once.h"

int main() { return foreign::Works() && Exercise() && foreign::Works() ? 0 : 1; }
#endif
