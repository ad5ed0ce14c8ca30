// SPDX-License-Identifier: Apache-2.0
// Strided, non-owning views over raw pointers: typed (View), dtype-tagged (In, Out) and integer
// arrays of either width (IndexView). 64-bit extents and strides, counted in elements. Data must be aligned to its
// element (2 bytes for float16 and bfloat16, 4 for float32 and int32, 8 for int64); operations refuse other data.
#ifndef LATHE_BASE_VIEW_H_
#define LATHE_BASE_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lathe/base/config.h"
#include "lathe/base/types.h"
#if defined(__cpp_lib_span)
#include <span>
#endif

namespace lathe {

namespace detail {
template <class From, class To>
LATHE_INLINE constexpr void CopyShape(const From& from, To* to) noexcept {
  for (size_t i = 0; i < sizeof(from.extent) / sizeof(from.extent[0]); ++i) {
    to->extent[i] = from.extent[i];
    to->stride[i] = from.stride[i];
  }
}

// From the first element to element (indices...), of a view of that many dimensions or more.
template <size_t R, class... I>
LATHE_INLINE constexpr int64_t OffsetOf(const int64_t (&stride)[R], I... indices) noexcept {
  static_assert(sizeof...(I) <= R, "at most one index per dimension");
  size_t dim = 0;
  int64_t offset = 0;
  ((offset += static_cast<int64_t>(indices) * stride[dim++]), ...);
  return offset;
}
}  // namespace detail

// Element (i0, i1, ...) is data[i0 * stride[0] + i1 * stride[1] + ...]. Strides may leave gaps and
// need not be ordered; an array that is not given has data == nullptr and extents of 0.
//
// Nothing here says where the memory behind `data` ends, so no call can tell a stride that is too large
// from a gap: one in bytes where elements are meant passes every check and reads, or writes, past the end. Strides of
// a PagedCache, and only those, are in bytes.
template <class T, size_t R>
struct View {
  T* data = nullptr;
  int64_t extent[R] = {};
  int64_t stride[R] = {};

  LATHE_INLINE constexpr bool empty() const noexcept { return data == nullptr; }

  LATHE_INLINE constexpr operator View<const T, R>() const noexcept {
    View<const T, R> v;
    v.data = data;
    detail::CopyShape(*this, &v);
    return v;
  }

  // Element (indices...); the first one of a row where fewer are given.
  template <class... I>
  LATHE_INLINE constexpr T& operator()(I... indices) const noexcept {
    return data[detail::OffsetOf(stride, indices...)];
  }
};

// A dense row-major view: Packed(q, num_tokens, num_heads, head_dim).
template <class T, class... E>
LATHE_INLINE constexpr View<T, sizeof...(E)> Packed(T* data, E... extents) noexcept {
  constexpr size_t kRank = sizeof...(E);
  View<T, kRank> v{data, {static_cast<int64_t>(extents)...}, {}};
  int64_t stride = 1;
  for (size_t i = kRank; i-- > 0;) {
    v.stride[i] = stride;
    stride *= v.extent[i];
  }
  return v;
}

#if defined(__cpp_lib_span)
template <class T>
LATHE_INLINE constexpr View<T, 1> Packed(std::span<T> s) noexcept {
  return Packed(s.data(), s.size());
}
#endif

// A view of float, float16 or bfloat16 elements whose type is known at run time. `Byte` is
// std::byte or const std::byte, so that constness survives the erasure.
template <class Byte, size_t R>
struct AnyView {
  Byte* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t extent[R] = {};
  int64_t stride[R] = {};  // elements

  LATHE_INLINE constexpr AnyView() noexcept = default;

  template <class T, class = std::enable_if_t<std::is_const_v<Byte> || !std::is_const_v<T>>>
  LATHE_INLINE AnyView(const View<T, R>& v) noexcept
      : data(reinterpret_cast<Byte*>(v.data)), dtype(kDTypeOf<std::remove_const_t<T>>) {
    detail::CopyShape(v, this);
  }

  LATHE_INLINE constexpr bool empty() const noexcept { return data == nullptr; }

  // Where element (indices...) lies; the first one of a row where fewer are given.
  template <class... I>
  LATHE_INLINE Byte* At(I... indices) const noexcept {
    return data + detail::OffsetOf(stride, indices...) * static_cast<int64_t>(SizeOf(dtype));
  }
};

template <size_t R>
using In = AnyView<const std::byte, R>;
template <size_t R>
using Out = AnyView<std::byte, R>;

// An integer array, int32 or int64: block tables, lengths, slots, index lists. `Void` is void, for arrays that are
// written (index lists, counts), or const void.
template <class Void, size_t R>
struct AnyIndexView {
  Void* data = nullptr;
  bool is_int64 = false;
  int64_t extent[R] = {};
  int64_t stride[R] = {};

  LATHE_INLINE constexpr AnyIndexView() noexcept = default;

  template <class T, class I = std::remove_const_t<T>,
            class = std::enable_if_t<std::is_same_v<I, int32_t> || std::is_same_v<I, int64_t>>,
            class = std::enable_if_t<std::is_const_v<Void> || !std::is_const_v<T>>>
  LATHE_INLINE constexpr AnyIndexView(const View<T, R>& v) noexcept
      : data(v.data), is_int64(sizeof(T) == sizeof(int64_t)) {
    detail::CopyShape(v, this);
  }

  LATHE_INLINE constexpr operator AnyIndexView<const void, R>() const noexcept {
    AnyIndexView<const void, R> v;
    v.data = data;
    v.is_int64 = is_int64;
    detail::CopyShape(*this, &v);
    return v;
  }

  LATHE_INLINE constexpr bool empty() const noexcept { return data == nullptr; }

  template <class... I>
  LATHE_INLINE int64_t operator()(I... indices) const noexcept {
    static_assert(sizeof...(I) == R, "one index per dimension");
    const int64_t offset = detail::OffsetOf(stride, indices...);
    return is_int64 ? static_cast<const int64_t*>(data)[offset]
                    : static_cast<const int32_t*>(data)[offset];
  }

  // Element (indices...) = value, which an int32 array must be able to hold.
  template <class... I>
  LATHE_INLINE void Set(int64_t value, I... indices) const noexcept {
    static_assert(sizeof...(I) == R, "one index per dimension");
    const int64_t offset = detail::OffsetOf(stride, indices...);
    if (is_int64) {
      static_cast<int64_t*>(data)[offset] = value;
    } else {
      static_cast<int32_t*>(data)[offset] = static_cast<int32_t>(value);
    }
  }
};

template <size_t R>
using IndexView = AnyIndexView<const void, R>;
template <size_t R>
using MutableIndexView = AnyIndexView<void, R>;

// Memory of the caller's: plan memory, workspace.
struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;
};

}  // namespace lathe

#endif  // LATHE_BASE_VIEW_H_
