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

// Columns of a part at least: some 3 us to read. Each part also takes a guess of its own, 2 us.
constexpr int64_t kLeastTopkPart = 32768;

// Parts that each of `num_rows` rows is cut into; they have no influence on results. For all rows at most
// 3 * workers: less than 2 * workers + num_rows, and one where rows are as many as workers.
inline int64_t TopkPartsOfRow(int64_t num_rows, int64_t num_columns, int64_t workers) {
  if (num_rows >= workers) return 1;
  const int64_t wanted = (std::min)(workers, (2 * workers + num_rows - 1) / num_rows);
  return ClampTopk(num_columns / kLeastTopkPart, 1, wanted);
}
constexpr int64_t MostTopkParts(int64_t num_columns, int64_t workers) {
  return workers > 1 && num_columns >= 2 * kLeastTopkPart ? 3 * workers : 0;
}

// Workers of an executor, as many of them as a workspace may be made for.
inline int64_t WorkersOf(const Executor& executor) {
  return static_cast<int64_t>((std::min)((std::max)(executor.num_workers, size_t{1}), kMaxWorkers));
}

// A workspace cut up: the workers' own candidates, and those of parts.
struct TopkWorkspace {
  TopkWorkspace(Arena& arena, int64_t num_columns, int64_t k, int64_t workers) {
    const int64_t capacity = TopkCapacity(num_columns, k);
    lanes = CarveTopkCandidates(arena, workers * (capacity + TopkCandidates::kSlack));
    lane_capacity = capacity;
    const int64_t num_parts = MostTopkParts(num_columns, workers);
    if (num_parts == 0) return;
    in_parts = CarveTopkCandidates(arena, num_parts * (k + TopkCandidates::kSlack));
    parts = arena.Take<TopkCandidates>(static_cast<size_t>(num_parts));
  }

  static TopkCandidates Cut(const TopkCandidates& all, int64_t at, int64_t capacity) {
    return {all.keys + at, all.indices + at, 0, capacity};
  }
  TopkCandidates Lane(size_t lane) const {
    return Cut(lanes, static_cast<int64_t>(lane) * (lane_capacity + TopkCandidates::kSlack),
               lane_capacity);
  }

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

// Parts of all rows, then of each row what its parts have found.
inline void SelectTopkInParts(const KernelTable& kernels, const TopkArgs& args,
                              const TopkOptions& options, const TopkWorkspace& workspace,
                              int64_t num_parts, const Executor& executor) {
  const int64_t num_rows = args.logits.extent[0];
  const auto workers = static_cast<size_t>(WorkersOf(executor));
  // The parts of a row lie side by side, so that they can be merged in their place.
  const int64_t row_stride = num_parts * options.k + TopkCandidates::kSlack;
  ForEachItem(executor, workers, num_rows * num_parts, [&](int64_t item, size_t lane) {
    const int64_t t = item / num_parts, part = item % num_parts;
    workspace.parts[item] =
        TopkWorkspace::Cut(workspace.in_parts, t * row_stride + part * options.k, options.k);
    kernels.select_topk_part(args, options, t, part, num_parts, workspace.Lane(lane),
                             &workspace.parts[item]);
  });
  ForEachItem(executor, workers, num_rows, [&](int64_t t, size_t lane) {
    kernels.merge_topk_parts(args, options, t, workspace.parts + t * num_parts, num_parts,
                             workspace.Lane(lane));
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
  const TopkWorkspace cut(arena, num_columns, k, workers);
  const int64_t num_parts = TopkPartsOfRow(num_rows, num_columns, workers);
  if (num_parts > 1) {
    SelectTopkInParts(*kernels, args, options, cut, num_parts, executor);
  } else {
    ForEachItem(executor, static_cast<size_t>(workers), num_rows, [&](int64_t t, size_t lane) {
      kernels->select_topk(args, options, t, cut.Lane(lane));
    });
  }
  return OkStatus();
}

#endif  // LATHE_HOST_TOPK_TOPK_H_
