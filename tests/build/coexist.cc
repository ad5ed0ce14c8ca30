// SPDX-License-Identifier: Apache-2.0
// A unit that uses Highway itself and also holds lathe's implementation, included at one of these
// places: each is a different state of Highway's macros, which isolate_begin.h must cope with.
#define LATHE_TEST_BEFORE_FOREACH 1
#define LATHE_TEST_BEFORE_HIGHWAY 2
#define LATHE_TEST_AFTER_HIGHWAY 3
#define LATHE_TEST_IN_ONCE 4
#define LATHE_TEST_BEFORE_STATIC 5  // these two: no foreach_target.h, only the static target
#define LATHE_TEST_AFTER_STATIC 6

#if LATHE_TEST_PLACE == LATHE_TEST_BEFORE_FOREACH || LATHE_TEST_PLACE == LATHE_TEST_BEFORE_STATIC
#include <lathe/impl.h>
#endif

#if LATHE_TEST_PLACE >= LATHE_TEST_BEFORE_STATIC
#define LATHE_TEST_STATIC 1
#else
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/build/coexist.cc"
#include "hwy/foreach_target.h"
#endif

#if LATHE_TEST_PLACE == LATHE_TEST_BEFORE_HIGHWAY
#include <lathe/impl.h>
#endif

#include "hwy/highway.h"

#if LATHE_TEST_PLACE == LATHE_TEST_AFTER_HIGHWAY || LATHE_TEST_PLACE == LATHE_TEST_AFTER_STATIC
#include <lathe/impl.h>
#endif

#include "tests/build/foreign.h"

#if HWY_ONCE
#include "tests/build/foreign_once.h"

#if LATHE_TEST_PLACE == LATHE_TEST_IN_ONCE
#include <lathe/impl.h>
#endif

namespace ops = lathe;
#include "tests/build/exercise.h"

int main() { return foreign::Works() && Exercise() && foreign::Works() ? 0 : 1; }
#endif
