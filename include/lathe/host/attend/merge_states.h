// SPDX-License-Identifier: Apache-2.0
// Merge of partial results: checks, then rows shared among workers.
#ifndef LATHE_HOST_ATTEND_MERGE_STATES_H_
#define LATHE_HOST_ATTEND_MERGE_STATES_H_

#include "lathe/dispatch/registry.h"
#include "lathe/host/call.h"
#include "lathe/host/check.h"
#include "lathe/host/parallel.h"
#include "lathe/merge_states.h"

namespace lathe::detail {
namespace {

// Results may lie in a part's own place, element upon element; otherwise they must be apart from
// it.
inline Status CheckMergeOverlap(const MergeStatesArgs& args, const MergePart& part) {
  const ByteRange out = RangeOf(args.out);
  const ByteRange lse = RangeOf(args.lse);
  const bool out_in_place =
      args.out.dtype == part.out.dtype && IsSameLayout(args.out, part.out, args.out.extent);
  if (!out_in_place && Overlap(out, RangeOf(part.out))) {
    return Invalid("out").Must("be the very array of out, or not overlap it");
  }
  if (Overlap(out, RangeOf(part.lse))) return Invalid("lse").Must("not overlap out");
  if (!IsSameLayout(args.lse, part.lse, args.lse.extent) && Overlap(lse, RangeOf(part.lse))) {
    return Invalid("lse").Must("be the very array of lse, or not overlap it");
  }
  if (Overlap(lse, RangeOf(part.out))) return Invalid("out").Must("not overlap lse");
  return OkStatus();
}

inline Status CheckMergePart(const MergeStatesArgs& args, const MergePart& part) {
  const int64_t* extent = args.out.extent;
  for (int64_t dim = 0; dim < 3; ++dim) {
    LATHE_RETURN_IF_REFUSED(CheckExtent("out", dim, part.out.extent[dim], extent[dim]));
  }
  LATHE_RETURN_IF_REFUSED(CheckTensor("out", part.out, {extent[0] > 0}));
  LATHE_RETURN_IF_REFUSED(CheckElements("lse", part.lse, {extent[0], extent[1]}));
  return CheckMergeOverlap(args, part);
}

inline Status CheckMergeStates(const MergeStatesArgs& args) {
  if (args.num_parts == 0) return Invalid("num_parts").Is(0).Must("be at least", 1);
  if (args.parts == nullptr) return Invalid("parts").Must("not be null");
  const int64_t* extent = args.out.extent;
  for (int64_t dim = 1; dim < 3; ++dim) {
    if (extent[dim] < 1) return RefuseExtent("out", dim, extent[dim]).Must("be at least", 1);
  }
  LATHE_RETURN_IF_REFUSED(CheckTensor("out", args.out, {extent[0] > 0, true}));
  if (IsGiven(args.lse)) {
    LATHE_RETURN_IF_REFUSED(CheckElements("lse", args.lse, {extent[0], extent[1]}));
    if (Overlap(RangeOf(args.out), RangeOf(args.lse)))
      return Invalid("lse").Must("not overlap out");
  }
  if (IsGiven(args.attn_sink)) {
    LATHE_RETURN_IF_REFUSED(CheckElements("attn_sink", args.attn_sink, {extent[1]}));
    if (Overlap(RangeOf(args.attn_sink), RangeOf(args.out)) ||
        Overlap(RangeOf(args.attn_sink), RangeOf(args.lse))) {
      return Invalid("attn_sink").Must("not overlap out or lse");
    }
  }
  for (size_t i = 0; i < args.num_parts; ++i) {
    const Status status = CheckMergePart(args, args.parts[i]);
    if (!status.ok()) return status.Of("parts", static_cast<int64_t>(i));
  }
  return OkStatus();
}

}  // namespace
}  // namespace lathe::detail

lathe::Status lathe::MergeStates(const MergeStatesArgs& args, const MergeStatesOptions& options,
                                 const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckMergeStates(args));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(StartCall(options.target, executor, &kernels));
  // Eight rows of a few parts are some 10 us.
  ForEachRange(
      executor, args.out.extent[0] * args.out.extent[1], 8,
      [&](int64_t begin, int64_t end) { kernels->merge(args, options.lse_policy, begin, end); });
  return OkStatus();
}

#endif  // LATHE_HOST_ATTEND_MERGE_STATES_H_
