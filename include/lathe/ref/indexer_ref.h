// SPDX-License-Identifier: Apache-2.0
// Reference of an indexer's operations in double precision, written from the formulas.
#ifndef LATHE_REF_INDEXER_REF_H_
#define LATHE_REF_INDEXER_REF_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "lathe/indexer_logits.h"
#include "lathe/ref/attention_ref.h"

namespace lathe {
namespace ref {

// One query row of an indexer: H queries of D columns, and their weights.
struct IndexerRow {
  std::vector<std::vector<double>> q;
  std::vector<double> weights;
};

inline IndexerRow IndexerRowAt(const IndexerInputs& inputs, int64_t token) {
  const bool has_codes = inputs.q_fp8.extent[2] != 0;
  const int64_t width = has_codes ? inputs.q_fp8.extent[2] : inputs.q.extent[2];
  IndexerRow row;
  for (int64_t h = 0; h < inputs.weights.extent[1]; ++h) {
    const View<const float, 2>& weights = inputs.weights;
    row.weights.push_back(double{weights.data[token * weights.stride[0] + h * weights.stride[1]]});
    std::vector<double> q;
    for (int64_t c = 0; c < width; ++c) {
      const View<const uint8_t, 3>& codes = inputs.q_fp8;
      const int64_t at = token * codes.stride[0] + h * codes.stride[1] + c * codes.stride[2];
      q.push_back(has_codes ? double{ToFloat(float8_e4m3fn{codes.data[at]})}
                            : At(inputs.q, token, h, c));
    }
    row.q.push_back(q);
  }
  return row;
}

// sum_h weight * max(0, <q, key>), NaN where any of it is.
inline double IndexerLogit(const IndexerRow& row, const std::vector<double>& key) {
  double logit = 0.0;
  for (size_t h = 0; h < row.q.size(); ++h) {
    double dot = 0.0;
    for (size_t c = 0; c < key.size(); ++c) dot += row.q[h][c] * key[c];
    logit += row.weights[h] * (dot < 0.0 ? 0.0 : dot);
  }
  return logit;
}

// Whether row `token`, query i of the q_len of sequence b, sees key `key`.
inline bool SeesKey(const IndexerInputs& inputs, int64_t b, int64_t q_len, int64_t i, int64_t token,
                    int64_t key) {
  int64_t begin = 0, end = 0;
  if (inputs.row_starts.empty()) {
    const int64_t seq_len = inputs.seq_lens(b);
    int64_t tokens = seq_len - q_len + i + 1;
    if (!inputs.row_kv_lens.empty()) tokens = inputs.row_kv_lens(token);
    if (tokens > seq_len) tokens = seq_len;
    if (tokens < 0) tokens = 0;
    end = tokens / inputs.compress_ratio;
  } else {
    begin = inputs.row_starts(token);
    end = inputs.row_ends(token);
  }
  if (key < begin || key >= end) return false;
  if (inputs.candidate_block_size == 0) return true;
  for (int64_t j = 0; j < inputs.candidate_blocks.extent[1]; ++j) {
    if (inputs.candidate_blocks(token, j) == key / inputs.candidate_block_size) return true;
  }
  return false;
}

// Logits [T, columns]; -inf where a row does not see the key of a column. Trusts its arguments.
inline std::vector<double> IndexerLogits(const IndexerInputs& inputs, int64_t columns) {
  const int64_t num_tokens = inputs.weights.extent[0];
  const bool is_ragged = !inputs.row_starts.empty();
  const bool has_starts = !inputs.query_start_loc.empty();
  const int64_t num_seqs = is_ragged    ? 1
                           : has_starts ? inputs.query_start_loc.extent[0] - 1
                                        : num_tokens;
  const int64_t width = inputs.q_fp8.extent[2] != 0 ? inputs.q_fp8.extent[2] : inputs.q.extent[2];
  std::vector<double> logits(static_cast<size_t>(num_tokens * columns), -kInf);
  for (int64_t b = 0; b < num_seqs; ++b) {
    const int64_t begin = is_ragged ? 0 : has_starts ? inputs.query_start_loc(b) : b;
    const int64_t end = is_ragged ? num_tokens : has_starts ? inputs.query_start_loc(b + 1) : b + 1;
    std::vector<std::vector<double>> keys(static_cast<size_t>(columns));
    for (int64_t token = begin; token < end; ++token) {
      const IndexerRow row = IndexerRowAt(inputs, token);
      for (int64_t key = 0; key < columns; ++key) {
        if (!SeesKey(inputs, b, end - begin, token - begin, token, key)) continue;
        const int64_t page = key / inputs.cache.block_size, slot = key % inputs.cache.block_size;
        std::vector<double>& decoded = keys[static_cast<size_t>(key)];
        if (decoded.empty()) {
          decoded =
              DecodeRow(inputs.cache, is_ragged ? page : inputs.block_table(b, page), slot, width);
        }
        logits[static_cast<size_t>(token * columns + key)] = IndexerLogit(row, decoded);
      }
    }
  }
  return logits;
}

}  // namespace ref
}  // namespace lathe

#endif  // LATHE_REF_INDEXER_REF_H_
