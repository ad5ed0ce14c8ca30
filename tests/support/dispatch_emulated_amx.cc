// SPDX-License-Identifier: Apache-2.0
// The dispatched implementation with amx_bf16 as it is, taken for runnable on every CPU with
// AVX512_BF16: where there is no AMX, the emulator executes it.
#include "support/amx_emulator.h"

#define LATHE_TEST_TILE ::lathe::test::EmulatedAmxTile
#include <lathe/impl.h>
