// SPDX-License-Identifier: Apache-2.0
// The one policy of sharing work: items are laid end to end and cut into shares of like work, wherever the ends of the
// shares fall inside an item, at the nearest of its leaves.
//
//   items    |----- 0 -----|- 1 -|------------ 2 ------------|-- 3 --|      each of so many leaves
//   shares   |--- a ---|--- b ---|--- c ---|--- d ---|--- e ---|
//   pieces   |--- a ---|b|--b--|---- c ----|--- d ---|--- e --|-- e --|
//
// So W workers have equal work whatever the items are, for at most one piece more than items and shares. An end that
// falls next to an item's own moves there: a sliver would cost more than it evens out.
#ifndef LATHE_HOST_SHARE_H_
#define LATHE_HOST_SHARE_H_

#include <algorithm>
#include <cstdint>

namespace lathe::detail {
namespace {

// Shares of a worker at most: workers are not equally fast, and those that are done take what is left.
constexpr int64_t kMostSharesPerWorker = 4;

// How many shares `total_work` is cut into. `piece_cost`, in units of work, is what one more piece costs wherever it is
// done: starting it, and folding its result into the others. One share for each worker unless the work is less than
// that; more where they cost some hundredths.
inline int64_t NumShares(int64_t total_work, int64_t workers, int64_t piece_cost) {
  if (workers <= 1) return 1;
  const int64_t cost = (std::max)(piece_cost, int64_t{1});
  const int64_t each = total_work / workers / cost / 32;
  const int64_t wanted = workers * (std::min)((std::max)(each, int64_t{1}), kMostSharesPerWorker);
  return (std::max)((std::min)(wanted, total_work / cost), int64_t{1});
}

// Cuts items, one after another, that are `total_work` all together. O(items + shares).
class ShareCutter {
 public:
  // One share may have a tenth less and a tenth more at either end.
  static constexpr int64_t kSlack = 10;

  ShareCutter(int64_t total_work, int64_t num_shares)
      : num_shares_(num_shares),
        least_(total_work / num_shares),
        rest_(total_work % num_shares),
        slack_(total_work / num_shares / kSlack) {}

  // f(share, first_leaf, last_leaf) for the pieces [first_leaf, last_leaf) of the next item, of at least one leaf, all
  // of like work. Shares and leaves ascend; a share may get nothing of any item.
  template <class F>
  void Cut(int64_t num_leaves, int64_t leaf_work, const F& f) {
    const int64_t item_end = before_ + num_leaves * leaf_work;
    for (int64_t first = 0; first < num_leaves;) {
      const int64_t share_end = EndOf(share_);
      const int64_t last = share_end >= item_end
                               ? num_leaves
                               : NearestLeaf(share_end - before_, num_leaves, leaf_work);
      if (last > first) f(share_, first, last);
      first = (std::max)(first, last);
      if (share_end <= item_end && share_ + 1 < num_shares_) ++share_;
    }
    before_ = item_end;
    while (share_ + 1 < num_shares_ && EndOf(share_) <= before_) ++share_;
  }

 private:
  // The work before the end of a share.
  int64_t EndOf(int64_t share) const {
    return least_ * (share + 1) + rest_ * (share + 1) / num_shares_;
  }
  int64_t NearestLeaf(int64_t work, int64_t num_leaves, int64_t leaf_work) const {
    if (work <= slack_) return 0;
    if (num_leaves * leaf_work - work <= slack_) return num_leaves;
    return (work + leaf_work / 2) / leaf_work;
  }

  int64_t num_shares_;
  int64_t least_;
  int64_t rest_;
  int64_t slack_;
  int64_t before_ = 0;  // work of the items that have been cut
  int64_t share_ = 0;
};

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_SHARE_H_
