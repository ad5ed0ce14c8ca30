// SPDX-License-Identifier: Apache-2.0
// One pass of foreach_target.h: the kernels for HWY_TARGET, and their entry. No include guard.
//
// What Highway defines once per target gets internal linkage (abi.h); our own stands in unnamed
// namespaces. Clang has an attribute; given to variables, too, it mixes up constants of one name in two
// functions (Clang 14, -O0). GCC has none, but takes a reopened namespace for the one in an inline
// namespace (CWG 2061), which Clang does not.
#if HWY_COMPILER_CLANG
#pragma clang attribute push(__attribute__((internal_linkage)), apply_to = function)
#include "hwy/highway.h"
#pragma clang attribute pop
#else
#include "hwy/ops/set_macros-inl.h"
namespace hwy {
inline namespace {
namespace HWY_NAMESPACE {}
}  // namespace
}  // namespace hwy
#endif

#include "lathe/kernel/kernels-inl.h"

namespace lathe::detail {
namespace {
template <>
inline constexpr CompiledTarget kCompiled<HWY_TARGET> = {&lathe::HWY_NAMESPACE::Kernels,
                                                         HWY_NATIVE_DOT_BF16 != 0};
#if HWY_TARGET == LATHE_TILE_TARGET
template <>
inline constexpr CompiledTarget kCompiledTiles<HWY_TARGET> = {&lathe::HWY_NAMESPACE::TileKernels,
                                                              true};
#endif
}  // namespace
}  // namespace lathe::detail

#include "lathe/dispatch/flip.h"
#include "lathe/simd/end_pass.h"
