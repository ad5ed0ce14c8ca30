// SPDX-License-Identifier: Apache-2.0
// RowSource: what stands between records in the cache and rows an engine can read. One of
//
//   in place   the records are such rows
//   widened    P x V reads the records (16-bit, by the float32 engine); for the scores, the few rows of a
//              step are widened into scratch that stays in L1, once for all query rows
//   decoded    a tile of records is decoded, once for all query rows, into scratch rows of the engine's
//              element type, padded with zero columns
//
// Where there is no P x V, rows are read in place or decoded, and a scale that a whole row shares may be
// left out of the row: scores are multiplied by it.
//
// Widening whole tiles lost: writing and reading them back through L2 took 15 % of the time at 16 rows.

using DecodeRowFn = void (*)(const std::byte* record, const std::byte* side, int64_t width,
                             std::byte* row);

// The decoder of one format into one element type, found by the formats' own overloads of DecodeRecord.
template <class Format, class Element>
void DecodeRowBytes(const std::byte* record, const std::byte* side, int64_t width, std::byte* row) {
  DecodeRecord(Format{}, record, side, width, reinterpret_cast<Element*>(row));
}

// The same without the scale of the row, if it has one.
template <class Format, class Element>
void DecodeUnscaledBytes(const std::byte* record, const std::byte* side, int64_t width,
                         std::byte* row) {
  DecodeUnscaled(Format{}, record, side, width, reinterpret_cast<Element*>(row));
}

template <class Format>
float RowScaleOf(const std::byte* side) {
  return Format::RowScale(side);
}

template <class A>
class RowSource {
 public:
  using Element = typename A::Element;

  // Columns of a row as the engine sees it, and what a record read in place must be a multiple of.
  static constexpr int64_t kColumns = 64;
  static constexpr int64_t kInPlaceColumns = kScoreWords * A::kWordElements;

  static int64_t PaddedWidth(int64_t qk_dim) { return RoundUp(qk_dim, kColumns); }

  // `scratch`: kTileKeys rows of padded width.
  RowSource(const AttendCall& call, Element* scratch)
      : width_(call.qk_dim), padded_(PaddedWidth(call.qk_dim)), scratch_(scratch) {
    const bool has_whole_vectors = call.qk_dim % kInPlaceColumns == 0 && call.v_dim % kColumns == 0;
    Init(call.keys.cache.format, [this, has_whole_vectors](auto tag) {
      using Format = typename decltype(tag)::Type;
      using Stored = typename Format::Element;
      if constexpr (A::template ReadsValues<Stored>()) {
        if (has_whole_vectors) {
          values_in_place_ = true;
          value_type_ = kDTypeOf<Stored>;
          keys_in_place_ = std::is_same_v<Stored, Element>;
        }
      }
      decode_ = DecodeRowBytes<Format, Element>;
    });
  }

  // Rows for scores alone. `scratch`: as many rows of padded width as a tile has.
  RowSource(CacheFormat format, int64_t width, int64_t tile_keys, Element* scratch)
      : width_(width), padded_(PaddedWidth(width)), tile_keys_(tile_keys), scratch_(scratch) {
    Init(format, [this](auto tag) {
      using Format = typename decltype(tag)::Type;
      keys_in_place_ =
          std::is_same_v<typename Format::Element, Element> && width_ % kInPlaceColumns == 0;
      values_in_place_ = keys_in_place_;
      decode_ = DecodeUnscaledBytes<Format, Element>;
      if constexpr (detail::kHasRowScale<Format>) row_scale_ = RowScaleOf<Format>;
    });
  }

  int64_t words() const { return (values_in_place_ ? width_ : padded_) / A::kWordElements; }

  // The type of a tile's rows as P x V reads them, after Load.
  DType value_type() const { return value_type_; }

  // Whether the score kernel reads the cache itself, and so is the one to fetch the next tile's rows.
  bool keys_in_place() const { return keys_in_place_; }

  // What rows for scores alone leave out of row t.
  float RowScale(const KeyTile& tile, int64_t t) const {
    return row_scale_ != nullptr ? row_scale_(tile.sides[t]) : 1.0f;
  }

  // Makes tile.rows readable for P x V.
  void Load(KeyTile& tile, const KeyTile& next) const {
    if (values_in_place_) return;
    for (int64_t t = 0; t < tile.count; ++t) {
      if (t < next.count) Prefetch(next.rows[t]);
      if (has_sides_ && t < next.count) PrefetchToL2(next.sides[t]);
      tile.rows[t] = Decode(tile.rows[t], tile.sides[t], t);
    }
  }

  // Rows [t, t + n) of a loaded tile as the score kernel reads them; `to` has room for n.
  const std::byte* const* LoadKeys(const KeyTile& tile, const KeyTile& next, int64_t t, int64_t n,
                                   const std::byte** to) const {
    if (keys_in_place_ || !values_in_place_) return tile.rows + t;
    for (int64_t i = 0; i < n; ++i) {
      if (t + i < next.count) Prefetch(next.rows[t + i]);
      to[i] = t + i < tile.count ? Decode(tile.rows[t + i], nullptr, i) : tile.rows[t + i];
    }
    return to;
  }

 private:
  template <class Choose>
  void Init(CacheFormat format, const Choose& choose) {
    VisitFormat(format, [&](auto tag) {
      using Format = typename decltype(tag)::Type;
      choose(tag);
      record_bytes_ = Format::RecordBytes(width_);
      has_sides_ = Format::kSideBytes > 0;
    });
    if (values_in_place_) return;
    for (int64_t t = 0; t < tile_keys_; ++t) {
      for (int64_t c = width_; c < padded_; ++c) scratch_[t * padded_ + c] = Element{};
    }
  }

  void Prefetch(const std::byte* record) const {
    for (int64_t at = 0; at < record_bytes_; at += 64) PrefetchToL2(record + at);
  }

  const std::byte* Decode(const std::byte* record, const std::byte* side, int64_t row) const {
    auto* to = reinterpret_cast<std::byte*>(scratch_ + row * padded_);
    decode_(record, side, width_, to);
    return to;
  }

  int64_t width_;
  int64_t padded_;
  int64_t tile_keys_ = kTileKeys;
  Element* scratch_;
  bool values_in_place_ = false;
  bool keys_in_place_ = false;
  DType value_type_ = kDTypeOf<Element>;
  DecodeRowFn decode_ = nullptr;
  float (*row_scale_)(const std::byte* side) = nullptr;
  int64_t record_bytes_ = 0;
  bool has_sides_ = false;
};
