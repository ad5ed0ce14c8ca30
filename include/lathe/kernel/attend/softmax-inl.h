// SPDX-License-Identifier: Apache-2.0
// Softmax over one tile, vertical over query rows: no lane ever meets another.
#if defined(LATHE_KERNEL_ATTEND_SOFTMAX_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ATTEND_SOFTMAX_INL_H_
#undef LATHE_KERNEL_ATTEND_SOFTMAX_INL_H_
#else
#define LATHE_KERNEL_ATTEND_SOFTMAX_INL_H_
#endif

#include <cstdint>

#include "lathe/simd/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

LATHE_INLINE VF ColumnMax(const float* s, int64_t s_stride, int64_t tokens) {
  const F32 d;
  VF even = hn::Load(d, s);
  VF odd = hn::Load(d, s + s_stride);
  for (int64_t t = 2; t < tokens; t += 2) {
    even = hn::Max(even, hn::Load(d, s + t * s_stride));
    odd = hn::Max(odd, hn::Load(d, s + (t + 1) * s_stride));
  }
  return hn::Max(even, odd);
}

// Turns S^T [tokens][padded_rows] into weights P in place ([step][padded_rows] words: row t of S is read
// before row t / kStepTokens of P is written), and gives each row's maximum m (exp2 domain; -inf if it sees nothing) and
// sum l of weights. Sums add the unrounded weights; those of P are times value_scale besides. Where packing
// rounds and `residual` is given, what it took away goes there, in the same layout. `tokens` is a multiple of 2.
template <class A>
void Softmax(float* s, int64_t tokens, int64_t padded_rows, float scale_log2, float value_scale,
             float* m, float* l, uint32_t* residual) {
  const F32 d;
  const VF scale = hn::Set(d, scale_log2);
  const VF minus_inf = hn::Neg(hn::Inf(d));
  auto* p = reinterpret_cast<uint32_t*>(s);
  for (int64_t r = 0; r < padded_rows; r += kLanes) {
    const VF scaled_max = hn::Mul(scale, ColumnMax(s + r, padded_rows, tokens));
    // A maximum of NaN is none: m never holds one.
    const VF max = hn::IfThenElse(hn::Gt(scaled_max, minus_inf), scaled_max, minus_inf);
    // -inf - -inf would be NaN: a row that has seen nothing subtracts 0 instead.
    const VF shift = hn::IfThenZeroElse(hn::Eq(max, minus_inf), max);
    hn::Store(max, d, m + r);
    VF sum[2] = {hn::Zero(d), hn::Zero(d)};
    for (int64_t t = 0; t < tokens; t += 2) {
      VF weight[2];
      LATHE_UNROLL
      for (int j = 0; j < 2; ++j) {
        const VF score = hn::Load(d, s + (t + j) * padded_rows + r);
        weight[j] = Exp2(hn::MulSub(score, scale, shift));
        sum[j] = hn::Add(sum[j], weight[j]);
        if (value_scale != 1.0f) weight[j] = hn::Mul(weight[j], hn::Set(d, value_scale));
      }
      LATHE_UNROLL
      for (int j = 0; j < 2; j += static_cast<int>(A::kStepTokens)) {
        hn::Store(A::PackWeights(weight + j), U32(),
                  p + (t + j) / A::kStepTokens * padded_rows + r);
      }
      if constexpr (A::kHasResidual) {
        if (residual == nullptr) continue;
        const VF lost[2] = {A::Residual(weight[0]), A::Residual(weight[1])};
        hn::Store(A::PackWeights(lost), U32(), residual + t / A::kStepTokens * padded_rows + r);
      }
    }
    hn::Store(hn::Add(sum[0], sum[1]), d, l + r);
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
