// SPDX-License-Identifier: Apache-2.0
// The one attention kernel: a block of query rows against the keys of a task, on any engine.
//
//   pack queries once
//   for each leaf of keys (96 or 128), one key set after the other:
//        KeyCursor -> row addresses     (this leaf's and, for prefetching, the next one's)
//        RowSource -> rows the engine reads (in place, or decoded once for all query rows)
//        for each group of rows (all of them, or as many as an engine keeps in L1):
//          Score     -> S^T [token][row]
//          TransformScores  on request, a soft cap for one
//          MaskScores   where some row does not see some key
//          Softmax   -> P, m and l of the leaf
//          Accumulate-> P x V, folded into O [row][column] of the segment
//        at the end of a segment: fold it into the node above (leaves.h)
//   epilogue, or store what other tasks' results are folded with
//
// Which keys, in which format, in which arithmetic and what happens at the end are parameters of it.
#if defined(LATHE_KERNEL_ATTEND_ATTEND_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ATTEND_ATTEND_INL_H_
#undef LATHE_KERNEL_ATTEND_ATTEND_INL_H_
#else
#define LATHE_KERNEL_ATTEND_ATTEND_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "lathe/base/arena.h"
#include "lathe/kernel/attend/accumulate-inl.h"
#include "lathe/kernel/attend/column_scales-inl.h"
#include "lathe/kernel/attend/epilogue-inl.h"
#include "lathe/kernel/attend/finite-inl.h"
#include "lathe/kernel/attend/fold-inl.h"
#include "lathe/kernel/attend/leaves.h"
#include "lathe/kernel/attend/mask-inl.h"
#include "lathe/kernel/attend/partial-inl.h"
#include "lathe/kernel/attend/softmax-inl.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/task_keys-inl.h"
#include "lathe/kernel/score/transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using detail::AttendCall;
using detail::AttendTask;
using detail::KeyRange;

template <class Engine>
class AttendBlock {
 public:
  using A = typename Engine::Arithmetic;
  using Element = typename A::Element;
  static constexpr int64_t kTileKeys = Engine::kTileKeys;

  // Carves the scratch of one worker; with a counting arena, measures it.
  AttendBlock(Arena& arena, const detail::AttendShape& shape, int64_t max_rows, int64_t max_leaves)
      : engine_(arena, shape.qk_dim, shape.v_dim, max_rows),
        mask_(arena, Engine::MaxPaddedRows(max_rows)),
        results_(arena, shape.v_dim, max_rows, Engine::MaxPaddedRows(max_rows), max_leaves) {
    const int64_t padded_rows = Engine::MaxPaddedRows(max_rows);
    const int64_t padded_width = RowSource<A>::PaddedWidth(shape.qk_dim);
    const int64_t value_width = RowSource<A>::PaddedWidth(shape.v_dim);
    const auto take = [&arena](int64_t n) { return arena.Take<float>(static_cast<size_t>(n)); };
    v_columns_ = detail::PartialColumns(shape.v_dim);
    const int64_t scores = (kTileKeys + kScoreTokens) * (std::min)(padded_rows, Engine::kGroupRows);
    s_ = take(scores);
    if constexpr (A::kLeavesScales) {
      scaled_ = take(scores);
      scales_ = take(detail::kMaxScales * kTileKeys);
    }
    for (float** state : {&leaf_m_, &leaf_l_}) *state = take(padded_rows);
    row_ = take(detail::PartialStride(shape.v_dim));
    if constexpr (A::kHasResidual) {
      residual_ =
          arena.Take<uint32_t>(static_cast<size_t>(kTileKeys / A::kStepTokens * padded_rows));
      has_few_ = arena.Take<uint8_t>(static_cast<size_t>(max_rows));
    }
    zeros_count_ = (std::max)(padded_width, value_width);
    zeros_ = take(zeros_count_);
    staged_ = arena.Take<Element>(static_cast<size_t>(kTileKeys * padded_width));
    for (Element** values : {&staged_values_, &finite_values_}) {
      *values = arena.Take<Element>(
          static_cast<size_t>(kTileKeys * RowSource<A>::PaddedWidth(shape.own_v_dim)));
    }
    visible_ = arena.Take<KeyRange>(static_cast<size_t>(max_rows * detail::kMaxKeySets));
  }

