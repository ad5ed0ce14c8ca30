// SPDX-License-Identifier: Apache-2.0
// 16 x 16 words transposed: to[c * 16 + r] = from[r * stride + c], with zeros for rows from
// `num_rows` on.
#if defined(LATHE_SIMD_TRANSPOSE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_SIMD_TRANSPOSE_INL_H_
#undef LATHE_SIMD_TRANSPOSE_INL_H_
#else
#define LATHE_SIMD_TRANSPOSE_INL_H_
#endif

#include <cstdint>

#include "lathe/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

constexpr int64_t kTransposeWords = 16;

#if HWY_MAX_BYTES >= 64

// 80 shuffles: pairs of rows, fours of rows inside 128-bit blocks, then blocks.
inline void TransposeTile(const uint32_t* HWY_RESTRICT from, int64_t stride, int64_t num_rows,
                          uint32_t* HWY_RESTRICT to) {
  const U32 d;
  const hn::Repartition<uint64_t, U32> d64;
  VU pairs[kTransposeWords], fours[kTransposeWords];
  LATHE_UNROLL
  for (int r = 0; r < kTransposeWords; r += 2) {
    const VU row0 = r < num_rows ? hn::LoadU(d, from + r * stride) : hn::Zero(d);
    const VU row1 = r + 1 < num_rows ? hn::LoadU(d, from + (r + 1) * stride) : hn::Zero(d);
    pairs[r] = hn::InterleaveLower(d, row0, row1);
    pairs[r + 1] = hn::InterleaveUpper(d, row0, row1);
  }
  // Block b of fours[r + k]: column 4 b + k of rows r .. r + 3.
  LATHE_UNROLL
  for (int r = 0; r < kTransposeWords; r += 4) {
    LATHE_UNROLL
    for (int k = 0; k < 4; k += 2) {
      const auto upper = hn::BitCast(d64, pairs[r + k / 2]);
      const auto lower = hn::BitCast(d64, pairs[r + 2 + k / 2]);
      fours[r + k] = hn::BitCast(d, hn::InterleaveLower(d64, upper, lower));
      fours[r + k + 1] = hn::BitCast(d, hn::InterleaveUpper(d64, upper, lower));
    }
  }
  LATHE_UNROLL
  for (int k = 0; k < 4; ++k) {
    const VU low02 = hn::ConcatLowerLower(d, fours[8 + k], fours[k]);
    const VU low13 = hn::ConcatLowerLower(d, fours[12 + k], fours[4 + k]);
    const VU high02 = hn::ConcatUpperUpper(d, fours[8 + k], fours[k]);
    const VU high13 = hn::ConcatUpperUpper(d, fours[12 + k], fours[4 + k]);
    uint32_t* column = to + k * kTransposeWords;
    constexpr int64_t kNext = 4 * kTransposeWords;
    hn::Store(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(low13), low02), d, column);
    hn::Store(hn::OddEvenBlocks(low13, hn::SwapAdjacentBlocks(low02)), d, column + kNext);
    hn::Store(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(high13), high02), d, column + 2 * kNext);
    hn::Store(hn::OddEvenBlocks(high13, hn::SwapAdjacentBlocks(high02)), d, column + 3 * kNext);
  }
}

#else

inline void TransposeTile(const uint32_t* from, int64_t stride, int64_t num_rows, uint32_t* to) {
  for (int64_t r = 0; r < kTransposeWords; ++r) {
    for (int64_t c = 0; c < kTransposeWords; ++c) {
      to[c * kTransposeWords + r] = r < num_rows ? from[r * stride + c] : 0;
    }
  }
}

#endif

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
