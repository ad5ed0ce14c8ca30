// SPDX-License-Identifier: Apache-2.0
// Checks shared by all operations: one Status for the first rule an argument breaks.
#ifndef LATHE_HOST_CHECK_H_
#define LATHE_HOST_CHECK_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "lathe/base/executor.h"
#include "lathe/base/keys.h"
#include "lathe/base/status.h"
#include "lathe/base/view.h"
#include "lathe/cache/formats.h"
#include "lathe/dispatch/abi.h"

// Leaves the function with the first refusal.
#define LATHE_RETURN_IF_REFUSED(expression)                                          \
  do {                                                                               \
    if (const ::lathe::Status refused = (expression); !refused.ok()) return refused; \
  } while (false)

namespace lathe::detail {
namespace {

// Extents and strides are the caller's and may be anything. Sums and products of numbers that are
// not negative, stopped at the largest one, so that checks of absurd values cannot overflow
// themselves.
constexpr int64_t kLargest = INT64_MAX;
constexpr int64_t SaturatingAdd(int64_t a, int64_t b) {
  return a > kLargest - b ? kLargest : a + b;
}
constexpr int64_t SaturatingMul(int64_t a, int64_t b) {
  return b != 0 && a > kLargest / b ? kLargest : a * b;
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The bytes that an array may span: within it, all offsets and numbers of elements are far from
// overflow, and so are sums of two.
constexpr int64_t kMaxSpan = PTRDIFF_MAX / 2;
// Heads and columns, which are multiplied with one another before there is an array of that size.
constexpr int64_t kMaxDim = INT32_MAX;

// Half-open byte range; empty ranges overlap nothing.
struct ByteRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

inline bool Overlap(ByteRange a, ByteRange b) { return a.begin < b.end && b.begin < a.end; }

inline bool IsAligned(const void* data, size_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

// Whether an array is meant to be there. Extents without data are a forgotten pointer.
template <class V>
bool IsGiven(const V& v) {
  return v.data != nullptr || v.extent[0] != 0;
}

template <class Byte, size_t R>
size_t ElementBytes(const AnyView<Byte, R>& v) {
  return SizeOf(v.dtype);
}
template <class T, size_t R>
size_t ElementBytes(const View<T, R>&) {
  return sizeof(T);
}
template <class Void, size_t R>
size_t ElementBytes(const AnyIndexView<Void, R>& v) {
  return v.is_int64 ? sizeof(int64_t) : sizeof(int32_t);
}

// The bytes from the first to the last element of an array that passed CheckSpan.
template <class V>
ByteRange RangeOf(const V& v) {
  bool is_empty = v.empty();
  for (const int64_t extent : v.extent) is_empty = is_empty || extent == 0;
  if (is_empty) return {};
  const auto begin = reinterpret_cast<uintptr_t>(v.data);
  int64_t last = 0;
  for (size_t i = 0; i < sizeof(v.extent) / sizeof(v.extent[0]); ++i) {
    last += (v.extent[i] - 1) * v.stride[i];
  }
  return {begin, begin + static_cast<uintptr_t>(last + 1) * ElementBytes(v)};
}

// Whether b may be written in a's place, element upon element, both of `extent` and one type.
template <class A, class B, size_t R>
bool IsSameLayout(const A& a, const B& b, const int64_t (&extent)[R]) {
  if (static_cast<const void*>(a.data) != static_cast<const void*>(b.data)) return false;
  for (size_t i = 0; i < R; ++i) {
    if (extent[i] > 1 && a.stride[i] != b.stride[i]) return false;
  }
  return true;
}

// From the first byte of a page to past its last: records, then side rows where the format has
// them.
template <class Byte>
int64_t PageBytes(const BasicPagedCache<Byte>& cache, int64_t width) {
  const int64_t side = SideBytes(cache.format);
  if (side > 0) return SaturatingMul(cache.block_size, SaturatingAdd(cache.row_stride, side));
  return SaturatingAdd(SaturatingMul(cache.block_size - 1, cache.row_stride),
                       RecordBytes(cache.format, width));
}
template <class Byte>
ByteRange RangeOf(const BasicPagedCache<Byte>& cache, int64_t width) {
  if (cache.data == nullptr || cache.num_blocks == 0) return {};
  const auto begin = reinterpret_cast<uintptr_t>(cache.data);
  const int64_t last = (cache.num_blocks - 1) * cache.block_stride;
  return {begin, begin + static_cast<uintptr_t>(last + PageBytes(cache, width))};
}

inline Status RefuseExtent(const char* name, int64_t dim, int64_t extent) {
  return Invalid(name, ".extent").At(dim).Is(extent);
}
template <class Dim>
Status RefuseStride(const char* name, Dim dim, int64_t stride) {
  return Invalid(name, ".stride").At(static_cast<int64_t>(dim)).Is(stride);
}
inline Status CheckExtent(const char* name, int64_t dim, int64_t extent, int64_t expected) {
  if (extent == expected) return OkStatus();
  return RefuseExtent(name, dim, extent).Must("be", expected);
}

template <class V>
Status CheckExtents(const char* name, const V& v, const int64_t* expected, int64_t num_dims) {
  for (int64_t dim = 0; dim < num_dims; ++dim) {
    LATHE_RETURN_IF_REFUSED(CheckExtent(name, dim, v.extent[dim], expected[dim]));
  }
  return OkStatus();
}

// Sizes are not negative, nor are strides where they count, and no offset can overflow.
inline Status CheckSpan(const char* name, const int64_t* extent, const int64_t* stride, size_t rank,
                        size_t element_bytes) {
  int64_t num_elements = 1;
  for (size_t i = 0; i < rank; ++i) {
    const auto dim = static_cast<int64_t>(i);
    if (extent[i] < 0) return RefuseExtent(name, dim, extent[i]).Must("be at least", 0);
    if (extent[i] > 1 && stride[i] < 0) {
      return RefuseStride(name, dim, stride[i]).Must("be at least", 0);
    }
    num_elements = SaturatingMul(num_elements, extent[i]);
  }
  if (num_elements == 0) return OkStatus();
  const int64_t most = kMaxSpan / static_cast<int64_t>(element_bytes);
  int64_t last = 0;
  for (size_t i = 0; i < rank; ++i) {
    const auto dim = static_cast<int64_t>(i);
    if (extent[i] > most) {
      return RefuseExtent(name, dim, extent[i]).Must("be at most", most);
    }
    if (extent[i] == 1) continue;
    last = SaturatingAdd(last, SaturatingMul(extent[i] - 1, stride[i]));
    if (last >= most) {
      return RefuseStride(name, dim, stride[i])
          .Must("not lead beyond the address space with .extent", extent[i]);
    }
  }
  if (num_elements > most) return RefuseExtent(name, 0, extent[0]).Must("not repeat that often");
  return OkStatus();
}

inline Status CheckData(const char* name, const void* data, size_t alignment, bool is_needed) {
  if (is_needed && data == nullptr) return Invalid(name, ".data").Must("not be null");
  if (!IsAligned(data, alignment)) return Invalid(name, ".data").Must("be aligned to", alignment);
  return OkStatus();
}

// A tensor whose last dimension is a row of consecutive elements. `data` may be null unless it is
// needed.
struct TensorRules {
  bool needs_data = true;
  bool is_output = false;  // then no two elements may share an address
};

template <class V>
Status CheckRows(const char* name, const V& v, size_t element_bytes, TensorRules rules) {
  constexpr size_t R = sizeof(v.extent) / sizeof(v.extent[0]);
  LATHE_RETURN_IF_REFUSED(CheckSpan(name, v.extent, v.stride, R, element_bytes));
  const int64_t width = v.extent[R - 1];
  if (width > 1 && v.stride[R - 1] != 1) {
    return RefuseStride(name, R - 1, v.stride[R - 1]).Must("be", 1);
  }
  for (size_t i = 0; i + 1 < R; ++i) {
    if (v.extent[i] > 1 && v.stride[i] < width) {
      return RefuseStride(name, i, v.stride[i]).Must("be at least a row's width,", width);
    }
  }
  if constexpr (R == 3) {
    // Rows of one dimension must lie within, or beyond, the span of the other.
    const auto span = [&v, width](size_t i) {
      return SaturatingAdd(SaturatingMul(v.extent[i] - 1, v.stride[i]), width);
    };
    const bool nested =
        v.extent[0] <= 1 || v.extent[1] <= 1 || v.stride[0] >= span(1) || v.stride[1] >= span(0);
    if (rules.is_output && !nested) {
      return RefuseStride(name, 0, v.stride[0]).Must("not let rows overlap");
    }
  }
  return CheckData(name, v.data, element_bytes, rules.needs_data);
}

template <class Byte, size_t R>
Status CheckTensor(const char* name, const AnyView<Byte, R>& v, TensorRules rules) {
  if (SizeOf(v.dtype) == 0) {
    return Invalid(name, ".dtype").Is(v.dtype).Must("be a known DType");
  }
  return CheckRows(name, v, SizeOf(v.dtype), rules);
}

// A small array such as lse, attn_sink or counts: any strides, no two elements at one address.
template <class V, size_t R>
Status CheckElements(const char* name, const V& v, const int64_t (&expected)[R],
                     bool needs_data = true) {
  bool has_elements = true;
  LATHE_RETURN_IF_REFUSED(CheckSpan(name, v.extent, v.stride, R, ElementBytes(v)));
  for (size_t i = 0; i < R; ++i) {
    const auto dim = static_cast<int64_t>(i);
    LATHE_RETURN_IF_REFUSED(CheckExtent(name, dim, v.extent[i], expected[i]));
    if (v.extent[i] > 1 && v.stride[i] < 1) {
      return RefuseStride(name, dim, v.stride[i]).Must("be at least", 1);
    }
    has_elements = has_elements && v.extent[i] > 0;
  }
  if constexpr (R == 2) {
    const bool nested = v.extent[0] <= 1 || v.extent[1] <= 1 ||
                        v.stride[0] > SaturatingMul(v.extent[1] - 1, v.stride[1]) ||
                        v.stride[1] > SaturatingMul(v.extent[0] - 1, v.stride[0]);
    if (!nested) return RefuseStride(name, 0, v.stride[0]).Must("not let elements overlap");
  }
  return CheckData(name, v.data, ElementBytes(v), needs_data && has_elements);
}

// An integer array; null only when it has no elements. `expected` -1: any extent.
template <size_t R>
Status CheckIndices(const char* name, const IndexView<R>& v, const int64_t (&expected)[R]) {
  const size_t bytes = ElementBytes(v);
  LATHE_RETURN_IF_REFUSED(CheckSpan(name, v.extent, v.stride, R, bytes));
  bool has_elements = true;
  for (size_t i = 0; i < R; ++i) {
    if (expected[i] >= 0) {
      LATHE_RETURN_IF_REFUSED(CheckExtent(name, static_cast<int64_t>(i), v.extent[i], expected[i]));
    }
    has_elements = has_elements && v.extent[i] > 0;
  }
  return CheckData(name, v.data, bytes, has_elements);
}

template <class Byte>
Status CheckCache(const char* name, const BasicPagedCache<Byte>& cache, int64_t width,
                  bool needs_data) {
  const int64_t record = RecordBytes(cache.format, width), fixed = FixedWidth(cache.format);
  const Status format = Invalid(name, ".format");
  const Status row_stride = Invalid(name, ".row_stride").Is(cache.row_stride);
  const Status block_stride = Invalid(name, ".block_stride").Is(cache.block_stride);
  if (record == 0) return format.Is(cache.format).Must("be a known CacheFormat");
  if (fixed != 0 && width != fixed) {
    return format.IsNamed(Name(cache.format))
        .Must("be one for the width in use; this one's is", fixed);
  }
  if (HasTensorScale(cache.format) && !(cache.scale > 0.0f && std::isfinite(cache.scale))) {
    return Invalid(name, ".scale").Is(cache.scale).Must("be finite and above 0");
  }
  if (cache.num_blocks < 0)
    return Invalid(name, ".num_blocks").Is(cache.num_blocks).Must("be at least", 0);
  if (cache.block_size < 1)
    return Invalid(name, ".block_size").Is(cache.block_size).Must("be at least", 1);
  if (cache.row_stride < record) return row_stride.Must("be at least a record's bytes,", record);
  const int64_t page = PageBytes(cache, width);
  // One-part pages may also interleave (rows of all pages at one slot together), as long as no records meet.
  int64_t pages = 0;  // bytes from the first page to the last
  if (cache.num_blocks > 1) {
    if (cache.block_stride >= record)
      pages = SaturatingMul(cache.num_blocks - 1, cache.block_stride);
    if (cache.block_stride < page && (SideBytes(cache.format) > 0 || cache.block_stride < record ||
                                      cache.row_stride < SaturatingAdd(pages, record))) {
      return block_stride.Must("be at least a page's bytes,", page);
    }
  }
  if (cache.num_blocks > 0 && page > kMaxSpan) {
    return row_stride.Must("not lead beyond the address space with .block_size", cache.block_size);
  }
  if (cache.num_blocks > 0 && SaturatingAdd(pages, page) > kMaxSpan) {
    return block_stride.Must("not lead beyond the address space with .num_blocks",
                             cache.num_blocks);
  }
  const size_t alignment = RecordAlignment(cache.format);
  const auto multiple = static_cast<int64_t>(alignment);
  if (cache.row_stride % multiple != 0) return row_stride.Must("be a multiple of", multiple);
  if (cache.num_blocks > 1 && cache.block_stride % multiple != 0) {
    return block_stride.Must("be a multiple of", multiple);
  }
  return CheckData(name, cache.data, alignment, needs_data && cache.num_blocks > 0);
}

struct NamedRange {
  const char* name;
  ByteRange range;
};
struct WrittenRange {
  const char* rule;  // "not overlap out"
  ByteRange range;
};

// No input may touch what is written.
inline Status CheckApart(std::initializer_list<NamedRange> inputs,
                         std::initializer_list<WrittenRange> outputs) {
  for (const NamedRange& input : inputs) {
    for (const WrittenRange& output : outputs) {
      if (Overlap(input.range, output.range)) return Invalid(input.name).Must(output.rule);
    }
  }
  return OkStatus();
}

// Block ids of pages [begin, end) of sequence `seq`, page p being in column p % columns of the table `name`. The rule
// says what they must be within.
inline Status CheckBlocks(const char* name, const char* rule, const IndexView<2>& block_table,
                          int64_t num_blocks, int64_t seq, int64_t begin, int64_t end) {
  if (begin >= end) return OkStatus();
  const int64_t columns = block_table.extent[1];
  int64_t column = begin % columns;
  for (int64_t page = begin; page < end; ++page) {
    const int64_t block = block_table(seq, column);
    if (block < 0 || block >= num_blocks) {
      return OutOfRange(name).At(seq * columns + column).Is(block).Must(rule, num_blocks - 1);
    }
    if (++column == columns) column = 0;
  }
  return OkStatus();
}

inline Status CheckBuffer(const char* name, Buffer buffer, size_t needed) {
  const size_t given = buffer.data == nullptr ? 0 : buffer.bytes;
  if (given >= needed) return OkStatus();
  constexpr size_t kMost = INT64_MAX;
  return Refuse(StatusCode::kBufferTooSmall, name, ".bytes")
      .Is((std::min)(given, kMost))
      .Must("be at least", (std::min)(needed, kMost));
}

inline Status CheckWithin(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value < least) return Invalid(name).Is(value).Must("be at least", least);
  if (value > most) return Invalid(name).Is(value).Must("be at most", most);
  return OkStatus();
}
inline Status CheckDim(const char* name, int64_t value, int64_t least) {
  return CheckWithin(name, value, least, kMaxDim);
}

// Workers that memory may be asked for: within it, sums of work times workers cannot overflow.
constexpr size_t kMaxWorkers = 65536;

inline Status CheckWorkers(const char* name, size_t num_workers) {
  const auto given = static_cast<int64_t>((std::min)(num_workers, static_cast<size_t>(kLargest)));
  return CheckWithin(name, given, 1, static_cast<int64_t>(kMaxWorkers));
}

inline Status CheckExecutor(const Executor& executor) {
  if (executor.run == nullptr) return Invalid("executor.run").Must("not be null");
  return OkStatus();
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_CHECK_H_
