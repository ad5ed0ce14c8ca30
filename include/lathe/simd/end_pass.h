// SPDX-License-Identifier: Apache-2.0
// Ends a pass over targets: the -inl.h files of lathe may be included again, for another HWY_TARGET. No include guard.
//
// Each of them has a toggle as its guard, which differs from this one once the file has been seen in a pass. Highway's
// own HWY_TARGET_TOGGLE will not do: it may stand either way where dispatch/isolate_begin.h begins. A file must be
// included in every pass or in none, so what a target does not need is left out inside of files.
#ifdef LATHE_TARGET_TOGGLE
#undef LATHE_TARGET_TOGGLE
#else
#define LATHE_TARGET_TOGGLE
#endif
