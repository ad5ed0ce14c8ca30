// SPDX-License-Identifier: Apache-2.0
// Indexer logits and top-k in one: checks, then blocks of rows, and ranges of long rows, shared among workers.
#ifndef LATHE_HOST_INDEXER_TOPK_H_
#define LATHE_HOST_INDEXER_TOPK_H_

#include <algorithm>

#include "lathe/host/call.h"
#include "lathe/host/indexer/logits.h"
#include "lathe/host/topk/topk.h"
#include "lathe/indexer_topk.h"

namespace lathe {
namespace detail {
namespace LATHE_ABI {

// Rows of a block at most: their candidates, too, should stay in L2.
inline int64_t IndexerTopkRows(int64_t num_heads, int64_t width, int64_t num_tokens, int64_t k) {
  constexpr int64_t kCandidates = 65536;
  const int64_t rows = IndexerBlockRows(num_heads, width, num_tokens, false);
  return (std::min)(rows, (std::max)(kCandidates / (2 * k + 1024), int64_t{1}));
}

// A workspace cut up: the workers' own scratch, and the candidates of ranges.
struct IndexerTopkWorkspace {
  // Ranges are at most two for each worker and one more for each row that is cut, of which there are at
  // most two for each worker.
  static constexpr int64_t MostParts(int64_t workers) { return workers > 1 ? 4 * workers : 0; }

  IndexerTopkWorkspace(Arena& arena, size_t bytes, int64_t k, int64_t workers)
      : num_workers(static_cast<size_t>(workers)),
        scratch_bytes(bytes),
        stride(k + TopkCandidates::kSlack) {
    scratch = arena.Take<std::byte>(num_workers * bytes);
    const int64_t num_parts = MostParts(workers);
    if (num_parts == 0) return;
    candidates = CarveTopkCandidates(arena, num_parts * stride);
    parts = arena.Take<TopkCandidates>(static_cast<size_t>(num_parts));
  }

