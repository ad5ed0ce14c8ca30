// SPDX-License-Identifier: Apache-2.0
// What PlanMlaDecode and RunMlaDecode refuse without reading what index arrays hold.
#ifndef LATHE_HOST_ATTEND_MLA_DECODE_CHECK_H_
#define LATHE_HOST_ATTEND_MLA_DECODE_CHECK_H_

#include "lathe/host/attend/check.h"
#include "lathe/host/attend/mla_decode_args.h"
#include "lathe/host/row_transform_check.h"

namespace lathe {
namespace detail {
namespace LATHE_ABI {

inline Status CheckShape(const MlaShape& shape) {
  LATHE_RETURN_IF_REFUSED(CheckDim("shape.num_heads", shape.num_heads, 1));
  LATHE_RETURN_IF_REFUSED(CheckDim("shape.kv_lora_rank", shape.kv_lora_rank, 1));
  return CheckDim("shape.qk_rope_head_dim", shape.qk_rope_head_dim, 0);
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
  const ByteRange out = RangeOf(args.out);
  const ByteRange lse = RangeOf(args.lse);
  const std::initializer_list<WrittenRange> outputs = {{"not overlap out", out},
                                                       {"not overlap lse", lse}};
  LATHE_RETURN_IF_REFUSED(CheckApart({{"q", RangeOf(args.q)},
                                      {"q_nope", RangeOf(args.q_nope)},
                                      {"q_pe", RangeOf(args.q_pe)},
                                      {"query_start_loc", RangeOf(args.query_start_loc)},
                                      {"attn_sink", RangeOf(args.attn_sink)},
                                      {"out_rope.cos", RangeOf(args.out_rope.cos)},
                                      {"out_rope.sin", RangeOf(args.out_rope.sin)},
                                      {"positions", RangeOf(args.positions)},
                                      {"tree_mask", RangeOf(args.tree_mask)}},
                                     outputs));
  for (const auto& [number, keys, names] : KeySetsOf(args)) {
    LATHE_RETURN_IF_REFUSED(CheckApart({{names.cache, RangeOf(keys.cache, shape.head_dim())},
                                        {names.block_table, RangeOf(keys.block_table)},
                                        {names.seq_lens, RangeOf(keys.seq_lens)},
                                        {names.row_kv_lens, RangeOf(keys.row_kv_lens)},
                                        {names.indices, RangeOf(keys.indices)},
                                        {names.topk_length, RangeOf(keys.topk_length)}},
                                       outputs));
  }
  if (Overlap(out, lse)) return Invalid("lse").Must("not overlap out");
  return OkStatus();
}

// A mask of bits: any strides, and words that may be shared.
inline Status CheckWords(const char* name, const View<const uint64_t, 2>& v, int64_t num_rows) {
  LATHE_RETURN_IF_REFUSED(CheckExtent(name, 0, v.extent[0], num_rows));
  LATHE_RETURN_IF_REFUSED(CheckSpan(name, v.extent, v.stride, 2, sizeof(uint64_t)));
  if (v.extent[0] > 0 && v.extent[1] > 0 && v.empty())
    return Invalid(name, ".data").Must("not be null");
  if (IsAligned(v.data, alignof(uint64_t))) return OkStatus();
  return Invalid(name, ".data").Must("be aligned to", static_cast<int64_t>(alignof(uint64_t)));
}

// Plan needs no tensor data.
inline Status CheckArgs(const MlaShape& shape, const MlaDecodeOptions& options,
                        const MlaDecodeArgs& args, bool needs_data) {
  if (IsGiven(args.query_start_loc)) {
    LATHE_RETURN_IF_REFUSED(CheckStartLocShape("query_start_loc", args.query_start_loc));
  }
  LATHE_RETURN_IF_REFUSED(
      CheckResults(args.out, args.lse, shape.num_heads, shape.kv_lora_rank, needs_data));
  LATHE_RETURN_IF_REFUSED(CheckQuery(shape, args, needs_data));
  for (const NamedKeys& set : KeySetsOf(args)) {
    LATHE_RETURN_IF_REFUSED(CheckKeys(shape, set, BatchOf(args), needs_data));
  }
  if (IsGiven(args.tree_mask)) {
    LATHE_RETURN_IF_REFUSED(CheckWords("tree_mask", args.tree_mask, BatchOf(args).num_tokens));
    if (!options.causal)
      return Invalid("tree_mask").Must("not be given where options.causal is false");
  }
  LATHE_RETURN_IF_REFUSED(CheckOutRope(shape, args));
  if (IsGiven(args.attn_sink)) {
    LATHE_RETURN_IF_REFUSED(CheckFloats("attn_sink", args.attn_sink, {shape.num_heads}));
  }
  return CheckOverlap(shape, args);
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_HOST_ATTEND_MLA_DECODE_CHECK_H_
