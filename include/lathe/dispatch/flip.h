// SPDX-License-Identifier: Apache-2.0
// Ends a pass: Highway's headers may be included again. No include guard.
#ifdef HWY_TARGET_TOGGLE
#undef HWY_TARGET_TOGGLE
#else
#define HWY_TARGET_TOGGLE
#endif

#ifdef LATHE_ODD_PASSES
#undef LATHE_ODD_PASSES
#else
#define LATHE_ODD_PASSES
#endif

// Highway sets this after the macros of a pass that depend on it, so that HWY_NATIVE_DOT_BF16 would
// be 1 in the pass after NEON_BF16.
#undef HWY_NEON_HAVE_F32_TO_BF16C
