// SPDX-License-Identifier: Apache-2.0
// One pass of foreach_target.h: the kernels for HWY_TARGET, and their entry. No include guard.
#include "hwy/ops/set_macros-inl.h"

// All that is defined once per target, by Highway and by us, gets internal linkage (abi.h). GCC has
// no attribute for that, and Clang does not take a reopened namespace for the one in an inline
// namespace (CWG 2061).
#if HWY_COMPILER_CLANG
#pragma clang attribute push(__attribute__((internal_linkage)), \
                             apply_to = any(function, record, variable(is_global)))
#else
namespace hwy {
inline namespace {
namespace HWY_NAMESPACE {}
}  // namespace
}  // namespace hwy
namespace lathe {
inline namespace {
namespace HWY_NAMESPACE {}
}  // namespace
}  // namespace lathe
#endif
#include "lathe/kernel/kernels-inl.h"
#if HWY_COMPILER_CLANG
#pragma clang attribute pop
#endif

namespace lathe {
namespace detail {
namespace LATHE_ABI {
template <>
inline constexpr CompiledTarget kCompiled<HWY_TARGET> = {&lathe::HWY_NAMESPACE::Kernels,
                                                         HWY_NATIVE_DOT_BF16 != 0};
#if HWY_TARGET == LATHE_TILE_TARGET
template <>
inline constexpr CompiledTarget kCompiledTiles<HWY_TARGET> = {&lathe::HWY_NAMESPACE::TileKernels,
                                                              true};
#endif
}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#include "lathe/dispatch/flip.h"
#include "lathe/simd/end_pass.h"
