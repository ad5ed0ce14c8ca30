// SPDX-License-Identifier: Apache-2.0
// One pass of foreach_target.h: the kernels for HWY_TARGET, and their entry. No include guard.
#include "lathe/kernel/kernels-inl.h"

namespace lathe {
namespace detail {
namespace LATHE_ABI {
template <>
inline constexpr CompiledTarget kCompiled<HWY_TARGET> = {&lathe::HWY_NAMESPACE::Kernels,
                                                         HWY_NATIVE_DOT_BF16 != 0};
}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#include "lathe/dispatch/flip.h"
