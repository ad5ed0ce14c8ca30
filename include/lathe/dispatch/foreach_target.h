// SPDX-License-Identifier: Apache-2.0
// Compiles the kernels once for each target and makes them known as kCompiled<HWY_...>. Our own
// loop instead of hwy/foreach_target.h: that one has an include guard, so it would break every unit
// that also uses it, and its nine targets cost twice the time of the four we want.
//
// LATHE_DISABLED_TARGETS, a mask of Highway's targets
// (-DLATHE_DISABLED_TARGETS="(HWY_AVX2|HWY_AVX3)"), leaves targets out; each costs as long to
// compile as the others (docs/compile_time.md). The baseline cannot be left out.
#ifndef LATHE_DISPATCH_FOREACH_TARGET_H_
#define LATHE_DISPATCH_FOREACH_TARGET_H_

// What Highway includes within a pass is included here: it is not Highway's to give linkage (pass.h).
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "lathe/arch/x86_amx.h"
#include "lathe/dispatch/abi.h"
#include "lathe/kernel/kernel_table.h"

#ifndef LATHE_DISABLED_TARGETS
#define LATHE_DISABLED_TARGETS 0
#endif

// Highway offers no NEON where the flags demand SVE, which we do not use.
#if (HWY_STATIC_TARGET & HWY_ALL_SVE) && !defined(HWY_COMPILE_ONLY_STATIC)
#define LATHE_OFFERED_TARGETS (HWY_ENABLED(HWY_ALL_NEON) & (LATHE_BASELINE - 1))
#else
#define LATHE_OFFERED_TARGETS HWY_TARGETS
#endif

#if LATHE_STATIC_ONLY
#define LATHE_TARGETS LATHE_BASELINE
#else
#define LATHE_TARGETS                                                   \
  ((LATHE_OFFERED_TARGETS & ~(LATHE_DISABLED_TARGETS) &                 \
    (HWY_AVX2 | HWY_AVX3 | HWY_AVX3_ZEN4 | HWY_NEON | HWY_NEON_BF16)) | \
   LATHE_BASELINE)
#endif

// The pass that also compiles the kernels over tiles, or 0. AVX3_ZEN4 is the least that AMX comes
// with: it has bf16 dots, and no FP16, which would keep it from machines that emulate AMX.
//
// Tests define LATHE_TEST_TILE, a tile policy to be compiled and taken for present, whatever the
// CPU has; for LATHE_TEST_TILE_TARGET if that is defined. Nothing else may.
#ifdef LATHE_TEST_TILE
#define LATHE_TILE LATHE_TEST_TILE
#else
#define LATHE_TILE ::lathe::arch::AmxTile
#endif
#if defined(LATHE_TEST_TILE_TARGET)
#define LATHE_TILE_TARGET LATHE_TEST_TILE_TARGET
#elif LATHE_STATIC_ONLY || !LATHE_HAVE_AMX
#define LATHE_TILE_TARGET 0
#elif LATHE_BASELINE == HWY_AVX3_SPR
#define LATHE_TILE_TARGET HWY_AVX3_SPR
#else
#define LATHE_TILE_TARGET HWY_AVX3_ZEN4
#endif

namespace lathe::detail {
namespace {

struct CompiledTarget {
  // Null: not compiled. The function itself is code for that target, so ask the CPU first.
  const KernelTable& (*kernels)() = nullptr;
  bool native_bf16 = false;
};

// By Highway's target; pass.h specialises it.
template <int64_t kHighwayTarget>
inline constexpr CompiledTarget kCompiled = {};

// A target's kernels over tiles.
template <int64_t kHighwayTarget>
inline constexpr CompiledTarget kCompiledTiles = {};

}  // namespace
}  // namespace lathe::detail

#include "lathe/dispatch/isolate_begin.h"

#if LATHE_TARGETS & HWY_AVX2
#undef HWY_TARGET
#define HWY_TARGET HWY_AVX2
#include "lathe/dispatch/pass.h"
#endif

#if LATHE_TARGETS & HWY_AVX3
#undef HWY_TARGET
#define HWY_TARGET HWY_AVX3
#include "lathe/dispatch/pass.h"
#endif

#if LATHE_TARGETS & HWY_AVX3_ZEN4
#undef HWY_TARGET
#define HWY_TARGET HWY_AVX3_ZEN4
#include "lathe/dispatch/pass.h"
#endif

#if LATHE_TARGETS & HWY_NEON
#undef HWY_TARGET
#define HWY_TARGET HWY_NEON
#include "lathe/dispatch/pass.h"
#endif

#if LATHE_TARGETS & HWY_NEON_BF16
#undef HWY_TARGET
#define HWY_TARGET HWY_NEON_BF16
#include "lathe/dispatch/pass.h"
#endif

// A baseline that is none of these.
#if LATHE_BASELINE & ~(HWY_AVX2 | HWY_AVX3 | HWY_AVX3_ZEN4 | HWY_NEON | HWY_NEON_BF16)
#undef HWY_TARGET
#define HWY_TARGET LATHE_BASELINE
#include "lathe/dispatch/pass.h"
#endif

#include "lathe/dispatch/isolate_end.h"

#endif  // LATHE_DISPATCH_FOREACH_TARGET_H_
