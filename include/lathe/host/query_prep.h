// SPDX-License-Identifier: Apache-2.0
// Query preparation: checks, then rows shared among workers.
#ifndef LATHE_HOST_QUERY_PREP_H_
#define LATHE_HOST_QUERY_PREP_H_

#include <algorithm>
#include <cmath>

#include "lathe/host/call.h"
#include "lathe/host/check.h"
#include "lathe/host/parallel.h"
#include "lathe/host/row_transform_check.h"
#include "lathe/query_prep.h"

namespace lathe::detail {
namespace {

inline Status CheckQueryRows(const QueryPrepArgs& args) {
  const int64_t* extent = args.q.extent;
  for (int64_t dim = 1; dim < 3; ++dim) {
    if (extent[dim] < 1) {
      return RefuseExtent("q", dim, extent[dim]).Must("be at least", 1);
    }
  }
  if (extent[2] > kMaxTransformWidth) {
    return RefuseExtent("q", 2, extent[2]).Must("be at most", kMaxTransformWidth);
  }
  LATHE_RETURN_IF_REFUSED(CheckTensor("q", args.q, {}));
  LATHE_RETURN_IF_REFUSED(CheckRowTransform(args.transform, extent[2]));
  LATHE_RETURN_IF_REFUSED(CheckPositions("positions", args.positions, args.transform.rope,
                                         extent[0], [](int64_t) { return true; }));
  if (IsGiven(args.out) == IsGiven(args.codes)) {
    return Invalid("out").Must("be given, or codes, and not both");
  }
  if (IsGiven(args.out)) {
    LATHE_RETURN_IF_REFUSED(CheckExtents("out", args.out, extent, 3));
    return CheckTensor("out", args.out, {true, true});
  }
  LATHE_RETURN_IF_REFUSED(CheckExtents("codes", args.codes, extent, 3));
  return CheckRows("codes", args.codes, sizeof(float8_e4m3fn), {true, true});
}

inline Status CheckHeadWeights(const QueryPrepArgs& args, const QueryPrepOptions& options) {
  LATHE_RETURN_IF_REFUSED(CheckTensor("weights", args.weights, {}));
  LATHE_RETURN_IF_REFUSED(CheckElements("weights_out", args.weights_out,
                                        {args.weights.extent[0], args.weights.extent[1]}));
  if (!std::isfinite(options.softmax_scale)) {
    return Invalid("softmax_scale").Is(options.softmax_scale).Must("be finite");
  }
  if (!std::isfinite(options.head_scale)) {
    return Invalid("head_scale").Is(options.head_scale).Must("be finite");
  }
  return OkStatus();
}

inline Status CheckQueryOverlaps(const QueryPrepArgs& args) {
  const bool has_rope = args.transform.rope.is_given();
  const NamedRange written[] = {{"out", RangeOf(args.out)},
                                {"codes", RangeOf(args.codes)},
                                {"q_scales", RangeOf(args.q_scales)},
                                {"weights_out", RangeOf(args.weights_out)}};
  const NamedRange read[] = {{"q", RangeOf(args.q)},
                             {"weights", RangeOf(args.weights)},
                             {"positions", has_rope ? RangeOf(args.positions) : ByteRange{}}};
  const bool out_in_place =
      args.out.dtype == args.q.dtype && IsSameLayout(args.out, args.q, args.q.extent);
  const bool weights_in_place = args.weights.dtype == DType::kFloat32 &&
                                IsSameLayout(args.weights_out, args.weights, args.weights.extent);
  constexpr const char* kRule = "not overlap another array of the call";
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      if ((i == 0 && j == 0 && out_in_place) || (i == 3 && j == 1 && weights_in_place)) continue;
      if (Overlap(written[i].range, read[j].range)) {
        return Invalid(written[i].name).Must(kRule).Because(read[j].name);
      }
    }
    for (size_t j = 0; j < i; ++j) {
      if (Overlap(written[i].range, written[j].range)) {
        return Invalid(written[i].name).Must(kRule).Because(written[j].name);
      }
    }
    if (Overlaps(args.transform, written[i].range)) {
      return Invalid(written[i].name).Must(kRule).Because("transform");
    }
  }
  return OkStatus();
}

inline Status CheckQueryPrep(const QueryPrepArgs& args, const QueryPrepOptions& options) {
  if (args.q.extent[0] == 0 && args.weights.extent[0] == 0) return OkStatus();
  const bool has_q = IsGiven(args.q), has_weights = IsGiven(args.weights);
  if (has_q) LATHE_RETURN_IF_REFUSED(CheckQueryRows(args));
  if (!has_q && (IsGiven(args.out) || IsGiven(args.codes))) {
    return Invalid("q").Must("be given with out or codes");
  }
  if (IsGiven(args.q_scales)) {
    if (!IsGiven(args.codes)) return Invalid("q_scales").Must("not be given without codes");
    LATHE_RETURN_IF_REFUSED(
        CheckElements("q_scales", args.q_scales, {args.q.extent[0], args.q.extent[1]}));
  }
  if (has_weights != IsGiven(args.weights_out)) {
    return Invalid("weights_out").Must("be given with weights, and not without");
  }
  if (has_weights) {
    if (has_q) LATHE_RETURN_IF_REFUSED(CheckExtents("weights", args.weights, args.q.extent, 2));
    LATHE_RETURN_IF_REFUSED(CheckHeadWeights(args, options));
  }
  return CheckQueryOverlaps(args);
}

}  // namespace
}  // namespace lathe::detail

lathe::Status lathe::PrepareQueries(const QueryPrepArgs& args, const QueryPrepOptions& options,
                                    const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  LATHE_RETURN_IF_REFUSED(CheckQueryPrep(args, options));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(StartCall(options.target, executor, &kernels));
  const bool has_q = IsGiven(args.q);
  const int64_t num_rows =
      has_q ? args.q.extent[0] * args.q.extent[1] : args.weights.extent[0] * args.weights.extent[1];
  // Some 5 us, from where on a second thread pays. Without rows nothing has been checked: they may have no columns.
  const int64_t columns = has_q ? (std::max)(int64_t{1}, args.q.extent[2]) : 4;
  const int64_t grain = (std::max)(int64_t{1}, 16384 / columns);
  ForEachRange(executor, num_rows, grain, [&](int64_t begin, int64_t end) {
    kernels->prepare_queries(args, options, begin, end);
  });
  return OkStatus();
}

#endif  // LATHE_HOST_QUERY_PREP_H_
