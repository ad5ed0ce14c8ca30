// SPDX-License-Identifier: Apache-2.0
// From here to isolate_end.h this translation unit looks as if nobody had included Highway yet, and
// all that Highway defines once per target goes to namespaces of our own. Whatever the unit does
// with Highway itself, before, after or around, is not disturbed and does not disturb us. No
// include guard.
//
// Highway keeps its state in macros: the target of the pass, toggles that say whether a header was
// already seen in this pass, and include guards. The macros are saved and set to "nothing seen",
// and the per-target namespaces N_<TARGET> are renamed. Two toggles cannot be saved by name: some
// hundred HWY_NATIVE_<op>, of which each Highway has others. But they all flip once in a pass,
// together with HWY_HIGHWAY_PER_TARGET, so everything else is made to agree with that one, and
// isolate_end.h sees to it that the number of passes is even.

// Headers that are the same for every target. They have ordinary guards and stay included: were
// HWY_TARGET, which detect_targets.h defines, first seen below, isolate_end.h would take it away.
#include "hwy/base.h"
#include "hwy/detect_targets.h"
#include "hwy/targets.h"
#include "lathe/dispatch/abi.h"

#pragma push_macro("HWY_TARGET")
#pragma push_macro("HWY_ONCE")
#pragma push_macro("HWY_TARGET_TOGGLE")
#pragma push_macro("HWY_TARGET_INCLUDE")
#pragma push_macro("HWY_ALREADY_INCLUDED")
#pragma push_macro("HWY_HIGHWAY_INCLUDED")
#pragma push_macro("HWY_HIGHWAY_PER_TARGET")
#pragma push_macro("HWY_SET_MACROS_PER_TARGET")
#pragma push_macro("HIGHWAY_HWY_OPS_SHARED_TOGGLE")
#pragma push_macro("HWY_NEON_HAVE_F32_TO_BF16C")
#pragma push_macro("HWY_ABORT")

// Is this unit amid a use of Highway, whose per-target macros isolate_end.h must restore?
#ifdef HWY_NAMESPACE
#define LATHE_HIGHWAY_IN_USE
#endif

// "Nothing seen in this pass" is: all of these defined, or none.
#undef HWY_TARGET_TOGGLE
#undef HWY_SET_MACROS_PER_TARGET
#undef HIGHWAY_HWY_OPS_SHARED_TOGGLE
#ifdef HWY_HIGHWAY_PER_TARGET
#define HWY_TARGET_TOGGLE
#define HWY_SET_MACROS_PER_TARGET
#define HIGHWAY_HWY_OPS_SHARED_TOGGLE
#endif
#undef LATHE_ODD_PASSES
#undef HWY_NEON_HAVE_F32_TO_BF16C  // flip.h

// HWY_NAMESPACE expands to one of these names, and through them to a private one.
#define LATHE_PRIVATE(target) target##_lathe
#define N_SCALAR LATHE_PRIVATE(SCALAR)
#define N_EMU128 LATHE_PRIVATE(EMU128)
#define N_SSE2 LATHE_PRIVATE(SSE2)
#define N_SSSE3 LATHE_PRIVATE(SSSE3)
#define N_SSE4 LATHE_PRIVATE(SSE4)
#define N_AVX2 LATHE_PRIVATE(AVX2)
#define N_AVX3 LATHE_PRIVATE(AVX3)
#define N_AVX3_DL LATHE_PRIVATE(AVX3_DL)
#define N_AVX3_ZEN4 LATHE_PRIVATE(AVX3_ZEN4)
#define N_AVX3_SPR LATHE_PRIVATE(AVX3_SPR)
#define N_AVX10_2 LATHE_PRIVATE(AVX10_2)
#define N_NEON_WITHOUT_AES LATHE_PRIVATE(NEON_WITHOUT_AES)
#define N_NEON LATHE_PRIVATE(NEON)
#define N_NEON_BF16 LATHE_PRIVATE(NEON_BF16)
#define N_WASM LATHE_PRIVATE(WASM)
#define N_WASM_EMU256 LATHE_PRIVATE(WASM_EMU256)
#define N_RVV LATHE_PRIVATE(RVV)
#define N_PPC8 LATHE_PRIVATE(PPC8)
#define N_PPC9 LATHE_PRIVATE(PPC9)
#define N_PPC10 LATHE_PRIVATE(PPC10)
#define N_Z14 LATHE_PRIVATE(Z14)
#define N_Z15 LATHE_PRIVATE(Z15)
#define N_LSX LATHE_PRIVATE(LSX)
#define N_LASX LATHE_PRIVATE(LASX)

// The templates that highway.h defines once; a later first #include of it shall define its own.
#ifndef HWY_HIGHWAY_INCLUDED
#define FunctionCache LATHE_PRIVATE(FunctionCache)
#define DeduceFunctionCache LATHE_PRIVATE(DeduceFunctionCache)
#define LATHE_HID_HIGHWAY_H
#endif

// Highway's assertions, which are live at -O0, would be all that static.h needs of libhwy.
#if LATHE_STATIC_ONLY
#undef HWY_ABORT
#define HWY_ABORT(...) __builtin_trap()
#endif
