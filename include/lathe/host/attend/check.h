// SPDX-License-Identifier: Apache-2.0
// What attention refuses of options, limits and sizes, whichever keys it is over.
#ifndef LATHE_HOST_ATTEND_CHECK_H_
#define LATHE_HOST_ATTEND_CHECK_H_

#include <cmath>

#include "lathe/host/check.h"
#include "lathe/host/engine_choice.h"
#include "lathe/mla_decode.h"

namespace lathe::detail {
namespace {

inline Status CheckScoreTransform(const char* name, float parameter) {
  if (parameter >= 0.0f && std::isfinite(parameter)) return OkStatus();
  return Invalid(name).Is(parameter).Must("be finite and at least 0 (0: none)");
}

// What MlaDecodeOptions and PrefillOptions have in common.
template <class Options>
Status CheckOptions(const Options& options) {
  const float scale = options.softmax_scale;
  if (!(scale > 0.0f) || !std::isfinite(scale)) {
    return Invalid("options.softmax_scale")
        .Is(scale)
        .Must("be finite and above 0 (it has no default)");
  }
#define LATHE_SCORE_TRANSFORM(option, functor) \
  LATHE_RETURN_IF_REFUSED(CheckScoreTransform("options." #option, options.option));
#include "lathe/base/score_transforms.def"
#undef LATHE_SCORE_TRANSFORM
  return CheckPrecision(options.precision);
}

// Keys of one sequence.
constexpr int64_t kMaxKeys = int64_t{1} << 40;

inline Status CheckLimits(const Limits& limits) {
  LATHE_RETURN_IF_REFUSED(CheckDim("limits.max_num_seqs", limits.max_num_seqs, 1));
  LATHE_RETURN_IF_REFUSED(CheckDim("limits.max_num_tokens", limits.max_num_tokens, 1));
  LATHE_RETURN_IF_REFUSED(CheckWithin("limits.max_num_keys", limits.max_num_keys, 1, kMaxKeys));
  return CheckWorkers("limits.num_workers", limits.num_workers);
}

// Query rows times keys of a step: more than any machine computes in a day, and so little that sums
// of work, times a few for each of 65536 workers, cannot overflow.
constexpr int64_t kMaxWork = int64_t{1} << 44;

// out [T, H, Dv] and, where it is given, lse [T, H].
inline Status CheckResults(const Out<3>& out, const View<float, 2>& lse, int64_t num_heads,
                           int64_t v_dim, bool needs_data) {
  const int64_t num_tokens = out.extent[0];
  const int64_t expected[3] = {num_tokens, num_heads, v_dim};
  for (int64_t dim = 0; dim < 3; ++dim) {
    LATHE_RETURN_IF_REFUSED(CheckExtent("out", dim, out.extent[dim], expected[dim]));
  }
  LATHE_RETURN_IF_REFUSED(CheckTensor("out", out, {needs_data && num_tokens > 0, true}));
  if (!IsGiven(lse)) return OkStatus();
  return CheckElements("lse", lse, {num_tokens, num_heads}, needs_data);
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_ATTEND_CHECK_H_
