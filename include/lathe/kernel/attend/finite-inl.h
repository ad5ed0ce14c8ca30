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
#include "lathe/kernel/keys/key_cursor-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe {
namespace HWY_NAMESPACE {
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lathe
HWY_AFTER_NAMESPACE();

#endif  // once for each target
