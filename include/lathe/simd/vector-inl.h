// SPDX-License-Identifier: Apache-2.0
// What every kernel of this target uses: vectors, their width, how many registers hold them.
#if defined(LATHE_SIMD_VECTOR_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_SIMD_VECTOR_INL_H_
#undef LATHE_SIMD_VECTOR_INL_H_
#else
#define LATHE_SIMD_VECTOR_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "lathe/base/config.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Capped at 16 lanes: register blocking is in terms of that many.
using F32 = hn::CappedTag<float, 16>;
using U32 = hn::Rebind<uint32_t, F32>;
using I32 = hn::Rebind<int32_t, F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using VF = hn::Vec<F32>;
using VU = hn::Vec<U32>;

constexpr int64_t kLanes = static_cast<int64_t>(HWY_MAX_LANES_D(F32));
static_assert(kLanes >= 4, "EMU128 stands in for SCALAR (dispatch/abi.h)");
constexpr int kRegisters = HWY_ARCH_X86 && kLanes < 16 ? 16 : 32;

constexpr int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Fetches the line at `at` into L2, not L1: a tile is several times L1, so L1 would only pass it on, and its
// few miss buffers bound the rate. Zen 4, one thread, 32768 keys of bf16 from DRAM: 16.9 against 9.3 GB/s
// with one head, 10.8 against 7.1 with 8, for hwy::Prefetch, which takes L1.
LATHE_INLINE void PrefetchToL2(const std::byte* at) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(at, 0, 2);
#else
  hwy::Prefetch(at);
#endif
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
