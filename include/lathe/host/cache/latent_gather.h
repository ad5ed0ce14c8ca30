// SPDX-License-Identifier: Apache-2.0
// Gather: checks, then tokens shared among workers.
#ifndef LATHE_HOST_CACHE_LATENT_GATHER_H_
#define LATHE_HOST_CACHE_LATENT_GATHER_H_

#include <algorithm>

#include "lathe/host/call.h"
#include "lathe/host/check.h"
#include "lathe/host/parallel.h"
#include "lathe/latent_cache.h"

namespace lathe::detail {
namespace {

// All rows of one sequence.
inline GatherTask GatherTaskOf(const LatentGatherArgs& args, int64_t seq) {
  const int64_t length = args.gather_lens(seq);
  const int64_t count = args.last_n > 0 ? (std::min)(length, args.last_n) : length;
  const int64_t start = args.gather_starts.empty() ? 0 : args.gather_starts(seq);
  return {seq, start + length - count, args.out_start_loc(seq), count};
}

// Everything that can be said without reading what index arrays hold.
inline Status CheckGatherArgs(const LatentGatherArgs& args) {
  const int64_t num_seqs = args.gather_lens.extent[0], width = args.out.extent[1];
  if (width < 1 || width > kMaxDim) {
    return RefuseExtent("out", 1, width).Must("be within 1 and", kMaxDim);
  }
  const bool has_rows = args.out.extent[0] > 0;
  LATHE_RETURN_IF_REFUSED(CheckTensor("out", args.out, {has_rows, true}));
  LATHE_RETURN_IF_REFUSED(CheckCache("cache", args.cache, width, has_rows));
  LATHE_RETURN_IF_REFUSED(CheckIndices("gather_lens", args.gather_lens, {-1}));
  LATHE_RETURN_IF_REFUSED(CheckIndices("block_table", args.block_table, {num_seqs, -1}));
  if (IsGiven(args.gather_starts)) {
    LATHE_RETURN_IF_REFUSED(CheckIndices("gather_starts", args.gather_starts, {num_seqs}));
  }
  LATHE_RETURN_IF_REFUSED(CheckIndices("out_start_loc", args.out_start_loc, {-1}));
  if (args.out_start_loc.extent[0] < num_seqs) {
    return RefuseExtent("out_start_loc", 0, args.out_start_loc.extent[0])
        .Must("be at least gather_lens.extent[0] =", num_seqs);
  }
  if (args.last_n < 0) return Invalid("last_n").Is(args.last_n).Must("be at least", 0);
  return CheckApart({{"cache", RangeOf(args.cache, width)},
                     {"block_table", RangeOf(args.block_table)},
                     {"gather_lens", RangeOf(args.gather_lens)},
                     {"gather_starts", RangeOf(args.gather_starts)},
                     {"out_start_loc", RangeOf(args.out_start_loc)}},
                    {{"not overlap out", RangeOf(args.out)}});
}

inline Status CheckGatherLengths(const LatentGatherArgs& args, int64_t seq) {
  const int64_t covered = SaturatingMul(args.block_table.extent[1], args.cache.block_size);
  const int64_t start = args.gather_starts.empty() ? 0 : args.gather_starts(seq);
  if (start < 0 || start > covered) {
    return OutOfRange("gather_starts")
        .At(seq)
        .Is(start)
        .Must("be within 0 and block_table.extent[1] * cache.block_size =", covered);
  }
  const int64_t length = args.gather_lens(seq);
  if (length < 0) return Invalid("gather_lens").At(seq).Is(length).Must("be at least", 0);
  if (length > covered - start) {
    return OutOfRange("gather_lens")
        .At(seq)
        .Is(length)
        .Must("be at most what block_table covers from gather_starts on,", covered - start);
  }
  return OkStatus();
}

// A task's rows lie in out, at `first_free` or later, where the rows of the sequence before have ended.
inline Status CheckGatherRows(const LatentGatherArgs& args, const GatherTask& task,
                              int64_t first_free) {
  const Status refused = OutOfRange("out_start_loc").At(task.seq).Is(task.row);
  if (task.row < first_free)
    return refused.Must("be at least the end of the rows before,", first_free);
  if (task.row > args.out.extent[0] - task.count) {
    return refused.Must("leave room in out, be at most", args.out.extent[0] - task.count);
  }
  return OkStatus();
}

inline Status CheckGatherBlocks(const LatentGatherArgs& args, const GatherTask& task) {
  if (task.count == 0) return OkStatus();
  const int64_t block_size = args.cache.block_size, end = task.position + task.count;
  return CheckBlocks("block_table", "be within 0 and cache.num_blocks - 1 =", args.block_table,
                     args.cache.num_blocks, task.seq, task.position / block_size,
                     (end - 1) / block_size + 1);
}

inline Status CheckGather(const LatentGatherArgs& args) {
  LATHE_RETURN_IF_REFUSED(CheckGatherArgs(args));
  int64_t first_free = 0;
  for (int64_t seq = 0; seq < args.gather_lens.extent[0]; ++seq) {
    LATHE_RETURN_IF_REFUSED(CheckGatherLengths(args, seq));
    const GatherTask task = GatherTaskOf(args, seq);
    LATHE_RETURN_IF_REFUSED(CheckGatherRows(args, task, first_free));
    LATHE_RETURN_IF_REFUSED(CheckGatherBlocks(args, task));
    first_free = task.row + task.count;
  }
  return OkStatus();
}

}  // namespace
}  // namespace lathe::detail

lathe::Status lathe::GatherLatentCache(const LatentGatherArgs& args,
                                       const LatentGatherOptions& options,
                                       const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckGather(args));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(StartCall(options.target, executor, &kernels));
  ForEachRangeOfParts(
      executor, args.gather_lens.extent[0], 32,
      [&](int64_t seq) { return GatherTaskOf(args, seq).count; },
      [&](int64_t seq, int64_t begin, int64_t end) {
        const GatherTask all = GatherTaskOf(args, seq);
        kernels->gather_latents(args, {seq, all.position + begin, all.row + begin, end - begin});
      });
  return OkStatus();
}

#endif  // LATHE_HOST_CACHE_LATENT_GATHER_H_
