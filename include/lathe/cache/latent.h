// SPDX-License-Identifier: Apache-2.0
// Latent<T>: one token is `width` plain elements, [kv_lora_rank latent | qk_rope_head_dim rope]
// (DeepSeek-V2, arXiv 2405.04434, section 2.1).
//
//   record:  | T 0 | T 1 | ... | T width-1 |     width * sizeof(T) bytes, aligned as T
#ifndef LATHE_CACHE_LATENT_H_
#define LATHE_CACHE_LATENT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lathe/base/types.h"

namespace lathe {

template <class T>
struct Latent {
  using Element = T;
  static constexpr size_t kAlignment = alignof(T);
  static constexpr int64_t kWidth = 0;
  static constexpr int64_t kSideBytes = 0;
  static constexpr bool kHasTensorScale = false;
  static constexpr int64_t RecordBytes(int64_t width) noexcept {
    return width * static_cast<int64_t>(sizeof(T));
  }

  static float DecodeColumn(const std::byte* record, const std::byte*, int64_t column) noexcept {
    T element;
    std::memcpy(&element, record + column * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return ToFloat(element);
  }
};

}  // namespace lathe

#endif  // LATHE_CACHE_LATENT_H_

#if defined(LATHE_TARGET_PASS)

// Reader of the attend kernel: one record as a row of the engine's elements.
template <class T, class Element>
void DecodeRecord(Latent<T>, const std::byte* record, const std::byte*, int64_t width,
                  Element* row) {
  ConvertRow(reinterpret_cast<const T*>(record), row, width);
}

// Writer: the two parts of a token, of any type.
template <class T>
void EncodeRecord(Latent<T>, DType c_type, const std::byte* kv_c, int64_t c_width, DType pe_type,
                  const std::byte* k_pe, int64_t pe_width, std::byte* record) {
  Convert(c_type, kv_c, kDTypeOf<T>, record, c_width);
  Convert(pe_type, k_pe, kDTypeOf<T>, record + Latent<T>::RecordBytes(c_width), pe_width);
}

#endif  // LATHE_TARGET_PASS
