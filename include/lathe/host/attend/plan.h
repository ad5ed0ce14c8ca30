// SPDX-License-Identifier: Apache-2.0
// The plan of attention over a batch: which tasks, in which order, with how much scratch.
//
//   unit         the query rows that share keys: those of a sequence and the heads of one key head, or of one token
//                when some set is an index list
//   split        a fixed piece of a unit's keys. Its length depends on the unit's own number of keys and
//                options.split_tokens alone: that is what makes results independent of batch and threads
//   block        up to 128 rows of a unit: one task does all its splits and writes the result; or, when
//                the block is a large part of all the work, each of its (32..128 rows x split) pieces is a
//                task that stores a partial result, and fold tasks finish
//
// Cutting rows at multiples of 32 never changes a row's arithmetic, and partial results fold in split
// order with the same arithmetic wherever they were computed, so both choices may depend on workers.
#ifndef LATHE_HOST_ATTEND_PLAN_H_
#define LATHE_HOST_ATTEND_PLAN_H_

#include <algorithm>
#include <iterator>

#include "lathe/base/arena.h"
#include "lathe/dispatch/registry.h"
#include "lathe/host/batch.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/mla_decode.h"

namespace lathe::detail {
namespace {

// More splits than this make the partial results of a long context cost more than they help.
constexpr int64_t kMaxSplits = 32;
// Rows that one fold task finishes.
constexpr int64_t kFoldRows = 16;
// Pieces a worker should find in a block that is cut, so that the last ones even out.
constexpr int64_t kPiecesPerWorker = 4;

// Plans of operations derive from it.
struct AttendPlan {
  const KernelTable* kernels;
  Target target;
  Engine engine;
  AttendShape shape;
  int64_t split_tokens;
  BatchSize batch;
  uint64_t fingerprint;
  size_t num_workers;
  size_t scratch_bytes;  // of one worker
  int64_t partial_floats;
  size_t workspace_bytes;
  AttendTask* tasks;  // longest first
  int64_t num_tasks;
  FoldTask* folds;
  int64_t num_folds;
};

// A unit or block of work before it is cut.
struct Unit {
  int64_t seq;
  int64_t token_begin;
  int64_t q_len;
  int64_t row_begin;
  int64_t row_end;
  KeyRange keys[kMaxKeySets];
};

inline int64_t SplitTokens(int64_t split_tokens) {
  const int64_t limit = int64_t{1} << 40;  // beyond any length, and safe to round up
  return CeilDiv((std::min)(split_tokens, limit), kSplitUnit) * kSplitUnit;
}

inline int64_t SplitKeys(int64_t split_tokens, int64_t num_keys) {
  const int64_t shortest = CeilDiv(CeilDiv(num_keys, kMaxSplits), kSplitUnit) * kSplitUnit;
  return (std::max)(SplitTokens(split_tokens), shortest);
}

// Never less for more keys, unlike the number of splits itself.
inline int64_t MaxSplits(int64_t split_tokens, int64_t num_keys) {
  return (std::min)(kMaxSplits, CeilDiv(num_keys, SplitTokens(split_tokens)));
}

inline int64_t Work(int64_t num_rows, int64_t num_keys) { return num_rows * (num_keys + 1); }

// Sequences, heads and lengths of a call: all that its tasks follow from. Of `call` it takes what tells who sees
// which keys.
struct AttendBatch {
  AttendCall call;
  Batch batch;
  int64_t num_heads;

  int64_t num_kv_heads() const { return num_heads / call.unit_heads; }

  // Keys of one set that queries [i, i + num_queries) of sequence b see; or, with `are_cut`, are cut by.
  KeyRange KeysOf(int set, int64_t b, const QueryRows& rows, int64_t i, int64_t num_queries,
                  bool are_cut) const {
    const KeyRows& keys = call.keys[set];
    const int64_t token = rows.token_begin + i;
    if (keys.has_indices()) {
      return {0, keys.topk_length.empty() ? keys.indices.extent[1] : keys.topk_length(token)};
    }
    const QueryPlace query{keys.SeqLen(b), rows.q_len, i, token};
    return are_cut ? CutKeysOfRows(keys, call.causality, query, num_queries)
                   : VisibleKeysOfRows(keys, call.causality, query, num_queries);
  }