  void Run(const AttendCall& call, const AttendTask& task) {
    call_ = &call;
    task_ = &task;
    std::memset(zeros_, 0, static_cast<size_t>(zeros_count_) * sizeof(float));
    transforms_scores_ = call.transforms.any();
    const auto* zeros = reinterpret_cast<const std::byte*>(zeros_);
    TaskKeys<A> sets[detail::kMaxKeySets] = {
        {call, task, 0, kTileKeys, staged_, staged_values_, scales_, zeros, visible_},
        {call, task, 1, kTileKeys, staged_, staged_values_, scales_, zeros,
         visible_ + task.num_rows}};
    sets_ = sets;
    FindRowsOfFewKeys();
    // The rows of a tile have not been staged yet: their place is free.
    engine_.Pack(task.row_begin % call.bits_heads, task.num_rows, call.bits_heads,
                 sets[0].source.words(), staged_, [this](int64_t row, Element* to) {
                   LoadQuery(task_->row_begin + row, reinterpret_cast<std::byte*>(to));
                 });
    padded_rows_ = engine_.padded_rows();
    // Lanes that no score is written to are computed and never used; they only must hold numbers.
    engine_.ClearPadding(s_);
    if (scaled_ != nullptr) engine_.ClearPadding(scaled_);
    results_.Start(task.num_rows, padded_rows_);
    [[maybe_unused]] const typename Engine::Session session;
    set_ = 0;
    leaf_ = task.leaves[0].begin;
    Next(tiles_[current_]);
    if (task.partial < 0) {
      RunWhole();
    } else {
      RunPieces();
    }
  }

 private:
  // All leaves of the block: writes its rows.
  void RunWhole() {
    Partial* all = nullptr;
    for (int set = 0; set < call_->num_key_sets; ++set) {
      const KeyRange leaves = task_->leaves[set];
      Partial* result = RunLeaves(set, leaves.end, nullptr);
      if (result == nullptr) continue;
      if (all == nullptr) {
        all = result;
      } else {
        results_.Fold(all, result);
      }
    }
    const RowState none{nullptr, -std::numeric_limits<float>::infinity(), 0.0f};
    for (int64_t r = 0; r < task_->num_rows; ++r) {
      FinishRow<A>(*call_, *task_, r, all == nullptr ? none : all->Row(r), row_);
    }
  }

  // A run of leaves: leaves its pieces in AttendCall::partials, one after another.
  void RunPieces() {
    float* to = call_->partials + task_->partial;
    for (int set = 0; set < call_->num_key_sets; ++set) {
      const KeyRange all = detail::LeavesOf(task_->keys[set], call_->leaf_keys);
      detail::ForEachPiece(task_->leaves[set], all, [&](const KeyRange& piece) {
        Partial stored = Partial::At(to, task_->num_rows, call_->v_dim);
        // Leaves of one segment fold where the result belongs.
        const bool is_segment =
            piece.begin / detail::kSegmentLeaves == (piece.end - 1) / detail::kSegmentLeaves;
        Partial* place = is_segment ? &stored : nullptr;
        Partial* result = RunLeaves(set, piece.end, place);
        if (result != &stored) results_.Store(result, stored);
        to += detail::PartialFloats(task_->num_rows, call_->v_dim);
      });
    }
  }

  // The result of a set's next leaves, up to `end`; null if these rows see none of their keys. `place`: where it is to
  // be, if the leaves are of one segment.
  Partial* RunLeaves(int set, int64_t end, Partial* place) {
    const auto fold = [this](Partial* to, Partial* from) { results_.Fold(to, from); };
    detail::OpenNodes<Partial*> nodes;
    while (tiles_[current_].count > 0 && tiles_[current_].set == set) {
      const int64_t leaf = tiles_[current_].begin / call_->leaf_keys;
      if (leaf >= end) break;
      nodes.CloseBefore(leaf, fold);
      const bool is_first = nodes.segment() == nullptr;
      if (is_first) nodes.segment() = place != nullptr ? place : results_.Take();
      RunLeaf(nodes.segment(), is_first);
    }
    return nodes.CloseAll(fold);
  }

