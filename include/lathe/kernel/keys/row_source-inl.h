// SPDX-License-Identifier: Apache-2.0
// RowSource: what stands between records in the cache and rows an engine can read. One of
//
//   in place   the records are such rows, which includes those that the engine widens as it goes
//   decoded    a tile of records is decoded, once for all query rows, into scratch rows of the engine's
//              element type, padded with zero columns
//
// Values that are rows of their own (prefill.h) go the way of their keys.
//
// Where there is no P x V, rows are read in place or decoded, and a scale that a whole row shares may be
// left out of the row: scores are multiplied by it.
//
// Widening whole tiles of 16-bit rows lost: writing and reading them back through L2 took 15 % of the time at 16 rows.
#if defined(LATHE_KERNEL_KEYS_ROW_SOURCE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_KEYS_ROW_SOURCE_INL_H_
#undef LATHE_KERNEL_KEYS_ROW_SOURCE_INL_H_
#else
#define LATHE_KERNEL_KEYS_ROW_SOURCE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lathe/cache/formats-inl.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/key_cursor-inl.h"
#include "lathe/kernel/score/key_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe {
namespace HWY_NAMESPACE {

using detail::AttendCall;
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
  template <class Stored>
  static constexpr int64_t kInPlaceColumns = kKeyWords<A, Stored>* A::kWordElements;

  static constexpr int64_t kRowsAhead = 8;

  static int64_t PaddedWidth(int64_t qk_dim) { return RoundUp(qk_dim, kColumns); }

  // `scratch`: tile_keys rows of padded width, which the sources of a task's sets may share. These must agree on
  // whether the engine sees padding. `value_scratch`: as many for values of their own.
  RowSource(const AttendCall& call, int set, int64_t tile_keys, Element* scratch,
            Element* value_scratch)
      : width_(call.qk_dim),
        padded_(PaddedWidth(call.qk_dim)),
        scratch_(scratch),
        v_width_(call.keys[set].has_values() ? call.v_dim : 0),
        v_padded_(PaddedWidth(v_width_)),
        value_scratch_(value_scratch) {
    const detail::KeyRows& keys = call.keys[set];
    if (keys.has_values()) {
      VisitFormat(keys.values.format, [this](auto tag) {
        decode_value_ = DecodeRowBytes<typename decltype(tag)::Type, Element>;
      });
    }
    const bool may_be_in_place = call.v_dim % kColumns == 0 &&
                                 (call.num_key_sets == 1 || width_ == padded_) &&
                                 (!keys.has_values() || keys.values.format == keys.cache.format);
    Init(keys.cache.format, tile_keys, [this, may_be_in_place](auto tag) {
      using Format = typename decltype(tag)::Type;
      using Stored = typename Format::Element;
      if constexpr (A::template ReadsValues<Stored>()) {
        if (may_be_in_place && width_ % kInPlaceColumns<Stored> == 0) {
          is_in_place_ = true;
          row_type_ = kDTypeOf<Stored>;
        }
      }
      decode_ = DecodeRowBytes<Format, Element>;
    });
  }

  // Rows for scores alone. `scratch`: as many rows of padded width as a tile has.
  RowSource(CacheFormat format, int64_t width, int64_t tile_keys, Element* scratch)
      : width_(width), padded_(PaddedWidth(width)), scratch_(scratch) {
    Init(format, tile_keys, [this](auto tag) {
      using Format = typename decltype(tag)::Type;
      is_in_place_ = std::is_same_v<typename Format::Element, Element> &&
                     width_ % kInPlaceColumns<Element> == 0;
      decode_ = DecodeUnscaledBytes<Format, Element>;
      if constexpr (detail::kHasRowScale<Format>) row_scale_ = RowScaleOf<Format>;
    });
  }

  int64_t words() const { return (is_in_place_ ? width_ : padded_) / A::kWordElements; }

  // The type of a tile's rows after Load.
  DType row_type() const { return row_type_; }

  // Whether the engine reads the cache itself, and so is the one to fetch the next tile's keys.
  bool is_in_place() const { return is_in_place_; }

  // Room for a tile of rows, which the engine may use while they are in place.
  float* scratch() const { return reinterpret_cast<float*>(scratch_); }

  // What rows for scores alone leave out of row t.
  float RowScale(const KeyTile& tile, int64_t t) const {
    return row_scale_ != nullptr ? row_scale_(tile.sides[t]) : 1.0f;
  }

  // Makes the tile's rows readable for the engine. The rows ahead are for the first tile of a split, which nobody has fetched.
  // Zen 4, one thread, 2048 random keys of fp8_ds_mla, 16 heads: 398 ns a key without prefetching, 270 with the next
  // tile's rows alone, 244 with both.
  void Load(KeyTile& tile, const KeyTile& next) const {
    if (is_in_place_) return;
    for (int64_t t = 0; t < tile.count; ++t) {
      tile.Prefetch(t + kRowsAhead);
      next.Prefetch(t);
      tile.rows[t] = Decode(tile.rows[t], tile.sides[t], t);
      if (decode_value_ == nullptr) continue;
      next.PrefetchValue(t);
      Element* value = value_scratch_ + t * v_padded_;
      decode_value_(tile.own_values[t], nullptr, v_width_, reinterpret_cast<std::byte*>(value));
      tile.own_values[t] = reinterpret_cast<const std::byte*>(value);
    }
  }

  // While keys [t, t + n) are scored: the next tile's values, which no score reads.
  LATHE_INLINE void FetchValues(const KeyTile& next, int64_t t, int64_t n) const {
    if (next.value_bytes == 0 || !is_in_place_) return;
    for (int64_t i = 0; i < n; ++i) next.PrefetchValue(t + i);
  }

 private:
  template <class Choose>
  void Init(CacheFormat format, int64_t tile_keys, const Choose& choose) {
    VisitFormat(format, choose);
    if (is_in_place_) return;
    for (int64_t t = 0; t < tile_keys; ++t) {
      for (int64_t c = width_; c < padded_; ++c) scratch_[t * padded_ + c] = Element{};
      for (int64_t c = v_width_; c < v_padded_; ++c) value_scratch_[t * v_padded_ + c] = Element{};
    }
  }

  const std::byte* Decode(const std::byte* record, const std::byte* side, int64_t row) const {
    auto* to = reinterpret_cast<std::byte*>(scratch_ + row * padded_);
    decode_(record, side, width_, to);
    return to;
  }

  int64_t width_;
  int64_t padded_;
  Element* scratch_;
  int64_t v_width_ = 0;  // of own values
  int64_t v_padded_ = 0;
  Element* value_scratch_ = nullptr;
  bool is_in_place_ = false;
  DType row_type_ = kDTypeOf<Element>;
  DecodeRowFn decode_ = nullptr;
  DecodeRowFn decode_value_ = nullptr;  // of own values
  float (*row_scale_)(const std::byte* side) = nullptr;
};

}  // namespace HWY_NAMESPACE
}  // namespace lathe
HWY_AFTER_NAMESPACE();

#endif  // once for each target
