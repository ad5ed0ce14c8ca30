// SPDX-License-Identifier: Apache-2.0
// Prefill over tensors of keys and values: sizes, plan, run.
#ifndef LATHE_HOST_ATTEND_PREFILL_H_
#define LATHE_HOST_ATTEND_PREFILL_H_

#include "lathe/host/attend/prefill_check.h"
#include "lathe/host/attend/run.h"
#include "lathe/host/call.h"
#include "lathe/host/engine_choice.h"
#include "lathe/host/keys/resolve.h"

namespace lathe::detail {
namespace {

struct PlanOfPrefill : AttendPlan {
  PrefillShape prefill;
  PrefillOptions options;
  DType query_dtype;
  DType key_dtype;
};

inline const PlanOfPrefill& PlanOf(const PrefillPlan& plan) {
  return reinterpret_cast<const PlanOfPrefill&>(plan);
}

inline AttendShape ShapeOf(const PrefillShape& shape) {
  return {shape.qk_head_dim, shape.v_head_dim, shape.v_head_dim};
}

// Tells apart what plans are made for: the starts of sequences.
inline uint64_t FingerprintOf(const PrefillArgs& args) {
  Fingerprint print;
  print.MixAll(args.query_start_loc);
  print.MixAll(args.kv_start_loc);
  return print.hash();
}

// The arguments as plans and kernels take them.
inline AttendCall CallOf(const PrefillShape& shape, const PrefillOptions& options,
                         const PrefillArgs& args) {
  AttendCall call;
  static_cast<AttendShape&>(call) = ShapeOf(shape);
  call.unit_heads = shape.num_heads / shape.kv_heads();
  call.bits_heads = kMaxBlockRows;
  call.causality.is_causal = options.causal;
  if (options.precision == Precision::kAuto) call.residual_keys = kResidualKeys;
  call.q[0] = args.q;
  call.keys[0] = ResolveKeys(args.k, args.v, args.kv_start_loc, options.window);
  SetScoreScale(options, 0, 1.0f, &call);
  call.attn_sink = args.attn_sink;
  call.out = args.out;
  call.lse = args.lse;
  call.lse_policy = options.lse_policy;
  return call;
}

inline Status CheckRun(const PlanOfPrefill& plan, const PrefillArgs& args, Buffer workspace) {
  LATHE_RETURN_IF_REFUSED(CheckBatch(plan, BatchOf(args)));
  LATHE_RETURN_IF_REFUSED(CheckArgs(plan.prefill, args, true));
  LATHE_RETURN_IF_REFUSED(CheckPlannedDType("q", args.q.dtype, plan.query_dtype));
  LATHE_RETURN_IF_REFUSED(CheckPlannedDType("k", args.k.dtype, plan.key_dtype));
  if (FingerprintOf(args) != plan.fingerprint) {
    return Refuse(StatusCode::kStalePlan, "plan").Must("be made for these starts of sequences");
  }
  return CheckWorkspace(plan, workspace);
}

inline AttendCall CallOf(const PlanOfPrefill& plan, const PrefillArgs& args) {
  return CallOf(plan.prefill, plan.options, args);
}

}  // namespace
}  // namespace lathe::detail

lathe::Target lathe::PlanTarget(const PrefillPlan& plan) noexcept {
  return detail::PlanOf(plan).target;
}

size_t lathe::PlanWorkspaceBytes(const PrefillPlan& plan) noexcept {
  return detail::PlanOf(plan).workspace_bytes;
}

lathe::Status lathe::PrefillSizes(const PrefillShape& shape, const PrefillOptions& options,
                                  const Limits& limits, Sizes* sizes) noexcept {
  LATHE_BEGIN_CALL;
  if (sizes == nullptr) return Invalid("sizes").Must("not be null");
  LATHE_RETURN_IF_REFUSED(CheckShape(shape));
  LATHE_RETURN_IF_REFUSED(CheckPrefillOptions(options));
  LATHE_RETURN_IF_REFUSED(CheckLimits(limits));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(ResolveTarget(options.target, &kernels));
  // The rows of a key head fill blocks, but for one of each sequence.
  const int64_t unit_rows = limits.max_num_tokens * (shape.num_heads / shape.kv_heads());
  const int64_t num_blocks = shape.kv_heads() * (unit_rows / kMaxBlockRows + limits.max_num_seqs);
  *sizes = SizesFor<PlanOfPrefill>(*kernels, ShapeOf(shape), kMaxBlockRows, num_blocks, unit_rows,
                                   limits.max_num_keys, limits.num_workers);
  return OkStatus();
}

lathe::Status lathe::PlanPrefill(const PrefillShape& shape, const PrefillOptions& options,
                                 const PrefillArgs& args, size_t num_workers, Buffer plan_memory,
                                 const PrefillPlan** plan) noexcept {
  LATHE_BEGIN_CALL;
  if (plan == nullptr) return Invalid("plan").Must("not be null");
  LATHE_RETURN_IF_REFUSED(CheckWorkers("num_workers", num_workers));
  LATHE_RETURN_IF_REFUSED(CheckShape(shape));
  LATHE_RETURN_IF_REFUSED(CheckPrefillOptions(options));
  LATHE_RETURN_IF_REFUSED(CheckArgs(shape, args, false));
  LATHE_RETURN_IF_REFUSED(CheckStarts(shape, args));
  PlanOfPrefill wanted{};
  LATHE_RETURN_IF_REFUSED(ResolveTarget(options.target, &wanted.kernels, &wanted.target));
  wanted.engine =
      ChooseEngine(wanted.kernels->native_bf16, options.precision,
                   BFloat16RowsOf(PageOfRows(args.k).format), args.q.dtype == DType::kBFloat16);
  wanted.shape = ShapeOf(shape);
  wanted.fingerprint = FingerprintOf(args);
  wanted.num_workers = num_workers;
  wanted.prefill = shape;
  wanted.options = options;
  wanted.query_dtype = args.q.dtype;
  wanted.key_dtype = args.k.dtype;
  PlanOfPrefill* made = nullptr;
  LATHE_RETURN_IF_REFUSED(MakePlan(
      wanted, {CallOf(shape, options, args), BatchOf(args), shape.num_heads}, plan_memory, &made));
  *plan = reinterpret_cast<const PrefillPlan*>(made);
  return OkStatus();
}

lathe::Status lathe::RunPrefill(const PrefillPlan& plan, const PrefillArgs& args, Buffer workspace,
                                const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckRun(PlanOf(plan), args, workspace));
  return RunAll(PlanOf(plan), CallOf(PlanOf(plan), args), workspace, executor);
}

lathe::Status lathe::RunPrefillPart(const PrefillPlan& plan, const PrefillArgs& args,
                                    Buffer workspace, size_t ith, size_t nth) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckRun(PlanOf(plan), args, workspace));
  return RunShare(&AttendRun::Part, PlanOf(plan), CallOf(PlanOf(plan), args), workspace, ith, nth);
}

lathe::Status lathe::RunPrefillMerge(const PrefillPlan& plan, const PrefillArgs& args,
                                     Buffer workspace, size_t ith, size_t nth) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckRun(PlanOf(plan), args, workspace));
  return RunShare(&AttendRun::Merge, PlanOf(plan), CallOf(PlanOf(plan), args), workspace, ith, nth);
}

#endif  // LATHE_HOST_ATTEND_PREFILL_H_
