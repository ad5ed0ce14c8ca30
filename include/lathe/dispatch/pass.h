// SPDX-License-Identifier: Apache-2.0
// One pass of foreach_target.h: the kernels for HWY_TARGET, and their entry. No include guard.
#include "lathe/kernel/kernels-inl.h"

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
