// SPDX-License-Identifier: Apache-2.0
// The plan of a decode step: which tasks, in which order, with how much scratch.
//
//   unit         the query rows that share keys: a sequence, or one token when some set is an index list
//   split        a fixed piece of a unit's keys. Its length depends on the unit's own number of keys and
//                options.split_tokens alone: that is what makes results independent of batch and threads
//   block        up to 128 rows of a unit: one task does all its splits and writes the result; or, when
//                the block is a large part of all the work, each of its (32..128 rows x split) pieces is a
//                task that stores a partial result, and fold tasks finish
//
// Cutting rows at multiples of 32 never changes a row's arithmetic, and partial results fold in split
// order with the same arithmetic wherever they were computed, so both choices may depend on workers.
#ifndef LATHE_DISPATCH_MLA_DECODE_PLAN_H_
#define LATHE_DISPATCH_MLA_DECODE_PLAN_H_

#include <algorithm>
#include <iterator>

#include "lathe/base/arena.h"
#include "lathe/dispatch/mla_decode_lengths.h"
#include "lathe/dispatch/registry.h"

namespace lathe {
namespace detail {
namespace LATHE_ABI {

// More splits than this make the partial results of a long context cost more than they help.
constexpr int64_t kMaxSplits = 32;
// Rows that one fold task finishes.
constexpr int64_t kFoldRows = 16;
// Pieces a worker should find in a block that is cut, so that the last ones even out.
constexpr int64_t kPiecesPerWorker = 4;

struct Plan {
  const KernelTable* kernels;
  Target target;
  Engine engine;
  MlaShape shape;
  MlaDecodeOptions options;
  BatchSize batch;
  DType query_dtype;
  DType rope_dtype;
  int num_key_sets;
  CacheFormat formats[kMaxKeySets];
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

inline const Plan& PlanOf(const MlaDecodePlan& plan) { return reinterpret_cast<const Plan&>(plan); }

// A unit or block of work before it is cut.
struct Unit {
  int64_t seq;
  int64_t token_begin;
  int64_t q_len;
  int64_t row_begin;
  int64_t row_end;
  KeyRange keys[kMaxKeySets];
};

inline int64_t SplitTokens(const MlaDecodeOptions& options) {
  const int64_t limit = int64_t{1} << 40;  // beyond any length, and safe to round up
  return CeilDiv((std::min)(options.split_tokens, limit), kSplitUnit) * kSplitUnit;
}

inline int64_t SplitKeys(const MlaDecodeOptions& options, int64_t num_keys) {
  const int64_t shortest = CeilDiv(CeilDiv(num_keys, kMaxSplits), kSplitUnit) * kSplitUnit;
  return (std::max)(SplitTokens(options), shortest);
}

// Never less for more keys, unlike the number of splits itself.
inline int64_t MaxSplits(const MlaDecodeOptions& options, int64_t num_keys) {
  return (std::min)(kMaxSplits, CeilDiv(num_keys, SplitTokens(options)));
}

inline int64_t Work(int64_t num_rows, int64_t num_keys) { return num_rows * (num_keys + 1); }

// Keys of one set for rows [i, i + num_queries) of sequence b.
inline KeyRange RangeOfRows(const KeySet& keys, bool causal, int64_t b, int64_t q_len, int64_t i,
                            int64_t num_queries, int64_t token) {
  if (!keys.has_indices()) {
    return VisibleKeysOfRows(keys, causal, keys.seq_lens(b), q_len, i, num_queries, token);
  }
  return {0, keys.topk_length.empty() ? keys.indices.extent[1] : keys.topk_length(token)};
}

// f(Unit) for every unit of the batch, each with all of its rows.
template <class F>
void ForEachUnit(const MlaShape& shape, const MlaDecodeOptions& options, const MlaDecodeArgs& args,
                 const F& f) {
  const BatchSize batch = BatchOf(args);
  const bool is_per_token = IsPerToken(args);
  for (int64_t b = 0; b < batch.num_seqs; ++b) {
    const QueryRows rows = RowsOf(args, b);
    const int64_t step = is_per_token ? 1 : rows.q_len;
    for (int64_t i = 0; i < rows.q_len; i += step) {
      Unit unit{b, rows.token_begin, rows.q_len, i * shape.num_heads, (i + step) * shape.num_heads,
                {}};
      for (const NamedKeys& set : KeySetsOf(args)) {
        unit.keys[set.number] =
            RangeOfRows(set.keys, options.causal, b, rows.q_len, i, step, rows.token_begin + i);
      }
      f(unit);
    }
  }
}

// Collects tasks; without memory it only counts what the caller knows an upper bound of.
class PlanBuilder {
 public:
  PlanBuilder(Plan& plan, int64_t total_work, int64_t max_cut_blocks)
      : plan_(plan), total_work_(total_work), cuts_left_(max_cut_blocks) {}

