// SPDX-License-Identifier: Apache-2.0
// What a record is made of: the two parts of a token, each of its own type, seen as one row of
// columns.
#if defined(LATHE_CACHE_TOKEN_ROW_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_CACHE_TOKEN_ROW_INL_H_
#undef LATHE_CACHE_TOKEN_ROW_INL_H_
#else
#define LATHE_CACHE_TOKEN_ROW_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lathe/base/types.h"
#include "lathe/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

struct TokenRow {
  DType c_type;
  const std::byte* kv_c;
  int64_t c_width;
  DType pe_type;
  const std::byte* k_pe;
  int64_t pe_width;

  int64_t width() const { return c_width + pe_width; }

  // Columns [first, first + n), rounded to T.
  template <class T>
  void Load(int64_t first, int64_t n, T* to) const {
    const int64_t n_c = (std::min)((std::max)(c_width - first, int64_t{0}), n);
    if (n_c > 0) Convert(c_type, At(kv_c, c_type, first), kDTypeOf<T>, Bytes(to), n_c);
    if (n_c == n) return;
    Convert(pe_type, At(k_pe, pe_type, first + n_c - c_width), kDTypeOf<T>, Bytes(to + n_c),
            n - n_c);
  }

  // f(pointer to columns [first, first + n)), n <= kMax, in place if they are floats or bfloat16
  // numbers of one part, else as floats.
  template <int64_t kMax, class F>
  LATHE_INLINE void Visit(int64_t first, int64_t n, const F& f) const {
    const bool is_in_c = first + n <= c_width;
    if (is_in_c || first >= c_width) {
      const DType type = is_in_c ? c_type : pe_type;
      const std::byte* at = is_in_c ? At(kv_c, type, first) : At(k_pe, type, first - c_width);
      if (type == DType::kBFloat16) return f(reinterpret_cast<const bfloat16*>(at));
      if (type == DType::kFloat32) return f(reinterpret_cast<const float*>(at));
    }
    float x[kMax];
    Load(first, n, x);
    f(static_cast<const float*>(x));
  }
  template <int64_t kN, class F>
  LATHE_INLINE void Visit(int64_t first, const F& f) const {
    Visit<kN>(first, kN, f);
  }

  // Columns [first, first + kN) as bfloat16 numbers.
  template <int64_t kN>
  LATHE_INLINE void Round(int64_t first, std::byte* to) const {
    Visit<kN>(first, [to](const auto* x) { ConvertRow(x, reinterpret_cast<bfloat16*>(to), kN); });
  }

 private:
  static const std::byte* At(const std::byte* row, DType type, int64_t column) {
    return row + column * static_cast<int64_t>(SizeOf(type));
  }
  template <class T>
  static std::byte* Bytes(T* to) {
    return reinterpret_cast<std::byte*>(to);
  }
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
