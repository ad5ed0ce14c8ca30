// SPDX-License-Identifier: Apache-2.0
// Dense and sparse paged MLA decode: sizes, plan, run.
#ifndef LATHE_HOST_ATTEND_MLA_DECODE_H_
#define LATHE_HOST_ATTEND_MLA_DECODE_H_

#include "lathe/host/attend/mla_decode_lengths.h"
#include "lathe/host/attend/run.h"
#include "lathe/host/call.h"
#include "lathe/host/engine_choice.h"
#include "lathe/host/keys/resolve.h"

namespace lathe::detail {
namespace {

struct PlanOfMlaDecode : AttendPlan {
  MlaShape mla;
  MlaDecodeOptions options;
  DType query_dtype;
  DType rope_dtype;
  int num_key_sets;
  CacheFormat formats[kMaxKeySets];
};

inline const PlanOfMlaDecode& PlanOf(const MlaDecodePlan& plan) {
  return reinterpret_cast<const PlanOfMlaDecode&>(plan);
}

inline DType QueryDType(const MlaDecodeArgs& args) {
  return args.q.extent[2] > 0 ? args.q.dtype : args.q_nope.dtype;
}

// The type of the query's rope part, which is that of the rest where the query is whole.
inline DType RopeDType(const MlaDecodeArgs& args) {
  return args.q_pe.extent[2] > 0 ? args.q_pe.dtype : QueryDType(args);
}

// The engine for all of a call's caches: of two, the one that permits less decides.
inline Engine EngineFor(const KernelTable& kernels, const MlaDecodeOptions& options,
                        const MlaDecodeArgs& args) {
  const bool is_bf16_query =
      QueryDType(args) == DType::kBFloat16 && RopeDType(args) == DType::kBFloat16;
  BFloat16Rows rows = BFloat16Rows::kExact;
  for (int set = 0; set < NumKeySets(args); ++set) {
    rows = (std::min)(rows, BFloat16UnscaledRowsOf(KeySetOf(args, set).cache.format));
  }
  return ChooseEngine(kernels.native_bf16, options.precision, rows, is_bf16_query);
}

// Tells apart what plans are made for: lengths, positions, masks and all that says who sees which keys.
inline uint64_t FingerprintOf(const MlaDecodeArgs& args) {
  Fingerprint print;
  print.MixAll(args.query_start_loc);
  if (args.out_rope.is_given()) {
    print.MixAll(args.positions);
    print.Mix(args.out_rope.cos.extent[0]);
  }
  const View<const uint64_t, 2>& mask = args.tree_mask;
  for (int64_t t = 0; t < mask.extent[0]; ++t) {
    for (int64_t w = 0; w < mask.extent[1]; ++w) {
      print.Mix(static_cast<int64_t>(mask.data[t * mask.stride[0] + w * mask.stride[1]]));
    }
  }
  for (int set = 0; set < NumKeySets(args); ++set) {
    const KeySet& keys = KeySetOf(args, set);
    for (const IndexView<1>& bounds :
         {keys.seq_lens, keys.row_starts, keys.row_kv_lens, keys.topk_length}) {
      print.MixAll(bounds);
    }
    print.Mix(keys.has_indices() ? keys.indices.extent[1] : -1);
    print.Mix(static_cast<int64_t>(keys.index_space));
    print.Mix(keys.window);
    print.Mix(keys.compress_ratio);
    print.Mix(keys.wraps ? 1 : 0);
    print.Mix(keys.cache.block_size);
    print.Mix(keys.cache.num_blocks);
    print.Mix(keys.block_table.extent[1]);
  }
  return print.hash();
}

// The arguments as plans and kernels take them.
inline AttendCall CallOf(const MlaShape& shape, const MlaDecodeOptions& options,
                         const MlaDecodeArgs& args) {
  AttendCall call;
  call.qk_dim = shape.head_dim();
  call.v_dim = shape.kv_lora_rank;
  call.unit_heads = call.bits_heads = shape.num_heads;
  call.causality = CausalityOf(options, args);
  call.num_key_sets = NumKeySets(args);
  // A scale of the whole cache costs nothing here, and rounds nothing.
  for (int set = 0; set < call.num_key_sets; ++set) {
    const KeySet& keys = KeySetOf(args, set);
    const float scale = HasTensorScale(keys.cache.format) ? keys.cache.scale : 1.0f;
    call.keys[set] = ResolveKeys(keys);
    if (set == 0) call.out_scale = scale;
    call.value_scale[set] = scale / call.out_scale;
    SetScoreScale(options, set, scale, &call);
  }
  call.is_per_token = IsPerToken(args);
  if (options.precision == Precision::kAuto) call.residual_keys = kResidualKeys;
  const bool is_split = args.q.extent[2] == 0;
  call.q[0] = is_split ? args.q_nope : args.q;
  if (is_split) call.q[1] = args.q_pe;
  call.attn_sink = args.attn_sink;
  call.out_rope = args.out_rope;
  call.positions = args.positions;
  call.out = args.out;
  call.lse = args.lse;
  call.lse_policy = options.lse_policy;
  return call;
}

inline Status CheckRun(const PlanOfMlaDecode& plan, const MlaDecodeArgs& args, Buffer workspace) {
  LATHE_RETURN_IF_REFUSED(CheckBatch(plan, BatchOf(args)));
  LATHE_RETURN_IF_REFUSED(CheckArgs(plan.mla, plan.options, args, true));
  LATHE_RETURN_IF_REFUSED(CheckPlannedDType("q", QueryDType(args), plan.query_dtype));
  if (args.q_pe.extent[2] > 0) {
    LATHE_RETURN_IF_REFUSED(CheckPlannedDType("q_pe", args.q_pe.dtype, plan.rope_dtype));
  }
  // The fingerprint tells whether there are as many.
  for (int set = 0; set < (std::min)(NumKeySets(args), plan.num_key_sets); ++set) {
    const CacheFormat format = KeySetOf(args, set).cache.format;
    if (format == plan.formats[set]) continue;
    return Refuse(StatusCode::kStalePlan, kKeyNames[set].cache, ".format")
        .IsNamed(Name(format))
        .MustName("be what the plan was made for,", Name(plan.formats[set]));
  }
  if (FingerprintOf(args) != plan.fingerprint) {
    return Refuse(StatusCode::kStalePlan, "plan")
        .Must("be made for these lengths, positions, windows, masks, page and list sizes");
  }
  return CheckWorkspace(plan, workspace);
}

inline AttendCall CallOf(const PlanOfMlaDecode& plan, const MlaDecodeArgs& args) {
  return CallOf(plan.mla, plan.options, args);
}

}  // namespace
}  // namespace lathe::detail

