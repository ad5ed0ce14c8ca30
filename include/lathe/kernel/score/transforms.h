// SPDX-License-Identifier: Apache-2.0
// The score transforms of a call.
#ifndef LATHE_KERNEL_SCORE_TRANSFORMS_H_
#define LATHE_KERNEL_SCORE_TRANSFORMS_H_

#include "lathe/base/config.h"

namespace lathe::detail {
namespace {

// A parameter of each; 0 is none.
struct ScoreTransforms {
#define LATHE_SCORE_TRANSFORM(option, functor) float option = 0.0f;
#include "lathe/base/score_transforms.def"
#undef LATHE_SCORE_TRANSFORM

  LATHE_INLINE bool any() const {
    bool any = false;
#define LATHE_SCORE_TRANSFORM(option, functor) any = any || option != 0.0f;
#include "lathe/base/score_transforms.def"
#undef LATHE_SCORE_TRANSFORM
    return any;
  }
};

// The transforms that MlaDecodeOptions or PrefillOptions ask for.
template <class Options>
LATHE_INLINE ScoreTransforms TransformsOf(const Options& options) {
  ScoreTransforms transforms;
#define LATHE_SCORE_TRANSFORM(option, functor) transforms.option = options.option;
#include "lathe/base/score_transforms.def"
#undef LATHE_SCORE_TRANSFORM
  return transforms;
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_KERNEL_SCORE_TRANSFORMS_H_
