// SPDX-License-Identifier: Apache-2.0
// Every cache format, and the one switch from a CacheFormat value to its type.
//
// A format file, listed by formats.def, has two sections: once, the scalar section, a struct, best derived from
// FormatDefaults (scale_rules.h: decoded rows of any width and alignment in one part, without a tensor scale), of
//   Element            the type an engine may read in place, or void: rows are always decoded
//   kBFloat16          whether rows may be decoded to bfloat16 (scale_rules.h)
//   kAlignment         of a record and of a side row
//   kWidth             columns, or 0: any
//   kSideBytes         bytes a token has in the second part of its page, or 0
//   kHasTensorScale    values are stored * PagedCache::scale
//   RecordBytes(width)
//   DecodeColumn(record, side, column)            one value, without the tensor scale
//   kScaleColumns, kNumScales          optional: scales that neighbouring columns have in common, where what they scale
//                      is exact in bfloat16. kNumScales tiles of kScaleColumns columns have one each, what lies behind
//                      them has none. kScaleColumns: a multiple of 64, or all columns (of rows of any width: the
//                      largest int64_t). Engines of bfloat16 products apply
//                      them to scores and weights, so that no value is rounded
//   ScaleAt(record, side, tile)        with these: the scale of one tile, any float
//   EncodeColumn(x, record, side, column)         x by the tensor scale; if there is no
//   EncodeRecord below
// and, if LATHE_TARGET_PASS is defined, once for each target, SIMD code found by overloading, to both of
// which formats-inl.h has slow substitutes over single columns. It is written like an -inl.h file, with its includes and
// namespace:
//   DecodeRecord(Format{}, record, side, width, Element* row)          Element = float, bfloat16
//   DecodeUnscaled(...)                          with scales: the same without them, exact in bfloat16; required
//   EncodeRecord(Format{}, token, rule, record, side)
// or, where scales come from the largest magnitudes of tiles, these found a token ahead:
//   AmaxOf(Format{}, token)            TileAmax (encode_tiles-inl.h)
//   EncodeRecord(Format{}, token, amax, rule, record, side)
#ifndef LATHE_CACHE_FORMATS_H_
#define LATHE_CACHE_FORMATS_H_

#include <cstdint>
#include <limits>

#include "lathe/base/config.h"
#include "lathe/base/keys.h"
#include "lathe/cache/formats.def"
#include "lathe/cache/scale_rules.h"

namespace lathe {

template <class T>
struct FormatTag {
  using Type = T;
};

namespace detail {
template <class Format, class = void>
inline constexpr int64_t kNumScales = 0;
template <class Format>
inline constexpr int64_t
    kNumScales<Format, decltype(static_cast<void>(Format::ScaleAt(nullptr, nullptr, 0)))> =
        Format::kNumScales;

// Scales that a row of any format has at most.
constexpr int64_t kMaxScales = 8;

// Whether one scale is that of all columns.
template <class Format>
LATHE_INLINE constexpr bool HasRowScale() noexcept {
  if constexpr (kNumScales<Format> == 1) {
    constexpr int64_t kAll =
        Format::kWidth == 0 ? (std::numeric_limits<int64_t>::max)() : Format::kWidth;
    return Format::kScaleColumns >= kAll;
  } else {
    return false;
  }
}
}  // namespace detail

// f(FormatTag<Format>) for the type behind `format`; false when there is no such format.
template <class F>
LATHE_INLINE constexpr bool VisitFormat(CacheFormat format, F&& f) {
  switch (format) {
#define LATHE_FORMAT(enumerator, number, type) \
  case CacheFormat::enumerator:                \
    f(FormatTag<type>{});                      \
    return true;
#include "lathe/cache/formats.def"
#undef LATHE_FORMAT
  }
  return false;
}

namespace detail {
// f(Format) for the type behind `format`, `unknown` when there is no such format.
template <class T, class F>
LATHE_INLINE constexpr T OfFormat(CacheFormat format, T unknown, const F& f) noexcept {
  VisitFormat(format, [&](auto tag) { unknown = f(typename decltype(tag)::Type{}); });
  return unknown;
}
}  // namespace detail

// Bytes of one record of `width` columns; 0 for an unknown format.
LATHE_INLINE constexpr int64_t RecordBytes(CacheFormat format, int64_t width) noexcept {
  return detail::OfFormat(format, int64_t{0}, [=](auto f) { return f.RecordBytes(width); });
}

// Bytes a token has in the second part of its page; 0 for one-part formats.
LATHE_INLINE constexpr int64_t SideBytes(CacheFormat format) noexcept {
  return detail::OfFormat(format, int64_t{0}, [](auto f) { return f.kSideBytes; });
}

// Columns that the format fixes; 0 when any width will do.
LATHE_INLINE constexpr int64_t FixedWidth(CacheFormat format) noexcept {
  return detail::OfFormat(format, int64_t{0}, [](auto f) { return f.kWidth; });
}

LATHE_INLINE constexpr bool HasTensorScale(CacheFormat format) noexcept {
  return detail::OfFormat(format, false, [](auto f) { return f.kHasTensorScale; });
}

LATHE_INLINE constexpr BFloat16Rows BFloat16RowsOf(CacheFormat format) noexcept {
  return detail::OfFormat(format, BFloat16Rows::kNever, [](auto f) { return f.kBFloat16; });
}

// Whether rows may become bfloat16 for attention, which applies scales itself.
LATHE_INLINE constexpr BFloat16Rows BFloat16UnscaledRowsOf(CacheFormat format) noexcept {
  return detail::OfFormat(format, BFloat16Rows::kNever, [](auto f) {
    return detail::kNumScales<decltype(f)> > 0 ? BFloat16Rows::kExact : f.kBFloat16;
  });
}

// Whether rows may become bfloat16 for an indexer, which applies a scale of the whole row itself.
LATHE_INLINE constexpr BFloat16Rows BFloat16KeysOf(CacheFormat format) noexcept {
  return detail::OfFormat(format, BFloat16Rows::kNever, [](auto f) {
    return detail::HasRowScale<decltype(f)>() ? BFloat16Rows::kExact : f.kBFloat16;
  });
}

// Alignment that data, block_stride and row_stride must keep; 0 for an unknown format.
LATHE_INLINE constexpr size_t RecordAlignment(CacheFormat format) noexcept {
  return detail::OfFormat(format, size_t{0}, [](auto f) { return f.kAlignment; });
}

}  // namespace lathe

#endif  // LATHE_CACHE_FORMATS_H_
