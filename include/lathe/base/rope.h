// SPDX-License-Identifier: Apache-2.0
// Rope: which columns of a row are rotated, and by what (rotary position embedding, arXiv 2104.09864).
#ifndef LATHE_BASE_ROPE_H_
#define LATHE_BASE_ROPE_H_

#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/view.h"

namespace lathe {

// The r = 2 * cos.extent[1] rotated columns are the last ones of a row, or the first. Pair i of them, (a, b), becomes
//
//   (a * cos - b * sin, b * cos + a * sin)        or, inverse, (a * cos + b * sin, b * cos - a * sin)
//
// with cos, sin = cos(p, i), sin(p, i) at the row's position p. A table that holds both side by side
// (vLLM's cos_sin_cache [max_position, rope_dim]) is two views of one stride.
//
//   cos, sin  [P, r / 2] float32, float16 or bfloat16, innermost stride 1; positions are below P.
//             Not given (extents 0): nothing is rotated
struct Rope {
  In<2> cos = {};
  In<2> sin = {};
  bool interleaved = true;  // pairs (2i, 2i + 1), GPT-J and DeepSeek; false: (i, i + r / 2), NeoX
  bool leading = false;     // the first r columns, as in DeepSeek-V3.2's indexer; else the last r
  bool inverse = false;

  LATHE_INLINE constexpr bool is_given() const noexcept {
    return cos.extent[1] > 0 || sin.extent[1] > 0;
  }
  LATHE_INLINE constexpr int64_t dim() const noexcept { return 2 * cos.extent[1]; }
};

}  // namespace lathe

#endif  // LATHE_BASE_ROPE_H_
