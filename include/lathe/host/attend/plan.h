// SPDX-License-Identifier: Apache-2.0
// The plan of attention over a batch: which tasks, in which order, with how much scratch.
//
//   unit     the query rows that share keys: those of a sequence and the heads of one key head, or of one token
//            when some set is an index list
//   block    up to 128 rows of a unit: one task does all its leaves and writes the result; or, when
//            the block is a large part of all the work, it is cut into 32, 64 or 128 rows and runs of leaves,
//            each a task that stores what fold tasks finish
//
// No cut changes a row's arithmetic (kernel/attend/leaves.h), so all of them may depend on workers.
#ifndef LATHE_HOST_ATTEND_PLAN_H_
#define LATHE_HOST_ATTEND_PLAN_H_

#include <algorithm>

#include "lathe/base/arena.h"
#include "lathe/dispatch/registry.h"
#include "lathe/host/attend/batch.h"
#include "lathe/host/attend/cut.h"
#include "lathe/mla_decode.h"

namespace lathe::detail {
namespace {

// What a plan has of its memory.
struct PlanArrays {
  AttendTask* tasks;  // longest first
  FoldTask* folds;
  LeafSpan* spans;  // those of one row block after another's
};

// Plans of operations derive from it.
struct AttendPlan : PlanArrays {
  const KernelTable* kernels;
  Target target;
  Engine engine;
  AttendShape shape;
  int64_t leaf_keys;
  int64_t max_leaves;  // of a block
  BatchSize batch;
  uint64_t fingerprint;
  size_t num_workers;
  size_t scratch_bytes;  // of one worker
  int64_t partial_floats;
  size_t workspace_bytes;
  int64_t num_tasks;
  int64_t num_folds;
  int64_t num_spans;
};

// What the memory of a plan must hold: exact for the blocks, an upper bound for those that are cut.
struct PlanCapacity {
  int64_t num_tasks = 0;
  int64_t num_spans = 0;
  int64_t num_folds = 0;
  int64_t max_rows = 0;  // of a task
  int64_t partial_floats = 0;
};

// a * b, or `limit` if that is less, however large both are.
inline int64_t ProductUpTo(int64_t limit, int64_t a, int64_t b) {
  return b > 0 && a > limit / b ? limit : a * b;
}

// Never less for more of anything.
inline PlanCapacity CapacityFor(int64_t num_blocks, int64_t max_rows, int64_t max_leaves,
                                size_t num_workers, int64_t v_dim) {
  PlanCapacity capacity;
  capacity.max_rows = (std::min)(max_rows, kMaxBlockRows);
  capacity.num_tasks = num_blocks;
  if (num_workers <= 1) return capacity;
  const auto workers = static_cast<int64_t>(num_workers);
  // Each is more than a quarter of a worker's fair share.
  const int64_t num_large = (std::min)(kMostSharesPerWorker * workers, num_blocks);
  const int64_t num_cut = num_large * CeilDiv(capacity.max_rows, kRowGroup);
  capacity.num_tasks += num_cut + kMostSharesPerWorker * workers;
  capacity.num_spans = ProductUpTo(kSpansPerWorker * workers, num_cut, max_leaves);
  capacity.num_folds = 2 * workers + num_cut;
  const int64_t most_floats = kBlocksPerWorker * workers * PartialFloats(capacity.max_rows, v_dim);
  capacity.partial_floats =
      ProductUpTo(most_floats, ProductUpTo(most_floats, num_cut, max_leaves),
                  PartialFloats((std::min)(capacity.max_rows, kRowGroup), v_dim));
  return capacity;
}

template <class Plan>
Plan* CarvePlan(Arena& arena, const PlanCapacity& capacity) {
  Plan* plan = arena.Take<Plan>(1);
  auto* tasks = arena.Take<AttendTask>(static_cast<size_t>(capacity.num_tasks));
  auto* folds = arena.Take<FoldTask>(static_cast<size_t>(capacity.num_folds));
  auto* spans = arena.Take<LeafSpan>(static_cast<size_t>(capacity.num_spans));
  if (plan != nullptr) {
    *plan = Plan{};
    plan->tasks = tasks;
    plan->folds = folds;
    plan->spans = spans;
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
                           int64_t max_rows, int64_t max_leaves) {
  return Arena::RoundUp(
      kernels.attend_scratch_bytes[static_cast<size_t>(engine)](shape, max_rows, max_leaves));
}

// Plan memory and workspace for up to `num_blocks` blocks of at most `max_rows` rows and `max_keys` keys, of any engine
// and with lists or without.
template <class Plan>
Sizes SizesFor(const KernelTable& kernels, const AttendShape& shape, int64_t bits_heads,
               int64_t num_blocks, int64_t max_rows, int64_t max_keys, size_t num_workers) {
  Sizes sizes;
  for (const Engine engine : {Engine::kFloat32, Engine::kBFloat16}) {
    if (engine == Engine::kBFloat16 && !kernels.native_bf16) continue;
    const int64_t leaf_keys = kernels.attend_leaf_keys[static_cast<size_t>(engine)](bits_heads);
    // The keys of each set begin and end inside a leaf.
    const int64_t max_leaves = max_keys / leaf_keys + 2 * kMaxKeySets;
    const PlanCapacity capacity =
        CapacityFor(num_blocks, max_rows, max_leaves, num_workers, shape.v_dim);
    Arena counting;
    CarvePlan<Plan>(counting, capacity);
    const size_t workspace_bytes = WorkspaceBytes(
        num_workers, ScratchBytes(kernels, engine, shape, capacity.max_rows, max_leaves),
        capacity.partial_floats);
    sizes.plan_bytes = (std::max)(sizes.plan_bytes, counting.bytes());
    sizes.workspace_bytes = (std::max)(sizes.workspace_bytes, workspace_bytes);
  }
  return sizes;
}

// Longest first.
inline void SortTasks(AttendPlan& plan) {
  std::sort(plan.tasks, plan.tasks + plan.num_tasks, [](const AttendTask& a, const AttendTask& b) {
    if (a.work != b.work) return a.work > b.work;
    if (a.token_begin != b.token_begin) return a.token_begin < b.token_begin;
    if (a.head_begin != b.head_begin) return a.head_begin < b.head_begin;
    if (a.row_begin != b.row_begin) return a.row_begin < b.row_begin;
    return a.partial < b.partial;
  });
}

// Cuts the folds of whole blocks, of `num_rows` rows all together, into some of a few rows for each worker.
inline void ShareFolds(int64_t num_rows, AttendPlan* plan) {
  const int64_t rows = CeilDiv(num_rows, 2 * static_cast<int64_t>(plan->num_workers));
  const int64_t num_blocks = plan->num_folds;
  for (int64_t i = 0; i < num_blocks; ++i) {
    FoldTask fold = plan->folds[i];
    plan->folds[i].row_last = (std::min)(rows, fold.task.num_rows);
    for (fold.row_first = rows; fold.row_first < fold.task.num_rows; fold.row_first += rows) {
      fold.row_last = (std::min)(fold.row_first + rows, fold.task.num_rows);
      plan->folds[plan->num_folds++] = fold;
    }
  }
}

// The tasks of a batch, what they leave to be folded, and who folds it.
inline void AddTasks(const AttendCutter& cutter, AttendPlan* plan) {
  int64_t first_span = 0, num_rows = 0;
  cutter.ForEachTask(
      [plan](AttendTask task) {
        if (task.partial >= 0) {
          task.partial = plan->partial_floats;
          ForEachPieceOf(task, plan->leaf_keys, [&](int set, const KeyRange& piece) {
            plan->spans[plan->num_spans++] = {set, piece.begin, plan->partial_floats};
            plan->partial_floats += PartialFloats(task.num_rows, plan->shape.v_dim);
          });
        }
        plan->tasks[plan->num_tasks++] = task;
      },
      [&](const AttendTask& block) {
        FoldTask fold;
        fold.task = block;
        fold.spans = plan->spans + first_span;
        fold.num_spans = plan->num_spans - first_span;
        fold.row_last = block.num_rows;
        first_span = plan->num_spans;
        num_rows += block.num_rows;
        plan->folds[plan->num_folds++] = fold;
      });
  ShareFolds(num_rows, plan);
}

// Cuts a batch into tasks, in `plan_memory`; refuses memory that is too small. `wanted` has the kernels, target,
// engine, shape and num_workers of the plan.
template <class Plan>
Status MakePlan(const Plan& wanted, const AttendBatch& batch, Buffer plan_memory, Plan** made) {
  const int64_t leaf_keys =
      wanted.kernels->attend_leaf_keys[static_cast<size_t>(wanted.engine)](batch.call.bits_heads);
  const AttendCutter cutter(batch, leaf_keys, wanted.shape.v_dim, wanted.num_workers);
  const PlanCapacity capacity =
      CapacityFor(cutter.num_blocks(), cutter.max_rows(), cutter.max_leaves(), wanted.num_workers,
                  wanted.shape.v_dim);
  Arena counting;
  CarvePlan<Plan>(counting, capacity);
  LATHE_RETURN_IF_REFUSED(CheckBuffer("plan_memory", plan_memory, counting.bytes()));
  Arena arena(plan_memory.data);
  Plan* plan = CarvePlan<Plan>(arena, capacity);
  const PlanArrays arrays = *plan;
  *plan = wanted;
  static_cast<PlanArrays&>(*plan) = arrays;
  plan->batch = batch.batch;
  plan->leaf_keys = leaf_keys;
  plan->max_leaves = cutter.max_leaves();
  AddTasks(cutter, plan);
  SortTasks(*plan);
  plan->scratch_bytes =
      ScratchBytes(*plan->kernels, plan->engine, plan->shape, capacity.max_rows, plan->max_leaves);
  plan->workspace_bytes =
      WorkspaceBytes(plan->num_workers, plan->scratch_bytes, plan->partial_floats);
  *made = plan;
  return OkStatus();
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_ATTEND_PLAN_H_