  // f(Unit) for every unit of one head, or one group of heads, each with all of its rows.
  template <class F>
  void ForEachUnit(const F& f) const {
    for (int64_t b = 0; b < batch.num_seqs; ++b) {
      const QueryRows rows = batch.RowsOf(b);
      const int64_t step = call.is_per_token ? 1 : rows.q_len;
      for (int64_t i = 0; i < rows.q_len; i += step) {
        Unit unit{
            b, rows.token_begin, rows.q_len, i * call.unit_heads, (i + step) * call.unit_heads, {}};
        for (int set = 0; set < call.num_key_sets; ++set) {
          unit.keys[set] = KeysOf(set, b, rows, i, step, true);
        }
        f(unit);
      }
    }
  }

  // f(Unit) for every block of a unit.
  template <class F>
  static void ForEachBlock(Unit unit, const F& f) {
    const int64_t row_end = unit.row_end;
    for (int64_t row = unit.row_begin; row < row_end; row += kMaxBlockRows) {
      unit.row_begin = row;
      unit.row_end = (std::min)(row + kMaxBlockRows, row_end);
      f(unit);
    }
  }

  // About rows * keys of a task: of its splits' keys those that its rows see.
  int64_t WorkOf(const AttendTask& task) const {
    const int64_t first = task.row_begin / call.unit_heads;
    const int64_t last = (task.row_begin + task.num_rows - 1) / call.unit_heads;
    int64_t num_keys = 0;
    for (int set = 0; set < call.num_key_sets; ++set) {
      const KeyRange seen =
          KeysOf(set, task.seq, {task.token_begin, task.q_len}, first, last - first + 1, false);
      for (int64_t i = 0; i < task.num_splits; ++i) {
        const KeyRange keys = SplitKeysOf(task, task.first_split + i, set);
        num_keys += NumKeys({(std::max)(keys.begin, seen.begin), (std::min)(keys.end, seen.end)});
      }
    }
    return Work(task.num_rows, num_keys);
  }
};

// The task that does all splits of a block, for the first head.
inline AttendTask TaskOf(const AttendBatch& batch, int64_t split_tokens, const Unit& block) {
  const int64_t num_keys = NumKeys(block.keys);
  AttendTask task;
  task.seq = block.seq;
  task.token_begin = block.token_begin;
  task.q_len = block.q_len;
  task.row_begin = block.row_begin;
  task.num_rows = block.row_end - block.row_begin;
  std::copy(std::begin(block.keys), std::end(block.keys), task.keys);
  task.split_keys = SplitKeys(split_tokens, num_keys);
  task.num_splits = (std::max)(CeilDiv(num_keys, task.split_keys), int64_t{1});
  task.work = batch.WorkOf(task);
  return task;
}

// Collects tasks; without memory it only counts what the caller knows an upper bound of.
class PlanBuilder {
 public:
  PlanBuilder(AttendPlan& plan, const AttendBatch& batch, int64_t total_work,
              int64_t max_cut_blocks)
      : plan_(plan), batch_(batch), total_work_(total_work), cuts_left_(max_cut_blocks) {}

  void AddUnit(const Unit& unit) {
    AttendBatch::ForEachBlock(unit, [this](const Unit& block) {
      AttendTask task = TaskOf(batch_, plan_.split_tokens, block);
      for (task.head_begin = 0; task.head_begin < batch_.num_heads;
           task.head_begin += batch_.call.unit_heads) {
        AddBlock(task);
      }
    });
  }

 private:
  void AddBlock(AttendTask task) {
    // More than half of a worker's fair share in one task would leave others idle at the end.
    const auto workers = static_cast<int64_t>(plan_.num_workers);
    const bool is_large = 2 * workers * task.work > total_work_;
    if (workers == 1 || !is_large || cuts_left_ == 0) return AddTask(task);
    --cuts_left_;
    const int64_t num_rows = task.num_rows, row_begin = task.row_begin;
    const int64_t pieces = CeilDiv(kPiecesPerWorker * workers * task.work, total_work_);
    int64_t rows = kMaxBlockRows;
    while (rows > kRowGroup && task.num_splits * CeilDiv(num_rows, rows) < pieces) rows /= 2;
    for (int64_t row = 0; row < num_rows; row += rows) {
      task.row_begin = row_begin + row;
      task.num_rows = (std::min)(rows, num_rows - row);
      AddPieces(task);
    }
  }

