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
