// SPDX-License-Identifier: Apache-2.0
// RowSource: what stands between records in the cache and rows an engine can read. Either the records are
// such rows already, or a tile of them is decoded once, for all query rows, into scratch rows of the
// engine's element type, padded with zero columns.

using DecodeRowFn = void (*)(const std::byte* record, const std::byte* side, int64_t width,
                             std::byte* row);

// The decoder of one format into one element type, found by the formats' own overloads of DecodeRecord.
template <class Format, class Element>
void DecodeRowBytes(const std::byte* record, const std::byte* side, int64_t width,
                    std::byte* row) {
  DecodeRecord(Format{}, record, side, width, reinterpret_cast<Element*>(row));
}

template <class A>
class RowSource {
 public:
  using Element = typename A::Element;

  // Columns of a row as the engine sees it, and what a record read in place must be a multiple of.
  static constexpr int64_t kColumns = 64;
  static constexpr int64_t kInPlaceColumns = kScoreWords * A::kWordElements;

  static int64_t PaddedWidth(int64_t qk_dim) { return RoundUp(qk_dim, kColumns); }

  RowSource(const AttendCall& call, Element* scratch)
      : width_(call.qk_dim), padded_(PaddedWidth(call.qk_dim)), scratch_(scratch) {
    VisitFormat(call.keys.cache.format, [this, &call](auto tag) {
      using Format = typename decltype(tag)::Type;
      in_place_ = std::is_same_v<typename Format::Element, Element> &&
                  call.qk_dim % kInPlaceColumns == 0 && call.v_dim % kColumns == 0;
      decode_ = DecodeRowBytes<Format, Element>;
      record_bytes_ = Format::RecordBytes(call.qk_dim);
    });
    if (in_place_) return;
    for (int64_t t = 0; t < kTileKeys; ++t) {
      for (int64_t c = width_; c < padded_; ++c) scratch_[t * padded_ + c] = Element{};
    }
  }

  bool in_place() const { return in_place_; }
  int64_t words() const { return (in_place_ ? width_ : padded_) / A::kWordElements; }

  // Makes tile.rows readable by the engine; `next` is fetched meanwhile when rows are decoded.
  void Load(KeyTile& tile, const KeyTile& next) const {
    if (in_place_) return;
    for (int64_t t = 0; t < tile.count; ++t) {
      for (int64_t at = 0; at < record_bytes_ && t < next.count; at += 64) {
        PrefetchToL2(next.rows[t] + at);
      }
      Element* row = scratch_ + t * padded_;
      decode_(tile.rows[t], tile.sides[t], width_, reinterpret_cast<std::byte*>(row));
      tile.rows[t] = reinterpret_cast<const std::byte*>(row);
    }
  }

 private:
  int64_t width_;
  int64_t padded_;
  Element* scratch_;
  bool in_place_ = false;
  DecodeRowFn decode_ = nullptr;
  int64_t record_bytes_ = 0;
};
