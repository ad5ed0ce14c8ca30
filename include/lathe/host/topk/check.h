// SPDX-License-Identifier: Apache-2.0
// What SelectTopk refuses. O(T), and the block ids of the rows' positions where they are checked.
#ifndef LATHE_HOST_TOPK_CHECK_H_
#define LATHE_HOST_TOPK_CHECK_H_

#include <algorithm>

#include "lathe/host/check.h"
#include "lathe/kernel/topk/row.h"
#include "lathe/topk.h"

namespace lathe::detail {
namespace {

// An array to be written: no two elements at one address. The strides of a list without places are free.
template <class V, size_t R>
Status CheckTopkOutput(const char* name, const V& v, const int64_t (&expected)[R]) {
  bool has_elements = true;
  for (const int64_t extent : v.extent) has_elements = has_elements && extent != 0;
  if (has_elements) return CheckElements(name, v, expected);
  LATHE_RETURN_IF_REFUSED(CheckSpan(name, v.extent, v.stride, R, ElementBytes(v)));
  return CheckExtents(name, v, expected, static_cast<int64_t>(R));
}

// Places that a row's list must have.
inline int64_t TopkWidth(const TopkOptions& options) {
  return SaturatingAdd(SaturatingMul(options.k, options.pool_size), options.append_newest);
}

inline Status CheckTopkOptions(const TopkOptions& options) {
  if (options.k < 0) return Invalid("options.k").Is(options.k).Must("be at least", 0);
  if (options.append_newest < 0 || options.append_newest > kMaxDim) {
    return Invalid("options.append_newest")
        .Is(options.append_newest)
        .Must("be within 0 and", kMaxDim);
  }
  if (options.pool_size < 1 || options.pool_size > kMaxDim) {
    return Invalid("options.pool_size").Is(options.pool_size).Must("be within 1 and", kMaxDim);
  }
  if (options.index_base > TopkIndexBase::kRowStart) {
    return Invalid("options.index_base").Is(options.index_base).Must("be a known TopkIndexBase");
  }
  return OkStatus();
}

inline Status CheckTopkInputs(const TopkArgs& args) {
  const int64_t num_rows = args.logits.extent[0], num_columns = args.logits.extent[1];
  LATHE_RETURN_IF_REFUSED(
      CheckTensor("logits", In<2>(args.logits), {num_rows > 0 && num_columns > 0}));
  if (num_columns > kMaxDim) {
    return RefuseExtent("logits", 1, num_columns).Must("be at most", kMaxDim);
  }
  struct PerRow {
    const char* name;
    const IndexView<1>& view;
  };
  for (const PerRow& bound :
       {PerRow{"row_starts", args.row_starts}, PerRow{"row_ends", args.row_ends},
        PerRow{"row_lens", args.row_lens}, PerRow{"row_seq", args.row_seq}}) {
    if (!IsGiven(bound.view)) continue;
    LATHE_RETURN_IF_REFUSED(CheckIndices(bound.name, bound.view, {num_rows}));
  }
  return OkStatus();
}

inline Status CheckTopkOutputs(const TopkArgs& args, const TopkOptions& options) {
  const int64_t num_rows = args.logits.extent[0], width = args.indices.extent[1];
  if (const int64_t least = TopkWidth(options); width < least) {
    return RefuseExtent("indices", 1, width)
        .Must("be at least k * pool_size + append_newest =", least);
  }
  LATHE_RETURN_IF_REFUSED(CheckTopkOutput("indices", args.indices, {num_rows, width}));
  if (IsGiven(args.counts)) {
    LATHE_RETURN_IF_REFUSED(CheckTopkOutput("counts", args.counts, {num_rows}));
    if (!args.counts.is_int64 && TopkWidth(options) > INT32_MAX) {
      return Invalid("counts").Must("be int64 to hold", TopkWidth(options));
    }
  }
  if (IsGiven(args.values)) {
    LATHE_RETURN_IF_REFUSED(CheckTopkOutput("values", args.values, {num_rows, width}));
  }
  return OkStatus();
}

inline Status CheckTopkTable(const TopkArgs& args) {
  if (!IsGiven(args.block_table)) {
    if (IsGiven(args.row_seq)) return Invalid("row_seq").Must("not be given without block_table");
    return OkStatus();
  }
  const bool is_one_each = !IsGiven(args.row_seq);
  LATHE_RETURN_IF_REFUSED(CheckIndices("block_table", args.block_table,
                                       {is_one_each ? args.logits.extent[0] : int64_t{-1}, -1}));
  if (args.block_size < 1) return Invalid("block_size").Is(args.block_size).Must("be at least", 1);
  if (args.num_blocks < 0) return Invalid("num_blocks").Is(args.num_blocks).Must("be at least", 0);
  const int64_t num_slots = SaturatingMul(args.num_blocks, args.block_size);
  if (num_slots > kMaxSpan) {
    return Invalid("num_blocks")
        .Is(args.num_blocks)
        .Must("not lead beyond the address space with block_size", args.block_size);
  }
  if (!args.indices.is_int64 && num_slots - 1 > INT32_MAX) {
    return Invalid("indices").Must("be int64 to hold the slot", num_slots - 1);
  }
  return OkStatus();
}

// No output may touch an input or another output.
inline Status CheckTopkOverlap(const TopkArgs& args) {
  const ByteRange indices = RangeOf(args.indices);
  const ByteRange counts = RangeOf(args.counts);
  const ByteRange values = RangeOf(args.values);
  LATHE_RETURN_IF_REFUSED(CheckApart({{"logits", RangeOf(args.logits)},
                                      {"row_starts", RangeOf(args.row_starts)},
                                      {"row_ends", RangeOf(args.row_ends)},
                                      {"row_lens", RangeOf(args.row_lens)},
                                      {"block_table", RangeOf(args.block_table)},
                                      {"row_seq", RangeOf(args.row_seq)}},
                                     {{"not overlap indices", indices},
                                      {"not overlap counts", counts},
                                      {"not overlap values", values}}));
  LATHE_RETURN_IF_REFUSED(
      CheckApart({{"counts", counts}, {"values", values}}, {{"not overlap indices", indices}}));
  return CheckApart({{"values", values}}, {{"not overlap counts", counts}});
}

// Block ids, each looked at once for the rows of a sequence that follow one another.
class TopkBlockCheck {
 public:
  explicit TopkBlockCheck(const TopkArgs& args) : args_(args) {}

