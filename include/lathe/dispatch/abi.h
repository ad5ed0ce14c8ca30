// SPDX-License-Identifier: Apache-2.0
// How this translation unit is compiled: its baseline, and whether for that alone.
//
// All code whose machine code depends on it has internal linkage: were it inline with one name in two
// units of different -m flags, the linker would keep either, and a baseline path could end up with
// AVX-512 instructions in it. Host code stands in an unnamed namespace,
//
//   namespace lathe { namespace detail { namespace {
//
// and pass.h sees to the code of targets, Highway's included.
#ifndef LATHE_DISPATCH_ABI_H_
#define LATHE_DISPATCH_ABI_H_

#include "hwy/base.h"
#include "hwy/detect_targets.h"
#include "lathe/version.h"

#if !defined(HWY_VERSION_LT)
#error "lathe needs Highway 1.2.0 or newer; this one does not even have HWY_VERSION_LT"
#elif HWY_VERSION_LT(1, 2)
#error "lathe needs Highway 1.2.0 or newer"
#endif

// Infinities and NaN have their meaning in lathe, a quotient is no product by a reciprocal, and sums keep their order.
// GCC 11 and Clang name none of the flags behind -ffast-math (docs/dispatch.md).
#if __FINITE_MATH_ONLY__ || defined(__FAST_MATH__) || defined(__RECIPROCAL_MATH__) || \
    defined(__ASSOCIATIVE_MATH__) || defined(__NO_SIGNED_ZEROS__)
#error "lathe computes as IEEE 754 says: compile this file with -fno-fast-math"
#endif

// static.h sets 1: the targets of this unit's own flags alone, and no call into libhwy.
#ifndef LATHE_STATIC_ONLY
#define LATHE_STATIC_ONLY 0
#endif

// The target of the flags themselves, the kPortable row. Kernels use vectors of a compile-time
// size, so with SVE flags the NEON target that the flags include stands in; and vectors of several
// lanes, so EMU128 stands in for SCALAR. Highway itself avoids EMU128 with GCC < 14, whose
// vectoriser gets some of its operations wrong (GCC bug 106322); those of our kernels pass all
// tests.
#if HWY_STATIC_TARGET & HWY_ALL_SVE
#define LATHE_BASELINE (HWY_ENABLED(HWY_BASELINE_NEON) & -HWY_ENABLED(HWY_BASELINE_NEON))
#elif HWY_STATIC_TARGET == HWY_SCALAR
#define LATHE_BASELINE HWY_EMU128
#else
#define LATHE_BASELINE HWY_STATIC_TARGET
#endif

// The baseline's name as a token.
#if LATHE_BASELINE == HWY_EMU128
#define LATHE_BASELINE_TOKEN EMU128
#elif LATHE_BASELINE == HWY_SSE2
#define LATHE_BASELINE_TOKEN SSE2
#elif LATHE_BASELINE == HWY_SSSE3
#define LATHE_BASELINE_TOKEN SSSE3
#elif LATHE_BASELINE == HWY_SSE4
#define LATHE_BASELINE_TOKEN SSE4
#elif LATHE_BASELINE == HWY_AVX2
#define LATHE_BASELINE_TOKEN AVX2
#elif LATHE_BASELINE == HWY_AVX3
#define LATHE_BASELINE_TOKEN AVX3
#elif LATHE_BASELINE == HWY_AVX3_DL
#define LATHE_BASELINE_TOKEN AVX3_DL
#elif LATHE_BASELINE == HWY_AVX3_ZEN4
#define LATHE_BASELINE_TOKEN AVX3_ZEN4
#elif LATHE_BASELINE == HWY_AVX3_SPR
#define LATHE_BASELINE_TOKEN AVX3_SPR
#elif LATHE_BASELINE == HWY_NEON_WITHOUT_AES
#define LATHE_BASELINE_TOKEN NEON_WITHOUT_AES
#elif LATHE_BASELINE == HWY_NEON
#define LATHE_BASELINE_TOKEN NEON
#elif LATHE_BASELINE == HWY_NEON_BF16
#define LATHE_BASELINE_TOKEN NEON_BF16
#else
#define LATHE_BASELINE_TOKEN OTHER
#endif

#define LATHE_STRING_TOKENS(a) #a
#define LATHE_STRING(a) LATHE_STRING_TOKENS(a)

#endif  // LATHE_DISPATCH_ABI_H_
