// SPDX-License-Identifier: Apache-2.0
// Scales that columns of a key share (cache/formats.h), applied where they cost a product for each key and row instead of
// one for each column, and round nothing:
//
//   S = sum over tiles of columns of  scale of key and tile * <q, codes>
//   O of a tile's columns += (P * scale of key and tile) x codes
#if defined(LATHE_KERNEL_ATTEND_COLUMN_SCALES_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ATTEND_COLUMN_SCALES_INL_H_
#undef LATHE_KERNEL_ATTEND_COLUMN_SCALES_INL_H_
#else
#define LATHE_KERNEL_ATTEND_COLUMN_SCALES_INL_H_
#endif

#include <cstdint>

#include "lathe/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// S^T [token][row] *= the token's scale.
inline void ScaleScores(const float* scales, int64_t tokens, int64_t rows, float* s) {
  const F32 d;
  for (int64_t t = 0; t < tokens; ++t, s += rows) {
    const VF scale = hn::Set(d, scales[t]);
    for (int64_t r = 0; r < rows; r += kLanes) {
      hn::Store(hn::Mul(hn::Load(d, s + r), scale), d, s + r);
    }
  }
}

// S^T += products over some columns, times the token's scale, or as they are if there are none.
inline void AddScaledScores(const float* products, const float* scales, int64_t tokens,
                            int64_t rows, float* s) {
  const F32 d;
  for (int64_t t = 0; t < tokens; ++t, s += rows, products += rows) {
    const VF scale = hn::Set(d, scales == nullptr ? 1.0f : scales[t]);
    for (int64_t r = 0; r < rows; r += kLanes) {
      hn::Store(hn::MulAdd(hn::Load(d, products + r), scale, hn::Load(d, s + r)), d, s + r);
    }
  }
}

// P [token][row], floats, times the token's scale as weights of A, and what packing lost of them if `residual` is given. A
// weight of 0 stays 0, whatever the scale: the row does not see the key.
template <class A>
void PackScaledWeights(const float* p, const float* scales, int64_t tokens, int64_t rows,
                       uint32_t* packed, uint32_t* residual) {
  const F32 d;
  for (int64_t t = 0; t < tokens; t += 2, p += 2 * rows) {
    const VF scale[2] = {hn::Set(d, scales == nullptr ? 1.0f : scales[t]),
                         hn::Set(d, scales == nullptr ? 1.0f : scales[t + 1])};
    for (int64_t r = 0; r < rows; r += kLanes) {
      VF weight[2];
      LATHE_UNROLL
      for (int j = 0; j < 2; ++j) {
        const VF x = hn::Load(d, p + j * rows + r);
        weight[j] = hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), hn::Mul(x, scale[j]));
      }
      LATHE_UNROLL
      for (int j = 0; j < 2; j += static_cast<int>(A::kStepTokens)) {
        hn::Store(A::PackWeights(weight + j), U32(), packed + (t + j) / A::kStepTokens * rows + r);
      }
      if constexpr (A::kHasResidual) {
        if (residual == nullptr) continue;
        const VF lost[2] = {A::Residual(weight[0]), A::Residual(weight[1])};
        hn::Store(A::PackWeights(lost), U32(), residual + t / A::kStepTokens * rows + r);
      }
    }
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
