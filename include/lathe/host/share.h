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
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>

#include "lathe/base/arena.h"

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

// An item that several shares have parts of.
struct CutItem {
  int64_t item = 0;
  int64_t first_part = 0;
  int64_t num_parts = 0;
  std::atomic<int64_t> parts_left;  // to be done by whoever may then finish the item
};

// Which items, and parts of items, belong to each share; wherever a worker begins, it finds its own without walking
// through those before. Items are numbers that ascend. Parts are numbered in order, those of an item side by side.
class ShareTable {
  // Where a share begins.
  struct Begin {
    int64_t item;
    int64_t leaf;
    int64_t part;
  };

 public:
  static constexpr int64_t kToTheEnd = (std::numeric_limits<int64_t>::max)();

  // What a call of so many workers needs room for; two parts for each end of a share inside an item.
  static constexpr int64_t MostShares(int64_t workers) {
    return workers > 1 ? kMostSharesPerWorker * workers : 1;
  }
  static constexpr int64_t MostCuts(int64_t workers) { return MostShares(workers) - 1; }
  static constexpr int64_t MostParts(int64_t workers) { return 2 * MostCuts(workers); }

  // What is taken of an arena is at most so many for each worker.
  static constexpr size_t BytesPerWorker() {
    return Arena::RoundUp((kMostSharesPerWorker + 1) * (sizeof(Begin) + sizeof(CutItem)));
  }

  ShareTable(Arena& arena, int64_t workers)
      : workers_(workers),
        begins_(arena.Take<Begin>(static_cast<size_t>(MostShares(workers) + 1))),
        cuts_(arena.Take<CutItem>(static_cast<size_t>(MostCuts(workers)))) {}

  // list(add) calls add(item, num_leaves, leaf_work), see ShareCutter, for every item, as often as it is called itself:
  // once to add up the work. `end`: past the last item.
  template <class ListItems>
  void Fill(int64_t piece_cost, int64_t end, const ListItems& list) {
    int64_t total = 0;
    list([&total](int64_t, int64_t num_leaves, int64_t leaf_work) {
      total += num_leaves * leaf_work;
    });
    num_shares_ = NumShares(total, workers_, piece_cost);
    ShareCutter cutter(total, num_shares_);
    int64_t num_begun = 0;
    list([&](int64_t item, int64_t num_leaves, int64_t leaf_work) {
      cutter.Cut(num_leaves, leaf_work, [&](int64_t share, int64_t first, int64_t last) {
        while (num_begun <= share) begins_[num_begun++] = {item, first, num_parts_};
        if (first > 0 || last < num_leaves) AddPart(item, first);
      });
    });
    while (num_begun <= num_shares_) begins_[num_begun++] = {end, 0, num_parts_};
    for (int64_t i = 0; i < num_cuts_; ++i) cuts_[i].parts_left = cuts_[i].num_parts;
  }

  int64_t num_shares() const { return num_shares_; }
  int64_t num_parts() const { return num_parts_; }
  int64_t num_cuts() const { return num_cuts_; }
  CutItem& cut(int64_t i) const { return cuts_[i]; }
  CutItem& CutOf(int64_t part) const {
    return *(std::upper_bound(cuts_, cuts_ + num_cuts_, part,
                              [](int64_t p, const CutItem& cut) { return p < cut.first_part; }) -
             1);
  }

  // on_part(part, item, leaf_begin, leaf_end) for the parts of a share, the last leaf being kToTheEnd; on_items(begin,
  // end) for what it has whole, which are those of the items' numbers that are in [begin, end).
  template <class OnPart, class OnItems>
  void Run(int64_t share, const OnPart& on_part, const OnItems& on_items) const {
    const Begin& begin = begins_[share];
    const Begin& end = begins_[share + 1];
    int64_t item = begin.item, part = begin.part;
    if (item == end.item) {
      if (begin.leaf < end.leaf) on_part(part, item, begin.leaf, end.leaf);
      return;
    }
    if (begin.leaf > 0) on_part(part++, item++, begin.leaf, kToTheEnd);
    if (item < end.item) on_items(item, end.item);
    if (end.leaf > 0) on_part(part, end.item, 0, end.leaf);
  }

 private:
  void AddPart(int64_t item, int64_t first_leaf) {
    if (first_leaf == 0) {
      CutItem* cut = new (&cuts_[num_cuts_++]) CutItem{};
      cut->item = item;
      cut->first_part = num_parts_;
    }
    ++cuts_[num_cuts_ - 1].num_parts;
    ++num_parts_;
  }

  int64_t workers_;
  Begin* begins_;
  CutItem* cuts_;
  int64_t num_shares_ = 0;
  int64_t num_parts_ = 0;
  int64_t num_cuts_ = 0;
};

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_SHARE_H_
