// SPDX-License-Identifier: Apache-2.0
// Dense and sparse paged MLA decode: sizes, plan, run.
#ifndef LATHE_DISPATCH_HOST_MLA_DECODE_H_
#define LATHE_DISPATCH_HOST_MLA_DECODE_H_

#include "lathe/dispatch/engine_choice.h"
#include "lathe/dispatch/host_parallel.h"
#include "lathe/dispatch/mla_decode_plan.h"

namespace lathe {
namespace detail {
namespace LATHE_ABI {

constexpr float kLog2E = 1.44269504088896340736f;
// Up to here (normally distributed inputs, measured) weights rounded to bfloat16 alone can miss
// the accuracy that Precision::kAuto promises: 3.4 times the bound at 16 keys, 1.1 at 1024, 0.7 at 2048.
constexpr int64_t kResidualKeys = 1024;

inline Target PlanTarget(const MlaDecodePlan& plan) noexcept { return PlanOf(plan).target; }
inline size_t PlanWorkspaceBytes(const MlaDecodePlan& plan) noexcept {
  return PlanOf(plan).workspace_bytes;
}

inline DType QueryDType(const MlaDecodeArgs& args) {
  return args.q.extent[2] > 0 ? args.q.dtype : args.q_nope.dtype;
}

// Of the query's rope part; a whole query is of one type.
inline DType RopeDType(const MlaDecodeArgs& args) {
  return args.q_pe.extent[2] > 0 ? args.q_pe.dtype : QueryDType(args);
}

// Of two caches, the one that permits less decides.
inline Engine EngineFor(const KernelTable& kernels, const MlaDecodeOptions& options,
                        const MlaDecodeArgs& args) {
  const bool is_bf16_query =
      QueryDType(args) == DType::kBFloat16 && RopeDType(args) == DType::kBFloat16;
  BFloat16Rows rows = BFloat16Rows::kExact;
  for (const NamedKeys& set : KeySetsOf(args)) {
    rows = (std::min)(rows, BFloat16RowsOf(set.keys.cache.format));
  }
  return ChooseEngine(kernels.native_bf16, options.precision, rows, is_bf16_query);
}

inline Status MlaDecodeSizes(const MlaShape& shape, const MlaDecodeOptions& options,
                             const MlaDecodeLimits& limits, Sizes* sizes) noexcept {
  if (sizes == nullptr) return Invalid("sizes").Must("not be null");
  LATHE_RETURN_IF_REFUSED(CheckShape(shape));
  LATHE_RETURN_IF_REFUSED(CheckOptions(options));
  LATHE_RETURN_IF_REFUSED(CheckLimits(limits));
  Target target;
  const KernelTable* kernels;
  LATHE_RETURN_IF_REFUSED(ResolveTarget(options.target, &target, &kernels));

  // A token's rows start at most one block more than they fill, and so does a sequence's.
  const int64_t num_blocks =
      limits.max_num_tokens * CeilDiv(shape.num_heads, kMaxBlockRows) + limits.max_num_seqs;
  const PlanCapacity capacity = CapacityFor(num_blocks, limits.max_num_tokens * shape.num_heads,
                                            limits.max_seq_len, limits.num_workers, shape, options);
  Arena counting;
  CarvePlan(counting, capacity);
  size_t scratch_bytes = 0;
  for (const Engine engine : {Engine::kFloat32, Engine::kBFloat16}) {
    if (engine == Engine::kBFloat16 && !kernels->native_bf16) continue;
    scratch_bytes =
        (std::max)(scratch_bytes, ScratchBytes(*kernels, engine, shape, capacity.max_rows));
  }
  *sizes = {counting.bytes(),
            WorkspaceBytes(limits.num_workers, scratch_bytes, capacity.partial_floats)};
  return OkStatus();
}

// Extents and lengths that a plan was made for.
inline uint64_t Fingerprint(const MlaDecodeArgs& args) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&hash](int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001b3u;
    hash ^= hash >> 29;
  };
  const auto mix_all = [&mix](const IndexView<1>& lengths) {
    mix(lengths.empty() ? -1 : lengths.extent[0]);
    for (int64_t i = 0; !lengths.empty() && i < lengths.extent[0]; ++i) mix(lengths(i));
  };
  mix_all(args.query_start_loc);
  if (args.out_rope.is_given()) {
    mix_all(args.positions);
    mix(args.out_rope.cos.extent[0]);
  }
  for (const NamedKeys& set : KeySetsOf(args)) {
    const KeySet& keys = set.keys;
    for (const IndexView<1>& lengths : {keys.seq_lens, keys.row_kv_lens, keys.topk_length}) {
      mix_all(lengths);
    }
    mix(keys.has_indices() ? keys.indices.extent[1] : -1);
    mix(static_cast<int64_t>(keys.index_space));
    mix(keys.window);
    mix(keys.compress_ratio);
    mix(keys.wraps ? 1 : 0);
    mix(keys.cache.block_size);
    mix(keys.cache.num_blocks);
    mix(keys.block_table.extent[1]);
  }
  return hash;
}

inline Status PlanMlaDecode(const MlaShape& shape, const MlaDecodeOptions& options,
                            const MlaDecodeArgs& args, size_t num_workers, Buffer plan_memory,
                            const MlaDecodePlan** plan) noexcept {
  if (plan == nullptr) return Invalid("plan").Must("not be null");
  LATHE_RETURN_IF_REFUSED(CheckWorkers("num_workers", num_workers));
  LATHE_RETURN_IF_REFUSED(CheckShape(shape));
  LATHE_RETURN_IF_REFUSED(CheckOptions(options));
  LATHE_RETURN_IF_REFUSED(CheckArgs(shape, args, false));
  LATHE_RETURN_IF_REFUSED(
      CheckQueryStartLoc("query_start_loc", args.query_start_loc, BatchOf(args).num_tokens));
  LATHE_RETURN_IF_REFUSED(CheckLengths(args, options.causal));
  LATHE_RETURN_IF_REFUSED(CheckOutPositions(args, options.causal));
  if (options.check_indices) LATHE_RETURN_IF_REFUSED(CheckBlockTables(args, options.causal));
  Target target;
  const KernelTable* kernels;
  LATHE_RETURN_IF_REFUSED(ResolveTarget(options.target, &target, &kernels));

  int64_t num_blocks = 0, max_rows = 1, max_keys = 0, total_work = 0;
  ForEachUnit(shape, options, args, [&](const Unit& unit) {
    const int64_t num_rows = unit.row_end - unit.row_begin;
    num_blocks += CeilDiv(num_rows, kMaxBlockRows);
    max_rows = (std::max)(max_rows, num_rows);
    max_keys = (std::max)(max_keys, NumKeys(unit.keys));
    total_work += Work(num_rows, NumKeys(unit.keys));
  });
  const PlanCapacity capacity =
      CapacityFor(num_blocks, max_rows, max_keys, num_workers, shape, options);
  Arena counting;
  CarvePlan(counting, capacity);
  if (plan_memory.data == nullptr || plan_memory.bytes < counting.bytes()) {
    return Refuse(StatusCode::kBufferTooSmall, "plan_memory", ".bytes")
        .Is(plan_memory.data == nullptr ? 0 : static_cast<int64_t>(plan_memory.bytes))
        .Must("be at least", static_cast<int64_t>(counting.bytes()));
  }
  Arena arena(plan_memory.data);
  Plan* made = CarvePlan(arena, capacity);
  made->kernels = kernels;
  made->target = target;
  made->engine = EngineFor(*kernels, options, args);
  made->shape = shape;
  made->options = options;
  made->batch = BatchOf(args);
  made->query_dtype = QueryDType(args);
  made->rope_dtype = RopeDType(args);
  for (const NamedKeys& set : KeySetsOf(args)) {
    made->formats[made->num_key_sets++] = set.keys.cache.format;
  }
  made->fingerprint = Fingerprint(args);
  made->num_workers = num_workers;
  PlanBuilder builder(*made, total_work, capacity.max_cut_blocks);
  ForEachUnit(shape, options, args, [&](const Unit& unit) { builder.AddUnit(unit); });
  std::sort(made->tasks, made->tasks + made->num_tasks,
            [](const AttendTask& a, const AttendTask& b) {
              const auto keys = [](const AttendTask& t) {
                const int64_t begin = t.first_split * t.split_keys;
                return (std::min)(begin + t.num_splits * t.split_keys, NumKeys(t.keys)) - begin;
              };
              const int64_t work_a = Work(a.num_rows, keys(a)), work_b = Work(b.num_rows, keys(b));
              if (work_a != work_b) return work_a > work_b;
              if (a.token_begin != b.token_begin) return a.token_begin < b.token_begin;
              return a.row_begin != b.row_begin ? a.row_begin < b.row_begin
                                                : a.first_split < b.first_split;
            });
  made->scratch_bytes = ScratchBytes(*kernels, made->engine, shape, capacity.max_rows);
  made->workspace_bytes = WorkspaceBytes(num_workers, made->scratch_bytes, made->partial_floats);
  *plan = reinterpret_cast<const MlaDecodePlan*>(made);
  return OkStatus();
}

inline Status CheckRun(const Plan& plan, const MlaDecodeArgs& args, Buffer workspace) {
  const BatchSize batch = BatchOf(args);
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
  LATHE_RETURN_IF_REFUSED(CheckArgs(plan.shape, args, true));
  if (QueryDType(args) != plan.query_dtype) {
    return Refuse(StatusCode::kStalePlan, "q", ".dtype")
        .Is(static_cast<int64_t>(QueryDType(args)))
        .Must("be what the plan was made for,", static_cast<int64_t>(plan.query_dtype));
  }
  if (args.q_pe.extent[2] > 0 && args.q_pe.dtype != plan.rope_dtype) {
    return Refuse(StatusCode::kStalePlan, "q_pe", ".dtype")
        .Is(static_cast<int64_t>(args.q_pe.dtype))
        .Must("be what the plan was made for,", static_cast<int64_t>(plan.rope_dtype));
  }
  for (const NamedKeys& set : KeySetsOf(args)) {
    if (set.number >= plan.num_key_sets) break;  // the fingerprint tells
    if (set.keys.cache.format == plan.formats[set.number]) continue;
    return Refuse(StatusCode::kStalePlan, set.names.cache, ".format")
        .Is(static_cast<int64_t>(set.keys.cache.format))
        .Must("be what the plan was made for,", static_cast<int64_t>(plan.formats[set.number]));
  }
  if (Fingerprint(args) != plan.fingerprint) {
    return Refuse(StatusCode::kStalePlan, "plan")
        .Must("be made for these lengths, positions, windows, page and list sizes");
  }
  if (plan.num_tasks == 0) return OkStatus();
  if (workspace.data == nullptr || workspace.bytes < plan.workspace_bytes) {
    return Refuse(StatusCode::kBufferTooSmall, "workspace", ".bytes")
        .Is(workspace.data == nullptr ? 0 : static_cast<int64_t>(workspace.bytes))
        .Must("be at least", static_cast<int64_t>(plan.workspace_bytes));
  }
  return OkStatus();
}

// A plan, its arguments resolved for the kernels, and the workspace cut up.
class DecodeRun {
 public:
  DecodeRun(const Plan& plan, const MlaDecodeArgs& args, Buffer workspace) : plan_(plan) {
    const bool is_split = args.q.extent[2] == 0;
    call_.num_heads = plan.shape.num_heads;
    call_.qk_dim = plan.shape.head_dim();
    call_.v_dim = plan.shape.kv_lora_rank;
    // A scale of the whole cache costs nothing here, and rounds nothing.
    for (const NamedKeys& set : KeySetsOf(args)) {
      const float scale = HasTensorScale(set.keys.cache.format) ? set.keys.cache.scale : 1.0f;
      call_.keys[set.number] = set.keys;
      call_.value_scale[set.number] = scale;
      call_.scale_log2[set.number] = plan.options.softmax_scale * kLog2E * scale;
    }
    call_.num_key_sets = plan.num_key_sets;
    call_.is_per_token = IsPerToken(args);
    if (plan.num_key_sets == 1) call_.out_scale = call_.value_scale[0];
    call_.causal = plan.options.causal;
    if (plan.options.precision == Precision::kAuto) call_.residual_keys = kResidualKeys;
    call_.q_nope = is_split ? args.q_nope : args.q;
    if (is_split) call_.q_pe = args.q_pe;
    call_.attn_sink = args.attn_sink;
    call_.out_rope = args.out_rope;
    call_.positions = args.positions;
    call_.out = args.out;
    call_.lse = args.lse;
    call_.lse_policy = plan.options.lse;
    Arena arena(workspace.data);
    const Workspace cut =
        CarveWorkspace(arena, plan.num_workers, plan.scratch_bytes, plan.partial_floats);
    scratch_ = cut.scratch;
    call_.partials = cut.partials;
  }

