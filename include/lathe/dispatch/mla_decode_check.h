// SPDX-License-Identifier: Apache-2.0
// What PlanMlaDecode and RunMlaDecode refuse. All of it is O(T + B), block ids excepted.
#ifndef LATHE_DISPATCH_MLA_DECODE_CHECK_H_
#define LATHE_DISPATCH_MLA_DECODE_CHECK_H_

#include <cmath>

#include "lathe/dispatch/host_check.h"
#include "lathe/dispatch/row_transform_check.h"
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
  if (options.precision > Precision::kFloat32) {
    return Invalid("options.precision")
        .Is(static_cast<int64_t>(options.precision))
        .Must("be a known Precision");
  }
  return OkStatus();
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

// The query rows of sequence b.
struct QueryRows {
  int64_t token_begin;
  int64_t q_len;
};

inline QueryRows RowsOf(const MlaDecodeArgs& args, int64_t b) {
  if (args.query_start_loc.empty()) return {b, 1};
  const int64_t begin = args.query_start_loc(b);
  return {begin, args.query_start_loc(b + 1) - begin};
}

// What messages call the members of a key set.
struct KeyNames {
  const char* cache;
  const char* block_table;
  const char* wraps;
  const char* seq_lens;
  const char* compress_ratio;
  const char* row_kv_lens;
  const char* window;
  const char* indices;
  const char* topk_length;
  const char* index_space;
  // Rules that name another member.
  const char* at_most_covered;
  const char* within_blocks;
  const char* within_list;
  const char* not_without_list;
};
#define LATHE_KEY_NAMES(set)                                                                       \
  {                                                                                                \
    set ".cache", set ".block_table", set ".wraps", set ".seq_lens", set ".compress_ratio",        \
        set ".row_kv_lens", set ".window", set ".indices", set ".topk_length", set ".index_space", \
        "be at most " set ".block_table.extent[1] * " set ".cache.block_size =",                   \
        "be within 0 and " set ".cache.num_blocks - 1 =",                                          \
        "be within 0 and " set ".indices.extent[1] =", "not be given without " set ".indices"      \
  }
inline constexpr KeyNames kKeyNames[kMaxKeySets] = {LATHE_KEY_NAMES("keys"),
                                                    LATHE_KEY_NAMES("extra_keys")};
#undef LATHE_KEY_NAMES

struct NamedKeys {
  int number;
  const KeySet& keys;
  const KeyNames& names;
};

// The key sets that a call gives, to be iterated over.
class KeySetsOf {
 public:
  explicit KeySetsOf(const MlaDecodeArgs& args)
      : args_(args), count_(args.extra_keys.is_given() ? 2 : 1) {}

  struct Iterator {
    const MlaDecodeArgs& args;
    int number;
    NamedKeys operator*() const {
      return {number, number == 0 ? args.keys : args.extra_keys, kKeyNames[number]};
    }
    Iterator& operator++() {
      ++number;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return number != other.number; }
  };
  Iterator begin() const { return {args_, 0}; }
  Iterator end() const { return {args_, count_}; }

 private:
  const MlaDecodeArgs& args_;
  int count_;
};

inline bool IsPerToken(const MlaDecodeArgs& args) {
  return args.keys.has_indices() || (args.extra_keys.is_given() && args.extra_keys.has_indices());
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
  for (const NamedKeys& set : KeySetsOf(args)) {
    LATHE_RETURN_IF_REFUSED(CheckKeys(shape, set, BatchOf(args), needs_data));
  }
  LATHE_RETURN_IF_REFUSED(CheckOutRope(shape, args));
  if (IsGiven(args.attn_sink)) {
    LATHE_RETURN_IF_REFUSED(CheckFloats("attn_sink", args.attn_sink, {shape.num_heads}));
  }
  return CheckOverlap(shape, args);
}

// The rows of each sequence, from query_start_loc or one each.
inline Status CheckQueryStartLoc(const MlaDecodeArgs& args) {
  const IndexView<1>& starts = args.query_start_loc;
  if (starts.empty()) return OkStatus();
  const BatchSize batch = BatchOf(args);
  if (starts(0) != 0) return Invalid("query_start_loc").At(0).Is(starts(0)).Must("be", 0);
  for (int64_t b = 0; b < batch.num_seqs; ++b) {
    if (starts(b + 1) < starts(b)) {
      return Invalid("query_start_loc")
          .At(b + 1)
          .Is(starts(b + 1))
          .Must("be at least the entry before it,", starts(b));
    }
  }
  if (starts(batch.num_seqs) != batch.num_tokens) {
    return Invalid("query_start_loc")
        .At(batch.num_seqs)
        .Is(starts(batch.num_seqs))
        .Must("be the number of query rows,", batch.num_tokens);
  }
  return OkStatus();
}

// Query rows times keys of a step: more than any machine computes in a day, and so little that sums
// of work, times a few for each of 65536 workers, cannot overflow.
constexpr int64_t kMaxWork = int64_t{1} << 44;

inline Status CheckWork(const MlaDecodeArgs& args) {
  int64_t work = 0;
  for (int64_t b = 0; b < BatchOf(args).num_seqs; ++b) {
    const int64_t num_rows = SaturatingMul(RowsOf(args, b).q_len, args.out.extent[1]);
    for (const auto& [number, keys, names] : KeySetsOf(args)) {
      const bool has_list = keys.has_indices();
      const int64_t num_keys = has_list ? keys.indices.extent[1] : keys.seq_lens(b);
      work = SaturatingAdd(work, SaturatingMul(num_rows, SaturatingAdd(num_keys, 1)));
      if (work <= kMaxWork) continue;
      const Status refused =
          has_list ? Invalid(names.indices, ".extent").At(1) : Invalid(names.seq_lens).At(b);
      return refused.Is(num_keys).Must("keep the sum of query rows * keys at most", kMaxWork);
    }
  }
  return OkStatus();
}

