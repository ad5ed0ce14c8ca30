// SPDX-License-Identifier: Apache-2.0
// Reference of an indexer's operations in double precision, written from the formulas.
#ifndef LATHE_REF_INDEXER_REF_H_
#define LATHE_REF_INDEXER_REF_H_

#include <cstdint>
#include <map>
#include <vector>

#include "lathe/indexer_logits.h"
#include "lathe/ref/attention_ref.h"

namespace lathe::ref {

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
    row.weights.push_back(double{inputs.weights(token, h)});
    std::vector<double> q;
    for (int64_t c = 0; c < width; ++c) {
      q.push_back(has_codes ? double{ToFloat(inputs.q_fp8(token, h, c))}
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

// Whether key `key` is in one of the candidate blocks of row `token`, if it has any.
inline bool IsCandidate(const IndexerInputs& inputs, int64_t token, int64_t key) {
  for (int64_t j = 0; j < inputs.candidate_blocks.extent[1]; ++j) {
    if (inputs.candidate_blocks(token, j) == key / inputs.candidate_block_size) return true;
  }
  return inputs.candidate_block_size == 0;
}

// Logits [T, columns]; -inf where a row does not see the key of a column. Trusts its arguments.
inline std::vector<double> IndexerLogits(const IndexerInputs& inputs, int64_t columns) {
  const KeySet& keys = inputs.keys;
  const int64_t num_tokens = inputs.weights.extent[0];
  const int64_t width = inputs.q_fp8.extent[2] != 0 ? inputs.q_fp8.extent[2] : inputs.q.extent[2];
  std::vector<double> logits(static_cast<size_t>(num_tokens * columns), -kInf);
  int64_t b = -1;
  for (const auto [begin, end] :
       RowsOfSequences(num_tokens, inputs.query_start_loc, IsOneSequence(keys))) {
    ++b;
    std::map<int64_t, std::vector<double>> decoded;
    for (int64_t token = begin; token < end; ++token) {
      const IndexerRow row = IndexerRowAt(inputs, token);
      for (const int64_t key : VisibleKeys(keys, true, {}, b, end - begin, token - begin, token)) {
        if (!IsCandidate(inputs, token, key)) continue;
        std::vector<double>& key_row = decoded[key];
        if (key_row.empty()) key_row = KeyRow(keys, b, key, width);
        logits[static_cast<size_t>(token * columns + key)] = IndexerLogit(row, key_row);
      }
    }
  }
  return logits;
}

}  // namespace lathe::ref

#endif  // LATHE_REF_INDEXER_REF_H_
