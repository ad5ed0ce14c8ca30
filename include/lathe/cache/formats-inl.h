// SPDX-License-Identifier: Apache-2.0
// The SIMD code of all formats, and what takes its place where a format has none.
#if defined(LATHE_CACHE_FORMATS_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_CACHE_FORMATS_INL_H_
#undef LATHE_CACHE_FORMATS_INL_H_
#else
#define LATHE_CACHE_FORMATS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "lathe/base/types.h"
#include "lathe/cache/formats.h"
#include "lathe/cache/token_row-inl.h"

#define LATHE_TARGET_PASS
#include "lathe/cache/formats.def"
#undef LATHE_TARGET_PASS

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// For formats without SIMD code: a column at a time, correct first.
template <class Format, class Element>
void DecodeRecord(Format, const std::byte* record, const std::byte* side, int64_t width,
                  Element* row) {
  for (int64_t c = 0; c < width; ++c) {
    row[c] = FromFloat<Element>(Format::DecodeColumn(record, side, c));
  }
}

template <class Format>
void EncodeRecord(Format, const TokenRow& token, const ScaleRule& rule, std::byte* record,
                  std::byte* side) {
  for (int64_t c = 0; c < token.width(); ++c) {
    float x;
    token.Load(c, 1, &x);
    if constexpr (Format::kHasTensorScale) x = DivideTiny(x, rule.tensor_scale);
    Format::EncodeColumn(x, record, side, c);
  }
}

// The maxima of formats that do not look at a whole tile before they encode it.
struct NoAmax {};
template <class Format>
LATHE_INLINE NoAmax AmaxOf(Format, const TokenRow&) {
  return {};
}

template <class Format>
LATHE_INLINE void EncodeRecord(Format format, const TokenRow& token, NoAmax, const ScaleRule& rule,
                               std::byte* record, std::byte* side) {
  EncodeRecord(format, token, rule, record, side);
}

// What is decoded without scales is the record where engines apply none of its scales.
template <class Format, class Element>
void DecodeUnscaled(Format format, const std::byte* record, const std::byte* side, int64_t width,
                    Element* row) {
  static_assert(detail::kNumScales<Format> == 0, "a format with scales decodes its codes itself");
  DecodeRecord(format, record, side, width, row);
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
