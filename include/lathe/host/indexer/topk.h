// SPDX-License-Identifier: Apache-2.0
// Indexer logits and top-k in one: checks, then blocks of rows, and ranges of long rows, shared among workers.
#ifndef LATHE_HOST_INDEXER_TOPK_H_
#define LATHE_HOST_INDEXER_TOPK_H_

#include <algorithm>

#include "lathe/host/call.h"
#include "lathe/host/indexer/logits.h"
#include "lathe/host/indexer/topk_plan.h"
#include "lathe/host/topk/topk.h"
#include "lathe/indexer_topk.h"

namespace lathe::detail {
namespace {

inline TopkOptions TopkOptionsOf(const IndexerTopkOptions& options) {
  TopkOptions topk;
  topk.k = options.k;
  topk.index_base = options.index_base;
  return topk;
}

// A workspace cut up: who does what, the workers' own scratch, and parts of rows.
struct IndexerTopkWorkspace {
  IndexerTopkWorkspace(Arena& arena, size_t bytes, int64_t k, int64_t workers)
      : table(arena, workers),
        num_workers(static_cast<size_t>(workers)),
        scratch_bytes(bytes),
        stride(k + TopkCandidates::kSlack) {
    scratch = arena.Take<std::byte>(num_workers * bytes);
    const int64_t num_parts = ShareTable::MostParts(workers);
    if (num_parts == 0) return;
    candidates = CarveTopkCandidates(arena, num_parts * stride);
    parts = arena.Take<TopkPart>(static_cast<size_t>(num_parts));
  }

