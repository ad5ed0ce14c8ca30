// SPDX-License-Identifier: Apache-2.0
// The hyperbolic tangent of any float.
#if defined(LATHE_SIMD_TANH_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_SIMD_TANH_INL_H_
#undef LATHE_SIMD_TANH_INL_H_
#else
#define LATHE_SIMD_TANH_INL_H_
#endif

#include "lathe/simd/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// Relative error below 4e-7; 0 for 0, +-1 for infinities, NaN stays NaN. Near 0, where 1 - e would
// cancel, x + x^3 times a minimax polynomial in x^2; else (1 - e) / (1 + e), e = exp(-2 |x|), where an error of e counts
// 1 / sinh(2 |x|) times.
LATHE_INLINE VF Tanh(VF x) {
  const F32 d;
  constexpr float kSmall = 0.625f, kMinus2Log2E = -2.0f * 1.44269504088896340736f;
  const VF magnitude = hn::Abs(x), one = hn::Set(d, 1.0f);
  const VF e = Exp2(hn::Mul(magnitude, hn::Set(d, kMinus2Log2E)));
  const VF large = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  const VF square = hn::Mul(x, x);
  VF y = hn::Set(d, -5.7047936e-3f);
  y = hn::MulAdd(y, square, hn::Set(d, 2.0638896e-2f));
  y = hn::MulAdd(y, square, hn::Set(d, -5.3739648e-2f));
  y = hn::MulAdd(y, square, hn::Set(d, 1.3331442e-1f));
  y = hn::MulAdd(y, square, hn::Set(d, -3.3333281e-1f));
  const VF near_zero = hn::MulAdd(hn::Mul(y, square), x, x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, kSmall)), near_zero, large);
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
