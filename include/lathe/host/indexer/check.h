// SPDX-License-Identifier: Apache-2.0
// What operations on an indexer's queries and keys refuse. All of it is O(T + B), block ids excepted.
#ifndef LATHE_HOST_INDEXER_CHECK_H_
#define LATHE_HOST_INDEXER_CHECK_H_

#include "lathe/host/attend/check.h"
#include "lathe/host/engine_choice.h"
#include "lathe/host/keys/check.h"
#include "lathe/host/keys/resolve.h"
#include "lathe/indexer_logits.h"

namespace lathe::detail {
namespace {

inline constexpr KeyNames kIndexerKeyNames = LATHE_KEY_NAMES("inputs.keys");

struct IndexerBatch {
  int64_t num_heads;
  int64_t width;
  Batch batch;
};

inline IndexerBatch ShapeOf(const IndexerInputs& inputs) {
  const int64_t width = inputs.q.extent[2] != 0 ? inputs.q.extent[2] : inputs.q_fp8.extent[2];
  return {inputs.weights.extent[1], width,
          BatchOf(inputs.weights.extent[0], inputs.query_start_loc, IsOneSequence(inputs.keys))};
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

inline Status CheckIndexerQuery(const IndexerInputs& inputs, const IndexerBatch& shape) {
  const int64_t num_tokens = shape.batch.num_tokens;
  const bool needs_data = num_tokens > 0;
  LATHE_RETURN_IF_REFUSED(
      CheckElements("inputs.weights", inputs.weights, {num_tokens, shape.num_heads}));
  const bool has_codes = inputs.q_fp8.extent[2] != 0;
  if (inputs.q.extent[2] != 0 && has_codes) {
    return Invalid("inputs.q").Must("not be given beside inputs.q_fp8");
  }
  const char* name = has_codes ? "inputs.q_fp8" : "inputs.q";
  const int64_t* extent = has_codes ? inputs.q_fp8.extent : inputs.q.extent;
  LATHE_RETURN_IF_REFUSED(CheckExtent(name, 0, extent[0], num_tokens));
  LATHE_RETURN_IF_REFUSED(CheckExtent(name, 1, extent[1], shape.num_heads));
  LATHE_RETURN_IF_REFUSED(
      CheckIndexerDims("inputs.weights.extent[1]", shape.num_heads,
                       has_codes ? "inputs.q_fp8.extent[2]" : "inputs.q.extent[2]", extent[2]));
  return has_codes ? CheckRows(name, inputs.q_fp8, sizeof(float8_e4m3fn), {needs_data})
                   : CheckTensor(name, inputs.q, {needs_data});
}

inline Status CheckCandidates(const IndexerInputs& inputs, int64_t num_tokens) {
  const int64_t size = inputs.candidate_block_size;
  if (!IsGiven(inputs.candidate_blocks)) {
    if (size == 0) return OkStatus();
    return Invalid("inputs.candidate_block_size")
        .Is(size)
        .Must("be, without inputs.candidate_blocks,", 0);
  }
  LATHE_RETURN_IF_REFUSED(
      CheckIndices("inputs.candidate_blocks", inputs.candidate_blocks, {num_tokens, -1}));
  if (size >= 1) return OkStatus();
  return Invalid("inputs.candidate_block_size").Is(size).Must("be at least", 1);
}

inline Status CheckIndexerInputs(const IndexerInputs& inputs, const IndexerBatch& shape,
                                 bool check_indices) {
  const Batch& batch = shape.batch;
  LATHE_RETURN_IF_REFUSED(CheckIndexerQuery(inputs, shape));
  if (IsGiven(inputs.query_start_loc)) {
    LATHE_RETURN_IF_REFUSED(CheckStartLocShape("inputs.query_start_loc", inputs.query_start_loc));
    LATHE_RETURN_IF_REFUSED(
        CheckQueryStartLoc("inputs.query_start_loc", inputs.query_start_loc, batch.num_tokens));
  }
  LATHE_RETURN_IF_REFUSED(
      CheckKeys(kIndexerKeyNames, inputs.keys, shape.width, batch, batch.num_tokens > 0));
  if (inputs.keys.has_indices()) return Invalid(kIndexerKeyNames.indices).Must("not be given");
  LATHE_RETURN_IF_REFUSED(CheckCandidates(inputs, batch.num_tokens));
  const KeyRows keys = ResolveKeys(inputs.keys);
  LATHE_RETURN_IF_REFUSED(CheckKeyLengths(kIndexerKeyNames, keys, batch, {}));
  return check_indices ? CheckKeyBlocks(kIndexerKeyNames, keys, batch, {}) : OkStatus();
}

// No input may touch what is written at `output`.
inline Status CheckIndexerOverlap(const IndexerInputs& inputs, const IndexerBatch& shape,
                                  ByteRange output, const char* rule) {
  LATHE_RETURN_IF_REFUSED(
      CheckApart({{"inputs.q", RangeOf(inputs.q)},
                  {"inputs.q_fp8", RangeOf(inputs.q_fp8)},
                  {"inputs.weights", RangeOf(inputs.weights)},
                  {"inputs.query_start_loc", RangeOf(inputs.query_start_loc)},
                  {"inputs.candidate_blocks", RangeOf(inputs.candidate_blocks)}},
                 {{rule, output}}));
  return CheckKeysApart(kIndexerKeyNames, inputs.keys, shape.width, {{rule, output}});
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_INDEXER_CHECK_H_