  size_t num_workers;
  size_t scratch_bytes;
  int64_t stride;
  std::byte* scratch = nullptr;
  TopkCandidates candidates;
  TopkCandidates* parts = nullptr;
};

inline size_t IndexerTopkScratchBytes(const KernelTable& kernels, const IndexerTopkLimits& limits) {
  const int64_t rows =
      IndexerTopkRows(limits.num_heads, limits.head_dim, limits.max_num_tokens, limits.k);
  size_t bytes = 0;
  for (const auto scratch_bytes : kernels.indexer_topk_scratch_bytes) {
    if (scratch_bytes == nullptr) continue;
    bytes = (std::max)(bytes, scratch_bytes(limits.num_heads, limits.head_dim, rows,
                                            limits.max_num_keys, limits.k));
  }
  return Arena::RoundUp(bytes);
}

inline size_t IndexerTopkBytes(const KernelTable& kernels, const IndexerTopkLimits& limits) {
  if (limits.max_num_keys <= limits.k || limits.k == 0) return 0;
  Arena counting;
  IndexerTopkWorkspace(counting, IndexerTopkScratchBytes(kernels, limits), limits.k,
                       static_cast<int64_t>(limits.num_workers));
  return counting.bytes();
}

// The same call to Topk, but for its scores: of as many columns as the longest row ends at.
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
inline Status CheckListedKeys(const IndexerTopkArgs& args, const IndexerShape& shape,
                              const IndexerTopkOptions& options, const TopkArgs& topk) {
  const bool has_table = !args.block_table.empty();
  const int64_t covered = SaturatingMul(args.block_table.extent[1], args.block_size);
  Status status = OkStatus();
  TopkBlockCheck check_blocks(topk);
  ForEachIndexerBlock(args.inputs, shape, 1, [&](const IndexerTask& row) {
    if (!status.ok()) return;
    const int64_t t = row.token_begin + row.row_begin;
    const int64_t seq = !shape.is_ragged ? row.seq : args.row_seq.empty() ? t : args.row_seq(t);
    if (has_table && (seq < 0 || seq >= args.block_table.extent[0])) {
      status =
          Refuse(StatusCode::kIndexOutOfRange, "row_seq")
              .At(t)
              .Is(seq)
              .Must("be within 0 and block_table.extent[0] - 1 =", args.block_table.extent[0] - 1);
      return;
    }
    const bool from_start = options.index_base == TopkIndexBase::kRowStart;
    const int64_t begin = from_start ? 0 : row.key_begin;
    const int64_t end = row.key_end - (from_start ? row.key_begin : 0);
    if (row.key_end > kMaxDim) {
      status = Invalid("inputs").Must("have rows with keys up to, at most,", kMaxDim);
    } else if (has_table && end > covered) {
      status = Refuse(StatusCode::kIndexOutOfRange, "block_table", ".extent")
                   .At(1)
                   .Is(args.block_table.extent[1])
                   .Must("cover, with block_size, the keys of every row,", end);
    } else if (has_table && options.check_indices && begin < end) {
      status = check_blocks(seq, begin, end);
    }
  });
  return status;
}

inline Status CheckIndexerTopk(const IndexerTopkArgs& args, const IndexerShape& shape,
                               const IndexerTopkOptions& options) {
  LATHE_RETURN_IF_REFUSED(CheckPrecision(options.precision));
  TopkOptions topk_options;
  topk_options.k = options.k;
  topk_options.index_base = options.index_base;
  LATHE_RETURN_IF_REFUSED(CheckTopkOptions(topk_options));
  LATHE_RETURN_IF_REFUSED(CheckIndexerInputs(args.inputs, shape, options.check_indices));
  if (IsGiven(args.inputs.candidate_blocks)) {
    return Invalid("inputs.candidate_blocks").Must("not be given");
  }
  const TopkArgs topk = TopkArgsOf(args, shape.num_tokens, 0);
  LATHE_RETURN_IF_REFUSED(CheckTopkOutputs(topk, topk_options));
  if (IsGiven(args.row_seq)) {
    if (!shape.is_ragged) return Invalid("row_seq").Must("not be given without inputs.row_starts");
    LATHE_RETURN_IF_REFUSED(CheckIndices("row_seq", args.row_seq, {shape.num_tokens}));
  }
  // Without row_seq, a table has a row for each row of the lists, here for each sequence.
  LATHE_RETURN_IF_REFUSED(
      CheckTopkTable(TopkArgsOf(args, shape.is_ragged ? shape.num_tokens : shape.num_seqs, 0)));
  LATHE_RETURN_IF_REFUSED(CheckTopkOverlap(topk));
  LATHE_RETURN_IF_REFUSED(CheckIndexerOverlap(
      args.inputs, shape, RangeOf(IndexView<2>(args.indices)), "not overlap indices"));
  LATHE_RETURN_IF_REFUSED(CheckIndexerOverlap(
      args.inputs, shape, RangeOf(IndexView<1>(args.counts)), "not overlap counts"));
  return CheckListedKeys(args, shape, options, topk);
}

// How a call is cut. Blocks of one row are cut into ranges of `part_keys`, where rows are few.
class IndexerTopkPlan {
 public:
  IndexerTopkPlan(const IndexerInputs& inputs, const IndexerShape& shape, int64_t k,
                  int64_t workers)
      : inputs_(inputs), shape_(shape), k_(k) {
    const int64_t most = IndexerTopkRows(shape.num_heads, shape.width, shape.num_tokens, k);
    // Some four blocks for each worker.
    const int64_t wanted = workers > 1 ? shape.num_tokens / (4 * workers) : most;
    block_rows_ = (std::max)((std::min)(most, wanted), int64_t{1});
    ForEachIndexerBlock(inputs_, shape_, 1, [this](const IndexerTask& row) {
      longest_ = (std::max)(longest_, row.key_end - row.key_begin);
    });
    int64_t total = 0;
    ForEachIndexerBlock(inputs_, shape_, block_rows_, [&](const IndexerTask& block) {
      const int64_t keys = block.key_end - block.key_begin;
      if (keys > k) total += keys;
    });
    // Some 70 us.
    const int64_t least = CeilDiv(int64_t{1024} * 64 * 128, shape.num_heads * shape.width);
    part_keys_ =
        workers > 1 && block_rows_ == 1 ? (std::max)(least, CeilDiv(total, 2 * workers)) : kLargest;
  }

  // Keys of the longest row.
  int64_t longest() const { return longest_; }

  // f(block, number of its first part among all, number of its first part among those of blocks that are
  // cut, number of parts) for every block.
  template <class F>
  void ForEachBlock(const F& f) const {
    int64_t item = 0, stored = 0;
    ForEachIndexerBlock(inputs_, shape_, block_rows_, [&](const IndexerTask& block) {
      const int64_t keys = block.key_end - block.key_begin;
      const bool is_cut = keys > k_ && keys > part_keys_ && k_ > 0;
      const int64_t parts = is_cut ? CeilDiv(keys, part_keys_) : 1;
      f(block, item, stored, parts);
      item += parts;
      if (is_cut) stored += parts;
    });
  }

  IndexerTask Part(const IndexerTask& block, int64_t part, int64_t num_parts) const {
    IndexerTask task = block;
    if (num_parts == 1) return task;
    task.key_begin = block.key_begin + part * part_keys_;
    task.key_end = (std::min)(task.key_begin + part_keys_, block.key_end);
    return task;
  }