  // Few keys carry much weight each, and rounding errors do not average out: such rows get back what rounding takes of
  // their weights, whatever the others of their block see.
  void FindRowsOfFewKeys() {
    num_few_ = 0;
    if (residual_ == nullptr || call_->residual_keys == 0) return;
    for (int64_t r = 0; r < task_->num_rows; ++r) {
      const int64_t i = (task_->row_begin + r) / call_->unit_heads;
      if (r > 0 && i == (task_->row_begin + r - 1) / call_->unit_heads) {
        has_few_[r] = has_few_[r - 1];  // heads of one token see the same
      } else {
        int64_t seen = 0;
        for (int set = 0; set < call_->num_key_sets; ++set) {
          seen += sets_[set].NumSeen(*call_, *task_, set, i, call_->residual_keys + 1);
        }
        has_few_[r] = seen <= call_->residual_keys ? 1 : 0;
      }
      num_few_ += has_few_[r];
    }
  }

  // One query row as elements of the engine; the padding of staged rows is zero already.
  void LoadQuery(int64_t row, std::byte* to) const {
    const int64_t token = task_->token_begin + row / call_->unit_heads;
    const int64_t head = task_->head_begin + row % call_->unit_heads;
    for (const In<3>& part : call_->q) {
      if (part.empty()) continue;
      const int64_t offset = token * part.stride[0] + head * part.stride[1];
      Convert(part.dtype, part.data + offset * static_cast<int64_t>(SizeOf(part.dtype)),
              kDTypeOf<Element>, to, part.extent[2]);
      to += part.extent[2] * static_cast<int64_t>(sizeof(Element));
    }
  }

  // The next leaf of the task with keys that some row sees; count 0 when there are none left.
  void Next(KeyTile& tile) {
    for (;;) {
      while (leaf_ >= task_->leaves[set_].end) {
        tile.count = 0;
        if (set_ + 1 >= call_->num_key_sets) return;
        leaf_ = task_->leaves[++set_].begin;
      }
      TaskKeys<A>& keys = sets_[set_];
      const int64_t begin = leaf_++ * call_->leaf_keys;
      // Leaves start at whole steps of any engine: what no row sees in front is left out.
      const int64_t skipped = (std::max)(keys.any_sees.begin - begin, int64_t{0});
      keys.cursor.Seek(begin + skipped / detail::kStepKeys * detail::kStepKeys,
                       (std::min)(begin + call_->leaf_keys, keys.any_sees.end),
                       keys.any_sees.begin);
      keys.cursor.Next(tile);
      tile.set = set_;
      if (tile.count > 0) return;
    }
  }

  // Rows that go through a tile together: S and P have room for one group.
  TileRows GroupAt(int64_t row) const {
    return {row, (std::min)(Engine::kGroupRows, padded_rows_ - row)};
  }

  // The leaf whose tile is next, into a result that holds nothing yet or is the segment so far.
  void RunLeaf(Partial* to, bool is_first) {
    KeyTile& tile = tiles_[current_];
    const KeyTile& next = tiles_[1 - current_];
    Next(tiles_[1 - current_]);
    sets_[tile.set].source.Load(tile, next);
    current_ = 1 - current_;
    RunTile(tile, next, to, is_first);
  }

