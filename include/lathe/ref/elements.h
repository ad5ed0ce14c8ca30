// SPDX-License-Identifier: Apache-2.0
// Elements of tensors of any type, as doubles.
#ifndef LATHE_REF_ELEMENTS_H_
#define LATHE_REF_ELEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "lathe/base/view.h"
#include "lathe/cache/latent.h"

namespace lathe::ref {

// Element (i, j, k) of a tensor.
inline double At(const In<3>& v, int64_t i, int64_t j, int64_t k) {
  const int64_t offset = i * v.stride[0] + j * v.stride[1] + k * v.stride[2];
  const std::byte* element = v.data + offset * static_cast<int64_t>(SizeOf(v.dtype));
  switch (v.dtype) {
    case DType::kFloat32:
      return Latent<float>::DecodeColumn(element, nullptr, 0);
    case DType::kFloat16:
      return Latent<float16>::DecodeColumn(element, nullptr, 0);
    case DType::kBFloat16:
      return Latent<bfloat16>::DecodeColumn(element, nullptr, 0);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

inline double At(const In<2>& v, int64_t i, int64_t j) {
  In<3> plane;
  plane.data = v.data;
  plane.dtype = v.dtype;
  plane.stride[1] = v.stride[0];
  plane.stride[2] = v.stride[1];
  return At(plane, 0, i, j);
}
inline double At(const In<1>& v, int64_t i) {
  In<2> matrix;
  matrix.data = v.data;
  matrix.dtype = v.dtype;
  matrix.stride[1] = v.stride[0];
  return At(matrix, 0, i);
}

}  // namespace lathe::ref

#endif  // LATHE_REF_ELEMENTS_H_
