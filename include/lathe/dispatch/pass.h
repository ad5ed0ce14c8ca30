// SPDX-License-Identifier: Apache-2.0
// One pass of foreach_target.h: the kernels for HWY_TARGET, and their entry. No include guard.
//
// What is defined once per target, by Highway and by us, gets internal linkage (abi.h). Clang has an
// attribute for that. GCC has none, but takes a reopened namespace for the one in an inline namespace
// (CWG 2061), which Clang does not.
#if HWY_COMPILER_CLANG
#define LATHE_PUSH_INTERNAL_LINKAGE                                  \
  HWY_PRAGMA(clang attribute push(__attribute__((internal_linkage)), \
                                  apply_to = any(function, record, variable(is_global))))
#define LATHE_POP_INTERNAL_LINKAGE HWY_PRAGMA(clang attribute pop)
#else
#define LATHE_PUSH_INTERNAL_LINKAGE
#define LATHE_POP_INTERNAL_LINKAGE
#include "hwy/ops/set_macros-inl.h"
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

LATHE_PUSH_INTERNAL_LINKAGE
#include "hwy/highway.h"
LATHE_POP_INTERNAL_LINKAGE

// From here on, what stands between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE.
#if HWY_COMPILER_CLANG
#undef HWY_BEFORE_NAMESPACE
#undef HWY_AFTER_NAMESPACE
#ifdef HWY_TARGET_STR
#define HWY_BEFORE_NAMESPACE() \
  LATHE_PUSH_INTERNAL_LINKAGE  \
  HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR) static_assert(true, "")
#define HWY_AFTER_NAMESPACE() HWY_POP_ATTRIBUTES LATHE_POP_INTERNAL_LINKAGE static_assert(true, "")
#else
#define HWY_BEFORE_NAMESPACE() LATHE_PUSH_INTERNAL_LINKAGE static_assert(true, "")
#define HWY_AFTER_NAMESPACE() LATHE_POP_INTERNAL_LINKAGE static_assert(true, "")
#endif
#endif

#include "lathe/kernel/kernels-inl.h"

#undef LATHE_PUSH_INTERNAL_LINKAGE
#undef LATHE_POP_INTERNAL_LINKAGE

namespace lathe {
namespace detail {
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
}  // namespace detail
}  // namespace lathe

#include "lathe/dispatch/flip.h"
#include "lathe/simd/end_pass.h"
