// SPDX-License-Identifier: Apache-2.0
// KeyCursor: walks the keys of one set tile by tile and yields the addresses of their records. Knows block
// tables, index lists and tensors of rows; knows no record layout beyond offsets, and nothing of what is done with rows.

struct KeyTile {
  // Rows past `count` point to zeros, as far as the kernels read ahead.
  const std::byte* rows[kMaxTileKeys + kScoreTokens];
  const std::byte* sides[kMaxTileKeys];  // of formats whose pages have a second part
  const std::byte* own_values[kMaxTileKeys];
  const std::byte** values = rows;  // as P x V reads them: of rows, or own_values
  int64_t begin = 0;                // number, or entry of the list, of the first key
  int64_t count = 0;
  int set = 0;  // which of the task's
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
  KeyCursor(const AttendCall& call, const AttendTask& task, int set, int64_t tile_keys,
            const std::byte* zeros)
      : keys_(call.keys[set]),
        call_(&call),
        set_(set),
        seq_(task.seq),
        kv_head_(task.head_begin / call.unit_heads),
        tile_keys_(tile_keys),
        zeros_(zeros) {
    record_bytes_ = RecordBytes(keys_.cache.format, call.qk_dim);
    side_bytes_ = SideBytes(keys_.cache.format);
    has_list_ = keys_.has_indices();
    if (!has_list_) return;
    const int64_t i = task.row_begin / call.unit_heads;
    list_row_ = task.token_begin + i;
    if (keys_.index_space == IndexSpace::kPhysical) {
      limit_ = keys_.cache.num_blocks * keys_.cache.block_size;
    } else {
      list_query_ = detail::PlaceOfQuery(call, task, set, i);
      limit_ = detail::VisibleKeys(keys_, call.causality, list_query_).end;
      has_tree_ = call.causality.MasksKeys(keys_);
    }
  }

  // Ranges of a sequence's keys; without a block table the slots of the cache in their order.
  KeyCursor(const KeySet& keys, int64_t width, int64_t seq, int64_t tile_keys,
            const std::byte* zeros)
      : keys_(keys), set_(0), seq_(seq), tile_keys_(tile_keys), zeros_(zeros) {
    record_bytes_ = RecordBytes(keys.cache.format, width);
    side_bytes_ = SideBytes(keys.cache.format);
  }

  void Seek(int64_t begin, int64_t end) {
    at_ = (std::min)(begin, end);
    end_ = end;
  }

  // The next up to tile_keys live keys; count 0 when there are none left.
  void Next(KeyTile& tile) {
    tile.set = set_;
    tile.record_bytes = record_bytes_;
    tile.side_bytes = side_bytes_;
    tile.begin = at_;
    tile.count = HasOwnValues() ? NextOfTensors(tile)
                 : has_list_    ? NextOfList(tile)
                                : NextOfRange(tile);
    for (int64_t t = tile.count; t < tile_keys_ + kScoreTokens; ++t) tile.rows[t] = zeros_;
  }

 private:
  void Place(KeyTile& tile, int64_t at, int64_t block, int64_t slot) const {
    const std::byte* page = keys_.cache.data + block * keys_.cache.block_stride;
    tile.rows[at] = page + slot * keys_.cache.row_stride;
    if (side_bytes_ == 0) return;
    tile.sides[at] = page + keys_.cache.block_size * keys_.cache.row_stride + slot * side_bytes_;
  }

  // Without a table the cache itself is the sequence.
  int64_t Block(int64_t page) const {
    if (keys_.block_table.empty()) return page;
    return keys_.block_table(seq_, keys_.wraps ? page % keys_.block_table.extent[1] : page);
  }

  bool HasOwnValues() const { return call_ != nullptr && call_->has_own_values; }

  // Row `at` of the sequence and this head in a tensor of keys or values.
  const std::byte* RowOf(const In<3>& tensor, int64_t at) const {
    const int64_t row = call_->kv_start_loc(seq_) + at;
    return tensor.data + (row * tensor.stride[0] + kv_head_ * tensor.stride[1]) *
                             static_cast<int64_t>(SizeOf(tensor.dtype));
  }

  int64_t NextOfTensors(KeyTile& tile) {
    const int64_t count = (std::min)(end_ - at_, tile_keys_);
    tile.values = tile.own_values;
    tile.value_bytes = call_->v_dim * static_cast<int64_t>(SizeOf(call_->v.dtype));
    for (int64_t t = 0; t < count; ++t, ++at_) {
      tile.rows[t] = RowOf(call_->k, at_);
      tile.own_values[t] = RowOf(call_->v, at_);
    }
    for (int64_t t = count; t < tile_keys_; ++t) tile.own_values[t] = zeros_;
    return count;
  }

  int64_t NextOfRange(KeyTile& tile) {
    const int64_t block_size = keys_.cache.block_size;
    const int64_t left = end_ - at_;
    const int64_t count = left < tile_keys_ ? left : tile_keys_;
    int64_t page = at_ / block_size;
    int64_t slot = at_ % block_size;
    for (int64_t t = 0; t < count; ++page, slot = 0) {
      const int64_t block = Block(page);
      for (; slot < block_size && t < count; ++slot) Place(tile, t++, block, slot);
    }
    at_ += count;
    return count;
  }

  int64_t NextOfList(KeyTile& tile) {
    const int64_t block_size = keys_.cache.block_size;
    int64_t count = 0;
    for (; at_ < end_ && count < tile_keys_; ++at_) {
      const int64_t index = keys_.indices(list_row_, at_);
      if (index < 0 || index >= limit_) continue;
      if (has_tree_ && !call_->causality.SeesToken(list_query_, index)) continue;
      const int64_t page = index / block_size;
      const int64_t block = keys_.index_space == IndexSpace::kPhysical ? page : Block(page);
      Place(tile, count++, block, index % block_size);
    }
    return count;
  }

  const KeySet& keys_;
  const AttendCall* call_ = nullptr;
  int set_;
  int64_t seq_;
  int64_t kv_head_ = 0;
  int64_t tile_keys_;
  const std::byte* zeros_;
  int64_t record_bytes_ = 0;
  int64_t side_bytes_ = 0;
  bool has_list_ = false;
  int64_t list_row_ = 0;
  detail::QueryPlace list_query_ = {};
  bool has_tree_ = false;
  int64_t limit_ = 0;
  int64_t at_ = 0;
  int64_t end_ = 0;
};
