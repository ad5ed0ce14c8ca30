// SPDX-License-Identifier: Apache-2.0
// Where the sums of a row are cut, which its keys' positions alone decide: not how many there are, not how many rows,
// sequences or workers share a call.
//
//   leaf      leaf_keys keys of one set, from a multiple of leaf_keys on: one tile of an engine, whose softmax and
//             P x V start from nothing
//   segment   kSegmentLeaves leaves, from a multiple of that on: a chain, ((c0 + c1) + c2) + ...
//   node      two segments, two of such pairs, ...: the binary tree over all segments of a set
//   row       the chain of its sets
//
// A leaf that a row sees nothing of changes no bit of it, so rows that see other keys share a tree. Any run of leaves
// may be a task; what it leaves to be folded are pieces, each the result of one node as far as it goes.
#ifndef LATHE_KERNEL_ATTEND_LEAVES_H_
#define LATHE_KERNEL_ATTEND_LEAVES_H_

#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/kernel/keys/visibility.h"

namespace lathe::detail {
namespace {

// A leaf folds while its P x V is stored, which costs nothing. What a segment folds into costs a pass over O.
constexpr int64_t kSegmentLeaves = 8;
// Leaves are level 0, segments level 1; enough for 2^40 keys.
constexpr int kMaxLevels = 36;

// Leaves of a node.
LATHE_INLINE constexpr int64_t NodeLeaves(int level) { return kSegmentLeaves << (level - 1); }

// Those that hold the keys [begin, end).
LATHE_INLINE KeyRange LeavesOf(const KeyRange& keys, int64_t leaf_keys) {
  if (NumKeys(keys) == 0) return {};
  return {keys.begin / leaf_keys, (keys.end + leaf_keys - 1) / leaf_keys};
}

// Nodes that may be open at once over so many leaves, whichever they are.
LATHE_INLINE int MaxOpenNodes(int64_t num_leaves) {
  int level = 1;
  while (level + 1 < kMaxLevels && NodeLeaves(level) < 2 * num_leaves) ++level;
  return level + 1;
}

// The largest piece at the start of a run `leaves` of a set that has the leaves `all`: one leaf, or a node from its
// first leaf on.
LATHE_INLINE KeyRange FirstPiece(const KeyRange& leaves, const KeyRange& all) {
  KeyRange piece{leaves.begin, leaves.begin + 1};
  for (int level = 1; level < kMaxLevels; ++level) {
    const int64_t node = NodeLeaves(level);
    const int64_t child = level == 1 ? 1 : node / 2;
    if (leaves.begin % node != 0 && leaves.begin != all.begin) break;
    const int64_t node_end = (leaves.begin / node + 1) * node;
    int64_t end = node_end < leaves.end ? node_end : leaves.end;
    // A child whose end is not here is not added yet.
    if (end < all.end) end = end / child * child;
    if (end > leaves.begin) piece.end = end;
    if (node_end >= leaves.end) break;
  }
  return piece;
}

// f(KeyRange) for all pieces of a run.
template <class F>
LATHE_INLINE void ForEachPiece(KeyRange leaves, const KeyRange& all, const F& f) {
  while (leaves.begin < leaves.end) {
    const KeyRange piece = FirstPiece(leaves, all);
    f(piece);
    leaves.begin = piece.end;
  }
}

// The nodes that are open while the leaves of a set go by, each with the result of its children so far: a `Value`, null
// where it tests false. fold(to, from) adds one to another, which it follows.
template <class Value>
class OpenNodes {
 public:
  // Closes the nodes that `leaf`, the first of what is added next, is no part of.
  template <class Fold>
  void CloseBefore(int64_t leaf, const Fold& fold) {
    for (int level = 1; leaf / NodeLeaves(level) != last_ / NodeLeaves(level); ++level) {
      Close(level, fold);
    }
    last_ = leaf;
  }
  // What leaves are added to; null before the first of a segment. A node may be as well: it is the first of its segment,
  // and what follows it closes that.
  Value& segment() { return open_[1]; }
  template <class Fold>
  void Add(const Value& value, const Fold& fold) {
    AddTo(1, value, fold);
  }
  // Of everything; null if nothing has been added.
  template <class Fold>
  Value CloseAll(const Fold& fold) {
    for (int level = 1; level < kMaxLevels; ++level) Close(level, fold);
    const Value all = open_[kMaxLevels];
    open_[kMaxLevels] = Value{};
    return all;
  }

 private:
  template <class Fold>
  void AddTo(int level, const Value& value, const Fold& fold) {
    if (open_[level]) {
      fold(open_[level], value);
    } else {
      open_[level] = value;
    }
  }
  template <class Fold>
  void Close(int level, const Fold& fold) {
    if (open_[level]) AddTo(level + 1, open_[level], fold);
    open_[level] = Value{};
  }

  Value open_[kMaxLevels + 1] = {};
  int64_t last_ = 0;
};

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_KERNEL_ATTEND_LEAVES_H_
