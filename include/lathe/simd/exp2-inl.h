// SPDX-License-Identifier: Apache-2.0
// 2^x for x <= 0 (and the rounding error above it): all that an online softmax needs.
#if defined(LATHE_SIMD_EXP2_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_SIMD_EXP2_INL_H_
#undef LATHE_SIMD_EXP2_INL_H_
#else
#define LATHE_SIMD_EXP2_INL_H_
#endif

#include "lathe/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// A whole number within 1/2 of x, in every rounding mode of the caller's: in those that round down, |x - n| of up
// to 1 would make the polynomial below wrong by 1.5e-4. Before SSE4.1 Highway's Round goes by the mode.
LATHE_INLINE VF NearestWhole(VF x) {
#if HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SSSE3
  return hn::Floor(hn::Add(x, hn::Set(F32(), 0.5f)));
#else
  return hn::Round(x);
#endif
}

// Relative error below 3e-7. 2^0 is exactly 1, below -126 the result is 0 (so a key masked with -inf has
// weight 0, not the smallest normal number), NaN stays NaN: every comparison is false for it.
// n = NearestWhole(x), |r| <= 1/2, 2^r by a degree-5 polynomial, minimax but for its constant term, which is exact. 2^n
// out of the last bits of n + 127 + 1.5 * 2^23, an exact sum whatever the rounding mode: converting n to an integer
// takes three instructions more, for ranges that it does not have.
LATHE_INLINE VF Exp2(VF x) {
  const F32 d;
  const VF lowest = hn::Set(d, -126.0f);
  const auto underflow = hn::Lt(x, lowest);
  const VF clamped = hn::IfThenElse(underflow, lowest, x);
  const VF n = NearestWhole(clamped);
  const VF r = hn::Sub(clamped, n);
  VF y = hn::Set(d, 1.3264725e-3f);
  y = hn::MulAdd(y, r, hn::Set(d, 9.671513e-3f));
  y = hn::MulAdd(y, r, hn::Set(d, 5.5507336e-2f));
  y = hn::MulAdd(y, r, hn::Set(d, 2.4022242e-1f));
  y = hn::MulAdd(y, r, hn::Set(d, 6.93147e-1f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  const VF shifted = hn::Add(n, hn::Set(d, 12582912.0f + 127.0f));
  const VU power = hn::ShiftLeft<23>(hn::BitCast(U32(), shifted));
  return hn::IfThenZeroElse(underflow, hn::Mul(y, hn::BitCast(d, power)));
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
