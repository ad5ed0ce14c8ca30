// SPDX-License-Identifier: Apache-2.0
// The key sets of MlaDecodeArgs, and what PlanMlaDecode and RunMlaDecode refuse without reading what index arrays hold.
#ifndef LATHE_HOST_ATTEND_MLA_DECODE_CHECK_H_
#define LATHE_HOST_ATTEND_MLA_DECODE_CHECK_H_

#include "lathe/host/attend/check.h"
#include "lathe/host/keys/check.h"
#include "lathe/host/row_transform_check.h"
#include "lathe/kernel/kernel_table.h"

namespace lathe::detail {
namespace {

inline constexpr KeyNames kKeyNames[kMaxKeySets] = {LATHE_KEY_NAMES("keys"),
                                                    LATHE_KEY_NAMES("extra_keys")};

// The key sets that a call gives.
inline int NumKeySets(const MlaDecodeArgs& args) { return args.extra_keys.is_given() ? 2 : 1; }
inline const KeySet& KeySetOf(const MlaDecodeArgs& args, int set) {
  return set == 0 ? args.keys : args.extra_keys;
}

inline Batch BatchOf(const MlaDecodeArgs& args) {
  bool is_one_sequence = true;
  for (int set = 0; set < NumKeySets(args); ++set) {
    is_one_sequence = is_one_sequence && IsOneSequence(KeySetOf(args, set));
  }
  return BatchOf(args.out.extent[0], args.query_start_loc, is_one_sequence);
}

inline Causality CausalityOf(const MlaDecodeOptions& options, const MlaDecodeArgs& args) {
  return {options.causal, args.tree_mask};
}

inline bool IsPerToken(const MlaDecodeArgs& args) {
  return args.keys.has_indices() || (args.extra_keys.is_given() && args.extra_keys.has_indices());
}

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
  for (int set = 0; set < NumKeySets(args); ++set) {
    LATHE_RETURN_IF_REFUSED(
        CheckKeysApart(kKeyNames[set], KeySetOf(args, set), shape.head_dim(), outputs));
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
  return Invalid(name, ".data").Must("be aligned to", alignof(uint64_t));
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
  for (int set = 0; set < NumKeySets(args); ++set) {
    LATHE_RETURN_IF_REFUSED(CheckKeys(kKeyNames[set], KeySetOf(args, set), shape.head_dim(),
                                      BatchOf(args), needs_data));
  }
  if (IsGiven(args.tree_mask)) {
    LATHE_RETURN_IF_REFUSED(CheckWords("tree_mask", args.tree_mask, BatchOf(args).num_tokens));
    if (!options.causal)
      return Invalid("tree_mask").Must("not be given where options.causal is false");
    for (int set = 0; set < NumKeySets(args); ++set) {
      if (!IsGiven(KeySetOf(args, set).row_starts)) continue;
      return Invalid(kKeyNames[set].row_starts).Must("not be given beside tree_mask");
    }
  }
  LATHE_RETURN_IF_REFUSED(CheckOutRope(shape, args));
  if (IsGiven(args.attn_sink)) {
    LATHE_RETURN_IF_REFUSED(CheckElements("attn_sink", args.attn_sink, {shape.num_heads}));
  }
  return CheckOverlap(shape, args);
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_ATTEND_MLA_DECODE_CHECK_H_
