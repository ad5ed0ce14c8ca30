// SPDX-License-Identifier: Apache-2.0
// Compressor: checks, then two phases: entries pooled from the state as it was and the call's tokens, finished and
// written; rows saved. Saving comes last, since it overwrites rows of the ring that are pooled.
#ifndef LATHE_HOST_COMPRESSOR_COMPRESSOR_H_
#define LATHE_HOST_COMPRESSOR_COMPRESSOR_H_

#include <algorithm>
#include <atomic>
#include <new>

#include "lathe/base/arena.h"
#include "lathe/dispatch/registry.h"
#include "lathe/host/call.h"
#include "lathe/host/compressor/check.h"
#include "lathe/host/parallel.h"

namespace lathe::detail {
namespace {

// Entries that have stats of their own, and lanes that pool whole entries: more than either is good for.
constexpr int64_t kMaxStatsRows = 256;
// Rows times columns that are worth a task: some 2 us.
constexpr int64_t kPoolGrain = 4096;

struct CompressorWorkspace {
  CompressedEntry* entries;
  // Of min(entries, kMaxStatsRows) entries, or null where partials are wanted.
  float* stats;  // [3, D] each
  std::atomic<int64_t>* blocks_left;
};

inline CompressorWorkspace CarveCompressor(Arena& arena, int64_t num_entries, int64_t head_dim,
                                           bool has_stats) {
  CompressorWorkspace workspace = {};
  workspace.entries = arena.Take<CompressedEntry>(static_cast<size_t>(num_entries));
  if (has_stats) {
    const int64_t rows = (std::min)(num_entries, kMaxStatsRows);
    workspace.stats = arena.Take<float>(static_cast<size_t>(rows * 3 * head_dim));
    workspace.blocks_left = arena.Take<std::atomic<int64_t>>(static_cast<size_t>(rows));
  }
  return workspace;
}

// Boundaries whose entries are written.
inline int64_t CountEntries(const CompressorArgs& args, int64_t ratio) {
  int64_t count = 0;
  if (!HasSlotMapping(args)) {
    for (int64_t seq = 0; seq < NumSeqs(args); ++seq) {
      const SeqTokens tokens = TokensOf(args, seq);
      count += NumBoundaries(tokens.position, tokens.count(), ratio);
    }
    return count;
  }
  (void)ForEachBoundary(args, ratio, [&](int64_t, int64_t token, int64_t) {
    count += args.slot_mapping(token) >= 0 ? 1 : 0;
    return OkStatus();
  });
  return count;
}

inline void ListEntries(const CompressorArgs& args, int64_t ratio, CompressedEntry* entries) {
  (void)ForEachBoundary(args, ratio, [&](int64_t seq, int64_t token, int64_t position) {
    const int64_t slot = SlotOfEntry(args, ratio, seq, token, position);
    if (slot >= 0) *entries++ = {token, seq, slot};
    return OkStatus();
  });
}

// Checks everything, and tells the number of entries.
inline Status CheckCompressor(const CompressorArgs& args, const CompressorOptions& options,
                              Buffer workspace, int64_t* num_entries) {
  LATHE_RETURN_IF_REFUSED(CheckCompressorOptions(options));
  LATHE_RETURN_IF_REFUSED(CheckCompressorInputs(args, options));
  LATHE_RETURN_IF_REFUSED(CheckSequences(args));
  LATHE_RETURN_IF_REFUSED(CheckTokenPositions(args));
  LATHE_RETURN_IF_REFUSED(CheckState(args, options));
  if (HasSlotMapping(args)) {
    LATHE_RETURN_IF_REFUSED(CheckIndices("slot_mapping", args.slot_mapping, {NumTokens(args)}));
  }
  *num_entries = CountEntries(args, options.ratio);
  LATHE_RETURN_IF_REFUSED(CheckDestination(args, options, *num_entries));
  LATHE_RETURN_IF_REFUSED(CheckEntriesAndRows(args, options));

  Arena counting;
  CarveCompressor(counting, *num_entries, HeadDim(args, options), !WantsPartials(args));
  LATHE_RETURN_IF_REFUSED(CheckBuffer("workspace", workspace, counting.bytes()));
  const auto begin = reinterpret_cast<uintptr_t>(workspace.data);
  return CheckCompressorOverlaps(args, HeadDim(args, options), {begin, begin + counting.bytes()});
}

// All column blocks of all entries; f(entry) when those of one are done, if `blocks_left` counts them.
template <class F>
void PoolByColumns(const KernelTable& kernels, const CompressCall& call, int64_t num_entries,
                   std::atomic<int64_t>* blocks_left, const Executor& executor, const F& f) {
  const int64_t num_blocks = NumPoolBlocks(call.stats.extent[2]);
  const int64_t block_work = SaturatingMul(PoolWindow(call.options), kPoolColumns);
  for (int64_t i = 0; blocks_left != nullptr && i < num_entries; ++i) {
    new (&blocks_left[i]) std::atomic<int64_t>(num_blocks);
  }
  ForEachRange(executor, num_entries * num_blocks, (std::max)(int64_t{1}, kPoolGrain / block_work),
               [&](int64_t begin, int64_t end) {
                 kernels.pool_columns(call, begin, end);
                 while (blocks_left != nullptr && begin < end) {
                   const int64_t entry = begin / num_blocks;
                   const int64_t n = (std::min)(end, (entry + 1) * num_blocks) - begin;
                   if (blocks_left[entry].fetch_sub(n, std::memory_order_acq_rel) == n) f(entry);
                   begin += n;
                 }
               });
}

// Few entries of many rows are pooled by columns, so that all workers have some; more by entries.
inline void RunEntries(const KernelTable& kernels, const CompressCall& call, int64_t num_entries,
                       std::atomic<int64_t>* blocks_left, const Executor& executor) {
  const int64_t head_dim = call.stats.extent[2], window = PoolWindow(call.options);
  const auto workers = static_cast<int64_t>((std::max)(executor.num_workers, size_t{1}));
  const bool wants_partials = WantsPartials(call.args);
  const int64_t row_work = SaturatingMul(window, head_dim);
  const bool is_split =
      num_entries <= kMaxStatsRows && num_entries < 4 * workers && row_work >= 2 * kPoolGrain;
  if (is_split || wants_partials) {
    return PoolByColumns(kernels, call, num_entries, blocks_left, executor,
                         [&](int64_t entry) { kernels.finish_entries(call, entry, entry + 1); });
  }
  ForEachRangeInLane(executor, static_cast<size_t>(kMaxStatsRows), num_entries,
                     (std::max)(int64_t{1}, kPoolGrain / row_work),
                     [&](int64_t begin, int64_t end, size_t lane) {
                       kernels.compress(call, begin, end, static_cast<int64_t>(lane));
                     });
}

}  // namespace
}  // namespace lathe::detail

