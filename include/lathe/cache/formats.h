// SPDX-License-Identifier: Apache-2.0
// Every cache format, and the one switch from a CacheFormat value to its type.
#ifndef LATHE_CACHE_FORMATS_H_
#define LATHE_CACHE_FORMATS_H_

#include "lathe/base/keys.h"
#include "lathe/cache/latent.h"

namespace lathe {

template <class T>
struct FormatTag {
  using Type = T;
};

// f(FormatTag<Format>) for the type behind `format`; false when there is no such format.
template <class F>
constexpr bool VisitFormat(CacheFormat format, F&& f) {
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

// Bytes of one record of `width` columns; 0 for an unknown format.
constexpr int64_t RecordBytes(CacheFormat format, int64_t width) noexcept {
  int64_t bytes = 0;
  VisitFormat(format, [&](auto tag) { bytes = decltype(tag)::Type::RecordBytes(width); });
  return bytes;
}

// Alignment that data, block_stride and row_stride must keep; 0 for an unknown format.
constexpr size_t RecordAlignment(CacheFormat format) noexcept {
  size_t alignment = 0;
  VisitFormat(format, [&](auto tag) { alignment = decltype(tag)::Type::kAlignment; });
  return alignment;
}

}  // namespace lathe

#endif  // LATHE_CACHE_FORMATS_H_
