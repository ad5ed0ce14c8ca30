// SPDX-License-Identifier: Apache-2.0
// Score transforms (base/score_transforms.def): what becomes of scores between the product and the softmax. They come
// before masks, whose -inf a transform may not see: the tanh of it is -1.
#if defined(LATHE_KERNEL_SCORE_TRANSFORM_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_SCORE_TRANSFORM_INL_H_
#undef LATHE_KERNEL_SCORE_TRANSFORM_INL_H_
#else
#define LATHE_KERNEL_SCORE_TRANSFORM_INL_H_
#endif

#include <cstdint>

#include "lathe/kernel/score/transforms.h"
#include "lathe/simd/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// cap * tanh(x / cap).
class SoftCap {
 public:
  explicit LATHE_INLINE SoftCap(float cap) : cap_(hn::Set(F32(), cap)) {}
  LATHE_INLINE VF operator()(VF x) const { return hn::Mul(cap_, Tanh(hn::Div(x, cap_))); }

 private:
  VF cap_;
};

// n products, times `scale`, through all transforms of a call in the order of the list.
inline void TransformScores(const detail::ScoreTransforms& transforms, float scale, int64_t n,
                            float* s) {
  const F32 d;
  const VF factor = hn::Set(d, scale);
  for (int64_t i = 0; i < n; i += kLanes) {
    VF x = hn::Mul(hn::Load(d, s + i), factor);
#define LATHE_SCORE_TRANSFORM(option, functor) \
  if (transforms.option != 0.0f) x = functor(transforms.option)(x);
#include "lathe/base/score_transforms.def"
#undef LATHE_SCORE_TRANSFORM
    hn::Store(x, d, s + i);
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
