// SPDX-License-Identifier: Apache-2.0
// A user of Highway as its documentation shows it, unaware of lathe. Part of a translation unit,
// after its highway.h, in every pass.
HWY_BEFORE_NAMESPACE();
namespace foreign {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The sum of x[0..n), and the target that computed it.
inline int64_t Sum(const float* x, size_t n, float* sum) {
  const hn::ScalableTag<float> d;
  auto v = hn::Zero(d);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) v = hn::Add(v, hn::LoadU(d, x + i));
  *sum = hn::ReduceSum(d, v);
  for (; i < n; ++i) *sum += x[i];
  return HWY_TARGET;
}

}  // namespace HWY_NAMESPACE
}  // namespace foreign
HWY_AFTER_NAMESPACE();
