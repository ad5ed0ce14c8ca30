// SPDX-License-Identifier: Apache-2.0
// Dense tensors of a type known at run time, with random contents.
#ifndef LATHE_BENCH_TENSOR_H_
#define LATHE_BENCH_TENSOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bench/huge_buffer.h"
#include "lathe/base/types.h"
#include "lathe/base/view.h"
#include "tests/support/random.h"

namespace lathe::bench {

using test::Random;

template <size_t R>
class Tensor {
 public:
  Tensor(DType dtype, std::array<int64_t, R> extent)
      : dtype_(dtype), extent_(extent), buffer_(static_cast<size_t>(size()) * SizeOf(dtype)) {}

  int64_t size() const {
    int64_t n = 1;
    for (const int64_t e : extent_) n *= e;
    return n;
  }
  size_t bytes() const { return buffer_.size(); }

  void Set(int64_t i, float x) {
    switch (dtype_) {
      case DType::kFloat32:
        return Store(i, x);
      case DType::kFloat16:
        return Store(i, FromFloat<float16>(x));
      case DType::kBFloat16:
        return Store(i, FromFloat<bfloat16>(x));
    }
  }

  // Normally distributed elements [begin, end).
  void Fill(Random random, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) Set(i, random.Normal());
  }
  void Fill(Random random) { Fill(random, 0, size()); }

  // Rows [begin, end) of the first axis.
  Out<R> View(int64_t begin, int64_t end) const {
    Out<R> v;
    v.dtype = dtype_;
    int64_t stride = 1;
    for (size_t i = R; i-- > 0;) {
      v.extent[i] = extent_[i];
      v.stride[i] = stride;
      stride *= extent_[i];
    }
    v.extent[0] = end - begin;
    v.data = buffer_.data() + begin * v.stride[0] * static_cast<int64_t>(SizeOf(dtype_));
    return v;
  }
  Out<R> View() const { return View(0, extent_[0]); }

 private:
  template <class T>
  void Store(int64_t i, T x) {
    std::memcpy(buffer_.data() + i * static_cast<int64_t>(sizeof(T)), &x, sizeof(T));
  }

  DType dtype_;
  std::array<int64_t, R> extent_;
  HugeBuffer buffer_;
};

// Columns [begin, end) of a tensor's last axis, as an input.
template <size_t R>
In<R> Columns(const Out<R>& v, int64_t begin, int64_t end) {
  In<R> in;
  in.dtype = v.dtype;
  for (size_t i = 0; i < R; ++i) {
    in.extent[i] = v.extent[i];
    in.stride[i] = v.stride[i];
  }
  in.extent[R - 1] = end - begin;
  in.data = v.data + begin * static_cast<int64_t>(SizeOf(v.dtype));
  return in;
}

template <size_t R>
In<R> Input(const Out<R>& v) {
  return Columns(v, 0, v.extent[R - 1]);
}

}  // namespace lathe::bench

#endif  // LATHE_BENCH_TENSOR_H_
