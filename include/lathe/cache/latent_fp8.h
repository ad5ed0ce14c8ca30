// SPDX-License-Identifier: Apache-2.0
// LatentFp8<Code>: as Latent, in 8-bit codes, with one scale for the whole tensor.
//
//   record:  | code 0 | code 1 | ... | code width-1 |     width bytes, any alignment
//
//   value = code * PagedCache::scale, stored = x / scale. The scale is the caller's: it is
//   calibrated once.
#if defined(LATHE_FORMAT)
LATHE_FORMAT(kLatentFp8E4m3, 3, LatentFp8<float8_e4m3fn>)
LATHE_FORMAT(kLatentFp8E5m2, 4, LatentFp8<float8_e5m2>)
LATHE_FORMAT(kLatentFp8E4m3Fnuz, 5, LatentFp8<float8_e4m3fnuz>)
#elif !defined(LATHE_CACHE_LATENT_FP8_H_)
#define LATHE_CACHE_LATENT_FP8_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/types.h"
#include "lathe/cache/scale_rules.h"

namespace lathe {

template <class Code>
struct LatentFp8 {
  using Element = void;
  static constexpr BFloat16Rows kBFloat16 =
      BFloat16Rows::kExact;  // the codes; the scale is not in rows
  static constexpr size_t kAlignment = 1;
  static constexpr int64_t kWidth = 0;
  static constexpr int64_t kSideBytes = 0;
  static constexpr bool kHasTensorScale = true;
  static constexpr int64_t RecordBytes(int64_t width) noexcept { return width; }

  static float DecodeColumn(const std::byte* record, const std::byte*, int64_t column) noexcept {
    return detail::DecodeAt<Code>(record, column);
  }
};

}  // namespace lathe

#endif  // LATHE_CACHE_LATENT_FP8_H_

#if defined(LATHE_TARGET_PASS)

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
        c, n, [&](const auto* x) { QuantizeTile<Code>(x, n, rule.tensor_scale, record + c); });
  }
}

#endif  // LATHE_TARGET_PASS
