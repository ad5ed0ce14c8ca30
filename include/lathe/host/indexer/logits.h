// SPDX-License-Identifier: Apache-2.0
// Indexer logits: checks, then blocks of rows and ranges of keys shared among workers.
#ifndef LATHE_HOST_INDEXER_LOGITS_H_
#define LATHE_HOST_INDEXER_LOGITS_H_

#include <algorithm>

#include "lathe/base/arena.h"
#include "lathe/dispatch/registry.h"
#include "lathe/host/call.h"
#include "lathe/host/indexer/work.h"
#include "lathe/indexer_logits.h"

namespace lathe::detail {
namespace {

inline Engine EngineFor(const KernelTable& kernels, Precision precision,
                        const IndexerInputs& inputs) {
  const bool is_bf16_query = inputs.q_fp8.extent[2] != 0 || inputs.q.dtype == DType::kBFloat16;
  const bool has_bf16 = kernels.index_logits[static_cast<size_t>(Engine::kBFloat16)] != nullptr;
  return ChooseEngine(has_bf16, precision, BFloat16KeysOf(inputs.keys.cache.format), is_bf16_query);
}

// Of one worker, whichever engine: the kernels' scratch, rounded to cache lines, so that what it has for an unaligned
// start does for the whole workspace; and the worker's pieces.
inline size_t IndexerScratchBytes(const KernelTable& kernels, int64_t num_heads, int64_t width,
                                  int64_t max_rows) {
  size_t bytes = 0;
  for (const auto scratch_bytes : kernels.indexer_scratch_bytes) {
    if (scratch_bytes == nullptr) continue;
    bytes = (std::max)(bytes, scratch_bytes(num_heads, width, max_rows));
  }
  return Arena::RoundUp(bytes);
}

// What the sizes of both operations refuse.
inline Status CheckIndexerSizes(const IndexerShape& shape, Precision precision,
                                const Limits& limits, const Sizes* sizes) {
  if (sizes == nullptr) return Invalid("sizes").Must("not be null");
  LATHE_RETURN_IF_REFUSED(
      CheckIndexerDims("shape.num_heads", shape.num_heads, "shape.head_dim", shape.head_dim));
  LATHE_RETURN_IF_REFUSED(CheckDim("limits.max_num_tokens", limits.max_num_tokens, 1));
  LATHE_RETURN_IF_REFUSED(CheckWorkers("limits.num_workers", limits.num_workers));
  return CheckPrecision(precision);
}

// Every key that a row sees has a cell.
inline Status CheckColumns(const IndexerRows& rows, int64_t columns) {
  int64_t most = 0;
  ForEachIndexerBlock(rows, rows.batch.num_tokens, [&most](const IndexerTask& block) {
    most = (std::max)(most, block.key_end);
  });
  if (most <= columns) return OkStatus();
  return RefuseExtent("logits", 1, columns).Must("be at least the end of the longest row,", most);
}

inline Status CheckIndexerLogits(const IndexerLogitsArgs& args, const IndexerBatch& shape,
                                 const IndexerLogitsOptions& options) {
  LATHE_RETURN_IF_REFUSED(CheckPrecision(options.precision));
  LATHE_RETURN_IF_REFUSED(CheckIndexerInputs(args.inputs, shape, options.check_indices));
  LATHE_RETURN_IF_REFUSED(CheckExtent("logits", 0, args.logits.extent[0], shape.batch.num_tokens));
  const bool has_cells = shape.batch.num_tokens > 0 && args.logits.extent[1] > 0;
  LATHE_RETURN_IF_REFUSED(CheckTensor("logits", Out<2>(args.logits), {has_cells, true}));
  LATHE_RETURN_IF_REFUSED(
      CheckIndexerOverlap(args.inputs, shape, RangeOf(args.logits), "not overlap logits"));
  return CheckColumns({ResolveKeys(args.inputs.keys), shape.batch}, args.logits.extent[1]);
}

inline IndexerCall IndexerCallOf(const IndexerInputs& inputs, const IndexerBatch& shape) {
  const PagedCache& cache = inputs.keys.cache;
  IndexerCall call;
  call.num_heads = shape.num_heads;
  call.width = shape.width;
  if (HasTensorScale(cache.format)) call.scale = cache.scale;
  if (inputs.q_fp8.extent[2] == 0) call.q = inputs.q;
  call.q_fp8 = inputs.q_fp8;
  call.weights = inputs.weights;
  call.keys = ResolveKeys(inputs.keys);
  call.candidate_blocks = inputs.candidate_blocks;
  call.candidate_block_size = inputs.candidate_block_size;
  return call;
}

}  // namespace
}  // namespace lathe::detail

lathe::Status lathe::IndexerLogitsSizes(const IndexerShape& shape,
                                        const IndexerLogitsOptions& options, const Limits& limits,
                                        Sizes* sizes) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckIndexerSizes(shape, options.precision, limits, sizes));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(ResolveTarget(options.target, &kernels));
  const int64_t rows =
      IndexerBlockRows(shape.num_heads, shape.head_dim, limits.max_num_tokens, false);
  const size_t scratch_bytes = IndexerScratchBytes(*kernels, shape.num_heads, shape.head_dim, rows);
  *sizes = {0, limits.num_workers * (scratch_bytes + ShareTable::BytesPerWorker())};
  return OkStatus();
}

lathe::Status lathe::ComputeIndexerLogits(const IndexerLogitsArgs& args,
                                          const IndexerLogitsOptions& options, Buffer workspace,
                                          const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  const IndexerBatch shape = ShapeOf(args.inputs);
  LATHE_RETURN_IF_REFUSED(CheckIndexerLogits(args, shape, options));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(StartCall(options.target, executor, &kernels));
  if (shape.batch.num_tokens == 0) return OkStatus();

  const int64_t max_rows = IndexerBlockRows(shape.num_heads, shape.width, shape.batch.num_tokens,
                                            args.inputs.candidate_block_size > 0);
  const size_t scratch_bytes =
      IndexerScratchBytes(*kernels, shape.num_heads, shape.width, max_rows);
  const size_t worker_bytes = scratch_bytes + ShareTable::BytesPerWorker();
  LATHE_RETURN_IF_REFUSED(CheckBuffer("workspace", workspace, worker_bytes));
  IndexerCall call = IndexerCallOf(args.inputs, shape);
  call.logits = args.logits;
  call.fill = options.fill;
  const size_t workers =
      (std::min)((std::max)(executor.num_workers, size_t{1}), workspace.bytes / worker_bytes);
  Arena arena(workspace.data);
  ShareTable table(arena, static_cast<int64_t>(workers));
  auto* scratch = arena.Take<std::byte>(workers * scratch_bytes);
  const IndexerRows rows{call.keys, shape.batch};
  // Packing queries takes about as long as scoring a unit of keys.
  const int64_t piece_cost = max_rows * IndexerPieceWork(shape.num_heads, shape.width);
  const IndexerPieces<IndexerRows> work(rows, max_rows, piece_cost, options.fill, &table);
  const Engine engine = EngineFor(*kernels, options.precision, args.inputs);
  const auto run = kernels->index_logits[static_cast<size_t>(engine)];
  ForEachItem(executor, workers, work.num_pieces(), [&](int64_t piece, size_t lane) {
    work.ForEachTask(
        piece, [&](const IndexerTask& task) { run(call, task, scratch + lane * scratch_bytes); });
  });
  return OkStatus();
}

#endif  // LATHE_HOST_INDEXER_LOGITS_H_