lathe::Target lathe::PlanTarget(const MlaDecodePlan& plan) noexcept {
  return detail::PlanOf(plan).target;
}

size_t lathe::PlanWorkspaceBytes(const MlaDecodePlan& plan) noexcept {
  return detail::PlanOf(plan).workspace_bytes;
}

lathe::Status lathe::MlaDecodeSizes(const MlaShape& shape, const MlaDecodeOptions& options,
                                    const Limits& limits, Sizes* sizes) noexcept {
  LATHE_BEGIN_CALL;
  if (sizes == nullptr) return Invalid("sizes").Must("not be null");
  LATHE_RETURN_IF_REFUSED(CheckShape(shape));
  LATHE_RETURN_IF_REFUSED(CheckOptions(options));
  LATHE_RETURN_IF_REFUSED(CheckLimits(limits));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(ResolveTarget(options.target, &kernels));

  // A token's rows start at most one block more than they fill, and so does a sequence's.
  const int64_t num_blocks =
      limits.max_num_tokens * CeilDiv(shape.num_heads, kMaxBlockRows) + limits.max_num_seqs;
  *sizes = SizesFor<PlanOfMlaDecode>(
      *kernels, {shape.head_dim(), shape.kv_lora_rank}, shape.num_heads, num_blocks,
      limits.max_num_tokens * shape.num_heads, limits.max_num_keys, limits.num_workers);
  return OkStatus();
}

