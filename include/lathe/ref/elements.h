// SPDX-License-Identifier: Apache-2.0
// Elements of tensors of any type, as doubles.
#ifndef LATHE_REF_ELEMENTS_H_
#define LATHE_REF_ELEMENTS_H_

#include <cstddef>
#include <cstring>
#include <limits>

#include "lathe/base/types.h"
#include "lathe/base/view.h"

namespace lathe::ref {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
double Stored(const std::byte* at) {
  T element;
  std::memcpy(&element, at, sizeof(element));
  return static_cast<double>(ToFloat(element));
}

// Element (indices...) of a tensor.
template <class Byte, size_t R, class... I>
double At(const AnyView<Byte, R>& v, I... indices) {
  switch (v.dtype) {
    case DType::kFloat32:
      return Stored<float>(v.At(indices...));
    case DType::kFloat16:
      return Stored<float16>(v.At(indices...));
    case DType::kBFloat16:
      return Stored<bfloat16>(v.At(indices...));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace lathe::ref

#endif  // LATHE_REF_ELEMENTS_H_
