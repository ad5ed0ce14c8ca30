// SPDX-License-Identifier: Apache-2.0
// The SIMD sections of all formats, for one target pass.

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

// Of formats that do not look at a whole tile before they encode it.
struct NoAmax {};
template <class Format>
LATHE_INLINE NoAmax AmaxOf(Format, const TokenRow&) {
  return {};
}

#define LATHE_TARGET_PASS 1
#include "lathe/cache/formats.def"
#undef LATHE_TARGET_PASS

template <class Format>
LATHE_INLINE void EncodeRecord(Format format, const TokenRow& token, NoAmax, const ScaleRule& rule,
                               std::byte* record, std::byte* side) {
  EncodeRecord(format, token, rule, record, side);
}

// Of formats whose rows have no scale of their own.
template <class Format, class Element>
void DecodeUnscaled(Format format, const std::byte* record, const std::byte* side, int64_t width,
                    Element* row) {
  DecodeRecord(format, record, side, width, row);
}