  // The pages of positions [begin, end), begin < end, of sequence `seq`.
  Status operator()(int64_t seq, int64_t begin, int64_t end) {
    const int64_t first = begin / args_.block_size, end_page = (end - 1) / args_.block_size + 1;
    if (seq != seq_ || first < first_) {
      seq_ = seq;
      first_ = next_ = first;
    }
    const int64_t unknown = next_;
    next_ = (std::max)(next_, end_page);
    return CheckBlocks("block_table", "be within 0 and num_blocks - 1 =", args_.block_table,
                       args_.num_blocks, seq, unknown, end_page);
  }

 private:
  const TopkArgs& args_;
  int64_t seq_ = -1;
  int64_t first_ = 0;  // pages [first_, next_) are known
  int64_t next_ = 0;
};

// What the rows' bounds lead to.
inline Status CheckTopkRows(const TopkArgs& args, const TopkOptions& options) {
  const bool has_table = !args.block_table.empty();
  const int64_t covered = SaturatingMul(args.block_table.extent[1], args.block_size);
  TopkBlockCheck check_blocks(args);
  for (int64_t t = 0; t < args.logits.extent[0]; ++t) {
    const int64_t seq = args.row_seq.empty() ? t : args.row_seq(t);
    if (has_table && (seq < 0 || seq >= args.block_table.extent[0])) {
      return OutOfRange("row_seq").At(t).Is(seq).Must("be within 0 and block_table.extent[0] - 1 =",
                                                      args.block_table.extent[0] - 1);
    }
    if (!args.row_lens.empty() && args.row_lens(t) > kMaxSpan) {
      return OutOfRange("row_lens").At(t).Is(args.row_lens(t)).Must("be at most", kMaxSpan);
    }
    const TopkRow row = TopkRowOf(args, options, t);
    const int64_t first = (row.begin - row.origin) * options.pool_size;
    if (row.length == first) continue;
    if (!has_table) {
      if (args.indices.is_int64 || row.length - 1 <= INT32_MAX) continue;
      return Invalid("indices").Must("be int64 to hold the position", row.length - 1);
    }
    if (row.length > covered) {
      return OutOfRange("block_table", ".extent")
          .At(1)
          .Is(args.block_table.extent[1])
          .Must("cover, with block_size, the positions of every row,", row.length);
    }
    if (options.check_indices && !options.allow_holes) {
      LATHE_RETURN_IF_REFUSED(check_blocks(seq, first, row.length));
    }
  }
  return OkStatus();
}

inline Status CheckTopk(const TopkArgs& args, const TopkOptions& options) {
  LATHE_RETURN_IF_REFUSED(CheckTopkOptions(options));
  LATHE_RETURN_IF_REFUSED(CheckTopkInputs(args));
  LATHE_RETURN_IF_REFUSED(CheckTopkOutputs(args, options));
  LATHE_RETURN_IF_REFUSED(CheckTopkTable(args));
  LATHE_RETURN_IF_REFUSED(CheckTopkOverlap(args));
  return CheckTopkRows(args, options);
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_TOPK_CHECK_H_
