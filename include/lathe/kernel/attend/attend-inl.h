// SPDX-License-Identifier: Apache-2.0
// The one attention kernel: a block of query rows against the keys of a task, on any engine.
//
//   pack queries once
//   for each split:  for each tile of keys (96 to 256), one key set after the other:
//        KeyCursor -> row addresses     (this tile's and, for prefetching, the next one's)
//        RowSource -> rows the engine reads (in place, or decoded once for all query rows)
//        for each group of rows (all of them, or as many as an engine keeps in L1):
//          Score     -> S^T [token][row]
//          TransformScores  on request, a soft cap for one
//          MaskScores   where some row does not see some key
//          Softmax   -> P, running m and l
//          Accumulate-> O [row][column]
//      fold the split into what came before (or store it)
//   epilogue
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
#include "lathe/kernel/attend/mask-inl.h"
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
  AttendBlock(Arena& arena, const detail::AttendShape& shape, int64_t max_rows)
      : engine_(arena, shape.qk_dim, shape.v_dim, max_rows),
        mask_(arena, Engine::PaddedRows(max_rows)) {
    const int64_t padded_rows = Engine::PaddedRows(max_rows);
    const int64_t output_rows = Engine::OutputRows(max_rows);
    const int64_t padded_width = RowSource<A>::PaddedWidth(shape.qk_dim);
    const int64_t value_width = RowSource<A>::PaddedWidth(shape.v_dim);
    const auto take = [&arena](int64_t n) { return arena.Take<float>(static_cast<size_t>(n)); };
    v_columns_ = detail::PartialColumns(shape.v_dim);
    v_stride_ = detail::PartialStride(shape.v_dim);
    const int64_t scores = (kTileKeys + kScoreTokens) * (std::min)(padded_rows, Engine::kGroupRows);
    s_ = take(scores);
    if constexpr (A::kLeavesScales) {
      scaled_ = take(scores);
      scales_ = take(detail::kMaxScales * kTileKeys);
    }
    o_[0] = take(output_rows * v_stride_);
    o_[1] = take(output_rows * v_stride_);
    for (float** state : {&m_[0], &m_[1], &l_[0], &l_[1], &alpha_}) *state = take(padded_rows);
    row_ = take(v_stride_);
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
    padded_rows_ = Engine::PaddedRows(task.num_rows);
    transforms_scores_ = call.transforms.any();
    // Lanes past the last row are computed and never used; they only must hold numbers.
    for (float* scores : {s_, scaled_}) {
      if (scores == nullptr) continue;
      std::memset(
          scores, 0,
          static_cast<size_t>((kTileKeys + kScoreTokens) * GroupAt(0).count) * sizeof(float));
    }
    const auto* zeros = reinterpret_cast<const std::byte*>(zeros_);
    TaskKeys<A> sets[detail::kMaxKeySets] = {
        {call, task, 0, kTileKeys, staged_, staged_values_, scales_, zeros, visible_},
        {call, task, 1, kTileKeys, staged_, staged_values_, scales_, zeros,
         visible_ + task.num_rows}};
    sets_ = sets;
    FindRowsOfFewKeys();
    // The rows of a tile have not been staged yet: their place is free.
    engine_.Pack(task.num_rows, sets[0].source.words(), staged_, [this](int64_t row, Element* to) {
      LoadQuery(task_->row_begin + row, reinterpret_cast<std::byte*>(to));
    });
    [[maybe_unused]] const typename Engine::Session session;
    RunSplits();
  }

 private:
  void RunSplits() {
    int current = 0;
    ClearState(0);
    for (int64_t i = 0; i < task_->num_splits; ++i) {
      if (!RunSplit(task_->first_split + i, current)) continue;
      if (current == 1) FoldSplit();
      current = 1;
    }
    if (current == 0) ClearOutput();
    if (task_->partial >= 0) return StorePartial();
    for (int64_t r = 0; r < task_->num_rows; ++r) {
      FinishRow<A>(*call_, *task_, r, {o_[0] + r * v_stride_, m_[0][r], l_[0][r]}, row_);
    }
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

  void FoldSplit() {
    for (int64_t r = 0; r < task_->num_rows; ++r) {
      RowState acc{o_[0] + r * v_stride_, m_[0][r], l_[0][r]};
      FoldRow(acc, {o_[1] + r * v_stride_, m_[1][r], l_[1][r]}, v_columns_);
      m_[0][r] = acc.m;
      l_[0][r] = acc.l;
    }
  }

  void ClearState(int which) {
    for (int64_t r = 0; r < padded_rows_; ++r) {
      m_[which][r] = -std::numeric_limits<float>::infinity();
      l_[which][r] = 0.0f;
    }
  }

  void ClearOutput() {
    std::memset(o_[0], 0, static_cast<size_t>(task_->num_rows * v_stride_) * sizeof(float));
  }

  void StorePartial() const {
    const auto n = static_cast<size_t>(task_->num_rows);
    const Partial to = PartialAt(call_->partials + task_->partial, task_->num_rows, v_stride_);
    std::memcpy(to.o, o_[0], n * static_cast<size_t>(v_stride_) * sizeof(float));
    std::memcpy(to.m, m_[0], n * sizeof(float));
    std::memcpy(to.l, l_[0], n * sizeof(float));
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

  // The sets' keys in a split, clipped to what rows of this block see. Tiles start at fixed places of the split;
  // those that no row of this block sees are left out.
  void Seek(int64_t split) {
    for (int i = 0; i < call_->num_key_sets; ++i) {
      const KeyRange keys = detail::SplitKeysOf(*task_, split, i);
      const int64_t skipped = (std::max)(sets_[i].any_sees.begin - keys.begin, int64_t{0});
      sets_[i].cursor.Seek(keys.begin + skipped / kTileKeys * kTileKeys,
                           (std::min)(keys.end, sets_[i].any_sees.end), sets_[i].any_sees.begin);
    }
    set_ = 0;
  }

  // The next tile of the split; count 0 when there are none left.
  void Next(KeyTile& tile) {
    sets_[set_].cursor.Next(tile);
    while (tile.count == 0 && set_ + 1 < call_->num_key_sets) sets_[++set_].cursor.Next(tile);
    tile.set = set_;
  }

  // One split from scratch into o_[which], m_[which], l_[which]. False, and o_ as it was, if it has no keys for these rows.
  bool RunSplit(int64_t split, int which) {
    Seek(split);
    int current = 0;
    Next(tiles_[current]);
    if (tiles_[current].count == 0) return false;
    ClearState(which);
    const SoftmaxState state{m_[which], l_[which], alpha_};
    Carry carry = Carry::kNone;
    while (tiles_[current].count > 0) {
      KeyTile& tile = tiles_[current];
      Next(tiles_[1 - current]);
      sets_[tile.set].source.Load(tile, tiles_[1 - current]);
      RunTile(tile, tiles_[1 - current], carry, state, o_[which]);
      carry = Carry::kKeep;
      current = 1 - current;
    }
    return true;
  }

  // Rows that go through a tile together: S and P have room for one group.
  TileRows GroupAt(int64_t row) const {
    return {row, (std::min)(Engine::kGroupRows, padded_rows_ - row)};
  }

  void RunTile(KeyTile& tile, const KeyTile& next, Carry carry, const SoftmaxState& state,
               float* o) {
    const TaskKeys<A>& set = sets_[tile.set];
    const int64_t tokens = RoundUp(tile.count, 2);
    const DType type = set.source.row_type();
    const bool seen_by_all = set.IsSeenByAll(tile);
    const bool is_masked = tokens != tile.count || !seen_by_all;
    if (is_masked) mask_.Find(*call_, *task_, set, tile);
    const bool has_residual = num_few_ > 0;
    isolated_.Clear();
    engine_.StartTile(set.source, tile, next);
    for (int64_t r = 0; r < padded_rows_; r += Engine::kGroupRows) {
      const TileRows rows = GroupAt(r);
      Score(set.source, tile, next, tokens, rows);
      if (transforms_scores_) {
        TransformScores(call_->transforms, call_->score_scale[tile.set], tokens * rows.count, s_);
      }
      if (is_masked) mask_.Apply(tile, tokens, rows, s_);
      const bool has_scales = set.source.has_scales();
      const bool moved = has_scales ? Weigh<FloatArithmetic>(tile, tokens, rows, state, nullptr)
                                    : Weigh<A>(tile, tokens, rows, state,
                                               has_residual ? ResidualOf(rows) : nullptr);
      if (r == 0) {
        // Scores need the rows of keys no more, which values may be, or know where they were.
        if (!seen_by_all) {
          isolated_.TakeOut(type, set.all_see, v_columns_, finite_values_, zeros_, tile);
        }
        engine_.LoadValues(tile, tokens, v_columns_);
      }
      const Carry now = moved && carry == Carry::kKeep ? Carry::kRescale : carry;
      const auto* p = reinterpret_cast<const uint32_t*>(s_);
      if (has_scales) {
        AccumulateScaled(now, tile, tokens, rows, state, o);
      } else {
        Accumulate(now, tile, tokens, AllValues(), rows, p, state, o);
      }
      isolated_.Add(type, mask_, tile, rows, has_scales, p, call_->v_dim, o, v_stride_);
    }
    if (has_residual && !set.source.has_scales()) AddResidual(type, tile, tokens, state, o);
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
  bool Weigh(const KeyTile& tile, int64_t tokens, const TileRows& rows, const SoftmaxState& state,
             uint32_t* residual) {
    const int64_t r = rows.begin;
    return Softmax<Packing>(s_, tokens, rows.count, call_->scale_log2[tile.set],
                            call_->value_scale[tile.set],
                            {state.m + r, state.l + r, state.alpha + r}, residual);
  }

  ScaleTile AllValues() const { return {0, v_columns_, nullptr}; }

  void Accumulate(Carry carry, const KeyTile& tile, int64_t tokens, const ScaleTile& columns,
                  const TileRows& rows, const uint32_t* p, const SoftmaxState& state, float* o) {
    engine_.Accumulate(sets_[tile.set].source.row_type(), carry, tile, tokens, columns, rows.begin,
                       p, rows.count, o + rows.begin * v_stride_, v_stride_,
                       state.alpha + rows.begin);
  }

  // P, as floats, times the scales of one tile of columns after the other. The largest weight is 1 and needs no rounding,
  // but with a scale it does, so what rounding takes comes back at once, however many keys a row sees.
  void AccumulateScaled(Carry carry, const KeyTile& tile, int64_t tokens, const TileRows& rows,
                        const SoftmaxState& state, float* o) {
    const bool has_residual = call_->residual_keys > 0;
    auto* p = reinterpret_cast<uint32_t*>(scaled_);
    uint32_t* residual = has_residual ? ResidualOf(rows) : nullptr;
    const RowSource<A>& source = sets_[tile.set].source;
    for (int64_t i = 0; i < source.num_scale_tiles(); ++i) {
      ScaleTile columns = source.ScaleTileAt(i);
      if (columns.begin >= v_columns_) return;
      columns.end = (std::min)(columns.end, v_columns_);
      PackScaledWeights<A>(s_, columns.scales, tokens, rows.count, p, residual);
      Accumulate(carry, tile, tokens, columns, rows, p, state, o);
      if (has_residual) Accumulate(Carry::kKeep, tile, tokens, columns, rows, residual, state, o);
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

  void AddResidual(DType type, KeyTile& tile, int64_t tokens, const SoftmaxState& state, float* o) {
    if (tile.value_bytes > 0 && KeepFinite<A>(type, v_columns_, finite_values_, tile)) {
      engine_.LoadValues(tile, tokens, v_columns_);
    }
    for (int64_t r = 0; r < padded_rows_; r += Engine::kGroupRows) {
      const TileRows rows = GroupAt(r);
      if (num_few_ < task_->num_rows) ClearResidual(rows, tokens);
      Accumulate(Carry::kKeep, tile, tokens, AllValues(), rows, ResidualOf(rows), state, o);
    }
  }

  Engine engine_;
  TileMask<A> mask_;
  const AttendCall* call_ = nullptr;
  const AttendTask* task_ = nullptr;
  int64_t padded_rows_ = 0;
  int64_t v_columns_ = 0;
  int64_t v_stride_ = 0;
  uint8_t* has_few_ = nullptr;  // of each row
  int64_t num_few_ = 0;
  bool transforms_scores_ = false;
  float* s_;                 // S^T, then P in place
  float* scaled_ = nullptr;  // products of some columns, then P times their scales
  float* scales_ = nullptr;
  uint32_t* residual_ = nullptr;
  float* o_[2];
  float* m_[2];
  float* l_[2];
  float* alpha_;
  float* row_;
  int64_t zeros_count_;
  float* zeros_;
  Element* staged_;
  Element* staged_values_;
  Element* finite_values_;  // those of them that are not finite, without what is not
  KeyRange* visible_;
  TaskKeys<A>* sets_ = nullptr;
  int set_ = 0;  // that the next tile comes from
  KeyTile tiles_[2];
  IsolatedValues<A> isolated_;
};

template <class Engine>
void Attend(const AttendCall& call, const AttendTask& task, void* scratch) {
  Arena arena(scratch);
  AttendBlock<Engine> block(arena, call, task.num_rows);
  block.Run(call, task);
}

template <class Engine>
size_t AttendScratchBytes(const detail::AttendShape& shape, int64_t max_rows) {
  Arena counting;
  AttendBlock<Engine> block(counting, shape, max_rows);
  return counting.bytes();
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