  void RunTile(KeyTile& tile, const KeyTile& next, Partial* to, bool is_first) {
    const TaskKeys<A>& set = sets_[tile.set];
    const int64_t tokens = RoundUp(tile.count, 2);
    const DType type = set.source.row_type();
    const bool seen_by_all = set.IsSeenByAll(tile);
    const bool is_masked = tokens != tile.count || !seen_by_all;
    if (is_masked) mask_.Find(*call_, *task_, set, tile);
    const bool has_scales = set.source.has_scales();
    const bool has_residual = num_few_ > 0;
    isolated_.Clear();
    engine_.StartTile(set.source, tile, next);
    // Where values are not finite sums are put together in steps, apart from what O holds.
    bool is_apart = false;
    Partial* sums_to = to;
    Sums sums = is_first ? Sums::kStore : Sums::kFold;
    for (int64_t r = 0; r < padded_rows_; r += Engine::kGroupRows) {
      const TileRows rows = GroupAt(r);
      Score(set.source, tile, next, tokens, rows);
      if (transforms_scores_) {
        TransformScores(call_->transforms, call_->score_scale[tile.set], tokens * rows.count, s_);
      }
      if (is_masked) mask_.Apply(tile, tokens, rows, s_);
      uint32_t* residual = has_residual ? ResidualOf(rows) : nullptr;
      if (has_scales) {
        Weigh<FloatArithmetic>(tile, tokens, rows, nullptr);
      } else {
        Weigh<A>(tile, tokens, rows, residual);
        if (has_residual && num_few_ < task_->num_rows) ClearResidual(rows, tokens);
      }
      if (r == 0) {
        // Scores need the rows of keys no more, which values may be, or know where they were.
        if (!seen_by_all) {
          isolated_.TakeOut(type, set.all_see, v_columns_, finite_values_, zeros_, tile);
        }
        is_apart = isolated_.any() || (has_residual && tile.value_bytes > 0 &&
                                       !HasFiniteValues<A>(type, v_columns_, tile));
        if (is_apart && !is_first) sums_to = results_.Take();
        if (is_apart) sums = Sums::kStore;
        engine_.LoadValues(tile, tokens, v_columns_);
      }
      TakeStates(rows, is_first, to);
      const auto* p = reinterpret_cast<const uint32_t*>(s_);
      if (has_scales) {
        AccumulateScaled(sums, tile, tokens, rows, *sums_to);
      } else {
        Accumulate(sums, tile, tokens, AllValues(), rows, p, is_apart ? nullptr : residual,
                   *sums_to);
      }
      isolated_.Add(type, mask_, tile, rows, has_scales, p, call_->v_dim, sums_to->o, to->v_stride);
    }
    if (!is_apart) return;
    if (has_residual && !has_scales) AddResidual(type, tile, tokens, *sums_to);
    if (is_first) return;
    results_.FoldOutput(to, sums_to);
  }

  // m and l of the segment, which the leaf of these rows begins or adds to.
  void TakeStates(const TileRows& rows, bool is_first, Partial* to) {
    const int64_t r = rows.begin;
    if (!is_first) {
      return FoldStates(leaf_m_ + r, leaf_l_ + r, rows.count, to->m + r, to->l + r,
                        results_.alpha() + r, results_.beta() + r);
    }
    std::memcpy(to->m + r, leaf_m_ + r, static_cast<size_t>(rows.count) * sizeof(float));
    std::memcpy(to->l + r, leaf_l_ + r, static_cast<size_t>(rows.count) * sizeof(float));
  }

  void Score(const RowSource<A>& source, const KeyTile& tile, const KeyTile& next, int64_t tokens,
             const TileRows& rows) {
    engine_.Score(source, tile, next, source.ScaleTileAt(0), rows.begin, s_, rows.count);
    if (!source.has_scales()) return;
    ScaleScores(source.ScaleTileAt(0).scales, tokens, rows.count, s_);
    for (int64_t i = 1; i < source.num_scale_tiles(); ++i) {
      const ScaleTile columns = source.ScaleTileAt(i);
      engine_.Score(source, tile, next, columns, rows.begin, scaled_, rows.count);
      AddScaledScores(scaled_, columns.scales, tokens, rows.count, s_);
    }
  }

  // S into P, packed as an arithmetic takes it.
  template <class Packing>
  void Weigh(const KeyTile& tile, int64_t tokens, const TileRows& rows, uint32_t* residual) {
    Softmax<Packing>(s_, tokens, rows.count, call_->scale_log2[tile.set],
                     call_->value_scale[tile.set], leaf_m_ + rows.begin, leaf_l_ + rows.begin,
                     residual);
  }

  ScaleTile AllValues() const { return {0, v_columns_, nullptr}; }

  void Accumulate(Sums sums, const KeyTile& tile, int64_t tokens, const ScaleTile& columns,
                  const TileRows& rows, const uint32_t* p, const uint32_t* residual,
                  const Partial& to) {
    const int64_t r = rows.begin;
    engine_.Accumulate(
        sets_[tile.set].source.row_type(), sums, tile, tokens, columns, r,
        {p, residual, rows.count},
        {to.o + r * to.v_stride, to.v_stride, results_.alpha() + r, results_.beta() + r});
  }

