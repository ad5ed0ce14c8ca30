// SPDX-License-Identifier: Apache-2.0
// Undoes isolate_begin.h. No include guard.

// A pass whose only use is to flip all toggles once more: the target that is cheapest to parse.
#ifdef LATHE_ODD_PASSES
#undef HWY_TARGET
#define HWY_TARGET HWY_SCALAR
#undef N_SCALAR
#define N_SCALAR LATHE_PRIVATE(PAD)
#include "hwy/highway.h"
#include "lathe/dispatch/flip.h"
#endif

#undef N_SCALAR
#undef N_EMU128
#undef N_SSE2
#undef N_SSSE3
#undef N_SSE4
#undef N_AVX2
#undef N_AVX3
#undef N_AVX3_DL
#undef N_AVX3_ZEN4
#undef N_AVX3_SPR
#undef N_AVX10_2
#undef N_NEON_WITHOUT_AES
#undef N_NEON
#undef N_NEON_BF16
#undef N_WASM
#undef N_WASM_EMU256
#undef N_RVV
#undef N_PPC8
#undef N_PPC9
#undef N_PPC10
#undef N_Z14
#undef N_Z15
#undef N_LSX
#undef N_LASX
#undef LATHE_PRIVATE

#ifdef LATHE_HID_HIGHWAY_H
#undef FunctionCache
#undef DeduceFunctionCache
#undef LATHE_HID_HIGHWAY_H
#endif

#pragma pop_macro("HWY_TARGET")
#pragma pop_macro("HWY_NEON_HAVE_F32_TO_BF16C")
#ifdef LATHE_HIGHWAY_IN_USE
// HWY_NAMESPACE, HWY_BEFORE_NAMESPACE, HWY_NATIVE_DOT_BF16, ... of the target the includer is at.
// The toggle makes this header take effect.
#undef HWY_SET_MACROS_PER_TARGET
#ifdef HWY_TARGET_TOGGLE
#define HWY_SET_MACROS_PER_TARGET
#endif
#include "hwy/ops/set_macros-inl.h"
#undef LATHE_HIGHWAY_IN_USE
#endif

#pragma pop_macro("HWY_ABORT")
#pragma pop_macro("HIGHWAY_HWY_OPS_SHARED_TOGGLE")
#pragma pop_macro("HWY_SET_MACROS_PER_TARGET")
#pragma pop_macro("HWY_HIGHWAY_PER_TARGET")
#pragma pop_macro("HWY_HIGHWAY_INCLUDED")
#pragma pop_macro("HWY_ALREADY_INCLUDED")
#pragma pop_macro("HWY_TARGET_INCLUDE")
#pragma pop_macro("HWY_TARGET_TOGGLE")
#pragma pop_macro("HWY_ONCE")