 private:
  const IndexerInputs& inputs_;
  const IndexerShape& shape_;
  int64_t k_;
  int64_t block_rows_ = 1;
  int64_t part_keys_ = kLargest;
  int64_t longest_ = 0;
};

inline void RunIndexerTopk(const KernelTable& kernels, const IndexerTopkCall& call, Engine engine,
                           const IndexerTopkPlan& plan, const IndexerTopkWorkspace& workspace,
                           const Executor& executor) {
  const size_t workers = workspace.num_workers;
  const auto run = kernels.index_topk[static_cast<size_t>(engine)];
  int64_t num_items = 0, num_cut = 0;
  plan.ForEachBlock([&](const IndexerTask&, int64_t first, int64_t, int64_t num_parts) {
    num_items = first + num_parts;
    num_cut += num_parts > 1 ? 1 : 0;
  });
  ForEachItem(executor, workers, num_items, [&](int64_t item, size_t lane) {
    std::byte* scratch = workspace.scratch + lane * workspace.scratch_bytes;
    plan.ForEachBlock(
        [&](const IndexerTask& block, int64_t first, int64_t stored, int64_t num_parts) {
          const int64_t part = item - first;
          if (part < 0 || part >= num_parts) return;
          if (num_parts == 1) return run(call, block, scratch, nullptr);
          // Side by side, so that they can be merged in their place.
          const int64_t at = stored * workspace.stride + part * call.options.k;
          TopkCandidates& to = workspace.parts[stored + part];
          to = TopkWorkspace::Cut(workspace.candidates, at, call.options.k);
          run(call, plan.Part(block, part, num_parts), scratch, &to);
        });
  });
  ForEachItem(executor, workers, num_cut, [&](int64_t item, size_t) {
    int64_t cut = 0;
    plan.ForEachBlock([&](const IndexerTask& block, int64_t, int64_t stored, int64_t num_parts) {
      if (num_parts == 1 || cut++ != item) return;
      kernels.merge_index_topk(call, block, workspace.parts + stored, num_parts);
    });
  });
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

lathe::Status lathe::IndexerTopkWorkspaceBytes(const IndexerTopkLimits& limits,
                                               const IndexerTopkOptions& options,
                                               size_t* bytes) noexcept {
  LATHE_BEGIN_CALL;
  if (bytes == nullptr) return Invalid("bytes").Must("not be null");
  LATHE_RETURN_IF_REFUSED(
      CheckIndexerDims("limits.num_heads", limits.num_heads, "limits.head_dim", limits.head_dim));
  LATHE_RETURN_IF_REFUSED(CheckDim("limits.max_num_tokens", limits.max_num_tokens, 1));
  LATHE_RETURN_IF_REFUSED(CheckDim("limits.max_num_keys", limits.max_num_keys, 0));
  LATHE_RETURN_IF_REFUSED(CheckDim("limits.k", limits.k, 0));
  LATHE_RETURN_IF_REFUSED(CheckWorkers("limits.num_workers", limits.num_workers));
  LATHE_RETURN_IF_REFUSED(CheckPrecision(options.precision));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(ResolveTarget(options.target, &kernels));
  *bytes = IndexerTopkBytes(*kernels, limits);
  return OkStatus();
}

lathe::Status lathe::IndexerTopk(const IndexerTopkArgs& args, const IndexerTopkOptions& options,
                                 Buffer workspace, const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  const IndexerShape shape = ShapeOf(args.inputs);
  LATHE_RETURN_IF_REFUSED(CheckIndexerTopk(args, shape, options));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(StartCall(options.target, executor, &kernels));
  if (shape.num_tokens == 0) return OkStatus();

  const int64_t workers = (std::min)(WorkersOf(executor.num_workers), int64_t{kMaxWorkers});
  const IndexerTopkPlan plan(args.inputs, shape, options.k, workers);
  const IndexerTopkLimits limits{shape.num_heads, shape.width, shape.num_tokens,
                                 plan.longest(),  options.k,   static_cast<size_t>(workers)};
  const size_t needed = IndexerTopkBytes(*kernels, limits);
  LATHE_RETURN_IF_REFUSED(CheckBuffer("workspace", workspace, needed));
  IndexerTopkCall call;
  call.scores = IndexerCallOf(args.inputs, shape);
  call.out = TopkArgsOf(args, shape.num_tokens, 0);
  call.options.k = options.k;
  call.options.index_base = options.index_base;
  call.max_keys = plan.longest();
  if (needed == 0) {
    ForEachIndexerBlock(args.inputs, shape, shape.num_tokens,
                        [&](const IndexerTask& block) { kernels->list_index_keys(call, block); });
    return OkStatus();
  }
  Arena arena(workspace.data);
  const IndexerTopkWorkspace cut(arena, IndexerTopkScratchBytes(*kernels, limits), options.k,
                                 workers);
  RunIndexerTopk(*kernels, call, EngineFor(*kernels, options.precision, call.scores.inputs), plan,
                 cut, executor);
  return OkStatus();
}

#endif  // LATHE_HOST_INDEXER_TOPK_H_
