// SPDX-License-Identifier: Apache-2.0
// LatentFp8<Code>: as Latent, in 8-bit codes, with one scale for the whole tensor.
//
//   record:  | code 0 | code 1 | ... | code width-1 |     width bytes, any alignment
//
//   value = code * PagedCache::scale, stored = x / scale. The scale is the caller's: it is
//   calibrated once.
#ifndef LATHE_CACHE_LATENT_FP8_H_
#define LATHE_CACHE_LATENT_FP8_H_

#include "lathe/cache/scale_rules.h"

namespace lathe {

template <class Code>
struct LatentFp8 : FormatDefaults {
  static constexpr BFloat16Rows kBFloat16 = BFloat16Rows::kExact;  // the scale is not in rows
  static constexpr bool kHasTensorScale = true;
  LATHE_INLINE static constexpr int64_t RecordBytes(int64_t width) noexcept { return width; }

  LATHE_INLINE static float DecodeColumn(const std::byte* record, const std::byte*,
                                         int64_t column) noexcept {
    return detail::DecodeAt<Code>(record, column);
  }
};

}  // namespace lathe

#endif  // LATHE_CACHE_LATENT_FP8_H_

#ifdef LATHE_TARGET_PASS
#include "lathe/cache/encode_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Code, class Element>
void DecodeRecord(LatentFp8<Code>, const std::byte* record, const std::byte*, int64_t width,
                  Element* row) {
  DecodeCodes<Code>(record, width, Unscaled(), row);
}

template <class Code>
void EncodeRecord(LatentFp8<Code>, const TokenRow& token, const ScaleRule& rule, std::byte* record,
                  std::byte*) {
  constexpr int64_t kChunk = 512;
  for (int64_t c = 0; c < token.width(); c += kChunk) {
    const int64_t n = (std::min)(kChunk, token.width() - c);
    token.Visit<kChunk>(
        c, n, [&](const auto* x) { EncodeTile<Code>(x, n, rule.tensor_scale, record + c); });
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // LATHE_TARGET_PASS
