// SPDX-License-Identifier: Apache-2.0
// Paged caches and key sets: which rows of which cache a query row sees.
#ifndef LATHE_BASE_KEYS_H_
#define LATHE_BASE_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "lathe/base/config.h"
#include "lathe/base/types.h"
#include "lathe/base/view.h"

namespace lathe {

// How one token's record is laid out; cache/formats.def lists them, docs/formats.md draws them. Numbers
// are part of the ABI; 128 and up belong to formats from outside (LATHE_EXTRA_FORMATS).
enum class CacheFormat : uint8_t {
#define LATHE_FORMAT(enumerator, number, type) enumerator = number,
#include "lathe/cache/formats.def"
#undef LATHE_FORMAT
};

// "kFp8DsMla", as the enumerators are called; "unknown" for a value that is no format.
LATHE_INLINE constexpr const char* Name(CacheFormat format) noexcept {
  switch (format) {
#define LATHE_FORMAT(enumerator, number, type) \
  case CacheFormat::enumerator:                \
    return #enumerator;
#include "lathe/cache/formats.def"
#undef LATHE_FORMAT
  }
  return "unknown";
}

// num_blocks pages of block_size token records each. RecordAt says where the record at `slot` of page `block`
// lies, in bytes of 64-bit arithmetic; in formats whose pages have a second part (scales) it continues at SideAt,
// side_bytes being SideBytes(format).
// block_size: tokens a page, any value >= 1. row_stride: at least the format's record for the width in
// use; block_stride: at least a page's bytes unless pages of a one-part format interleave; gaps are never
// touched. Records need the alignment of their element only; 64 bytes is faster.
// scale: of the whole tensor, value = stored * scale, in formats that have one (> 0); else ignored.
template <class Byte>
struct BasicPagedCache {
  Byte* data = nullptr;
  CacheFormat format = CacheFormat::kLatentBFloat16;
  int64_t num_blocks = 0;
  int64_t block_size = 0;
  int64_t block_stride = 0;  // bytes
  int64_t row_stride = 0;    // bytes
  float scale = 1.0f;

  LATHE_INLINE Byte* RecordAt(int64_t block, int64_t slot) const noexcept {
    return data + block * block_stride + slot * row_stride;
  }
  LATHE_INLINE Byte* SideAt(int64_t block, int64_t slot, int64_t side_bytes) const noexcept {
    return RecordAt(block, block_size) + slot * side_bytes;
  }

  LATHE_INLINE constexpr operator BasicPagedCache<const Byte>() const noexcept {
    return {data, format, num_blocks, block_size, block_stride, row_stride, scale};
  }
};
using PagedCache = BasicPagedCache<const std::byte>;
using MutablePagedCache = BasicPagedCache<std::byte>;

namespace detail {
// The format of plain rows of that type.
LATHE_INLINE constexpr CacheFormat LatentFormatOf(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32:
      return CacheFormat::kLatentFloat32;
    case DType::kFloat16:
      return CacheFormat::kLatentFloat16;
    case DType::kBFloat16:
      break;
  }
  return CacheFormat::kLatentBFloat16;
}
}  // namespace detail

// A dense cache of plain elements [num_blocks, block_size, width], T = float, float16 or bfloat16; one with gaps has its
// strides, which are bytes, set afterwards. A const T gives a PagedCache, otherwise a MutablePagedCache.
template <class T>
LATHE_INLINE auto LatentPages(T* data, int64_t num_blocks, int64_t block_size,
                              int64_t width) noexcept {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  const int64_t row_bytes = width * static_cast<int64_t>(sizeof(T));
  return BasicPagedCache<Byte>{reinterpret_cast<Byte*>(data),
                               detail::LatentFormatOf(kDTypeOf<T>),
                               num_blocks,
                               block_size,
                               block_size * row_bytes,
                               row_bytes,
                               1.0f};
}

// What the entries of KeySet::indices mean.
enum class IndexSpace : uint8_t {
  kLogical,   // positions of the sequence, through block_table
  kPhysical,  // slots of the cache: block * block_size + offset; block_table is not used
};

constexpr int64_t kNoWindow = (std::numeric_limits<int64_t>::max)();

// The keys that query rows see. B sequences, T query rows over all of them; a sequence has seq_lens[b] tokens
// and L = seq_lens[b] / compress_ratio keys.
//
//   cache           the pages
//   block_table     [B, max_blocks] page ids; entries of pages that no row's keys lie in are never read. Not given:
//                   the slots of the cache in their order are the keys of the call's only sequence (B is 1)
//   wraps           the block table is a ring: page p of a sequence stands in column p % max_blocks. The pages
//                   that a sequence's rows see must be at most max_blocks; for caches that keep a window
//   seq_lens        [B] tokens of each sequence, those of this step included when already written. Optional without
//                   block_table: as many as the cache has slots, at a compress_ratio of 1
//   compress_ratio  tokens that one key stands for, >= 1: a key is there, and seen, once its last token is.
//                   Row i of a sequence of q_len queries sees (seq_lens[b] - q_len + i + 1) / compress_ratio
//                   keys (the causal count). 1: a key for each token
//   row_kv_lens     [T] optional: keys that row t sees, [0, row_kv_lens[t]), in place of the causal count;
//                   what context-parallel shards need. Clamped to [0, L].
//   row_starts      [T] optional: the first key that row t may see, for rows of several documents or chunks side by
//                   side: [row_starts[t], row_kv_lens[t]). Clamped to [0, end of the row's keys]. Not with indices
//   window          keys a row sees at most, >= 1, its own included: the last `window` of those that the causal
//                   count (or row_kv_lens) leaves. kNoWindow: all of them
//   indices         [T, K] optional: row t sees exactly these keys. Entries < 0, or >= the row's count of
//                   visible keys (logical), or >= num_blocks * block_size (physical) are holes and skipped;
//                   any order; a repeated entry counts each time. With physical entries neither
//                   causality nor window nor lengths apply: the list is the whole truth.
//   topk_length     [T] optional: entries of `indices` that count; what lies past them is never read.
//   index_space     what the entries of `indices` are
struct KeySet {
  PagedCache cache = {};
  IndexView<2> block_table = {};
  bool wraps = false;
  IndexView<1> seq_lens = {};
  int64_t compress_ratio = 1;
  IndexView<1> row_kv_lens = {};
  IndexView<1> row_starts = {};
  int64_t window = kNoWindow;
  IndexView<2> indices = {};
  IndexView<1> topk_length = {};
  IndexSpace index_space = IndexSpace::kLogical;

  LATHE_INLINE constexpr bool is_given() const noexcept { return cache.block_size != 0; }
  // True for a list of no entries, too, whose data may be null.
  LATHE_INLINE constexpr bool has_indices() const noexcept {
    return indices.data != nullptr || indices.extent[0] > 0;
  }
};

}  // namespace lathe

#endif  // LATHE_BASE_KEYS_H_
