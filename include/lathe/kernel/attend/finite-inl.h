// SPDX-License-Identifier: Apache-2.0
// Values that are NaN or infinite.
#if defined(LATHE_KERNEL_ATTEND_FINITE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ATTEND_FINITE_INL_H_
#undef LATHE_KERNEL_ATTEND_FINITE_INL_H_
#else
#define LATHE_KERNEL_ATTEND_FINITE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "lathe/kernel/attend/accumulate-inl.h"
#include "lathe/kernel/attend/mask-inl.h"
#include "lathe/kernel/keys/key_cursor-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Stored>
bool IsFinite(const Stored* row, int64_t columns) {
  const F32 d;
  VF acc = hn::Zero(d);
  for (int64_t c = 0; c < columns; c += kLanes) {
    const VF v = LoadFloats(row + c);
    acc = hn::Add(acc, hn::Sub(v, v));  // 0 where finite, else NaN
  }
  return hn::AllTrue(d, hn::Eq(acc, hn::Zero(d)));
}

// Whether all of a row of values is finite.
template <class A>
bool IsFiniteValue(DType type, const std::byte* value, int64_t columns) {
  bool is_finite = true;
  VisitStored<A>(type, [&](auto stored) {
    is_finite = IsFinite(reinterpret_cast<const decltype(stored)*>(value), columns);
  });
  return is_finite;
}

// The row of values of key t becomes a copy, with zeros where it is not finite. `copies`: a row of `columns` for each key.
template <class A>
void KeepFiniteValue(DType type, int64_t columns, typename A::Element* copies, KeyTile& tile,
                     int64_t t) {
  VisitStored<A>(type, [&](auto stored) {
    using Stored = decltype(stored);
    const auto* value = reinterpret_cast<const Stored*>(tile.values[t]);
    auto* copy = reinterpret_cast<Stored*>(copies + t * columns);
    for (int64_t c = 0; c < columns; ++c) {
      const float x = ToFloat(value[c]);
      copy[c] = x - x == 0.0f ? value[c] : Stored{};
    }
    tile.values[t] = reinterpret_cast<const std::byte*>(copy);
  });
}

template <class A>
bool HasFiniteValues(DType type, int64_t columns, const KeyTile& tile) {
  for (int64_t t = 0; t < tile.count; ++t) {
    if (!IsFiniteValue<A>(type, tile.values[t], columns)) return false;
  }
  return true;
}

// All rows that are not finite; whether there are any. What a weight lost may be 0 or below, and would make
// a NaN of an infinite value that the weight itself carried where it belongs. (Values that are part of
// their key give a score of that kind, and need no care.)
template <class A>
bool KeepFinite(DType type, int64_t columns, typename A::Element* copies, KeyTile& tile) {
  bool is_changed = false;
  for (int64_t t = 0; t < tile.count; ++t) {
    if (IsFiniteValue<A>(type, tile.values[t], columns)) continue;
    KeepFiniteValue<A>(type, columns, copies, tile, t);
    is_changed = true;
  }
  return is_changed;
}

// A weight of 0 does not keep a NaN or Inf value out of a row (0 * NaN): where some rows do not see a
// key whose value is not finite, what is not finite of it is taken out of P x V and added for the rows that see it. All
// else is added in the order of the keys, so that rows which see it get the same whatever others see. A value that is
// part of its key is taken out whole: its score is not finite either, and unless a transform made it finite, nothing else
// is left of the row.
template <class A>
class IsolatedValues {
 public:
  void Clear() { count_ = 0; }
  bool any() const { return count_ > 0; }

  // Takes them out of a tile of which all rows see the keys of `all_see`. `copies`: a row of `columns` for each key;
  // `zeros`: such a row.
  void TakeOut(DType type, const detail::KeyRange& all_see, int64_t columns,
               typename A::Element* copies, const float* zeros, KeyTile& tile) {
    for (int64_t t = 0; t < tile.count; ++t) {
      const int64_t position = tile.begin + t;
      if (position >= all_see.begin && position < all_see.end) continue;
      if (IsFiniteValue<A>(type, tile.values[t], columns)) continue;
      values_[count_++] = {t, tile.values[t]};
      if (tile.value_bytes > 0) {
        KeepFiniteValue<A>(type, columns, copies, tile, t);
      } else {
        tile.values[t] = reinterpret_cast<const std::byte*>(zeros);
      }
    }
  }

  // Adds them to `o`, rows of `v_dim` columns `o_stride` apart, with the weights P of `rows`, which are floats where the
  // rows of keys have scales.
  void Add(DType type, const TileMask<A>& mask, const KeyTile& tile, const TileRows& rows,
           bool has_float_weights, const uint32_t* p, int64_t v_dim, float* o,
           int64_t o_stride) const {
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t t = values_[i].token;
      for (int64_t i_row = 0; i_row < NumLive(rows, mask.task()); ++i_row) {
        const int64_t r = rows.begin + i_row;
        if (!mask.Sees(tile, t, r)) continue;
        const float weight = has_float_weights ? FloatArithmetic::Weight(p, rows.count, t, i_row)
                                               : A::Weight(p, rows.count, t, i_row);
        VisitStored<A>(type, [&](auto stored) {
          const auto* value = reinterpret_cast<const decltype(stored)*>(values_[i].row);
          for (int64_t c = 0; c < v_dim; ++c) {
            const float x = ToFloat(value[c]);
            if (tile.value_bytes == 0 || x - x != 0.0f) {
              o[r * o_stride + A::Position(c)] += weight * x;
            }
          }
        });
      }
    }
  }

 private:
  struct Value {
    int64_t token;
    const std::byte* row;
  };

  int64_t count_ = 0;
  Value values_[kMaxTileKeys];
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
