// SPDX-License-Identifier: Apache-2.0
// How blocks that are a large part of all the work are cut into pieces for many workers: into 128, 64 or 32 rows, and
// by one policy of sharing (host/share.h) into runs of leaves.
#ifndef LATHE_HOST_ATTEND_CUT_H_
#define LATHE_HOST_ATTEND_CUT_H_

#include <algorithm>
#include <cstdint>

#include "lathe/host/attend/batch.h"
#include "lathe/host/share.h"

namespace lathe::detail {
namespace {

// What the parts of a task take besides rows * keys, in these: reading a key and arranging it for products, about as
// much as 32 rows take of it; packing, finishing and folding a row, as much as 64 keys.
constexpr int64_t kKeyCost = 32;
constexpr int64_t kRowCost = 64;
// What tasks may leave to be folded, for each worker: pieces, and whole blocks of them.
constexpr int64_t kSpansPerWorker = 32;
constexpr int64_t kBlocksPerWorker = 6;

// A cut: blocks of `rows` rows, runs of nodes of `unit` leaves, and shares of all runs.
struct AttendCut {
  int64_t rows = kMaxBlockRows;
  int64_t unit = 1;
  int64_t num_shares = 1;
};

// f(set, KeyRange of leaves) for what a task leaves to be folded.
template <class F>
void ForEachPieceOf(const AttendTask& task, int64_t leaf_keys, const F& f) {
  for (int set = 0; set < kMaxKeySets; ++set) {
    ForEachPiece(task.leaves[set], LeavesOf(task.keys[set], leaf_keys),
                 [&](const KeyRange& piece) { f(set, piece); });
  }
}

class AttendCutter {
 public:
  AttendCutter(const AttendBatch& batch, int64_t leaf_keys, int64_t v_dim, size_t num_workers)
      : batch_(batch),
        leaf_keys_(leaf_keys),
        v_dim_(v_dim),
        workers_(static_cast<int64_t>(num_workers)) {
    ForEachBlock([this](const AttendTask& block) {
      num_blocks_ += batch_.num_kv_heads();
      max_rows_ = (std::max)(max_rows_, block.num_rows);
      max_leaves_ = (std::max)(max_leaves_, NumLeaves(block));
      total_work_ += batch_.num_kv_heads() * block.work;
    });
    if (workers_ > 1) ChooseCut();
  }

  int64_t num_blocks() const { return num_blocks_; }
  int64_t max_rows() const { return max_rows_; }
  int64_t max_leaves() const { return max_leaves_; }
  const AttendCut& cut() const { return cut_; }

  // task(AttendTask) for every block that is not cut and every piece of one that is, whose spans(AttendTask) is called
  // for each row block that is cut, after its pieces. Heads ascend.
  template <class OnTask, class OnCutBlock>
  void ForEachTask(const OnTask& on_task, const OnCutBlock& on_cut_block) const {
    ForEachBlock([&](AttendTask block) {
      if (is_even_ || !IsLarge(block)) ForEachHead(block, on_task);
    });
    if (!is_even_) Cut(on_task, on_cut_block);
  }

 private:
  template <class F>
  void ForEachBlock(const F& f) const {
    batch_.ForEachBlock(leaf_keys_, f);
  }
  template <class F>
  void ForEachHead(AttendTask block, const F& f) const {
    for (block.head_begin = 0; block.head_begin < batch_.num_heads;
         block.head_begin += batch_.call.unit_heads) {
      f(block);
    }
  }

  // More than a quarter of a worker's fair share in one task may leave others idle at the end.
  bool IsLarge(const AttendTask& block) const {
    return workers_ > 1 && NumLeaves(block) > 0 &&
           kMostSharesPerWorker * workers_ * block.work > total_work_;
  }
  // The parts of large blocks that have so many rows.
  template <class F>
  void ForEachLarge(int64_t rows, const F& f) const {
    ForEachBlock([&](const AttendTask& block) {
      if (!IsLarge(block)) return;
      for (int64_t row = 0; row < block.num_rows; row += rows) {
        f(batch_.BlockOf(block.seq, {block.token_begin, block.q_len}, block.row_begin + row,
                         (std::min)(rows, block.num_rows - row), leaf_keys_));
      }
    });
  }

