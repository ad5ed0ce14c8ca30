// SPDX-License-Identifier: Apache-2.0
// Checks shared by all operations: one Status for the first rule an argument breaks.
#ifndef LATHE_DISPATCH_HOST_CHECK_H_
#define LATHE_DISPATCH_HOST_CHECK_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/keys.h"
#include "lathe/base/status.h"
#include "lathe/base/view.h"
#include "lathe/cache/formats.h"
#include "lathe/dispatch/abi.h"

// Leaves the function with the first refusal.
#define LATHE_RETURN_IF_REFUSED(expression)                      \
  do {                                                           \
    if (const ::lathe::Status refused = (expression); !refused.ok()) return refused; \
  } while (false)

namespace lathe {
namespace detail {
namespace LATHE_ABI {

// Half-open byte range; empty ranges overlap nothing.
struct ByteRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

inline bool Overlap(ByteRange a, ByteRange b) { return a.begin < b.end && b.begin < a.end; }

inline bool IsAligned(const void* data, size_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

// Bytes from the first to past the last element of a strided array with non-negative strides.
inline ByteRange RangeOf(const void* data, size_t element_bytes, const int64_t* extent,
                         const int64_t* stride, size_t rank) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  int64_t last = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (extent[i] <= 0) return {begin, begin};
    last += (extent[i] - 1) * stride[i];
  }
  return {begin, begin + static_cast<uintptr_t>(last + 1) * element_bytes};
}

template <class Byte, size_t R>
ByteRange RangeOf(const AnyView<Byte, R>& v) {
  return v.empty() ? ByteRange{} : RangeOf(v.data, SizeOf(v.dtype), v.extent, v.stride, R);
}
template <class T, size_t R>
ByteRange RangeOf(const View<T, R>& v) {
  return v.empty() ? ByteRange{} : RangeOf(v.data, sizeof(T), v.extent, v.stride, R);
}
template <size_t R>
ByteRange RangeOf(const IndexView<R>& v) {
  return v.empty() ? ByteRange{}
                   : RangeOf(v.data, v.is_int64 ? sizeof(int64_t) : sizeof(int32_t), v.extent,
                             v.stride, R);
}
template <class Byte>
ByteRange RangeOf(const BasicPagedCache<Byte>& cache, int64_t width) {
  if (cache.data == nullptr || cache.num_blocks == 0) return {};
  const auto begin = reinterpret_cast<uintptr_t>(cache.data);
  const int64_t last = (cache.num_blocks - 1) * cache.block_stride +
                       (cache.block_size - 1) * cache.row_stride;
  return {begin, begin + static_cast<uintptr_t>(last + RecordBytes(cache.format, width))};
}

inline Status CheckExtent(const char* name, int64_t dim, int64_t extent, int64_t expected) {
  if (extent == expected) return OkStatus();
  return Invalid(name, ".extent").At(dim).Is(extent).Must("be", expected);
}

// A tensor whose last dimension is a row of consecutive elements. `data` may be null unless it is needed.
struct TensorRules {
  bool needs_data = true;
  bool is_output = false;  // then no two elements may share an address
};

template <class Byte, size_t R>
Status CheckTensor(const char* name, const AnyView<Byte, R>& v, TensorRules rules) {
  if (SizeOf(v.dtype) == 0) {
    return Invalid(name, ".dtype").Is(static_cast<int64_t>(v.dtype)).Must("be a known DType");
  }
  for (size_t i = 0; i < R; ++i) {
    if (v.extent[i] < 0) {
      return Invalid(name, ".extent").At(static_cast<int64_t>(i)).Is(v.extent[i]).Must("be at least", 0);
    }
  }
  const int64_t width = v.extent[R - 1];
  if (width > 1 && v.stride[R - 1] != 1) {
    return Invalid(name, ".stride").At(R - 1).Is(v.stride[R - 1]).Must("be", 1);
  }
  for (size_t i = 0; i + 1 < R; ++i) {
    if (v.extent[i] > 1 && v.stride[i] < width) {
      return Invalid(name, ".stride").At(static_cast<int64_t>(i)).Is(v.stride[i])
          .Must("be at least a row's width,", width);
    }
  }
  if constexpr (R == 3) {
    // Rows of one dimension must lie within, or beyond, the span of the other.
    const bool nested = v.extent[0] <= 1 || v.extent[1] <= 1 ||
                        v.stride[0] >= (v.extent[1] - 1) * v.stride[1] + width ||
                        v.stride[1] >= (v.extent[0] - 1) * v.stride[0] + width;
    if (rules.is_output && !nested) {
      return Invalid(name, ".stride").At(0).Is(v.stride[0]).Must("not let rows overlap");
    }
  }
  if (rules.needs_data && v.empty()) return Invalid(name, ".data").Must("not be null");
  if (!IsAligned(v.data, SizeOf(v.dtype))) {
    return Invalid(name, ".data").Must("be aligned to", static_cast<int64_t>(SizeOf(v.dtype)));
  }
  return OkStatus();
}

// A small float array such as lse or attn_sink: any strides, data required.
template <class T, size_t R>
Status CheckFloats(const char* name, const View<T, R>& v, const int64_t (&expected)[R]) {
  for (size_t i = 0; i < R; ++i) {
    const auto dim = static_cast<int64_t>(i);
    LATHE_RETURN_IF_REFUSED(CheckExtent(name, dim, v.extent[i], expected[i]));
    if (v.extent[i] > 1 && v.stride[i] < 1) {
      return Invalid(name, ".stride").At(dim).Is(v.stride[i]).Must("be at least", 1);
    }
  }
  if constexpr (R == 2) {
    const bool nested = v.extent[0] <= 1 || v.extent[1] <= 1 ||
                        v.stride[0] > (v.extent[1] - 1) * v.stride[1] ||
                        v.stride[1] > (v.extent[0] - 1) * v.stride[0];
    if (!nested) return Invalid(name, ".stride").At(0).Is(v.stride[0]).Must("not let elements overlap");
  }
  if (!IsAligned(v.data, alignof(T))) {
    return Invalid(name, ".data").Must("be aligned to", static_cast<int64_t>(alignof(T)));
  }
  return OkStatus();
}

// An integer array; null only when it has no elements. `expected` -1: any extent.
template <size_t R>
Status CheckIndices(const char* name, const IndexView<R>& v, const int64_t (&expected)[R]) {
  const size_t bytes = v.is_int64 ? sizeof(int64_t) : sizeof(int32_t);
  if (!IsAligned(v.data, bytes)) {
    return Invalid(name, ".data").Must("be aligned to", static_cast<int64_t>(bytes));
  }
  int64_t num_elements = 1;
  for (size_t i = 0; i < R; ++i) {
    const auto dim = static_cast<int64_t>(i);
    if (v.extent[i] < 0) return Invalid(name, ".extent").At(dim).Is(v.extent[i]).Must("be at least", 0);
    if (expected[i] >= 0) LATHE_RETURN_IF_REFUSED(CheckExtent(name, dim, v.extent[i], expected[i]));
    if (v.extent[i] > 1 && v.stride[i] < 0) {
      return Invalid(name, ".stride").At(dim).Is(v.stride[i]).Must("be at least", 0);
    }
    num_elements *= v.extent[i];
  }
  if (num_elements > 0 && v.empty()) return Invalid(name, ".data").Must("not be null");
  return OkStatus();
}

template <class Byte>
Status CheckCache(const char* name, const BasicPagedCache<Byte>& cache, int64_t width,
                  bool needs_data) {
  const int64_t record = RecordBytes(cache.format, width);
  if (record == 0) {
    return Invalid(name, ".format").Is(static_cast<int64_t>(cache.format))
        .Must("be a known CacheFormat");
  }
  if (cache.num_blocks < 0) return Invalid(name, ".num_blocks").Is(cache.num_blocks).Must("be at least", 0);
  if (cache.block_size < 1) return Invalid(name, ".block_size").Is(cache.block_size).Must("be at least", 1);
  if (cache.row_stride < record) {
    return Invalid(name, ".row_stride").Is(cache.row_stride)
        .Must("be at least a record's bytes,", record);
  }
  const int64_t page = (cache.block_size - 1) * cache.row_stride + record;
  // Pages may also interleave (rows of all pages at one slot together), as long as no records meet.
  const int64_t interleaved = (cache.num_blocks - 1) * cache.block_stride + record;
  if (cache.num_blocks > 1 && cache.block_stride < page &&
      (cache.block_stride < record || cache.row_stride < interleaved)) {
    return Invalid(name, ".block_stride").Is(cache.block_stride)
        .Must("be at least a page's bytes,", page);
  }
  const auto alignment = static_cast<int64_t>(RecordAlignment(cache.format));
  if (cache.row_stride % alignment != 0) {
    return Invalid(name, ".row_stride").Is(cache.row_stride).Must("be a multiple of", alignment);
  }
  if (cache.num_blocks > 1 && cache.block_stride % alignment != 0) {
    return Invalid(name, ".block_stride").Is(cache.block_stride).Must("be a multiple of", alignment);
  }
  if (needs_data && cache.num_blocks > 0 && cache.data == nullptr) {
    return Invalid(name, ".data").Must("not be null");
  }
  if (!IsAligned(cache.data, static_cast<size_t>(alignment))) {
    return Invalid(name, ".data").Must("be aligned to", alignment);
  }
  return OkStatus();
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_DISPATCH_HOST_CHECK_H_
