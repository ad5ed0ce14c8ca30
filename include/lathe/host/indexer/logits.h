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

namespace lathe {
namespace detail {
namespace LATHE_ABI {

inline Engine EngineFor(const KernelTable& kernels, Precision precision,
                        const IndexerInputs& inputs) {
  const bool is_bf16_query = inputs.q.empty() || inputs.q.dtype == DType::kBFloat16;
  const bool has_bf16 = kernels.index_logits[static_cast<size_t>(Engine::kBFloat16)] != nullptr;
  return ChooseEngine(has_bf16, precision, BFloat16KeysOf(inputs.cache.format), is_bf16_query);
}

// Of one worker, rounded so that every worker's starts on a cache line; whichever engine.
inline size_t IndexerScratchBytes(const KernelTable& kernels, int64_t num_heads, int64_t width,
                                  int64_t max_rows) {
  size_t bytes = 0;
  for (const auto scratch_bytes : kernels.indexer_scratch_bytes) {
    if (scratch_bytes == nullptr) continue;
    bytes = (std::max)(bytes, scratch_bytes(num_heads, width, max_rows));
  }
  return Arena::RoundUp(bytes);
}

// Every key that a row sees has a cell.
inline Status CheckColumns(const IndexerInputs& inputs, const IndexerShape& shape,
                           int64_t columns) {
  int64_t most = 0;
  ForEachIndexerBlock(inputs, shape, shape.num_tokens, [&most](const IndexerTask& block) {
    most = (std::max)(most, block.key_end);
  });
  if (most <= columns) return OkStatus();
  return Invalid("logits", ".extent")
      .At(1)
      .Is(columns)
      .Must("be at least the end of the longest row,", most);
}

inline Status CheckIndexerLogits(const IndexerLogitsArgs& args, const IndexerShape& shape,
                                 const IndexerLogitsOptions& options) {
  LATHE_RETURN_IF_REFUSED(CheckPrecision(options.precision));
  LATHE_RETURN_IF_REFUSED(CheckIndexerInputs(args.inputs, shape, options.check_indices));
  LATHE_RETURN_IF_REFUSED(CheckExtent("logits", 0, args.logits.extent[0], shape.num_tokens));
  const bool has_cells = shape.num_tokens > 0 && args.logits.extent[1] > 0;
  LATHE_RETURN_IF_REFUSED(CheckTensor("logits", Out<2>(args.logits), {has_cells, true}));
  LATHE_RETURN_IF_REFUSED(
      CheckIndexerOverlap(args.inputs, shape, RangeOf(args.logits), "not overlap logits"));
  return CheckColumns(args.inputs, shape, args.logits.extent[1]);
}

inline IndexerCall IndexerCallOf(const IndexerInputs& inputs, const IndexerShape& shape) {
  IndexerCall call;
  call.num_heads = shape.num_heads;
  call.width = shape.width;
  if (HasTensorScale(inputs.cache.format)) call.scale = inputs.cache.scale;
  call.inputs = inputs;
  if (inputs.q_fp8.extent[2] != 0) call.inputs.q = {};
  call.keys.cache = inputs.cache;
  call.keys.block_table = inputs.block_table;
  return call;
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

lathe::Status lathe::IndexerLogitsWorkspaceBytes(int64_t num_heads, int64_t head_dim,
                                                 int64_t max_num_tokens, size_t num_workers,
                                                 const IndexerLogitsOptions& options,
                                                 size_t* bytes) noexcept {
  LATHE_BEGIN_CALL;
  if (bytes == nullptr) return Invalid("bytes").Must("not be null");
  LATHE_RETURN_IF_REFUSED(CheckIndexerDims("num_heads", num_heads, "head_dim", head_dim));
  LATHE_RETURN_IF_REFUSED(CheckDim("max_num_tokens", max_num_tokens, 1));
  LATHE_RETURN_IF_REFUSED(CheckWorkers("num_workers", num_workers));
  LATHE_RETURN_IF_REFUSED(CheckPrecision(options.precision));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(ResolveTarget(options.target, &kernels));
  const int64_t rows = IndexerBlockRows(num_heads, head_dim, max_num_tokens, false);
  *bytes = num_workers * IndexerScratchBytes(*kernels, num_heads, head_dim, rows);
  return OkStatus();
}

lathe::Status lathe::ComputeIndexerLogits(const IndexerLogitsArgs& args, Buffer workspace,
                                          const IndexerLogitsOptions& options,
                                          const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  const IndexerShape shape = ShapeOf(args.inputs);
  LATHE_RETURN_IF_REFUSED(CheckIndexerLogits(args, shape, options));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(StartCall(options.target, executor, &kernels));
  if (shape.num_tokens == 0) return OkStatus();

  const int64_t max_rows = IndexerBlockRows(shape.num_heads, shape.width, shape.num_tokens,
                                            args.inputs.candidate_block_size > 0);
  const size_t scratch_bytes =
      IndexerScratchBytes(*kernels, shape.num_heads, shape.width, max_rows);
  LATHE_RETURN_IF_REFUSED(CheckBuffer("workspace", workspace, scratch_bytes));
  IndexerCall call = IndexerCallOf(args.inputs, shape);
  call.logits = args.logits;
  call.fill = options.fill;
  const auto run =
      kernels
          ->index_logits[static_cast<size_t>(EngineFor(*kernels, options.precision, call.inputs))];
  // Some 50 us, beside which packing a row's queries is little.
  const int64_t grain = CeilDiv(8 * 64 * 128, shape.num_heads * shape.width);
  auto* scratch = static_cast<std::byte*>(workspace.data);
  ForEachIndexerTask(executor, workspace.bytes / scratch_bytes, args.inputs, shape, max_rows, grain,
                     options.fill, [&](const IndexerTask& task, size_t lane) {
                       run(call, task, scratch + lane * scratch_bytes);
                     });
  return OkStatus();
}

#endif  // LATHE_HOST_INDEXER_LOGITS_H_