  ShareTable table;
  size_t num_workers;
  size_t scratch_bytes;
  int64_t stride;
  std::byte* scratch = nullptr;
  TopkCandidates candidates;
  TopkPart* parts = nullptr;
};

inline size_t IndexerTopkScratchBytes(const KernelTable& kernels, const IndexerShape& shape,
                                      int64_t k, const Limits& limits) {
  const int64_t rows = IndexerTopkRows(shape.num_heads, shape.head_dim, limits.max_num_tokens, k);
  size_t bytes = 0;
  for (const auto scratch_bytes : kernels.indexer_topk_scratch_bytes) {
    if (scratch_bytes == nullptr) continue;
    bytes = (std::max)(
        bytes, scratch_bytes(shape.num_heads, shape.head_dim, rows, limits.max_num_keys, k));
  }
  return Arena::RoundUp(bytes);
}

inline size_t IndexerTopkBytes(const KernelTable& kernels, const IndexerShape& shape, int64_t k,
                               const Limits& limits) {
  if (limits.max_num_keys <= k || k == 0) return 0;
  Arena counting;
  IndexerTopkWorkspace(counting, IndexerTopkScratchBytes(kernels, shape, k, limits), k,
                       static_cast<int64_t>(limits.num_workers));
  return counting.bytes();
}

// The call to SelectTopk that this stands for, without scores, of as many columns as the longest row ends at.
inline TopkArgs TopkArgsOf(const IndexerTopkArgs& args, int64_t num_rows, int64_t num_columns) {
  TopkArgs topk;
  topk.logits.extent[0] = num_rows;
  topk.logits.extent[1] = topk.logits.stride[0] = num_columns;
  topk.logits.stride[1] = 1;
  topk.indices = args.indices;
  topk.counts = args.counts;
  topk.block_table = args.block_table;
  topk.block_size = args.block_size;
  topk.num_blocks = args.num_blocks;
  topk.row_seq = args.row_seq;
  return topk;
}

// What keys lead to in the lists.
inline Status CheckListedKeys(const IndexerTopkArgs& args, const IndexerRows& rows,
                              const IndexerTopkOptions& options, const TopkArgs& topk) {
  const bool has_table = !args.block_table.empty();
  const bool is_one_sequence = IsOneSequence(args.inputs.keys);
  const int64_t covered = SaturatingMul(args.block_table.extent[1], args.block_size);
  Status status = OkStatus();
  TopkBlockCheck check_blocks(topk);
  ForEachIndexerBlock(rows, 1, [&](const IndexerTask& row) {
    if (!status.ok()) return;
    const int64_t t = row.token_begin + row.row_begin;
    const int64_t seq = !is_one_sequence ? row.seq : args.row_seq.empty() ? t : args.row_seq(t);
    if (has_table && (seq < 0 || seq >= args.block_table.extent[0])) {
      status = OutOfRange("row_seq").At(t).Is(seq).Must(
          "be within 0 and block_table.extent[0] - 1 =", args.block_table.extent[0] - 1);
      return;
    }
    const bool from_start = options.index_base == TopkIndexBase::kRowStart;
    const int64_t begin = from_start ? 0 : row.key_begin;
    const int64_t end = row.key_end - (from_start ? row.key_begin : 0);
    if (row.key_end > kMaxDim) {
      status = Invalid("inputs").Must("have rows with keys up to, at most,", kMaxDim);
    } else if (has_table && end > covered) {
      status = OutOfRange("block_table", ".extent")
                   .At(1)
                   .Is(args.block_table.extent[1])
                   .Must("cover, with block_size, the keys of every row,", end);
    } else if (has_table && options.check_indices && !options.allow_holes && begin < end) {
      status = check_blocks(seq, begin, end);
    }
  });
  return status;
}

inline Status CheckIndexerTopk(const IndexerTopkArgs& args, const IndexerBatch& shape,
                               const IndexerTopkOptions& options) {
  LATHE_RETURN_IF_REFUSED(CheckPrecision(options.precision));
  const TopkOptions topk_options = TopkOptionsOf(options);
  LATHE_RETURN_IF_REFUSED(CheckTopkOptions(topk_options));
  LATHE_RETURN_IF_REFUSED(CheckIndexerInputs(args.inputs, shape, options.check_indices));
  if (IsGiven(args.inputs.candidate_blocks)) {
    return Invalid("inputs.candidate_blocks").Must("not be given");
  }
  const int64_t num_tokens = shape.batch.num_tokens;
  const bool is_one_sequence = IsOneSequence(args.inputs.keys);
  const TopkArgs topk = TopkArgsOf(args, num_tokens, 0);
  LATHE_RETURN_IF_REFUSED(CheckTopkOutputs(topk, topk_options));
  if (IsGiven(args.row_seq)) {
    if (!is_one_sequence) {
      return Invalid("row_seq").Must("not be given beside inputs.keys.block_table");
    }
    LATHE_RETURN_IF_REFUSED(CheckIndices("row_seq", args.row_seq, {num_tokens}));
  }
  // Without row_seq, a table has a row for each row of the lists, here for each sequence.
  LATHE_RETURN_IF_REFUSED(
      CheckTopkTable(TopkArgsOf(args, is_one_sequence ? num_tokens : shape.batch.num_seqs, 0)));
  LATHE_RETURN_IF_REFUSED(CheckTopkOverlap(topk));
  LATHE_RETURN_IF_REFUSED(
      CheckIndexerOverlap(args.inputs, shape, RangeOf(args.indices), "not overlap indices"));
  LATHE_RETURN_IF_REFUSED(
      CheckIndexerOverlap(args.inputs, shape, RangeOf(args.counts), "not overlap counts"));
  return CheckListedKeys(args, {ResolveKeys(args.inputs.keys), shape.batch}, options, topk);
}

inline void RunIndexerTopk(const KernelTable& kernels, const IndexerTopkCall& call, Engine engine,
                           const IndexerTopkPlan<IndexerRows>& plan,
                           const IndexerTopkWorkspace& workspace, const Executor& executor) {
  const size_t workers = workspace.num_workers;
  const ShareTable& table = workspace.table;
  const int64_t k = call.options.k;
  const auto run = kernels.index_topk[static_cast<size_t>(engine)];
  ForEachItem(executor, workers, table.num_shares(), [&](int64_t share, size_t lane) {
    std::byte* scratch = workspace.scratch + lane * workspace.scratch_bytes;
    plan.Run(
        share,
        [&](const IndexerTask& task, int64_t part) {
          // A row's parts lie side by side, so that they can be merged in the place of the first.
          TopkPart& to = workspace.parts[part];
          to.best = TopkWorkspace::Cut(workspace.candidates, part * workspace.stride, k);
          to.num_parts = table.CutOf(part).num_parts;
          run(call, task, scratch, &to);
        },
        [&](const IndexerTask& block) { run(call, block, scratch, nullptr); });
  });
  // Parts get small where they are; whoever has done a row's last merges what is left of them.
  ForEachItem(executor, workers, table.num_parts(), [&](int64_t part, size_t) {
    CutItem& cut = table.CutOf(part);
    TopkPart* parts = workspace.parts + cut.first_part;
    kernels.drop_hopeless(parts, cut.num_parts, k, part - cut.first_part);
    if (cut.parts_left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    kernels.merge_index_topk(call, plan.RowAt(cut.item), parts, cut.num_parts);
  });
}

}  // namespace
}  // namespace lathe::detail

lathe::Status lathe::IndexerTopkSizes(const IndexerShape& shape, const IndexerTopkOptions& options,
                                      const Limits& limits, Sizes* sizes) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckIndexerSizes(shape, options.precision, limits, sizes));
  LATHE_RETURN_IF_REFUSED(CheckDim("limits.max_num_keys", limits.max_num_keys, 0));
  LATHE_RETURN_IF_REFUSED(CheckTopkOptions(TopkOptionsOf(options)));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(ResolveTarget(options.target, &kernels));
  *sizes = {0, IndexerTopkBytes(*kernels, shape, options.k, limits)};
  return OkStatus();
}

