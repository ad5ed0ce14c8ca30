// SPDX-License-Identifier: Apache-2.0
// What PlanMlaDecode and RunMlaDecode refuse without reading what index arrays hold.
#ifndef LATHE_DISPATCH_MLA_DECODE_CHECK_H_
#define LATHE_DISPATCH_MLA_DECODE_CHECK_H_

#include <cmath>

#include "lathe/dispatch/engine_choice.h"
#include "lathe/dispatch/host_check.h"
#include "lathe/dispatch/mla_decode_args.h"
#include "lathe/dispatch/row_transform_check.h"

namespace lathe {
namespace detail {
namespace LATHE_ABI {

inline Status CheckDim(const char* name, int64_t value, int64_t least) {
  if (value < least) return Invalid(name).Is(value).Must("be at least", least);
  if (value > kMaxDim) return Invalid(name).Is(value).Must("be at most", kMaxDim);
  return OkStatus();
}

inline Status CheckShape(const MlaShape& shape) {
  LATHE_RETURN_IF_REFUSED(CheckDim("shape.num_heads", shape.num_heads, 1));
  LATHE_RETURN_IF_REFUSED(CheckDim("shape.kv_lora_rank", shape.kv_lora_rank, 1));
  return CheckDim("shape.qk_rope_head_dim", shape.qk_rope_head_dim, 0);
}

inline Status CheckOptions(const MlaDecodeOptions& options) {
  const float scale = options.softmax_scale;
  if (!(scale > 0.0f) || !std::isfinite(scale)) {
    return Invalid("options.softmax_scale")
        .IsReal(static_cast<double>(scale))
        .Must("be finite and above 0 (it has no default)");
  }
  if (options.split_tokens < 1) {
    return Invalid("options.split_tokens").Is(options.split_tokens).Must("be at least", 1);
  }
  return CheckPrecision(options.precision);
}

// Workers that a plan may be made for: within it, sums of work times workers cannot overflow.
constexpr size_t kMaxWorkers = 65536;
// Keys of one sequence.
constexpr int64_t kMaxKeys = int64_t{1} << 40;

inline Status CheckWorkers(const char* name, size_t num_workers) {
  if (num_workers < 1) return Invalid(name).Is(0).Must("be at least", 1);
  if (num_workers > kMaxWorkers) {
    const bool fits = num_workers <= static_cast<size_t>(kLargest);
    return Invalid(name)
        .Is(fits ? static_cast<int64_t>(num_workers) : kLargest)
        .Must("be at most", static_cast<int64_t>(kMaxWorkers));
  }
  return OkStatus();
}

inline Status CheckLimits(const MlaDecodeLimits& limits) {
  LATHE_RETURN_IF_REFUSED(CheckDim("limits.max_num_seqs", limits.max_num_seqs, 1));
  LATHE_RETURN_IF_REFUSED(CheckDim("limits.max_num_tokens", limits.max_num_tokens, 1));
  if (limits.max_seq_len < 1) {
    return Invalid("limits.max_seq_len").Is(limits.max_seq_len).Must("be at least", 1);
  }
  if (limits.max_seq_len > kMaxKeys) {
    return Invalid("limits.max_seq_len").Is(limits.max_seq_len).Must("be at most", kMaxKeys);
  }
  return CheckWorkers("limits.num_workers", limits.num_workers);
}

// The query as given: whole, or its two parts.
inline Status CheckQuery(const MlaShape& shape, const MlaDecodeArgs& args, bool needs_data) {
  struct Part {
    const char* name;
    const In<3>& view;
    int64_t width;
    bool is_given;
  };
  const bool is_split = args.q_nope.extent[2] != 0 || args.q_pe.extent[2] != 0;
  if (is_split && args.q.extent[2] != 0)
    return Invalid("q").Must("not be given beside q_nope and q_pe");
  const Part parts[] = {{"q", args.q, shape.head_dim(), !is_split},
                        {"q_nope", args.q_nope, shape.kv_lora_rank, is_split},
                        {"q_pe", args.q_pe, shape.qk_rope_head_dim,
                         is_split && (shape.qk_rope_head_dim > 0 || IsGiven(args.q_pe))}};
  const int64_t num_tokens = args.out.extent[0];
  for (const Part& part : parts) {
    if (!part.is_given) continue;
    const int64_t expected[3] = {num_tokens, shape.num_heads, part.width};
    for (int64_t dim = 0; dim < 3; ++dim) {
      LATHE_RETURN_IF_REFUSED(CheckExtent(part.name, dim, part.view.extent[dim], expected[dim]));
    }
    LATHE_RETURN_IF_REFUSED(
        CheckTensor(part.name, part.view, {needs_data && num_tokens > 0 && part.width > 0}));
  }
  return OkStatus();
}

inline Status CheckKeys(const MlaShape& shape, const NamedKeys& set, const BatchSize& batch,
                        bool needs_data) {
  const auto& [number, keys, names] = set;
  LATHE_RETURN_IF_REFUSED(CheckCache(names.cache, keys.cache, shape.head_dim(), needs_data));
  if (keys.window < 1) return Invalid(names.window).Is(keys.window).Must("be at least", 1);
  if (keys.compress_ratio < 1) {
    return Invalid(names.compress_ratio).Is(keys.compress_ratio).Must("be at least", 1);
  }
  if (keys.index_space > IndexSpace::kPhysical) {
    return Invalid(names.index_space)
        .Is(static_cast<int64_t>(keys.index_space))
        .Must("be a known IndexSpace");
  }
  // Without pages these two are not used, but part of what a plan is recognised by.
  const int64_t num_seqs = UsesPages(keys) ? batch.num_seqs : -1;
  LATHE_RETURN_IF_REFUSED(CheckIndices(names.seq_lens, keys.seq_lens, {num_seqs}));
  LATHE_RETURN_IF_REFUSED(CheckIndices(names.block_table, keys.block_table, {num_seqs, -1}));
  if (IsGiven(keys.row_kv_lens)) {
    LATHE_RETURN_IF_REFUSED(CheckIndices(names.row_kv_lens, keys.row_kv_lens, {batch.num_tokens}));
  }
  if (keys.has_indices()) {
    LATHE_RETURN_IF_REFUSED(CheckIndices(names.indices, keys.indices, {batch.num_tokens, -1}));
    if (keys.wraps) return Invalid(names.wraps).Must("be false beside a list of indices");
  }
  if (IsGiven(keys.topk_length)) {
    if (!keys.has_indices()) return Invalid(names.topk_length).Must(names.not_without_list);
    LATHE_RETURN_IF_REFUSED(CheckIndices(names.topk_length, keys.topk_length, {batch.num_tokens}));
  }
  return OkStatus();
}

inline Status CheckOutputs(const MlaShape& shape, const MlaDecodeArgs& args, bool needs_data) {
  const int64_t num_tokens = args.out.extent[0];
  const int64_t expected[3] = {num_tokens, shape.num_heads, shape.kv_lora_rank};
  for (int64_t dim = 0; dim < 3; ++dim) {
    LATHE_RETURN_IF_REFUSED(CheckExtent("out", dim, args.out.extent[dim], expected[dim]));
  }
  LATHE_RETURN_IF_REFUSED(CheckTensor("out", args.out, {needs_data && num_tokens > 0, true}));
  if (IsGiven(args.lse)) {
    LATHE_RETURN_IF_REFUSED(
        CheckFloats("lse", args.lse, {num_tokens, shape.num_heads}, needs_data));
  }
  return OkStatus();
}

constexpr RopeNames kOutRopeNames = {"out_rope.cos", "out_rope.sin"};

inline Status CheckOutRope(const MlaShape& shape, const MlaDecodeArgs& args) {
  if (!args.out_rope.is_given()) return OkStatus();
  LATHE_RETURN_IF_REFUSED(CheckRope(kOutRopeNames, args.out_rope, shape.kv_lora_rank));
  if (IsGiven(args.positions)) {
    return CheckIndices("positions", args.positions, {BatchOf(args).num_tokens});
  }
  if (!UsesPages(args.keys)) {
    return Invalid("positions").Must("be given with out_rope where keys.indices are physical");
  }
  return OkStatus();
}

// No output may touch an input or the other output.
inline Status CheckOverlap(const MlaShape& shape, const MlaDecodeArgs& args) {
  struct Named {
    const char* name;
    ByteRange range;
  };
  const Named inputs[] = {{"q", RangeOf(args.q)},
                          {"q_nope", RangeOf(args.q_nope)},
                          {"q_pe", RangeOf(args.q_pe)},
                          {"query_start_loc", RangeOf(args.query_start_loc)},
                          {"attn_sink", RangeOf(args.attn_sink)},
                          {"out_rope.cos", RangeOf(args.out_rope.cos)},
                          {"out_rope.sin", RangeOf(args.out_rope.sin)},
                          {"positions", RangeOf(args.positions)}};
  const ByteRange out = RangeOf(args.out);
  const ByteRange lse = RangeOf(args.lse);
  const auto check = [&out, &lse](const Named& input) {
    if (Overlap(input.range, out)) return Invalid(input.name).Must("not overlap out");
    if (Overlap(input.range, lse)) return Invalid(input.name).Must("not overlap lse");
    return OkStatus();
  };
  for (const Named& input : inputs) LATHE_RETURN_IF_REFUSED(check(input));
  for (const auto& [number, keys, names] : KeySetsOf(args)) {
    const Named of_set[] = {{names.cache, RangeOf(keys.cache, shape.head_dim())},
                            {names.block_table, RangeOf(keys.block_table)},
                            {names.seq_lens, RangeOf(keys.seq_lens)},
                            {names.row_kv_lens, RangeOf(keys.row_kv_lens)},
                            {names.indices, RangeOf(keys.indices)},
                            {names.topk_length, RangeOf(keys.topk_length)}};
    for (const Named& input : of_set) LATHE_RETURN_IF_REFUSED(check(input));
  }
  if (Overlap(out, lse)) return Invalid("lse").Must("not overlap out");
  return OkStatus();
}

// Plan needs no tensor data.
inline Status CheckArgs(const MlaShape& shape, const MlaDecodeArgs& args, bool needs_data) {
  if (IsGiven(args.query_start_loc)) {
    LATHE_RETURN_IF_REFUSED(CheckIndices("query_start_loc", args.query_start_loc, {-1}));
    if (args.query_start_loc.extent[0] < 1) {
      return Invalid("query_start_loc", ".extent").At(0).Is(0).Must("be at least", 1);
    }
  }
  LATHE_RETURN_IF_REFUSED(CheckOutputs(shape, args, needs_data));
  LATHE_RETURN_IF_REFUSED(CheckQuery(shape, args, needs_data));
  for (const NamedKeys& set : KeySetsOf(args)) {
    LATHE_RETURN_IF_REFUSED(CheckKeys(shape, set, BatchOf(args), needs_data));
  }
  LATHE_RETURN_IF_REFUSED(CheckOutRope(shape, args));
  if (IsGiven(args.attn_sink)) {
    LATHE_RETURN_IF_REFUSED(CheckFloats("attn_sink", args.attn_sink, {shape.num_heads}));
  }
  return CheckOverlap(shape, args);
}

// The rows of each sequence, from query_start_loc or one each. `name`: what the caller knows it by.
inline Status CheckQueryStartLoc(const char* name, const IndexView<1>& starts, int64_t num_tokens) {
  if (starts.empty()) return OkStatus();
  const int64_t num_seqs = starts.extent[0] - 1;
  if (starts(0) != 0) return Invalid(name).At(0).Is(starts(0)).Must("be", 0);
  for (int64_t b = 0; b < num_seqs; ++b) {
    if (starts(b + 1) < starts(b)) {
      return Invalid(name)
          .At(b + 1)
          .Is(starts(b + 1))
          .Must("be at least the entry before it,", starts(b));
    }
  }
  if (starts(num_seqs) != num_tokens) {
    return Invalid(name)
        .At(num_seqs)
        .Is(starts(num_seqs))
        .Must("be the number of query rows,", num_tokens);
  }
  return OkStatus();
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_DISPATCH_MLA_DECODE_CHECK_H_
