// SPDX-License-Identifier: Apache-2.0
// What PlanMlaDecode and RunMlaDecode refuse. All of it is O(T + B), block ids excepted.
#ifndef LATHE_DISPATCH_MLA_DECODE_CHECK_H_
#define LATHE_DISPATCH_MLA_DECODE_CHECK_H_

#include <cmath>

#include "lathe/dispatch/engine_choice.h"
#include "lathe/dispatch/host_check.h"
#include "lathe/kernel/visibility.h"
#include "lathe/mla_decode.h"

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

struct BatchSize {
  int64_t num_tokens;  // T
  int64_t num_seqs;    // B
};

inline bool UsesPages(const KeySet& keys) {
  return !keys.has_indices() || keys.index_space == IndexSpace::kLogical;
}

inline BatchSize BatchOf(const MlaDecodeArgs& args) {
  const int64_t num_tokens = args.out.extent[0];
  return {num_tokens,
          args.query_start_loc.empty() ? num_tokens : args.query_start_loc.extent[0] - 1};
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

inline Status CheckKeys(const MlaShape& shape, const MlaDecodeArgs& args, bool needs_data) {
  const KeySet& keys = args.keys;
  const BatchSize batch = BatchOf(args);
  LATHE_RETURN_IF_REFUSED(CheckCache("keys.cache", keys.cache, shape.head_dim(), needs_data));
  if (keys.window < 0) return Invalid("keys.window").Is(keys.window).Must("be at least", 0);
  if (keys.index_space > IndexSpace::kPhysical) {
    return Invalid("keys.index_space")
        .Is(static_cast<int64_t>(keys.index_space))
        .Must("be a known IndexSpace");
  }
  // Without pages these two are not used, but part of what a plan is recognised by.
  const int64_t num_seqs = UsesPages(keys) ? batch.num_seqs : -1;
  LATHE_RETURN_IF_REFUSED(CheckIndices("keys.seq_lens", keys.seq_lens, {num_seqs}));
  LATHE_RETURN_IF_REFUSED(CheckIndices("keys.block_table", keys.block_table, {num_seqs, -1}));
  if (IsGiven(keys.row_kv_lens)) {
    LATHE_RETURN_IF_REFUSED(CheckIndices("keys.row_kv_lens", keys.row_kv_lens, {batch.num_tokens}));
  }
  if (keys.has_indices()) {
    LATHE_RETURN_IF_REFUSED(CheckIndices("keys.indices", keys.indices, {batch.num_tokens, -1}));
  }
  if (IsGiven(keys.topk_length)) {
    if (!keys.has_indices())
      return Invalid("keys.topk_length").Must("not be given without keys.indices");
    LATHE_RETURN_IF_REFUSED(CheckIndices("keys.topk_length", keys.topk_length, {batch.num_tokens}));
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

// No output may touch an input or the other output.
inline Status CheckOverlap(const MlaShape& shape, const MlaDecodeArgs& args) {
  struct Named {
    const char* name;
    ByteRange range;
  };
  const KeySet& keys = args.keys;
  const Named inputs[] = {{"q", RangeOf(args.q)},
                          {"q_nope", RangeOf(args.q_nope)},
                          {"q_pe", RangeOf(args.q_pe)},
                          {"query_start_loc", RangeOf(args.query_start_loc)},
                          {"keys.cache", RangeOf(keys.cache, shape.head_dim())},
                          {"keys.block_table", RangeOf(keys.block_table)},
                          {"keys.seq_lens", RangeOf(keys.seq_lens)},
                          {"keys.row_kv_lens", RangeOf(keys.row_kv_lens)},
                          {"keys.indices", RangeOf(keys.indices)},
                          {"keys.topk_length", RangeOf(keys.topk_length)},
                          {"attn_sink", RangeOf(args.attn_sink)}};
  const ByteRange out = RangeOf(args.out);
  const ByteRange lse = RangeOf(args.lse);
  for (const Named& input : inputs) {
    if (Overlap(input.range, out)) return Invalid(input.name).Must("not overlap out");
    if (Overlap(input.range, lse)) return Invalid(input.name).Must("not overlap lse");
  }
  if (Overlap(out, lse)) return Invalid("lse").Must("not overlap out");
  return OkStatus();
}

// Everything that can be said without reading what index arrays hold. Plan needs no tensor data.
inline Status CheckArgs(const MlaShape& shape, const MlaDecodeArgs& args, bool needs_data) {
  if (IsGiven(args.query_start_loc)) {
    LATHE_RETURN_IF_REFUSED(CheckIndices("query_start_loc", args.query_start_loc, {-1}));
    if (args.query_start_loc.extent[0] < 1) {
      return Invalid("query_start_loc", ".extent").At(0).Is(0).Must("be at least", 1);
    }
  }
  LATHE_RETURN_IF_REFUSED(CheckOutputs(shape, args, needs_data));
  LATHE_RETURN_IF_REFUSED(CheckQuery(shape, args, needs_data));
  LATHE_RETURN_IF_REFUSED(CheckKeys(shape, args, needs_data));
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

// Query rows times keys of a step: more than any machine computes in a day, and so little that sums
// of work, times a few for each of 65536 workers, cannot overflow.
constexpr int64_t kMaxWork = int64_t{1} << 44;

inline Status CheckWork(const MlaDecodeArgs& args) {
  const KeySet& keys = args.keys;
  const BatchSize batch = BatchOf(args);
  const bool is_ragged = !args.query_start_loc.empty();
  int64_t work = 0;
  for (int64_t b = 0; b < batch.num_seqs; ++b) {
    const int64_t q_len = is_ragged ? args.query_start_loc(b + 1) - args.query_start_loc(b) : 1;
    const int64_t num_keys = keys.has_indices() ? keys.indices.extent[1] : keys.seq_lens(b);
    const int64_t num_rows = SaturatingMul(q_len, args.out.extent[1]);
    work = SaturatingAdd(work, SaturatingMul(num_rows, SaturatingAdd(num_keys, 1)));
    if (work <= kMaxWork) continue;
    const Status refused = keys.has_indices() ? Invalid("keys.indices", ".extent").At(1)
                                              : Invalid("keys.seq_lens").At(b);
    return refused.Is(num_keys).Must("keep the sum of query rows * keys at most", kMaxWork);
  }
  return OkStatus();
}

inline Status CheckLengths(const MlaDecodeArgs& args) {
  const KeySet& keys = args.keys;
  const BatchSize batch = BatchOf(args);
  const int64_t covered = SaturatingMul(keys.block_table.extent[1], keys.cache.block_size);
  for (int64_t b = 0; UsesPages(keys) && b < batch.num_seqs; ++b) {
    const int64_t seq_len = keys.seq_lens(b);
    if (seq_len < 0) return Invalid("keys.seq_lens").At(b).Is(seq_len).Must("be at least", 0);
    if (seq_len > covered) {
      return Refuse(StatusCode::kIndexOutOfRange, "keys.seq_lens")
          .At(b)
          .Is(seq_len)
          .Must("be at most keys.block_table.extent[1] * keys.cache.block_size =", covered);
    }
  }
  for (int64_t t = 0; !keys.topk_length.empty() && t < batch.num_tokens; ++t) {
    const int64_t length = keys.topk_length(t);
    if (length < 0 || length > keys.indices.extent[1]) {
      return Refuse(StatusCode::kIndexOutOfRange, "keys.topk_length")
          .At(t)
          .Is(length)
          .Must("be within 0 and keys.indices.extent[1] =", keys.indices.extent[1]);
    }
  }
  return CheckWork(args);
}

// Block ids that the lengths reach.
inline Status CheckBlockTable(const MlaDecodeArgs& args) {
  const KeySet& keys = args.keys;
  const int64_t num_seqs = BatchOf(args).num_seqs;
  for (int64_t b = 0; UsesPages(keys) && b < num_seqs; ++b) {
    const int64_t block_size = keys.cache.block_size;
    const int64_t seq_len = keys.seq_lens(b);
    const int64_t num_pages = seq_len / block_size + (seq_len % block_size != 0 ? 1 : 0);
    for (int64_t page = 0; page < num_pages; ++page) {
      const int64_t block = keys.block_table(b, page);
      if (block >= 0 && block < keys.cache.num_blocks) continue;
      return Refuse(StatusCode::kIndexOutOfRange, "keys.block_table")
          .At(b * keys.block_table.extent[1] + page)
          .Is(block)
          .Must("be within 0 and keys.cache.num_blocks - 1 =", keys.cache.num_blocks - 1);
    }
  }
  return OkStatus();
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_DISPATCH_MLA_DECODE_CHECK_H_
