// SPDX-License-Identifier: Apache-2.0
// RowSource: what stands between records in the cache and rows an engine can read. One of
//
//   in place   the records are such rows, which includes those that the engine widens as it goes
//   decoded    a tile of records is decoded, once for all query rows, into scratch rows of the engine's
//              element type, padded with zero columns
//
// Values that are rows of their own (prefill.h) go the way of their keys.
//
// Scales that columns share are left out of decoded rows where the arithmetic gains by it: scores are sums of products
// over the tiles of columns, each times its scale, and P x V has a P for each tile.
//
// Widening whole tiles of 16-bit rows lost: writing and reading them back through L2 took 15 % of the time at 16 rows.
#if defined(LATHE_KERNEL_KEYS_ROW_SOURCE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_KEYS_ROW_SOURCE_INL_H_
#undef LATHE_KERNEL_KEYS_ROW_SOURCE_INL_H_
#else
#define LATHE_KERNEL_KEYS_ROW_SOURCE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lathe/cache/formats-inl.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/key_cursor-inl.h"
#include "lathe/kernel/score/key_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

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

// The scales of a record, `stride` apart. kPoisons: those that are not finite as NaN, which any product with them is then.
template <class Format, bool kPoisons>
void ReadScales(const std::byte* record, const std::byte* side, int64_t stride, float* to) {
  for (int64_t i = 0; i < Format::kNumScales; ++i) {
    const float scale = Format::ScaleAt(record, side, i);
    const bool is_poison = kPoisons && scale - scale != 0.0f;
    to[i * stride] = is_poison ? std::numeric_limits<float>::quiet_NaN() : scale;
  }
}

// Columns [begin, end) of a row, and the scale that each key has for them: null if none has one.
struct ScaleTile {
  int64_t begin;
  int64_t end;
  const float* scales;  // [key]
};

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
  // whether the engine sees padding. `value_scratch`: as many for values of their own; `scales`: kMaxScales rows of
  // tile_keys.
  RowSource(const AttendCall& call, int set, int64_t tile_keys, Element* scratch,
            Element* value_scratch, float* scales)
      : width_(call.qk_dim),
        padded_(PaddedWidth(call.qk_dim)),
        tile_keys_(tile_keys),
        scratch_(scratch),
        scales_(scales),
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
      if constexpr (A::kLeavesScales && detail::kNumScales < Format >> 0) {
        LeaveScales<Format, true>();
      } else {
        decode_ = DecodeRowBytes<Format, Element>;
      }
    });
  }

  // Rows for scores alone, which leave out a scale of the whole row. `scratch`: as many rows of padded width as a tile has;
  // `scales`: as many numbers.
  RowSource(CacheFormat format, int64_t width, int64_t tile_keys, Element* scratch, float* scales)
      : width_(width),
        padded_(PaddedWidth(width)),
        tile_keys_(tile_keys),
        scratch_(scratch),
        scales_(scales) {
    Init(format, tile_keys, [this](auto tag) {
      using Format = typename decltype(tag)::Type;
      is_in_place_ = std::is_same_v<typename Format::Element, Element> &&
                     width_ % kInPlaceColumns<Element> == 0;
      if constexpr (detail::HasRowScale<Format>()) {
        LeaveScales<Format, false>();
      } else {
        decode_ = DecodeRowBytes<Format, Element>;
      }
    });
  }

  int64_t words() const { return (is_in_place_ ? width_ : padded_) / A::kWordElements; }

  // The type of a tile's rows after Load.
  DType row_type() const { return row_type_; }

  // Whether the engine reads the cache itself, and so is the one to fetch the next tile's keys.
  bool is_in_place() const { return is_in_place_; }

  // Room for a tile of rows, which the engine may use while they are in place.
  float* scratch() const { return reinterpret_cast<float*>(scratch_); }

  // What rows for scores alone leave out of row t, after Load.
  float RowScale(int64_t t) const { return has_scales() ? scales_[t] : 1.0f; }

  // Tiles of columns that have scales of their own, and what has none behind them; one, if no column has.
  bool has_scales() const { return num_scales_ > 0; }
  int64_t num_scale_tiles() const {
    return num_scales_ + (num_scales_ * scale_columns_ < padded_ ? 1 : 0);
  }
  ScaleTile ScaleTileAt(int64_t i) const {
    const int64_t begin = i * scale_columns_;
    if (i >= num_scales_) return {begin, words() * A::kWordElements, nullptr};
    return {begin, (std::min)(begin + scale_columns_, padded_), scales_ + i * tile_keys_};
  }

  // Makes the tile's rows readable for the engine. The rows ahead are for the first tile of a task, which nobody has fetched.
  // Zen 4, one thread, 2048 random keys of fp8_ds_mla, 16 heads: 398 ns a key without prefetching, 270 with the next
  // tile's rows alone, 244 with both.
  void Load(KeyTile& tile, const KeyTile& next) const {
    if (is_in_place_) return;
    for (int64_t t = tile.num_skipped; t < tile.count; ++t) {
      tile.Prefetch(t + kRowsAhead);
      next.Prefetch(t);
      if (num_scales_ > 0) read_scales_(tile.rows[t], tile.sides[t], tile_keys_, scales_ + t);
      tile.rows[t] = Decode(tile.rows[t], tile.sides[t], t);
      if (decode_value_ == nullptr) continue;
      next.PrefetchValue(t);
      Element* value = value_scratch_ + t * v_padded_;
      decode_value_(tile.own_values[t], nullptr, v_width_, reinterpret_cast<std::byte*>(value));
      tile.own_values[t] = reinterpret_cast<const std::byte*>(value);
    }
    // Keys come in pairs.
    for (int64_t i = 0; i < num_scales_ && tile.count < tile_keys_; ++i) {
      scales_[i * tile_keys_ + tile.count] = 0.0f;
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

  template <class Format, bool kPoisons>
  void LeaveScales() {
    static_assert(detail::kNumScales<Format> <= detail::kMaxScales);
    static_assert(Format::kScaleColumns % kColumns == 0 || detail::HasRowScale<Format>());
    decode_ = DecodeUnscaledBytes<Format, Element>;
    read_scales_ = ReadScales<Format, kPoisons>;
    num_scales_ = Format::kNumScales;
    scale_columns_ = Format::kScaleColumns < width_ ? Format::kScaleColumns : padded_;
  }

  const std::byte* Decode(const std::byte* record, const std::byte* side, int64_t row) const {
    auto* to = reinterpret_cast<std::byte*>(scratch_ + row * padded_);
    decode_(record, side, width_, to);
    return to;
  }

  int64_t width_;
  int64_t padded_;
  int64_t tile_keys_;
  Element* scratch_;
  float* scales_ = nullptr;  // [num_scales][tile_keys] of the last tile that was loaded
  int64_t num_scales_ = 0;
  int64_t scale_columns_ = 0;
  int64_t v_width_ = 0;  // of own values
  int64_t v_padded_ = 0;
  Element* value_scratch_ = nullptr;
  bool is_in_place_ = false;
  DType row_type_ = kDTypeOf<Element>;
  DecodeRowFn decode_ = nullptr;
  DecodeRowFn decode_value_ = nullptr;  // of own values
  void (*read_scales_)(const std::byte* record, const std::byte* side, int64_t stride,
                       float* to) = nullptr;
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
