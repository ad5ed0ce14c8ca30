// SPDX-License-Identifier: Apache-2.0
// LATHE_ABI: the namespace of all code whose machine code depends on how this translation unit is
// compiled. Two units with different -m flags would otherwise share inline functions of one name,
// the linker would keep either, and a baseline path could end up with AVX-512 instructions in it.
// Host code opens
//
//   namespace lathe { namespace detail { namespace LATHE_ABI {
//
// and per-target code gets the same key through HWY_NAMESPACE (isolate_begin.h). An example of a
// name: v0_1_0_dynamic_SSE2_000000000000000000000000000000.
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

#if __FINITE_MATH_ONLY__
#error "lathe needs infinities and NaN: compile this file with -fno-finite-math-only"
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

// Its name as a token.
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

#define LATHE_CONCAT_TOKENS(a, b) a##b
#define LATHE_CONCAT(a, b) LATHE_CONCAT_TOKENS(a, b)
#define LATHE_STRING_TOKENS(a) #a
#define LATHE_STRING(a) LATHE_STRING_TOKENS(a)

// 1 if the compiler predefines `macro` as 1, else 0: LATHE_ONE_1 has a comma in it, which shifts
// the 1 into second place; LATHE_ONE_<anything else> is one token that stays in first.
#define LATHE_ONE_1 ~, 1
#define LATHE_SECOND(first, second, ...) second
#define LATHE_SECOND_OF(...) LATHE_SECOND(__VA_ARGS__)
#define LATHE_IS_ONE(macro) LATHE_SECOND_OF(LATHE_CONCAT(LATHE_ONE_, macro), 0, ~)

#define LATHE_DIGITS(a, b, c, d, e, f) LATHE_DIGITS_TOKENS(a, b, c, d, e, f)
#define LATHE_DIGITS_TOKENS(a, b, c, d, e, f) a##b##c##d##e##f

// One digit for each instruction set that a compiler uses of its own accord: Highway's target alone
// is too coarse, -march=x86-64-v3 is SSSE3 to it and has AVX2 code everywhere. Append only.
#if HWY_ARCH_X86
#define LATHE_FLAGS_1                                                                     \
  LATHE_DIGITS(LATHE_IS_ONE(__SSE3__), LATHE_IS_ONE(__SSSE3__), LATHE_IS_ONE(__SSE4_1__), \
               LATHE_IS_ONE(__SSE4_2__), LATHE_IS_ONE(__POPCNT__), LATHE_IS_ONE(__MOVBE__))
#define LATHE_FLAGS_2                                                                 \
  LATHE_DIGITS(LATHE_IS_ONE(__AVX__), LATHE_IS_ONE(__AVX2__), LATHE_IS_ONE(__F16C__), \
               LATHE_IS_ONE(__FMA__), LATHE_IS_ONE(__BMI__), LATHE_IS_ONE(__BMI2__))
#define LATHE_FLAGS_3                                                                    \
  LATHE_DIGITS(LATHE_IS_ONE(__LZCNT__), LATHE_IS_ONE(__AES__), LATHE_IS_ONE(__PCLMUL__), \
               LATHE_IS_ONE(__GFNI__), LATHE_IS_ONE(__AVXVNNI__), LATHE_IS_ONE(__AVX512F__))
#define LATHE_FLAGS_4                                                                              \
  LATHE_DIGITS(LATHE_IS_ONE(__AVX512CD__), LATHE_IS_ONE(__AVX512BW__), LATHE_IS_ONE(__AVX512DQ__), \
               LATHE_IS_ONE(__AVX512VL__), LATHE_IS_ONE(__AVX512IFMA__),                           \
               LATHE_IS_ONE(__AVX512VBMI__))
#define LATHE_FLAGS_5                                                             \
  LATHE_DIGITS(LATHE_IS_ONE(__AVX512VBMI2__), LATHE_IS_ONE(__AVX512VNNI__),       \
               LATHE_IS_ONE(__AVX512BITALG__), LATHE_IS_ONE(__AVX512VPOPCNTDQ__), \
               LATHE_IS_ONE(__AVX512BF16__), LATHE_IS_ONE(__AVX512FP16__))
#define LATHE_FLAGS \
  LATHE_DIGITS(LATHE_FLAGS_1, LATHE_FLAGS_2, LATHE_FLAGS_3, LATHE_FLAGS_4, LATHE_FLAGS_5, )
#elif HWY_ARCH_ARM
#define LATHE_FLAGS_1                                                                          \
  LATHE_DIGITS(                                                                                \
      LATHE_IS_ONE(__ARM_FEATURE_ATOMICS), LATHE_IS_ONE(__ARM_FEATURE_AES),                    \
      LATHE_IS_ONE(__ARM_FEATURE_DOTPROD), LATHE_IS_ONE(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC), \
      LATHE_IS_ONE(__ARM_FEATURE_FP16_FML), LATHE_IS_ONE(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC))
#define LATHE_FLAGS_2                                                                    \
  LATHE_DIGITS(LATHE_IS_ONE(__ARM_FEATURE_MATMUL_INT8), LATHE_IS_ONE(__ARM_FEATURE_SVE), \
               LATHE_IS_ONE(__ARM_FEATURE_SVE2), LATHE_IS_ONE(__ARM_FEATURE_JCVT),       \
               LATHE_IS_ONE(__ARM_FEATURE_CRC32), LATHE_IS_ONE(__ARM_FEATURE_RCPC))
#define LATHE_FLAGS LATHE_DIGITS(LATHE_FLAGS_1, LATHE_FLAGS_2, , , , )
#else
#define LATHE_FLAGS 0
#endif

#if defined(LATHE_TEST_TILE)  // foreach_target.h
#define LATHE_MODE_TOKEN test
#elif LATHE_STATIC_ONLY
#define LATHE_MODE_TOKEN static
#else
#define LATHE_MODE_TOKEN dynamic
#endif

#define LATHE_ABI_TOKENS(major, minor, patch, mode, baseline, flags) \
  v##major##_##minor##_##patch##_##mode##_##baseline##_##flags
#define LATHE_ABI_OF(major, minor, patch, mode, baseline, flags) \
  LATHE_ABI_TOKENS(major, minor, patch, mode, baseline, flags)
// The version is part of it, so that two modules of one process may carry different versions.
#define LATHE_ABI                                                                               \
  LATHE_ABI_OF(LATHE_VERSION_MAJOR, LATHE_VERSION_MINOR, LATHE_VERSION_PATCH, LATHE_MODE_TOKEN, \
               LATHE_BASELINE_TOKEN, LATHE_FLAGS)

#endif  // LATHE_DISPATCH_ABI_H_