  void Attend(int64_t task, size_t worker) const {
    plan_.kernels->attend[static_cast<size_t>(plan_.engine)](
        call_, plan_.tasks[task], scratch_ + worker * plan_.scratch_bytes);
  }

  void Fold(int64_t fold) const {
    plan_.kernels->fold[static_cast<size_t>(plan_.engine)](call_, plan_.folds[fold]);
  }

 private:
  const Plan& plan_;
  AttendCall call_;
  std::byte* scratch_;
};

inline Status RunMlaDecode(const MlaDecodePlan& plan_handle, const MlaDecodeArgs& args,
                           Buffer workspace, const Executor& executor) noexcept {
  const Plan& plan = PlanOf(plan_handle);
  LATHE_RETURN_IF_REFUSED(CheckRun(plan, args, workspace));
  LATHE_RETURN_IF_REFUSED(CheckExecutor(executor));
  const DecodeRun run(plan, args, workspace);
  ForEachItem(executor, plan.num_workers, plan.num_tasks,
              [&run](int64_t task, size_t lane) { run.Attend(task, lane); });
  ForEachItem(executor, plan.num_workers, plan.num_folds,
              [&run](int64_t fold, size_t) { run.Fold(fold); });
  return OkStatus();
}

inline Status CheckPart(const Plan& plan, size_t ith, size_t nth) {
  if (nth != plan.num_workers) {
    return Invalid("nth")
        .Is(static_cast<int64_t>(nth))
        .Must("be the num_workers of the plan,", static_cast<int64_t>(plan.num_workers));
  }
  if (ith >= nth) {
    return Invalid("ith")
        .Is(static_cast<int64_t>(ith))
        .Must("be below nth =", static_cast<int64_t>(nth));
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

inline Status RunMlaDecodePart(const MlaDecodePlan& plan_handle, const MlaDecodeArgs& args,
                               Buffer workspace, size_t ith, size_t nth) noexcept {
  const Plan& plan = PlanOf(plan_handle);
  LATHE_RETURN_IF_REFUSED(CheckPart(plan, ith, nth));
  LATHE_RETURN_IF_REFUSED(CheckRun(plan, args, workspace));
  const DecodeRun run(plan, args, workspace);
  ForEachOwnItem(ith, nth, plan.num_tasks, [&](int64_t task) { run.Attend(task, ith); });
  return OkStatus();
}

inline Status RunMlaDecodeMerge(const MlaDecodePlan& plan_handle, const MlaDecodeArgs& args,
                                Buffer workspace, size_t ith, size_t nth) noexcept {
  const Plan& plan = PlanOf(plan_handle);
  LATHE_RETURN_IF_REFUSED(CheckPart(plan, ith, nth));
  LATHE_RETURN_IF_REFUSED(CheckRun(plan, args, workspace));
  const DecodeRun run(plan, args, workspace);
  ForEachOwnItem(ith, nth, plan.num_folds, [&](int64_t fold) { run.Fold(fold); });
  return OkStatus();
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_DISPATCH_HOST_MLA_DECODE_H_
