// SPDX-License-Identifier: Apache-2.0
// lathe for one target, the one that this translation unit is compiled for: the functions of
// lathe/lathe.h, defined in this unit and for it alone, without table, detection or libhwy. For
// engines that build a file once for each instruction set themselves, and for experiments. Stands
// before all other headers of lathe.
//
//   #include <lathe/static.h>
//   static_assert(lathe::st::kStaticTarget >= lathe::Target::kAvx3Zen4, "check the flags");
//   lathe::st::RunMlaDecode(*plan, args, workspace);
//
// lathe::st is lathe; the name says at the call which function is meant. Any number of units may
// include it, with any flags, beside others with lathe/impl.h: each has functions of its own. A plan
// goes to the Run of the unit that made it.
//
// Flags do not always give what their name says (kStaticTargetName tells), because Highway wants
// every part of a target to be there:
//
//   -march=haswell, x86-64-v3 or v4    SSSE3: AES and PCLMUL are missing. Add -maes -mpclmul (and
//                                      -mf16c where that is off), or -DHWY_DISABLE_PCLMUL_AES
//   -march=skylake-avx512              AVX3
//   -march=icelake-server              AVX3_DL, kAvx3 here
//   -march=znver4, -march=native on it AVX3_DL, without bf16 dot products. Add -DHWY_WANT_AVX3_ZEN4
//   -march=sapphirerapids              AVX3_SPR (GCC >= 12, Clang >= 14), kAvx3Zen4 here
//
// Nothing checks that the CPU has what the flags promise.
#ifndef LATHE_STATIC_H_
#define LATHE_STATIC_H_

#ifdef LATHE_IMPL_H_
#error "lathe/impl.h and lathe/static.h need translation units of their own"
#endif

#ifdef LATHE_BASE_CONFIG_H_
#error "lathe/static.h must be included before all other headers of lathe"
#endif

#define LATHE_STATIC_ONLY 1
#define LATHE_API static inline

#include "lathe/host/operations.h"
#include "lathe/lathe.h"

namespace lathe {

namespace st = ::lathe;

// The best target that the flags include, and Highway's name of the code that they gave.
constexpr Target kStaticTarget = detail::BaselineTarget();
constexpr const char* kStaticTargetName = LATHE_STRING(LATHE_BASELINE_TOKEN);

}  // namespace lathe

#endif  // LATHE_STATIC_H_