  void AddUnit(Unit unit) {
    const int64_t row_end = unit.row_end;
    for (int64_t row = unit.row_begin; row < row_end; row += kMaxBlockRows) {
      unit.row_begin = row;
      unit.row_end = (std::min)(row + kMaxBlockRows, row_end);
      AddBlock(unit);
    }
  }

 private:
  void AddBlock(const Unit& unit) {
    const int64_t num_keys = NumKeys(unit.keys);
    const int64_t num_rows = unit.row_end - unit.row_begin;
    const int64_t split_keys = SplitKeys(plan_.options, num_keys);
    const int64_t num_splits = (std::max)(CeilDiv(num_keys, split_keys), int64_t{1});
    AttendTask task;
    task.seq = unit.seq;
    task.token_begin = unit.token_begin;
    task.q_len = unit.q_len;
    task.row_begin = unit.row_begin;
    task.num_rows = num_rows;
    std::copy(std::begin(unit.keys), std::end(unit.keys), task.keys);
    task.split_keys = split_keys;
    task.num_splits = num_splits;

    // More than half of a worker's fair share in one task would leave others idle at the end.
    const auto workers = static_cast<int64_t>(plan_.num_workers);
    const bool is_large = 2 * workers * Work(num_rows, num_keys) > total_work_;
    if (workers == 1 || !is_large || cuts_left_ == 0) return AddTask(task);
    --cuts_left_;
    const int64_t pieces =
        CeilDiv(kPiecesPerWorker * workers * Work(num_rows, num_keys), total_work_);
    int64_t rows = kMaxBlockRows;
    while (rows > kRowGroup && num_splits * CeilDiv(num_rows, rows) < pieces) rows /= 2;
    for (int64_t row = 0; row < num_rows; row += rows) {
      task.row_begin = unit.row_begin + row;
      task.num_rows = (std::min)(rows, num_rows - row);
      AddPieces(task);
    }
  }

  // One task for each split, and the folds that finish their rows.
  void AddPieces(AttendTask task) {
    if (task.num_splits == 1) return AddTask(task);
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
      plan_.partial_floats += PartialFloats(task.num_rows, plan_.shape.kv_lora_rank);
      AddTask(task);
    }
  }

  void AddTask(const AttendTask& task) { plan_.tasks[plan_.num_tasks++] = task; }

  Plan& plan_;
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
                                size_t num_workers, const MlaShape& shape,
                                const MlaDecodeOptions& options) {
  PlanCapacity capacity;
  capacity.max_rows = (std::min)(max_rows, kMaxBlockRows);
  capacity.max_cut_blocks =
      num_workers > 1 ? (std::min)(static_cast<int64_t>(num_workers), num_blocks) : 0;
  const int64_t max_splits = (std::max)(MaxSplits(options, max_keys), int64_t{1});
  const int64_t pieces = max_splits * CeilDiv(capacity.max_rows, kRowGroup);
  capacity.num_tasks = num_blocks + capacity.max_cut_blocks * pieces;
  capacity.num_folds = capacity.max_cut_blocks * (CeilDiv(capacity.max_rows, kFoldRows) +
                                                  CeilDiv(capacity.max_rows, kRowGroup));
  if (max_splits > 1) {
    // Sub-blocks round their sizes up apart from each other.
    capacity.partial_floats = capacity.max_cut_blocks * max_splits *
                              (PartialFloats(capacity.max_rows, shape.kv_lora_rank) +
                               16 * CeilDiv(capacity.max_rows, kRowGroup));
  }
  return capacity;
}

inline Plan* CarvePlan(Arena& arena, const PlanCapacity& capacity) {
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
inline size_t ScratchBytes(const KernelTable& kernels, Engine engine, const MlaShape& shape,
                           int64_t max_rows) {
  const size_t bytes = kernels.attend_scratch_bytes[static_cast<size_t>(engine)](
      shape.head_dim(), shape.kv_lora_rank, max_rows);
  return (bytes + Arena::kAlign - 1) / Arena::kAlign * Arena::kAlign;
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_DISPATCH_MLA_DECODE_PLAN_H_
