// SPDX-License-Identifier: Apache-2.0
// What operations on an indexer's queries and keys refuse. All of it is O(T + B), block ids excepted.
#ifndef LATHE_HOST_INDEXER_CHECK_H_
#define LATHE_HOST_INDEXER_CHECK_H_

#include <algorithm>

#include "lathe/host/attend/mla_decode_check.h"
#include "lathe/host/engine_choice.h"
#include "lathe/indexer_logits.h"
#include "lathe/kernel/indexer/visibility.h"

namespace lathe {
namespace detail {
namespace LATHE_ABI {

struct IndexerShape {
  int64_t num_tokens;  // T
  int64_t num_heads;
  int64_t width;
  int64_t num_seqs;  // ragged: all rows are those of one sequence
  bool is_ragged;
};

inline IndexerShape ShapeOf(const IndexerInputs& inputs) {
  IndexerShape shape;
  shape.num_tokens = inputs.weights.extent[0];
  shape.num_heads = inputs.weights.extent[1];
  shape.width = inputs.q.extent[2] != 0 ? inputs.q.extent[2] : inputs.q_fp8.extent[2];
  shape.is_ragged = IsGiven(inputs.row_starts) || IsGiven(inputs.row_ends);
  shape.num_seqs = shape.is_ragged                   ? 1
                   : IsGiven(inputs.query_start_loc) ? inputs.query_start_loc.extent[0] - 1
                                                     : shape.num_tokens;
  return shape;
}

// Codes have no dtype, else as a tensor.
inline Status CheckCodes(const char* name, const View<const uint8_t, 3>& v, bool needs_data) {
  LATHE_RETURN_IF_REFUSED(CheckSpan(name, v.extent, v.stride, 3, 1));
  if (v.extent[2] > 1 && v.stride[2] != 1) {
    return Invalid(name, ".stride").At(2).Is(v.stride[2]).Must("be", 1);
  }
  for (int64_t dim = 0; dim < 2; ++dim) {
    if (v.extent[dim] > 1 && v.stride[dim] < v.extent[2]) {
      return Invalid(name, ".stride")
          .At(dim)
          .Is(v.stride[dim])
          .Must("be at least a row's width,", v.extent[2]);
    }
  }
  if (needs_data && v.empty()) return Invalid(name, ".data").Must("not be null");
  return OkStatus();
}

inline Status CheckIndexerDims(const char* heads_name, int64_t num_heads, const char* width_name,
                               int64_t width) {
  LATHE_RETURN_IF_REFUSED(CheckDim(heads_name, num_heads, 1));
  LATHE_RETURN_IF_REFUSED(CheckDim(width_name, width, 1));
  if (width > kMaxDim / num_heads) {
    return Invalid(width_name)
        .Is(width)
        .Must("be at most, for as many heads,", kMaxDim / num_heads);
  }
  return OkStatus();
}

inline Status CheckIndexerQuery(const IndexerInputs& inputs, const IndexerShape& shape) {
  const bool needs_data = shape.num_tokens > 0;
  LATHE_RETURN_IF_REFUSED(
      CheckFloats("inputs.weights", inputs.weights, {shape.num_tokens, shape.num_heads}));
  const bool has_codes = inputs.q_fp8.extent[2] != 0;
  if (inputs.q.extent[2] != 0 && has_codes) {
    return Invalid("inputs.q").Must("not be given beside inputs.q_fp8");
  }
  const char* name = has_codes ? "inputs.q_fp8" : "inputs.q";
  const int64_t* extent = has_codes ? inputs.q_fp8.extent : inputs.q.extent;
  LATHE_RETURN_IF_REFUSED(CheckExtent(name, 0, extent[0], shape.num_tokens));
  LATHE_RETURN_IF_REFUSED(CheckExtent(name, 1, extent[1], shape.num_heads));
  LATHE_RETURN_IF_REFUSED(
      CheckIndexerDims("inputs.weights.extent[1]", shape.num_heads,
                       has_codes ? "inputs.q_fp8.extent[2]" : "inputs.q.extent[2]", extent[2]));
  return has_codes ? CheckCodes(name, inputs.q_fp8, needs_data)
                   : CheckTensor(name, inputs.q, {needs_data});
}

inline Status CheckRaggedArgs(const IndexerInputs& inputs, const IndexerShape& shape) {
  for (const char* name : {IsGiven(inputs.block_table) ? "inputs.block_table" : "",
                           IsGiven(inputs.seq_lens) ? "inputs.seq_lens" : "",
                           IsGiven(inputs.query_start_loc) ? "inputs.query_start_loc" : "",
                           IsGiven(inputs.row_kv_lens) ? "inputs.row_kv_lens" : ""}) {
    if (name[0] != '\0') return Invalid(name).Must("not be given beside inputs.row_starts");
  }
  if (inputs.compress_ratio != 1) {
    return Invalid("inputs.compress_ratio")
        .Is(inputs.compress_ratio)
        .Must("be, beside inputs.row_starts,", 1);
  }
  LATHE_RETURN_IF_REFUSED(CheckIndices("inputs.row_starts", inputs.row_starts, {shape.num_tokens}));
  return CheckIndices("inputs.row_ends", inputs.row_ends, {shape.num_tokens});
}

inline Status CheckPagedArgs(const IndexerInputs& inputs, const IndexerShape& shape) {
  if (IsGiven(inputs.query_start_loc)) {
    LATHE_RETURN_IF_REFUSED(CheckStartLocShape("inputs.query_start_loc", inputs.query_start_loc));
    LATHE_RETURN_IF_REFUSED(
        CheckQueryStartLoc("inputs.query_start_loc", inputs.query_start_loc, shape.num_tokens));
  }
  LATHE_RETURN_IF_REFUSED(CheckIndices("inputs.seq_lens", inputs.seq_lens, {shape.num_seqs}));
  LATHE_RETURN_IF_REFUSED(
      CheckIndices("inputs.block_table", inputs.block_table, {shape.num_seqs, -1}));
  if (IsGiven(inputs.row_kv_lens)) {
    LATHE_RETURN_IF_REFUSED(
        CheckIndices("inputs.row_kv_lens", inputs.row_kv_lens, {shape.num_tokens}));
  }
  if (inputs.compress_ratio < 1) {
    return Invalid("inputs.compress_ratio").Is(inputs.compress_ratio).Must("be at least", 1);
  }
  return OkStatus();
}

inline Status CheckRaggedRows(const IndexerInputs& inputs, const IndexerShape& shape) {
  const int64_t num_slots = inputs.cache.num_blocks * inputs.cache.block_size;
  for (int64_t t = 0; t < shape.num_tokens; ++t) {
    const int64_t begin = inputs.row_starts(t), end = inputs.row_ends(t);
    if (begin < 0) return Invalid("inputs.row_starts").At(t).Is(begin).Must("be at least", 0);
    if (begin > end) {
      return Invalid("inputs.row_starts")
          .At(t)
          .Is(begin)
          .Must("be at most inputs.row_ends there,", end);
    }
    if (end > num_slots) {
      return Refuse(StatusCode::kIndexOutOfRange, "inputs.row_ends")
          .At(t)
          .Is(end)
          .Must("be at most inputs.cache.num_blocks * inputs.cache.block_size =", num_slots);
    }
  }
  return OkStatus();
}

inline Status CheckPagedKeys(const IndexerInputs& inputs, const IndexerShape& shape,
                             bool check_indices) {
  const PagedCache& cache = inputs.cache;
  const int64_t covered = SaturatingMul(inputs.block_table.extent[1], cache.block_size);
  for (int64_t b = 0; b < shape.num_seqs; ++b) {
    const int64_t seq_len = inputs.seq_lens(b);
    if (seq_len < 0) return Invalid("inputs.seq_lens").At(b).Is(seq_len).Must("be at least", 0);
    const int64_t num_keys = seq_len / inputs.compress_ratio;
    if (num_keys > covered) {
      return Refuse(StatusCode::kIndexOutOfRange, "inputs.seq_lens")
          .At(b)
          .Is(seq_len)
          .Must("have as many keys as inputs.block_table covers, at most", covered);
    }
    const int64_t num_pages = num_keys / cache.block_size + (num_keys % cache.block_size != 0);
    for (int64_t page = 0; check_indices && page < num_pages; ++page) {
      const int64_t block = inputs.block_table(b, page);
      if (block >= 0 && block < cache.num_blocks) continue;
      return Refuse(StatusCode::kIndexOutOfRange, "inputs.block_table")
          .At(b * inputs.block_table.extent[1] + page)
          .Is(block)
          .Must("be within 0 and inputs.cache.num_blocks - 1 =", cache.num_blocks - 1);
    }
  }
  return OkStatus();
}

inline Status CheckIndexerInputs(const IndexerInputs& inputs, const IndexerShape& shape,
                                 bool check_indices) {
  LATHE_RETURN_IF_REFUSED(CheckIndexerQuery(inputs, shape));
  LATHE_RETURN_IF_REFUSED(
      CheckCache("inputs.cache", inputs.cache, shape.width, shape.num_tokens > 0));
  LATHE_RETURN_IF_REFUSED(shape.is_ragged ? CheckRaggedArgs(inputs, shape)
                                          : CheckPagedArgs(inputs, shape));
  if (IsGiven(inputs.candidate_blocks)) {
    LATHE_RETURN_IF_REFUSED(
        CheckIndices("inputs.candidate_blocks", inputs.candidate_blocks, {shape.num_tokens, -1}));
    if (inputs.candidate_block_size < 1) {
      return Invalid("inputs.candidate_block_size")
          .Is(inputs.candidate_block_size)
          .Must("be at least", 1);
    }
  } else if (inputs.candidate_block_size != 0) {
    return Invalid("inputs.candidate_block_size")
        .Is(inputs.candidate_block_size)
        .Must("be, without inputs.candidate_blocks,", 0);
  }
  return shape.is_ragged ? CheckRaggedRows(inputs, shape)
                         : CheckPagedKeys(inputs, shape, check_indices);
}

// No input may touch what is written at `output`.
inline Status CheckIndexerOverlap(const IndexerInputs& inputs, const IndexerShape& shape,
                                  ByteRange output, const char* rule) {
  return CheckApart({{"inputs.q", RangeOf(inputs.q)},
                     {"inputs.q_fp8", RangeOf(inputs.q_fp8)},
                     {"inputs.weights", RangeOf(inputs.weights)},
                     {"inputs.cache", RangeOf(inputs.cache, shape.width)},
                     {"inputs.block_table", RangeOf(inputs.block_table)},
                     {"inputs.seq_lens", RangeOf(inputs.seq_lens)},
                     {"inputs.query_start_loc", RangeOf(inputs.query_start_loc)},
                     {"inputs.row_kv_lens", RangeOf(inputs.row_kv_lens)},
                     {"inputs.row_starts", RangeOf(inputs.row_starts)},
                     {"inputs.row_ends", RangeOf(inputs.row_ends)},
                     {"inputs.candidate_blocks", RangeOf(inputs.candidate_blocks)}},
                    {{rule, output}});
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_HOST_INDEXER_CHECK_H_