// Pages [begin, end) of sequence b that hold keys some row may see.
inline KeyRange PagesOf(const MlaDecodeArgs& args, const KeySet& keys, bool causal, int64_t b) {
  const QueryRows rows = RowsOf(args, b);
  const int64_t seq_len = keys.seq_lens(b), block_size = keys.cache.block_size;
  if (rows.q_len == 0) return {};
  KeyRange range = {0, seq_len / keys.compress_ratio};
  if (!keys.has_indices()) {
    range = VisibleKeysOfRows(keys, causal, seq_len, rows.q_len, 0, rows.q_len, rows.token_begin);
  }
  if (NumKeys(range) == 0) return {};
  return {range.begin / block_size, (range.end - 1) / block_size + 1};
}

inline Status CheckSeqLens(const MlaDecodeArgs& args, const NamedKeys& set, bool causal) {
  const auto& [number, keys, names] = set;
  const int64_t columns = keys.block_table.extent[1];
  const int64_t covered = SaturatingMul(columns, keys.cache.block_size);
  for (int64_t b = 0; b < BatchOf(args).num_seqs; ++b) {
    const int64_t seq_len = keys.seq_lens(b);
    const Status refused = Refuse(StatusCode::kIndexOutOfRange, names.seq_lens).At(b).Is(seq_len);
    if (seq_len < 0) return Invalid(names.seq_lens).At(b).Is(seq_len).Must("be at least", 0);
    if (!keys.wraps && seq_len / keys.compress_ratio > covered) {
      if (keys.compress_ratio == 1) return refused.Must(names.at_most_covered, covered);
      return refused.Must("give at most as many keys as block_table covers,", covered);
    }
    if (keys.wraps && NumKeys(PagesOf(args, keys, causal, b)) > columns) {
      return refused.Must("leave its rows' keys in at most as many pages as a ring has,", columns);
    }
  }
  return OkStatus();
}

inline Status CheckLengths(const MlaDecodeArgs& args, bool causal) {
  for (const NamedKeys& set : KeySetsOf(args)) {
    const auto& [number, keys, names] = set;
    if (UsesPages(keys)) LATHE_RETURN_IF_REFUSED(CheckSeqLens(args, set, causal));
    for (int64_t t = 0; !keys.topk_length.empty() && t < BatchOf(args).num_tokens; ++t) {
      const int64_t length = keys.topk_length(t);
      if (length < 0 || length > keys.indices.extent[1]) {
        return Refuse(StatusCode::kIndexOutOfRange, names.topk_length)
            .At(t)
            .Is(length)
            .Must(names.within_list, keys.indices.extent[1]);
      }
    }
  }
  return CheckWork(args);
}

// Rows that see keys must stand where out_rope has angles.
inline Status CheckOutPositions(const MlaDecodeArgs& args, bool causal) {
  if (!args.out_rope.is_given()) return OkStatus();
  const int64_t limit = args.out_rope.cos.extent[0];
  if (IsGiven(args.positions)) {
    return CheckPositions("positions", args.positions, args.out_rope, BatchOf(args).num_tokens,
                          [](int64_t) { return true; });
  }
  bool is_causal = causal;  // then a row in front of the sequence sees nothing, and is not rotated
  for (const auto& [number, keys, names] : KeySetsOf(args)) {
    is_causal = is_causal && UsesPages(keys) && keys.row_kv_lens.empty();
  }
  for (int64_t b = 0; b < BatchOf(args).num_seqs; ++b) {
    const int64_t seq_len = args.keys.seq_lens(b), q_len = RowsOf(args, b).q_len;
    const Status refused =
        Refuse(StatusCode::kIndexOutOfRange, kKeyNames[0].seq_lens).At(b).Is(seq_len);
    if (q_len > 0 && seq_len > limit)
      return refused.Must("be at most out_rope.cos.extent[0] =", limit);
    if (q_len > seq_len && !is_causal) {
      return refused.Must("be at least the sequence's number of queries, for out_rope,", q_len);
    }
  }
  return OkStatus();
}

// Block ids that the lengths reach.
inline Status CheckBlockTables(const MlaDecodeArgs& args, bool causal) {
  for (const auto& [number, keys, names] : KeySetsOf(args)) {
    const int64_t columns = keys.block_table.extent[1];
    for (int64_t b = 0; UsesPages(keys) && b < BatchOf(args).num_seqs; ++b) {
      const KeyRange pages = PagesOf(args, keys, causal, b);
      for (int64_t page = pages.begin; page < pages.end; ++page) {
        const int64_t column = keys.wraps ? page % columns : page;
        const int64_t block = keys.block_table(b, column);
        if (block >= 0 && block < keys.cache.num_blocks) continue;
        return Refuse(StatusCode::kIndexOutOfRange, names.block_table)
            .At(b * columns + column)
            .Is(block)
            .Must(names.within_blocks, keys.cache.num_blocks - 1);
      }
    }
  }
  return OkStatus();
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_DISPATCH_MLA_DECODE_CHECK_H_