lathe::Status lathe::PlanMlaDecode(const MlaShape& shape, const MlaDecodeOptions& options,
                                   const MlaDecodeArgs& args, size_t num_workers,
                                   Buffer plan_memory, const MlaDecodePlan** plan) noexcept {
  LATHE_BEGIN_CALL;
  if (plan == nullptr) return Invalid("plan").Must("not be null");
  LATHE_RETURN_IF_REFUSED(CheckWorkers("num_workers", num_workers));
  LATHE_RETURN_IF_REFUSED(CheckShape(shape));
  LATHE_RETURN_IF_REFUSED(CheckOptions(options));
  LATHE_RETURN_IF_REFUSED(CheckArgs(shape, options, args, false));
  LATHE_RETURN_IF_REFUSED(
      CheckQueryStartLoc("query_start_loc", args.query_start_loc, BatchOf(args).num_tokens));
  LATHE_RETURN_IF_REFUSED(CheckTreeMask(args));
  const AttendCall call = CallOf(shape, options, args);
  LATHE_RETURN_IF_REFUSED(CheckLengths(args, call));
  LATHE_RETURN_IF_REFUSED(CheckOutPositions(args, call));
  if (options.check_indices) LATHE_RETURN_IF_REFUSED(CheckBlockTables(args, call));
  PlanOfMlaDecode wanted{};
  LATHE_RETURN_IF_REFUSED(ResolveTarget(options.target, &wanted.kernels, &wanted.target));
  wanted.engine = EngineFor(*wanted.kernels, options, args);
  wanted.shape = {shape.head_dim(), shape.kv_lora_rank};
  wanted.fingerprint = FingerprintOf(args);
  wanted.num_workers = num_workers;
  wanted.mla = shape;
  wanted.options = options;
  wanted.query_dtype = QueryDType(args);
  wanted.rope_dtype = RopeDType(args);
  wanted.num_key_sets = call.num_key_sets;
  for (int set = 0; set < call.num_key_sets; ++set) {
    wanted.formats[set] = call.keys[set].cache.format;
  }
  PlanOfMlaDecode* made = nullptr;
  LATHE_RETURN_IF_REFUSED(
      MakePlan(wanted, {call, BatchOf(args), shape.num_heads}, plan_memory, &made));
  *plan = reinterpret_cast<const MlaDecodePlan*>(made);
  return OkStatus();
}

lathe::Status lathe::RunMlaDecode(const MlaDecodePlan& plan, const MlaDecodeArgs& args,
                                  Buffer workspace, const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckRun(PlanOf(plan), args, workspace));
  return RunAll(PlanOf(plan), CallOf(PlanOf(plan), args), workspace, executor);
}

lathe::Status lathe::RunMlaDecodePart(const MlaDecodePlan& plan, const MlaDecodeArgs& args,
                                      Buffer workspace, size_t ith, size_t nth) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckRun(PlanOf(plan), args, workspace));
  return RunShare(&AttendRun::Part, PlanOf(plan), CallOf(PlanOf(plan), args), workspace, ith, nth);
}

lathe::Status lathe::RunMlaDecodeMerge(const MlaDecodePlan& plan, const MlaDecodeArgs& args,
                                       Buffer workspace, size_t ith, size_t nth) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckRun(PlanOf(plan), args, workspace));
  return RunShare(&AttendRun::Merge, PlanOf(plan), CallOf(PlanOf(plan), args), workspace, ith, nth);
}

#endif  // LATHE_HOST_ATTEND_MLA_DECODE_H_
