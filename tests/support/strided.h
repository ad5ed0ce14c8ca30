// SPDX-License-Identifier: Apache-2.0
// Tensors whose elements lie apart: gaps are poison, and stay it.
#ifndef LATHE_TESTS_SUPPORT_STRIDED_H_
#define LATHE_TESTS_SUPPORT_STRIDED_H_

#include <array>
#include <cstdint>
#include <vector>

#include "lathe/base/view.h"
#include "support/memory.h"

namespace lathe::test {

// Element (i0, i1, ...) at i0 * strides[0] + ..., in a buffer that ends with the last element.
template <class T, size_t R>
class Strided {
 public:
  using Dims = std::array<int64_t, R>;

  Strided(const Dims& extents, const Dims& strides) : buffer_(Span(extents, strides)) {
    view_.data = buffer_.data();
    for (size_t i = 0; i < R; ++i) {
      view_.extent[i] = extents[i];
      view_.stride[i] = strides[i];
    }
  }
  template <class Packed>
  Strided(const Dims& extents, const Dims& strides, const Packed& values)
      : Strided(extents, strides) {
    ForEach([&](size_t packed, size_t at) { buffer_[at] = values[packed]; });
  }

  View<T, R> view() { return view_; }

  // The elements in row-major order.
  std::vector<T> Packed() const {
    std::vector<T> values;
    ForEach([&](size_t, size_t at) { values.push_back(buffer_[at]); });
    return values;
  }

  bool AreGapsIntact() const {
    std::vector<char> is_element(buffer_.size());
    ForEach([&](size_t, size_t at) { is_element[at] = 1; });
    const Guarded<T> poison(1);
    for (size_t i = 0; i < buffer_.size(); ++i) {
      if (!is_element[i] && std::memcmp(&buffer_[i], &poison[0], sizeof(T)) != 0) return false;
    }
    return buffer_.IsFrontIntact();
  }

 private:
  static size_t Span(const Dims& extents, const Dims& strides) {
    int64_t last = 0;
    for (size_t i = 0; i < R; ++i) last += (extents[i] - 1) * strides[i];
    return static_cast<size_t>(last + 1);
  }

  // f(row-major index, offset) for every element.
  template <class F>
  void ForEach(const F& f) const {
    Dims at{};
    for (size_t packed = 0;; ++packed) {
      int64_t offset = 0;
      for (size_t i = 0; i < R; ++i) offset += at[i] * view_.stride[i];
      f(packed, static_cast<size_t>(offset));
      size_t dim = R;
      while (dim > 0 && ++at[dim - 1] == view_.extent[dim - 1]) at[--dim] = 0;
      if (dim == 0) return;
    }
  }

  Guarded<T> buffer_;
  View<T, R> view_;
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_STRIDED_H_