  void ChooseCut() {
    int64_t num_large = 0, large_work = 0, largest = 0, large_rows = 0, leaf_rows = 0;
    ForEachLarge(kMaxBlockRows, [&](const AttendTask& block) {
      num_large += batch_.num_kv_heads();
      large_work += batch_.num_kv_heads() * block.work;
      largest = (std::max)(largest, block.work);
      large_rows = (std::max)(large_rows, block.num_rows);
      leaf_rows += batch_.num_kv_heads() * NumLeaves(block) * block.num_rows;
    });
    if (num_large == 0) return;
    // As they are they may be even enough.
    is_even_ = 10 * CeilDiv(num_large, workers_) * largest * workers_ <= 11 * total_work_;
    if (is_even_) return;
    // The workers that the large blocks have for themselves.
    const int64_t workers = (std::max)(workers_ * large_work / total_work_, int64_t{1});
    int64_t num_leaves = 0, least = 0;
    for (int64_t rows = kMaxBlockRows; rows >= kRowGroup; rows /= 2) {
      const int64_t of_task = (std::min)(rows, large_rows);
      const int64_t leaves = CeilDiv(leaf_rows, of_task);
      const int64_t time =
          CeilDiv(leaves, workers) * leaf_keys_ * (of_task + kKeyCost) + of_task * kRowCost;
      if (least != 0 && time >= least) continue;
      least = time;
      num_leaves = leaves;
      cut_.rows = rows;
    }
    const int64_t piece_cost = (std::min)(cut_.rows, large_rows) * kRowCost;
    cut_.num_shares = NumShares(leaf_rows * leaf_keys_, workers, piece_cost);
    cut_.unit = UnitFor(num_leaves / cut_.num_shares);
    while (cut_.num_shares > 1 && !FitsMemory()) {
      if (cut_.num_shares > workers) {
        // As many for each worker: one and a half would leave half of them idle at the end.
        cut_.num_shares = (std::max)(cut_.num_shares / workers / 2, int64_t{1}) * workers;
        cut_.unit = UnitFor(num_leaves / cut_.num_shares);
      } else if (cut_.unit * cut_.num_shares < num_leaves) {
        cut_.unit = (std::max)(2 * cut_.unit, kSegmentLeaves);
      } else {
        cut_.num_shares /= 2;
      }
    }
  }

  // Runs of many leaves are cut where few pieces are left to fold: between nodes.
  static int64_t UnitFor(int64_t leaves_of_share) {
    if (leaves_of_share < 4 * kSegmentLeaves) return 1;
    int level = 1;
    while (4 * NodeLeaves(level + 1) <= leaves_of_share) ++level;
    return NodeLeaves(level);
  }

  bool FitsMemory() const {
    int64_t spans = 0, floats = 0;
    Cut(
        [&](const AttendTask& task) {
          if (task.partial < 0) return;
          ForEachPieceOf(task, leaf_keys_, [&](int, const KeyRange&) {
            ++spans;
            floats += PartialFloats(task.num_rows, v_dim_);
          });
        },
        [](const AttendTask&) {});
    return spans <= kSpansPerWorker * workers_ &&
           floats <= kBlocksPerWorker * workers_ * PartialFloats(max_rows_, v_dim_);
  }

  template <class OnTask, class OnCutBlock>
  void Cut(const OnTask& on_task, const OnCutBlock& on_cut_block) const {
    int64_t work = 0;
    ForEachLarge(cut_.rows, [&](const AttendTask& block) {
      work += batch_.num_kv_heads() * NumUnits(block) * UnitWork(block);
    });
    ShareCutter cutter(work, cut_.num_shares);
    ForEachLarge(cut_.rows, [&](const AttendTask& large) {
      ForEachHead(large, [&](const AttendTask& block) {
        const int64_t num_units = NumUnits(block);
        if (num_units == 0) return on_task(block);  // rows that see nothing, of a block that does
        bool is_cut = false;
        cutter.Cut(num_units, UnitWork(block), [&](int64_t, int64_t first, int64_t last) {
          is_cut = is_cut || last - first < num_units;
          on_task(is_cut ? RunOf(block, first, last) : block);
        });
        if (is_cut) on_cut_block(block);
      });
    });
  }

  int64_t UnitWork(const AttendTask& block) const { return block.num_rows * cut_.unit; }
  // Those of one set after those of the other.
  int64_t NumUnits(const AttendTask& block) const {
    return NumKeys(LeavesOf(block.leaves[0], cut_.unit)) +
           NumKeys(LeavesOf(block.leaves[1], cut_.unit));
  }
  // Units [first, last) of a block, to be stored.
  AttendTask RunOf(const AttendTask& block, int64_t first, int64_t last) const {
    const int64_t unit = cut_.unit;
    AttendTask run = block;
    run.partial = 0;
    run.work = block.num_rows;
    for (int set = 0; set < kMaxKeySets; ++set) {
      const KeyRange units = LeavesOf(block.leaves[set], unit);
      const auto leaf_at = [&](int64_t i) {
        const int64_t at = (std::min)(units.begin + (std::max)(i, int64_t{0}), units.end) * unit;
        return (std::min)((std::max)(at, block.leaves[set].begin), block.leaves[set].end);
      };
      run.leaves[set] = {leaf_at(first), leaf_at(last)};
      first -= NumKeys(units);
      last -= NumKeys(units);
      const KeyRange keys{(std::max)(run.leaves[set].begin * leaf_keys_, block.keys[set].begin),
                          (std::min)(run.leaves[set].end * leaf_keys_, block.keys[set].end)};
      run.work += block.num_rows * NumKeys(keys);
    }
    return run;
  }

  const AttendBatch& batch_;
  int64_t leaf_keys_;
  int64_t v_dim_;
  int64_t workers_;
  int64_t num_blocks_ = 0;
  int64_t max_rows_ = 1;
  int64_t max_leaves_ = 0;
  int64_t total_work_ = 0;
  bool is_even_ = true;  // without cutting anything
  AttendCut cut_;
};

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_ATTEND_CUT_H_
