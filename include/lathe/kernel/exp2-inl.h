// SPDX-License-Identifier: Apache-2.0
// 2^x for x <= 0 (and the rounding error above it): all that an online softmax needs.

// Relative error below 3e-7. 2^0 is exactly 1, below -126 the result is 0 (so a key masked with -inf has
// weight 0, not the smallest normal number), NaN stays NaN: every comparison is false for it.
// n = round(x), |r| <= 1/2, 2^r by a degree-5 polynomial (near-minimax, constant term exact), 2^n by
// adding n to the exponent.
LATHE_INLINE VF Exp2(VF x) {
  const F32 d;
  const I32 di;
  const VF lowest = hn::Set(d, -126.0f);
  const auto underflow = hn::Lt(x, lowest);
  const VF clamped = hn::IfThenElse(underflow, lowest, x);
  const VF n = hn::Round(clamped);
  const VF r = hn::Sub(clamped, n);
  VF y = hn::Set(d, 1.3333558e-3f);
  y = hn::MulAdd(y, r, hn::Set(d, 9.6181291e-3f));
  y = hn::MulAdd(y, r, hn::Set(d, 5.5504109e-2f));
  y = hn::MulAdd(y, r, hn::Set(d, 2.4022651e-1f));
  y = hn::MulAdd(y, r, hn::Set(d, 6.9314718e-1f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  return hn::IfThenZeroElse(underflow, hn::Mul(y, hn::BitCast(d, power)));
}
