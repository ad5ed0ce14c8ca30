// SPDX-License-Identifier: Apache-2.0
// Running a plan: what that refuses; its tasks on an executor, or as parts of a pool that is already inside a
// parallel region.
#ifndef LATHE_HOST_ATTEND_RUN_H_
#define LATHE_HOST_ATTEND_RUN_H_

#include "lathe/host/attend/plan.h"
#include "lathe/host/parallel.h"

namespace lathe::detail {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;
// Up to here (normally distributed inputs, measured) weights rounded to bfloat16 alone can miss
// the accuracy that Precision::kAuto promises: 3.4 times the bound at 16 keys, 1.1 at 1024, 0.7 at 2048.
constexpr int64_t kResidualKeys = 1024;

// What products with the keys of a set are multiplied by, at once or before and after their transforms.
template <class Options>
void SetScoreScale(const Options& options, int set, float tensor_scale, AttendCall* call) {
  call->transforms = TransformsOf(options);
  const bool is_transformed = call->transforms.any();
  call->score_scale[set] = options.softmax_scale * tensor_scale;
  call->scale_log2[set] = is_transformed ? kLog2E : options.softmax_scale * kLog2E * tensor_scale;
}

// A hash of the extents and lengths that a plan was made for.
class Fingerprint {
 public:
  void Mix(int64_t value) {
    hash_ = (hash_ ^ static_cast<uint64_t>(value)) * 0x100000001b3u;
    hash_ ^= hash_ >> 29;
  }
  void MixAll(const IndexView<1>& lengths) {
    Mix(lengths.empty() ? -1 : lengths.extent[0]);
    for (int64_t i = 0; !lengths.empty() && i < lengths.extent[0]; ++i) Mix(lengths(i));
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

// What a run is given must be what its plan was made for.
inline Status CheckBatch(const AttendPlan& plan, const BatchSize& batch) {
  if (batch.num_tokens != plan.batch.num_tokens) {
    return Refuse(StatusCode::kStalePlan, "out", ".extent")
        .At(0)
        .Is(batch.num_tokens)
        .Must("be what the plan was made for,", plan.batch.num_tokens);
  }
  if (batch.num_seqs != plan.batch.num_seqs) {
    return Refuse(StatusCode::kStalePlan, "query_start_loc", ".extent")
        .At(0)
        .Is(batch.num_seqs + 1)
        .Must("be what the plan was made for,", plan.batch.num_seqs + 1);
  }
  return OkStatus();
}

inline Status CheckPlannedDType(const char* name, DType dtype, DType planned) {
  if (dtype == planned) return OkStatus();
  return Refuse(StatusCode::kStalePlan, name, ".dtype")
      .IsNamed(Name(dtype))
      .MustName("be what the plan was made for,", Name(planned));
}

inline Status CheckWorkspace(const AttendPlan& plan, Buffer workspace) {
  if (plan.num_tasks == 0) return OkStatus();
  return CheckBuffer("workspace", workspace, plan.workspace_bytes);
}

inline Status CheckPart(size_t ith, size_t nth) {
  if (nth < 1) return Invalid("nth").Is(0).Must("be at least", 1);
  if (ith >= nth) {
    return Invalid("ith").Is(ith).Must("be below nth =", nth);
  }
  return OkStatus();
}

// Items are dealt back and forth, 0 1 2 2 1 0 0 1 2: with the longest first that is close to even.
template <class Body>
void ForEachOwnItem(size_t ith, size_t nth, int64_t num_items, const Body& body) {
  const auto i = static_cast<int64_t>(ith), n = static_cast<int64_t>(nth);
  for (int64_t round = 0; round * n < num_items; ++round) {
    const int64_t item = round * n + (round % 2 == 0 ? i : n - 1 - i);
    if (item < num_items) body(item);
  }
}

// A plan, a call resolved for the kernels, and the workspace cut up.
class AttendRun {
 public:
  AttendRun(const AttendPlan& plan, const AttendCall& call, Buffer workspace)
      : plan_(plan), call_(call) {
    Arena arena(workspace.data);
    const Workspace cut =
        CarveWorkspace(arena, plan.num_workers, plan.scratch_bytes, plan.partial_floats);
    scratch_ = cut.scratch;
    call_.partials = cut.partials;
    call_.leaf_keys = plan.leaf_keys;
    call_.max_leaves = plan.max_leaves;
  }

  void All(const Executor& executor) const {
    ForEachItem(executor, plan_.num_workers, plan_.num_tasks,
                [this](int64_t task, size_t lane) { Attend(task, lane); });
    ForEachItem(executor, static_cast<size_t>(plan_.num_folds), plan_.num_folds,
                [this](int64_t fold, size_t) { Fold(fold); });
  }
  // Tasks need scratch, of which there is as much as the plan has workers: more threads find nothing to do.
  void Part(size_t ith, size_t nth) const {
    if (ith >= plan_.num_workers) return;
    ForEachOwnItem(ith, (std::min)(nth, plan_.num_workers), plan_.num_tasks,
                   [&](int64_t task) { Attend(task, ith); });
  }
  void Merge(size_t ith, size_t nth) const {
    ForEachOwnItem(ith, nth, plan_.num_folds, [this](int64_t fold) { Fold(fold); });
  }

 private:
  void Attend(int64_t task, size_t worker) const {
    plan_.kernels->attend[static_cast<size_t>(plan_.engine)](
        call_, plan_.tasks[task], scratch_ + worker * plan_.scratch_bytes);
  }
  void Fold(int64_t fold) const {
    plan_.kernels->fold[static_cast<size_t>(plan_.engine)](call_, plan_.folds[fold]);
  }

  const AttendPlan& plan_;
  AttendCall call_;
  std::byte* scratch_;
};

// Run, and Part or Merge, of every operation that has plans, once its own arguments are checked.
inline Status RunAll(const AttendPlan& plan, const AttendCall& call, Buffer workspace,
                     const Executor& executor) {
  LATHE_RETURN_IF_REFUSED(CheckExecutor(executor));
  AttendRun(plan, call, workspace).All(executor);
  return OkStatus();
}
inline Status RunShare(void (AttendRun::*share)(size_t, size_t) const, const AttendPlan& plan,
                       const AttendCall& call, Buffer workspace, size_t ith, size_t nth) {
  LATHE_RETURN_IF_REFUSED(CheckPart(ith, nth));
  (AttendRun(plan, call, workspace).*share)(ith, nth);
  return OkStatus();
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_ATTEND_RUN_H_
