// SPDX-License-Identifier: Apache-2.0
// Tensors of a type known at run time, in adversarial memory: dense, the last element before an unmapped
// page.
#ifndef LATHE_TESTS_SUPPORT_ANY_TENSOR_H_
#define LATHE_TESTS_SUPPORT_ANY_TENSOR_H_

#include <array>
#include <cstdint>
#include <vector>

#include "lathe/base/view.h"
#include "support/latent_write.h"
#include "support/memory.h"

namespace lathe::test {

template <size_t R>
class AnyTensor {
 public:
  AnyTensor() : bytes(0) {}
  AnyTensor(DType dtype, const std::array<int64_t, R>& extents) : bytes(Bytes(dtype, extents)) {
    view_.dtype = dtype;
    view_.data = bytes.data();
    int64_t stride = 1;
    for (size_t i = R; i-- > 0;) {
      view_.extent[i] = extents[i];
      view_.stride[i] = stride;
      stride *= extents[i];
    }
  }

  Out<R> out() { return view_; }
  In<R> in() const {
    In<R> in;
    in.data = bytes.data();
    in.dtype = view_.dtype;
    for (size_t i = 0; i < R; ++i) {
      in.extent[i] = view_.extent[i];
      in.stride[i] = view_.stride[i];
    }
    return in;
  }
  size_t size() const { return bytes.size() / SizeOf(view_.dtype); }
  float Get(size_t i) const { return LoadElement(view_.dtype, bytes.data() + i * element()); }
  void Set(size_t i, float x) { StoreElement(view_.dtype, bytes.data() + i * element(), x); }
  std::vector<float> Values() const {
    std::vector<float> values;
    for (size_t i = 0; i < size(); ++i) values.push_back(Get(i));
    return values;
  }

  Guarded<std::byte> bytes;

 private:
  static size_t Bytes(DType dtype, const std::array<int64_t, R>& extents) {
    size_t bytes = SizeOf(dtype);
    for (const int64_t extent : extents) bytes *= static_cast<size_t>(extent);
    return bytes;
  }
  size_t element() const { return SizeOf(view_.dtype); }

  Out<R> view_ = {};
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_ANY_TENSOR_H_
