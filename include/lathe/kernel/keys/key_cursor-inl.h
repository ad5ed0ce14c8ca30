// SPDX-License-Identifier: Apache-2.0
// KeyCursor: walks the keys of one set tile by tile and yields the addresses of their records. Knows block
// tables and index lists; knows no record layout beyond offsets, and nothing of what is done with rows.
#if defined(LATHE_KERNEL_KEYS_KEY_CURSOR_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_KEYS_KEY_CURSOR_INL_H_
#undef LATHE_KERNEL_KEYS_KEY_CURSOR_INL_H_
#else
#define LATHE_KERNEL_KEYS_KEY_CURSOR_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lathe/cache/formats.h"
#include "lathe/kernel/keys/key_rows.h"
#include "lathe/kernel/keys/visibility.h"
#include "lathe/kernel/score/key_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// Keys that a tile of any engine holds at most.
constexpr int64_t kMaxTileKeys = 256;

struct KeyTile {
  // Rows past `count` point to zeros, as far as the kernels read ahead.
  const std::byte* rows[kMaxTileKeys + kScoreTokens];
  const std::byte* sides[kMaxTileKeys];  // of formats whose pages have a second part
  const std::byte* own_values[kMaxTileKeys];
  const std::byte** values = rows;  // as P x V reads them: of rows, or own_values
  int64_t begin = 0;                // number, or entry of the list, of the first key
  int64_t count = 0;
  int64_t num_skipped = 0;  // of them, in front: rows of zeros that no row sees
  int set = 0;              // which of the task's, for who takes tiles of several
  int64_t record_bytes = 0;
  int64_t side_bytes = 0;
  int64_t value_bytes = 0;  // of own_values

  // Inlined by force: GCC takes a function that only prefetches for one without effects and drops calls of it.
  LATHE_INLINE void Prefetch(int64_t t) const {
    if (t >= count) return;
    for (int64_t at = 0; at < record_bytes; at += 64) PrefetchToL2(rows[t] + at);
    if (side_bytes > 0) PrefetchToL2(sides[t]);
  }
  LATHE_INLINE void PrefetchValue(int64_t t) const {
    if (t >= count) return;
    for (int64_t at = 0; at < value_bytes; at += 64) PrefetchToL2(own_values[t] + at);
  }
};

class KeyCursor {
 public:
  // Of the keys of sequence `seq` for key head `head`; rows of `width` columns, and `value_width` where values have
  // rows of their own.
  KeyCursor(const detail::KeyRows& keys, int64_t width, int64_t value_width, int64_t seq,
            int64_t head, int64_t tile_keys, const std::byte* zeros)
      : keys_(keys),
        seq_(seq),
        first_slot_(keys.FirstSlot(seq)),
        head_offset_(head * keys.head_stride),
        value_head_offset_(head * keys.value_head_stride),
        tile_keys_(tile_keys),
        zeros_(zeros),
        record_bytes_(RecordBytes(keys.cache.format, width)),
        side_bytes_(SideBytes(keys.cache.format)),
        value_bytes_(keys.has_values() ? RecordBytes(keys.values.format, value_width) : 0) {}

  // Walks the list of query `i` of `q_len` from now on, row `token` of the batch. Lists of slots may have no lengths.
  void WalkList(const detail::Causality& causality, int64_t q_len, int64_t i, int64_t token) {
    list_row_ = token;
    if (keys_.index_space == IndexSpace::kPhysical) {
      limit_ = keys_.cache.num_blocks * keys_.cache.block_size;
      return;
    }
    list_query_ = {keys_.SeqLen(seq_), q_len, i, token};
    limit_ = detail::VisibleKeys(keys_, causality, list_query_).end;
    if (causality.MasksKeys(keys_)) tree_ = &causality;
  }

  // Keys of a range before `first_seen` are not looked for.
  void Seek(int64_t begin, int64_t end, int64_t first_seen = 0) {
    at_ = (std::min)(begin, end);
    end_ = end;
    first_seen_ = first_seen;
  }

