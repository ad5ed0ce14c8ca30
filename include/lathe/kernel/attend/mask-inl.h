// SPDX-License-Identifier: Apache-2.0
// TileMask: which keys of a tile the rows of a block see, and the scores of those that they do not.
#if defined(LATHE_KERNEL_ATTEND_MASK_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ATTEND_MASK_INL_H_
#undef LATHE_KERNEL_ATTEND_MASK_INL_H_
#else
#define LATHE_KERNEL_ATTEND_MASK_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "lathe/base/arena.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/task_keys-inl.h"
#include "lathe/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using detail::AttendCall;
using detail::AttendTask;

// Rows of a block that go through a tile together, those of padding included.
struct TileRows {
  int64_t begin;
  int64_t count;
};

// Without those of padding.
LATHE_INLINE int64_t NumLive(const TileRows& rows, const AttendTask& task) {
  return (std::min)(rows.count, task.num_rows - rows.begin);
}

// Scores of keys a row does not see become -inf after the fact, whatever they are: a NaN key or padding
// never reaches another row. Row r sees tokens [begin[r], end[r]) of the tile.
inline void MaskScores(float* s, int64_t tokens, const int32_t* begin, const int32_t* end,
                       int64_t padded_rows) {
  const F32 d;
  const I32 di;
  const VF minus_inf = hn::Inf(d);
  for (int64_t r = 0; r < padded_rows; r += kLanes) {
    const auto first = hn::Load(di, begin + r);
    const auto last = hn::Load(di, end + r);
    for (int64_t t = 0; t < tokens; ++t) {
      const auto token = hn::Set(di, static_cast<int32_t>(t));
      const auto seen = hn::And(hn::Le(first, token), hn::Lt(token, last));
      float* at = s + t * padded_rows + r;
      hn::Store(hn::IfThenElse(hn::RebindMask(d, seen), hn::Load(d, at), hn::Neg(minus_inf)), d,
                at);
    }
  }
}

template <class A>
class TileMask {
 public:
  TileMask(Arena& arena, int64_t padded_rows)
      : padded_rows_(padded_rows),
        begin_(arena.Take<int32_t>(static_cast<size_t>(padded_rows))),
        end_(arena.Take<int32_t>(static_cast<size_t>(padded_rows))) {}

  // What the rows of the task see of a tile of `keys`. Everything below is about this tile.
  void Find(const AttendCall& call, const AttendTask& task, const TaskKeys<A>& keys,
            const KeyTile& tile) {
    call_ = &call;
    task_ = &task;
    keys_ = &keys;
    const auto in_tile = [&tile](int64_t position) {
      const int64_t at = position - tile.begin;
      return static_cast<int32_t>((std::min)((std::max)(at, int64_t{0}), tile.count));
    };
    for (int64_t r = 0; r < padded_rows_; ++r) {
      // A tile of a list has live keys alone, all of them seen.
      const bool sees_all = r < task.num_rows && keys.has_list;
      const bool sees_range = r < task.num_rows && !keys.has_list;
      begin_[r] = sees_range ? in_tile(keys.visible[r].begin) : 0;
      end_[r] = sees_range ? in_tile(keys.visible[r].end)
                           : static_cast<int32_t>(sees_all ? tile.count : 0);
    }
  }

  // -inf for the scores S^T [tokens][rows.count] of keys that a row does not see.
  void Apply(const KeyTile& tile, int64_t tokens, const TileRows& rows, float* s) const {
    MaskScores(s, tokens, begin_ + rows.begin, end_ + rows.begin, rows.count);
    if (!keys_->has_tree) return;
    // Keys of queries that are on no path of a row's.
    const int64_t first = (std::max)(keys_->tree_begin - tile.begin, int64_t{0});
    for (int64_t t = first; t < tile.count; ++t) {
      for (int64_t r = 0; r < NumLive(rows, *task_); ++r) {
        if (SeesInTree(tile, t, rows.begin + r)) continue;
        s[t * rows.count + r] = -(std::numeric_limits<float>::infinity)();
      }
    }
  }

  // Whether row r of the task sees key t of the tile.
  bool Sees(const KeyTile& tile, int64_t t, int64_t r) const {
    if (t < begin_[r] || t >= end_[r]) return false;
    return !keys_->has_tree || SeesInTree(tile, t, r);
  }

  const AttendTask& task() const { return *task_; }

 private:
  bool SeesInTree(const KeyTile& tile, int64_t t, int64_t r) const {
    const int64_t i = (task_->row_begin + r) / call_->unit_heads;
    return call_->causality.SeesToken(detail::PlaceOfQuery(*call_, *task_, tile.set, i),
                                      tile.begin + t);
  }

  int64_t padded_rows_;
  int32_t* begin_;
  int32_t* end_;
  const AttendCall* call_ = nullptr;
  const AttendTask* task_ = nullptr;
  const TaskKeys<A>* keys_ = nullptr;
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
