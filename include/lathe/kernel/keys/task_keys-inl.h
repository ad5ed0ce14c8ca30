// SPDX-License-Identifier: Apache-2.0
// TaskKeys: one key set of a task, with who sees which of its keys, where they are and how they are read.
#if defined(LATHE_KERNEL_KEYS_TASK_KEYS_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_KEYS_TASK_KEYS_INL_H_
#undef LATHE_KERNEL_KEYS_TASK_KEYS_INL_H_
#else
#define LATHE_KERNEL_KEYS_TASK_KEYS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/key_cursor-inl.h"
#include "lathe/kernel/keys/row_source-inl.h"
#include "lathe/kernel/keys/visibility.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using detail::AttendCall;
using detail::AttendTask;
using detail::KeyRange;

template <class A>
struct TaskKeys {
  TaskKeys(const AttendCall& call, const AttendTask& task, int set, int64_t tile_keys,
           typename A::Element* scratch, typename A::Element* value_scratch, float* scales,
           const std::byte* zeros, KeyRange* of_rows)
      : has_list(call.keys[set].has_indices()),
        all_see(task.keys[set]),
        any_sees(task.keys[set]),
        visible(of_rows),
        source(call, set, tile_keys, scratch, value_scratch, scales),
        cursor(call.keys[set], call.qk_dim, call.v_dim, task.seq, task.head_begin / call.unit_heads,
               tile_keys, zeros) {
    for (int64_t r = 0; r < task.num_rows; ++r) visible[r] = task.keys[set];
    if (set >= call.num_key_sets) return;
    if (has_list) {
      const int64_t i = task.row_begin / call.unit_heads;
      cursor.WalkList(call.causality, task.q_len, i, task.token_begin + i);
    } else {
      FindVisible(call, task, set);
    }
  }

  // How many keys query i of a task sees, or `most` if there are more.
  int64_t NumSeen(const AttendCall& call, const AttendTask& task, int set, int64_t i,
                  int64_t most) const {
    if (has_list) return cursor.CountLive(task.keys[set].begin, task.keys[set].end, most);
    const auto query = detail::PlaceOfQuery(call, task, set, i);
    return detail::NumVisibleKeys(call.keys[set], call.causality, query);
  }

  bool IsSeenByAll(const KeyTile& tile) const {
    return has_list || (all_see.begin <= tile.begin && all_see.end >= tile.begin + tile.count);
  }

  bool has_list;
  bool has_tree = false;   // rows do not see all that `visible` spans
  int64_t tree_begin = 0;  // what lies in front they do
  KeyRange all_see;        // what all rows see in common
  KeyRange any_sees;       // from the first to the last key that some row sees
  KeyRange* visible;       // of each row
  RowSource<A> source;
  KeyCursor cursor;

 private:
  void FindVisible(const AttendCall& call, const AttendTask& task, int set) {
    any_sees = {task.keys[set].end, task.keys[set].begin};
    const KeySet& keys = call.keys[set];
    for (int64_t r = 0; r < task.num_rows; ++r) {
      const int64_t i = (task.row_begin + r) / call.unit_heads;
      // Heads of one token see the same.
      visible[r] =
          r > 0 && i == (task.row_begin + r - 1) / call.unit_heads
              ? visible[r - 1]
              : detail::VisibleKeys(keys, call.causality, detail::PlaceOfQuery(call, task, set, i));
      all_see.begin = (std::max)(all_see.begin, visible[r].begin);
      all_see.end = (std::min)(all_see.end, visible[r].end);
      if (detail::NumKeys(visible[r]) == 0) continue;
      any_sees.begin = (std::min)(any_sees.begin, visible[r].begin);
      any_sees.end = (std::max)(any_sees.end, visible[r].end);
    }
    has_tree = call.causality.MasksKeys(keys);
    if (!has_tree) return;
    tree_begin = detail::PlaceOfQuery(call, task, set, 0).num_before();
    all_see.end = (std::min)(all_see.end, tree_begin);
  }
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
