// SPDX-License-Identifier: Apache-2.0
// Latent<T>: one token is `width` plain elements, [kv_lora_rank latent | qk_rope_head_dim rope]
// (DeepSeek-V2, arXiv 2405.04434, section 2.1).
//
//   record:  | T 0 | T 1 | ... | T width-1 |     width * sizeof(T) bytes, aligned as T
#ifndef LATHE_CACHE_LATENT_H_
#define LATHE_CACHE_LATENT_H_

#include <type_traits>

#include "lathe/cache/scale_rules.h"

namespace lathe {

template <class T>
struct Latent : FormatDefaults {
  using Element = T;
  static constexpr BFloat16Rows kBFloat16 =
      std::is_same_v<T, bfloat16> ? BFloat16Rows::kExact : BFloat16Rows::kNever;
  static constexpr size_t kAlignment = alignof(T);
  LATHE_INLINE static constexpr int64_t RecordBytes(int64_t width) noexcept {
    return width * static_cast<int64_t>(sizeof(T));
  }

  LATHE_INLINE static float DecodeColumn(const std::byte* record, const std::byte*,
                                         int64_t column) noexcept {
    return detail::DecodeAt<T>(record, column);
  }
};

}  // namespace lathe

#endif  // LATHE_CACHE_LATENT_H_

#ifdef LATHE_TARGET_PASS
#include "lathe/cache/encode_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class T, class Element>
void DecodeRecord(Latent<T>, const std::byte* record, const std::byte*, int64_t width,
                  Element* row) {
  ConvertRow(reinterpret_cast<const T*>(record), row, width);
}

template <class T>
void EncodeRecord(Latent<T>, const TokenRow& token, const ScaleRule&, std::byte* record,
                  std::byte*) {
  token.Load(0, token.width(), reinterpret_cast<T*>(record));
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // LATHE_TARGET_PASS
