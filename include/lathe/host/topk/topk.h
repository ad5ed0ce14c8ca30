// SPDX-License-Identifier: Apache-2.0
// Top-k: checks, then rows, or parts of rows where there are few, shared among workers.
#ifndef LATHE_HOST_TOPK_TOPK_H_
#define LATHE_HOST_TOPK_TOPK_H_

#include <algorithm>

#include "lathe/base/arena.h"
#include "lathe/dispatch/registry.h"
#include "lathe/host/call.h"
#include "lathe/host/parallel.h"
#include "lathe/host/topk/check.h"
#include "lathe/kernel/topk/row.h"
#include "lathe/topk.h"

namespace lathe::detail {
namespace {

// Columns that rows are cut at multiples of: whole cache lines. Some 0.1 us.
constexpr int64_t kTopkUnit = 1024;
// Columns that take as long as a part more: a guess of its own, and its candidates to be merged, some 3 us.
constexpr int64_t kTopkPartCost = 16384;

// Workers of an executor, as many of them as a workspace may be made for.
inline int64_t WorkersOf(const Executor& executor) {
  return static_cast<int64_t>((std::min)((std::max)(executor.num_workers, size_t{1}), kMaxWorkers));
}

// A workspace cut up: who does what, the workers' own candidates, and those of parts.
struct TopkWorkspace {
  TopkWorkspace(Arena& arena, int64_t num_columns, int64_t k, int64_t workers)
      : table(arena, workers), stride(k + TopkCandidates::kSlack) {
    const int64_t capacity = TopkCapacity(num_columns, k);
    lanes = CarveTopkCandidates(arena, workers * (capacity + TopkCandidates::kSlack));
    lane_capacity = capacity;
    const int64_t num_parts = ShareTable::MostParts(workers);
    if (num_parts == 0) return;
    in_parts = CarveTopkCandidates(arena, num_parts * stride);
    parts = arena.Take<TopkCandidates>(static_cast<size_t>(num_parts));
  }

  static TopkCandidates Cut(const TopkCandidates& all, int64_t at, int64_t capacity) {
    return {all.keys + at, all.indices + at, 0, capacity};
  }
  TopkCandidates Lane(size_t lane) const {
    return Cut(lanes, static_cast<int64_t>(lane) * (lane_capacity + TopkCandidates::kSlack),
               lane_capacity);
  }

  ShareTable table;
  int64_t stride;
  TopkCandidates lanes, in_parts;
  int64_t lane_capacity = 0;
  TopkCandidates* parts = nullptr;
};

inline size_t TopkBytes(int64_t num_columns, int64_t k, int64_t workers) {
  // At most k columns need no choice, and of none there is nothing to choose.
  if (k < 1 || num_columns <= k) return 0;
  Arena counting;
  TopkWorkspace(counting, num_columns, k, workers);
  return counting.bytes();
}

// Rows, and of those that workers share parts; whoever has done the last of a row's puts together what they have found.
inline void RunTopk(const KernelTable& kernels, const TopkArgs& args, const TopkOptions& options,
                    TopkWorkspace& workspace, const Executor& executor) {
  ShareTable& table = workspace.table;
  table.Fill(kTopkPartCost, args.logits.extent[0], [&](const auto& add) {
    for (int64_t t = 0; t < args.logits.extent[0]; ++t) {
      const int64_t n = TopkRowOf(args, options, t).num_columns();
      // Rows that are not chosen from have no parts. Writing a list takes some 1 us, too.
      const int64_t units = n > options.k ? CeilDiv(n, kTopkUnit) : 1;
      add(t, units, kTopkUnit);
    }
  });
  const auto run_part = [&](int64_t part, int64_t t, int64_t first, int64_t last, size_t lane) {
    const int64_t n = TopkRowOf(args, options, t).num_columns();
    const int64_t end = last == ShareTable::kToTheEnd ? n : (std::min)(n, last * kTopkUnit);
    CutItem& cut = table.CutOf(part);
    TopkCandidates* parts = workspace.parts + cut.first_part;
    // A row's parts lie side by side, so that they can be merged in the place of the first.
    workspace.parts[part] =
        TopkWorkspace::Cut(workspace.in_parts, part * workspace.stride, options.k);
    kernels.select_topk_part(args, options, t, first * kTopkUnit, end, workspace.Lane(lane),
                             &workspace.parts[part]);
    if (cut.parts_left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    kernels.merge_topk_parts(args, options, t, parts, cut.num_parts, workspace.Lane(lane));
  };
  ForEachItem(executor, static_cast<size_t>(WorkersOf(executor)), table.num_shares(),
              [&](int64_t share, size_t lane) {
                table.Run(
                    share,
                    [&](int64_t part, int64_t t, int64_t first, int64_t last) {
                      run_part(part, t, first, last, lane);
                    },
                    [&](int64_t begin, int64_t end) {
                      for (int64_t t = begin; t < end; ++t) {
                        kernels.select_topk(args, options, t, workspace.Lane(lane));
                      }
                    });
              });
}

}  // namespace
}  // namespace lathe::detail

lathe::Status lathe::TopkSizes(const TopkOptions& options, const Limits& limits,
                               Sizes* sizes) noexcept {
  LATHE_BEGIN_CALL;
  if (sizes == nullptr) return Invalid("sizes").Must("not be null");
  LATHE_RETURN_IF_REFUSED(CheckTopkOptions(options));
  LATHE_RETURN_IF_REFUSED(CheckDim("limits.max_num_keys", limits.max_num_keys, 0));
  LATHE_RETURN_IF_REFUSED(CheckWorkers("limits.num_workers", limits.num_workers));
  *sizes = {0, TopkBytes(limits.max_num_keys, options.k, static_cast<int64_t>(limits.num_workers))};
  return OkStatus();
}

lathe::Status lathe::SelectTopk(const TopkArgs& args, const TopkOptions& options, Buffer workspace,
                                const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckTopk(args, options));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(StartCall(options.target, executor, &kernels));
  const int64_t num_rows = args.logits.extent[0], num_columns = args.logits.extent[1];
  const int64_t k = options.k, workers = WorkersOf(executor);
  const size_t needed = TopkBytes(num_columns, k, workers);
  if (num_rows == 0) return OkStatus();
  LATHE_RETURN_IF_REFUSED(CheckBuffer("workspace", workspace, needed));
  if (needed == 0) {
    ForEachRange(executor, num_rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) kernels->select_topk(args, options, t, {});
    });
    return OkStatus();
  }
  Arena arena(workspace.data);
  TopkWorkspace cut(arena, num_columns, k, workers);
  RunTopk(*kernels, args, options, cut, executor);
  return OkStatus();
}

#endif  // LATHE_HOST_TOPK_TOPK_H_