  // Live keys of the list among its entries [begin, end), or `most` if there are more.
  int64_t CountLive(int64_t begin, int64_t end, int64_t most) const {
    int64_t count = 0;
    for (int64_t at = begin; at < end && count < most; ++at) {
      if (IsLive(keys_.indices(list_row_, at))) ++count;
    }
    return count;
  }

  // The next up to tile_keys live keys; count 0 when there are none left.
  void Next(KeyTile& tile) {
    tile.record_bytes = record_bytes_;
    tile.side_bytes = side_bytes_;
    tile.value_bytes = value_bytes_;
    tile.values = value_bytes_ > 0 ? tile.own_values : tile.rows;
    tile.begin = at_;
    tile.num_skipped = 0;
    tile.count = keys_.has_indices() ? NextOfList(tile) : NextOfRange(tile);
    for (int64_t t = tile.count; t < tile_keys_ + kScoreTokens; ++t) tile.rows[t] = zeros_;
    if (value_bytes_ == 0) return;
    for (int64_t t = tile.count; t < tile_keys_; ++t) tile.own_values[t] = zeros_;
  }

 private:
  void Place(KeyTile& tile, int64_t at, int64_t block, int64_t slot) const {
    tile.rows[at] = keys_.cache.RecordAt(block, slot) + head_offset_;
    if (side_bytes_ > 0) tile.sides[at] = keys_.cache.SideAt(block, slot, side_bytes_);
    if (value_bytes_ == 0) return;
    tile.own_values[at] = keys_.values.RecordAt(block, slot) + value_head_offset_;
  }

  int64_t NextOfRange(KeyTile& tile) {
    const int64_t block_size = keys_.cache.block_size;
    const int64_t count = (std::min)(end_ - at_, tile_keys_);
    const int64_t skipped = (std::min)((std::max)(first_seen_ - at_, int64_t{0}), count);
    tile.num_skipped = skipped;
    for (int64_t t = 0; t < skipped; ++t) {
      tile.rows[t] = tile.sides[t] = tile.own_values[t] = zeros_;
    }
    int64_t page = (first_slot_ + at_ + skipped) / block_size;
    int64_t slot = (first_slot_ + at_ + skipped) % block_size;
    for (int64_t t = skipped; t < count; ++page, slot = 0) {
      const int64_t block = keys_.BlockOf(seq_, page);
      for (; slot < block_size && t < count; ++slot) Place(tile, t++, block, slot);
    }
    at_ += count;
    return count;
  }

  bool IsLive(int64_t index) const {
    if (index < 0 || index >= limit_) return false;
    return tree_ == nullptr || tree_->SeesToken(list_query_, index);
  }

  int64_t NextOfList(KeyTile& tile) {
    const int64_t block_size = keys_.cache.block_size;
    int64_t count = 0;
    for (; at_ < end_ && count < tile_keys_; ++at_) {
      const int64_t index = keys_.indices(list_row_, at_);
      if (!IsLive(index)) continue;
      const int64_t page = index / block_size;
      const int64_t block =
          keys_.index_space == IndexSpace::kPhysical ? page : keys_.BlockOf(seq_, page);
      Place(tile, count++, block, index % block_size);
    }
    return count;
  }

  const detail::KeyRows& keys_;
  int64_t seq_;
  int64_t first_slot_;
  int64_t head_offset_;
  int64_t value_head_offset_;
  int64_t tile_keys_;
  const std::byte* zeros_;
  int64_t record_bytes_;
  int64_t side_bytes_;
  int64_t value_bytes_;
  int64_t list_row_ = 0;
  detail::QueryPlace list_query_ = {};
  const detail::Causality* tree_ = nullptr;
  int64_t limit_ = 0;
  int64_t at_ = 0;
  int64_t end_ = 0;
  int64_t first_seen_ = 0;
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