  // One task for each split, and the folds that finish their rows.
  void AddPieces(AttendTask task) {
    if (task.num_splits == 1) {
      task.work = batch_.WorkOf(task);
      return AddTask(task);
    }
    FoldTask fold;
    fold.task = task;
    fold.task.partial = plan_.partial_floats;
    for (fold.row_first = 0; fold.row_first < task.num_rows; fold.row_first += kFoldRows) {
      fold.row_last = (std::min)(fold.row_first + kFoldRows, task.num_rows);
      plan_.folds[plan_.num_folds++] = fold;
    }
    const int64_t num_splits = task.num_splits;
    task.num_splits = 1;
    for (task.first_split = 0; task.first_split < num_splits; ++task.first_split) {
      task.partial = plan_.partial_floats;
      task.work = batch_.WorkOf(task);
      plan_.partial_floats += PartialFloats(task.num_rows, plan_.shape.v_dim);
      AddTask(task);
    }
  }

  void AddTask(const AttendTask& task) { plan_.tasks[plan_.num_tasks++] = task; }

  AttendPlan& plan_;
  const AttendBatch& batch_;
  int64_t total_work_;
  int64_t cuts_left_;
};

// What the memory of a plan must hold: exact for the blocks, an upper bound for those that are cut.
struct PlanCapacity {
  int64_t num_tasks = 0;
  int64_t num_folds = 0;
  int64_t max_cut_blocks = 0;  // as many as there are workers, none for a single one
  int64_t max_rows = 0;        // of a task
  int64_t partial_floats = 0;
};

inline PlanCapacity CapacityFor(int64_t num_blocks, int64_t max_rows, int64_t max_keys,
                                size_t num_workers, int64_t v_dim, int64_t split_tokens) {
  PlanCapacity capacity;
  capacity.max_rows = (std::min)(max_rows, kMaxBlockRows);
  capacity.max_cut_blocks =
      num_workers > 1 ? (std::min)(static_cast<int64_t>(num_workers), num_blocks) : 0;
  const int64_t max_splits = (std::max)(MaxSplits(split_tokens, max_keys), int64_t{1});
  const int64_t pieces = max_splits * CeilDiv(capacity.max_rows, kRowGroup);
  capacity.num_tasks = num_blocks + capacity.max_cut_blocks * pieces;
  capacity.num_folds = capacity.max_cut_blocks * (CeilDiv(capacity.max_rows, kFoldRows) +
                                                  CeilDiv(capacity.max_rows, kRowGroup));
  if (max_splits > 1) {
    // Sub-blocks round their sizes up apart from each other.
    capacity.partial_floats =
        capacity.max_cut_blocks * max_splits *
        (PartialFloats(capacity.max_rows, v_dim) + 16 * CeilDiv(capacity.max_rows, kRowGroup));
  }
  return capacity;
}

template <class Plan>
Plan* CarvePlan(Arena& arena, const PlanCapacity& capacity) {
  Plan* plan = arena.Take<Plan>(1);
  auto* tasks = arena.Take<AttendTask>(static_cast<size_t>(capacity.num_tasks));
  auto* folds = arena.Take<FoldTask>(static_cast<size_t>(capacity.num_folds));
  if (plan != nullptr) {
    *plan = Plan{};
    plan->tasks = tasks;
    plan->folds = folds;
  }
  return plan;
}

struct Workspace {
  std::byte* scratch;
  float* partials;
};

inline Workspace CarveWorkspace(Arena& arena, size_t num_workers, size_t scratch_bytes,
                                int64_t partial_floats) {
  auto* scratch = arena.Take<std::byte>(num_workers * scratch_bytes);
  return {scratch, arena.Take<float>(static_cast<size_t>(partial_floats))};
}

inline size_t WorkspaceBytes(size_t num_workers, size_t scratch_bytes, int64_t partial_floats) {
  Arena counting;
  CarveWorkspace(counting, num_workers, scratch_bytes, partial_floats);
  return counting.bytes();
}

// Scratch of one worker, whichever engine; rounded so that every worker's starts on a cache line.
inline size_t ScratchBytes(const KernelTable& kernels, Engine engine, const AttendShape& shape,
                           int64_t max_rows) {
  const size_t bytes = kernels.attend_scratch_bytes[static_cast<size_t>(engine)](shape, max_rows);
  return Arena::RoundUp(bytes);
}

// Plan memory and workspace for up to `num_blocks` blocks of at most `max_rows` rows and `max_keys` keys.
template <class Plan>
Sizes SizesFor(const KernelTable& kernels, const AttendShape& shape, int64_t split_tokens,
               int64_t num_blocks, int64_t max_rows, int64_t max_keys, size_t num_workers) {
  const PlanCapacity capacity =
      CapacityFor(num_blocks, max_rows, max_keys, num_workers, shape.v_dim, split_tokens);
  Arena counting;
  CarvePlan<Plan>(counting, capacity);
  size_t scratch_bytes = 0;
  for (const Engine engine : {Engine::kFloat32, Engine::kBFloat16}) {
    if (engine == Engine::kBFloat16 && !kernels.native_bf16) continue;
    scratch_bytes =
        (std::max)(scratch_bytes, ScratchBytes(kernels, engine, shape, capacity.max_rows));
  }
  return {counting.bytes(), WorkspaceBytes(num_workers, scratch_bytes, capacity.partial_floats)};
}

// Longest first.
inline void SortTasks(AttendPlan& plan) {
  std::sort(plan.tasks, plan.tasks + plan.num_tasks, [](const AttendTask& a, const AttendTask& b) {
    if (a.work != b.work) return a.work > b.work;
    if (a.token_begin != b.token_begin) return a.token_begin < b.token_begin;
    if (a.head_begin != b.head_begin) return a.head_begin < b.head_begin;
    return a.row_begin != b.row_begin ? a.row_begin < b.row_begin : a.first_split < b.first_split;
  });
}

// Cuts a batch into tasks, in `plan_memory`; refuses memory that is too small. `wanted` has the kernels, target,
// engine, shape, split_tokens and num_workers of the plan.
template <class Plan>
Status MakePlan(const Plan& wanted, const AttendBatch& batch, Buffer plan_memory, Plan** made) {
  int64_t num_blocks = 0, max_rows = 1, max_keys = 0, total_work = 0;
  batch.ForEachUnit([&](const Unit& unit) {
    max_rows = (std::max)(max_rows, unit.row_end - unit.row_begin);
    max_keys = (std::max)(max_keys, NumKeys(unit.keys));
    AttendBatch::ForEachBlock(unit, [&](const Unit& block) {
      num_blocks += batch.num_kv_heads();
      total_work += batch.num_kv_heads() * TaskOf(batch, wanted.split_tokens, block).work;
    });
  });
  const PlanCapacity capacity = CapacityFor(num_blocks, max_rows, max_keys, wanted.num_workers,
                                            wanted.shape.v_dim, wanted.split_tokens);
  Arena counting;
  CarvePlan<Plan>(counting, capacity);
  LATHE_RETURN_IF_REFUSED(CheckBuffer("plan_memory", plan_memory, counting.bytes()));
  Arena arena(plan_memory.data);
  Plan* plan = CarvePlan<Plan>(arena, capacity);
  AttendTask* tasks = plan->tasks;
  FoldTask* folds = plan->folds;
  *plan = wanted;
  plan->tasks = tasks;
  plan->folds = folds;
  plan->batch = batch.batch;
  PlanBuilder builder(*plan, batch, total_work, capacity.max_cut_blocks);
  batch.ForEachUnit([&builder](const Unit& unit) { builder.AddUnit(unit); });
  SortTasks(*plan);
  plan->scratch_bytes = ScratchBytes(*plan->kernels, plan->engine, plan->shape, capacity.max_rows);
  plan->workspace_bytes =
      WorkspaceBytes(plan->num_workers, plan->scratch_bytes, plan->partial_floats);
  *made = plan;
  return OkStatus();
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_ATTEND_PLAN_H_