  // P, as floats, times the scales of one tile of columns after the other. The largest weight is 1 and needs no rounding,
  // but with a scale it does, so what rounding takes comes back at once, however many keys a row sees.
  void AccumulateScaled(Sums sums, const KeyTile& tile, int64_t tokens, const TileRows& rows,
                        const Partial& to) {
    auto* p = reinterpret_cast<uint32_t*>(scaled_);
    uint32_t* residual = call_->residual_keys > 0 ? ResidualOf(rows) : nullptr;
    const RowSource<A>& source = sets_[tile.set].source;
    for (int64_t i = 0; i < source.num_scale_tiles(); ++i) {
      ScaleTile columns = source.ScaleTileAt(i);
      if (columns.begin >= v_columns_) return;
      columns.end = (std::min)(columns.end, v_columns_);
      PackScaledWeights<A>(s_, columns.scales, tokens, rows.count, p, residual);
      Accumulate(sums, tile, tokens, columns, rows, p, residual, to);
    }
  }

  uint32_t* ResidualOf(const TileRows& rows) const {
    return residual_ + rows.begin * (kTileKeys / A::kStepTokens);
  }

  // Of rows that see many keys.
  void ClearResidual(const TileRows& rows, int64_t tokens) const {
    uint32_t* residual = ResidualOf(rows);
    for (int64_t step = 0; step < tokens / A::kStepTokens; ++step, residual += rows.count) {
      for (int64_t r = 0; r < NumLive(rows, *task_); ++r) {
        if (has_few_[rows.begin + r] == 0) residual[r] = 0;
      }
    }
  }

  // To sums that lack it since not all values are finite: only those that are take part.
  void AddResidual(DType type, KeyTile& tile, int64_t tokens, const Partial& to) {
    if (tile.value_bytes > 0 && KeepFinite<A>(type, v_columns_, finite_values_, tile)) {
      engine_.LoadValues(tile, tokens, v_columns_);
    }
    for (int64_t r = 0; r < padded_rows_; r += Engine::kGroupRows) {
      const TileRows rows = GroupAt(r);
      Accumulate(Sums::kAdd, tile, tokens, AllValues(), rows, ResidualOf(rows), nullptr, to);
    }
  }

  Engine engine_;
  TileMask<A> mask_;
  PartialPool results_;
  const AttendCall* call_ = nullptr;
  const AttendTask* task_ = nullptr;
  int64_t padded_rows_ = 0;
  int64_t v_columns_ = 0;
  uint8_t* has_few_ = nullptr;  // of each row
  int64_t num_few_ = 0;
  bool transforms_scores_ = false;
  float* s_;                 // S^T, then P in place
  float* scaled_ = nullptr;  // products of some columns, then P times their scales
  float* scales_ = nullptr;
  uint32_t* residual_ = nullptr;
  float* leaf_m_;
  float* leaf_l_;
  float* row_;
  int64_t zeros_count_;
  float* zeros_;
  Element* staged_;
  Element* staged_values_;
  Element* finite_values_;  // those of them that are not finite, without what is not
  KeyRange* visible_;
  TaskKeys<A>* sets_ = nullptr;
  int set_ = 0;       // that the next tile comes from,
  int64_t leaf_ = 0;  // and its leaf
  int current_ = 0;   // of the two tiles: that of the leaf which is next
  KeyTile tiles_[2];
  IsolatedValues<A> isolated_;
};

template <class Engine>
void Attend(const AttendCall& call, const AttendTask& task, void* scratch) {
  Arena arena(scratch);
  AttendBlock<Engine> block(arena, call, task.num_rows, call.max_leaves);
  block.Run(call, task);
}

template <class Engine>
size_t AttendScratchBytes(const detail::AttendShape& shape, int64_t max_rows, int64_t max_leaves) {
  Arena counting;
  AttendBlock<Engine> block(counting, shape, max_rows, max_leaves);
  return counting.bytes();
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
