// SPDX-License-Identifier: Apache-2.0
// The dispatched implementation with amx_bf16 over tiles in plain C++ and the vectors of the
// compiler's flags: runs on any machine.
#include "support/scalar_tile.h"

#define LATHE_TEST_TILE ::lathe::test::ScalarTile
#define LATHE_TEST_TILE_TARGET LATHE_BASELINE
#include <lathe/impl.h>
