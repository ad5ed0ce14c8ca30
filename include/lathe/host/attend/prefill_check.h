// SPDX-License-Identifier: Apache-2.0
// What prefill refuses.
#ifndef LATHE_HOST_ATTEND_PREFILL_CHECK_H_
#define LATHE_HOST_ATTEND_PREFILL_CHECK_H_

#include "lathe/host/attend/check.h"
#include "lathe/host/batch.h"
#include "lathe/prefill.h"

namespace lathe::detail {
namespace {

inline Batch BatchOf(const PrefillArgs& args) {
  return {{args.out.extent[0], args.query_start_loc.extent[0] - 1}, args.query_start_loc};
}

inline Status CheckShape(const PrefillShape& shape) {
  LATHE_RETURN_IF_REFUSED(CheckDim("shape.num_heads", shape.num_heads, 1));
  LATHE_RETURN_IF_REFUSED(CheckDim("shape.num_kv_heads", shape.num_kv_heads, 0));
  if (shape.num_heads % shape.kv_heads() != 0) {
    return Invalid("shape.num_kv_heads")
        .Is(shape.num_kv_heads)
        .Must("divide shape.num_heads =", shape.num_heads);
  }
  LATHE_RETURN_IF_REFUSED(CheckDim("shape.qk_head_dim", shape.qk_head_dim, 1));
  return CheckDim("shape.v_head_dim", shape.v_head_dim, 1);
}

inline Status CheckPrefillOptions(const PrefillOptions& options) {
  LATHE_RETURN_IF_REFUSED(CheckOptions(options));
  if (options.window >= 1) return OkStatus();
  return Invalid("options.window").Is(options.window).Must("be at least", 1);
}

// q, k and v; expected -1: any extent.
inline Status CheckPrefillInput(const char* name, const In<3>& view, const int64_t (&expected)[3],
                                bool needs_data) {
  for (int64_t dim = 0; dim < 3; ++dim) {
    if (expected[dim] < 0) continue;
    LATHE_RETURN_IF_REFUSED(CheckExtent(name, dim, view.extent[dim], expected[dim]));
  }
  return CheckTensor(name, view, {needs_data && view.extent[0] > 0});
}

inline Status CheckPrefillOverlap(const PrefillArgs& args) {
  const ByteRange out = RangeOf(args.out);
  const ByteRange lse = RangeOf(args.lse);
  LATHE_RETURN_IF_REFUSED(CheckApart({{"q", RangeOf(args.q)},
                                      {"query_start_loc", RangeOf(args.query_start_loc)},
                                      {"k", RangeOf(args.k)},
                                      {"v", RangeOf(args.v)},
                                      {"kv_start_loc", RangeOf(args.kv_start_loc)},
                                      {"attn_sink", RangeOf(args.attn_sink)}},
                                     {{"not overlap out", out}, {"not overlap lse", lse}}));
  if (Overlap(out, lse)) return Invalid("lse").Must("not overlap out");
  return OkStatus();
}

// Plan needs no tensor data.
inline Status CheckArgs(const PrefillShape& shape, const PrefillArgs& args, bool needs_data) {
  LATHE_RETURN_IF_REFUSED(CheckStartLocShape("query_start_loc", args.query_start_loc));
  LATHE_RETURN_IF_REFUSED(CheckStartLocShape("kv_start_loc", args.kv_start_loc));
  LATHE_RETURN_IF_REFUSED(
      CheckExtent("kv_start_loc", 0, args.kv_start_loc.extent[0], args.query_start_loc.extent[0]));
  LATHE_RETURN_IF_REFUSED(
      CheckResults(args.out, args.lse, shape.num_heads, shape.v_head_dim, needs_data));
  LATHE_RETURN_IF_REFUSED(CheckPrefillInput(
      "q", args.q, {args.out.extent[0], shape.num_heads, shape.qk_head_dim}, needs_data));
  LATHE_RETURN_IF_REFUSED(
      CheckPrefillInput("k", args.k, {-1, shape.kv_heads(), shape.qk_head_dim}, needs_data));
  LATHE_RETURN_IF_REFUSED(CheckPrefillInput(
      "v", args.v, {args.k.extent[0], shape.kv_heads(), shape.v_head_dim}, needs_data));
  if (args.v.dtype != args.k.dtype) {
    return Invalid("v", ".dtype")
        .IsNamed(Name(args.v.dtype))
        .MustName("be that of k,", Name(args.k.dtype));
  }
  if (IsGiven(args.attn_sink)) {
    LATHE_RETURN_IF_REFUSED(CheckElements("attn_sink", args.attn_sink, {shape.num_heads}));
  }
  return CheckPrefillOverlap(args);
}

// What the starts hold. O(B).
inline Status CheckStarts(const PrefillShape& shape, const PrefillArgs& args) {
  LATHE_RETURN_IF_REFUSED(
      CheckQueryStartLoc("query_start_loc", args.query_start_loc, args.out.extent[0]));
  LATHE_RETURN_IF_REFUSED(CheckStartLoc("kv_start_loc", args.kv_start_loc, args.k.extent[0],
                                        "be the number of key rows,"));
  int64_t work = 0;
  const Batch batch = BatchOf(args);
  for (int64_t b = 0; b < batch.num_seqs; ++b) {
    const int64_t num_keys = args.kv_start_loc(b + 1) - args.kv_start_loc(b);
    const int64_t num_rows = SaturatingMul(batch.RowsOf(b).q_len, shape.num_heads);
    work = SaturatingAdd(work, SaturatingMul(num_rows, SaturatingAdd(num_keys, 1)));
    if (work <= kMaxWork) continue;
    return Invalid("kv_start_loc")
        .At(b + 1)
        .Is(args.kv_start_loc(b + 1))
        .Must("keep the sum of query rows * keys at most", kMaxWork);
  }
  return OkStatus();
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_ATTEND_PREFILL_CHECK_H_