lathe::Status lathe::CompressorSizes(const CompressorShape& shape, const CompressorOptions& options,
                                     const Limits& limits, Sizes* sizes) noexcept {
  LATHE_BEGIN_CALL;
  if (sizes == nullptr) return Invalid("sizes").Must("not be null");
  LATHE_RETURN_IF_REFUSED(CheckWithin("shape.head_dim", shape.head_dim, 1, kMaxTransformWidth));
  LATHE_RETURN_IF_REFUSED(CheckCompressorOptions(options));
  LATHE_RETURN_IF_REFUSED(CheckDim("limits.max_num_seqs", limits.max_num_seqs, 1));
  LATHE_RETURN_IF_REFUSED(CheckDim("limits.max_num_tokens", limits.max_num_tokens, 1));
  // A sequence of n tokens has at most ceil(n / ratio) boundaries.
  const int64_t num_entries = (std::min)(
      limits.max_num_tokens, limits.max_num_tokens / options.ratio + limits.max_num_seqs);
  Arena counting;
  CarveCompressor(counting, num_entries, shape.head_dim, true);
  *sizes = {0, counting.bytes()};
  return OkStatus();
}

lathe::Status lathe::CompressTokens(const CompressorArgs& args, const CompressorOptions& options,
                                    Buffer workspace, const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  int64_t num_entries = 0;
  LATHE_RETURN_IF_REFUSED(CheckCompressor(args, options, workspace, &num_entries));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(StartCall(options.target, executor, &kernels));
  CompressCall call{args, options, nullptr, args.partials};
  if (num_entries > 0) {
    Arena arena(workspace.data);
    const int64_t head_dim = HeadDim(args, options);
    const CompressorWorkspace pieces =
        CarveCompressor(arena, num_entries, head_dim, !WantsPartials(args));
    ListEntries(args, options.ratio, pieces.entries);
    call.entries = pieces.entries;
    if (!WantsPartials(args)) {
      call.stats = Packed(pieces.stats, (std::min)(num_entries, kMaxStatsRows), 3, head_dim);
    }
    RunEntries(*kernels, call, num_entries, pieces.blocks_left, executor);
  }
  // A row of 8 KB takes about half a microsecond.
  ForEachRange(executor, NumTokens(args), 4,
               [&](int64_t begin, int64_t end) { kernels->save_states(call, begin, end); });
  return OkStatus();
}

lathe::Status lathe::MergeCompressed(const CompressedMergeArgs& args,
                                     const CompressedMergeOptions& options,
                                     const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckCompressedMerge(args, options));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(StartCall(options.target, executor, &kernels));
  ForEachRange(executor, args.positions.extent[0], 8, [&](int64_t begin, int64_t end) {
    kernels->merge_compressed(args, options, begin, end);
  });
  return OkStatus();
}

#endif  // LATHE_HOST_COMPRESSOR_COMPRESSOR_H_
