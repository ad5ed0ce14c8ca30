// SPDX-License-Identifier: Apache-2.0
// The SIMD sections of all formats, for one target pass: the same list as in formats.h.
#define LATHE_TARGET_PASS 1
#include "lathe/cache/latent.h"
#undef LATHE_TARGET_PASS