lathe::Status lathe::SelectIndexerTopk(const IndexerTopkArgs& args,
                                       const IndexerTopkOptions& options, Buffer workspace,
                                       const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  const IndexerBatch shape = ShapeOf(args.inputs);
  LATHE_RETURN_IF_REFUSED(CheckIndexerTopk(args, shape, options));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(StartCall(options.target, executor, &kernels));
  const int64_t num_tokens = shape.batch.num_tokens;
  if (num_tokens == 0) return OkStatus();

  IndexerTopkCall call;
  call.scores = IndexerCallOf(args.inputs, shape);
  call.out = TopkArgsOf(args, num_tokens, 0);
  call.options = TopkOptionsOf(options);
  const IndexerRows rows{call.scores.keys, shape.batch};
  call.max_keys = LongestRow(rows);
  const int64_t workers = WorkersOf(executor);
  const IndexerShape sizes{shape.num_heads, shape.width};
  const Limits limits{shape.batch.num_seqs, num_tokens, call.max_keys,
                      static_cast<size_t>(workers)};
  const size_t needed = IndexerTopkBytes(*kernels, sizes, options.k, limits);
  LATHE_RETURN_IF_REFUSED(CheckBuffer("workspace", workspace, needed));
  if (needed == 0) {
    ForEachIndexerBlock(rows, num_tokens,
                        [&](const IndexerTask& block) { kernels->list_index_keys(call, block); });
    return OkStatus();
  }
  Arena arena(workspace.data);
  IndexerTopkWorkspace cut(arena, IndexerTopkScratchBytes(*kernels, sizes, options.k, limits),
                           options.k, workers);
  const IndexerTopkPlan<IndexerRows> plan(rows, shape, options.k, &cut.table);
  RunIndexerTopk(*kernels, call, EngineFor(*kernels, options.precision, args.inputs), plan, cut,
                 executor);
  return OkStatus();
}

#endif  // LATHE_HOST_INDEXER_TOPK_H_
