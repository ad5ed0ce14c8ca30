// SPDX-License-Identifier: Apache-2.0
// References in double precision, written from the formulas: slow, allocating, obvious. Shipped, so that
// engines can test their own glue; nothing in lathe's kernels shares code with them.
#ifndef LATHE_REF_ATTENTION_REF_H_
#define LATHE_REF_ATTENTION_REF_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lathe/cache/formats.h"
#include "lathe/merge_states.h"
#include "lathe/mla_decode.h"
#include "lathe/prefill.h"
#include "lathe/ref/elements.h"
#include "lathe/ref/row_transform_ref.h"

namespace lathe::ref {

// The key row at a slot of a page. Where it lies is spelled out here once more, since nothing is shared with kernels.
inline std::vector<double> DecodeRow(const PagedCache& cache, int64_t block, int64_t slot,
                                     int64_t width) {
  std::vector<double> row(static_cast<size_t>(width));
  const std::byte* page = cache.data + block * cache.block_stride;
  const std::byte* record = page + slot * cache.row_stride;
  const std::byte* sides = page + cache.block_size * cache.row_stride;
  VisitFormat(cache.format, [&](auto tag) {
    using Format = typename decltype(tag)::Type;
    const double scale = Format::kHasTensorScale ? cache.scale : 1.0f;
    for (int64_t c = 0; c < width; ++c) {
      row[static_cast<size_t>(c)] =
          scale * Format::DecodeColumn(record, sides + slot * Format::kSideBytes, c);
    }
  });
  return row;
}

// T rows of H heads: out [T, H, Dv] and the natural, sink-less lse [T, H]; an empty row is 0 and -inf.
struct AttentionResult {
  explicit AttentionResult(int64_t num_rows = 0, int64_t v_dim = 0)
      : out(static_cast<size_t>(num_rows * v_dim)), lse(static_cast<size_t>(num_rows), -kInf) {}
  std::vector<double> out;
  std::vector<double> lse;
};

// Row (token, head) of a tensor.
inline std::vector<double> TensorRow(const In<3>& tensor, int64_t token, int64_t head) {
  std::vector<double> row;
  for (int64_t c = 0; c < tensor.extent[2]; ++c) row.push_back(At(tensor, token, head, c));
  return row;
}

// What a head's sink, if there are any, leaves of an output.
inline double SinkFactor(const View<const float, 1>& attn_sink, int64_t head, double lse) {
  return attn_sink.empty() ? 1.0 : 1.0 / (1.0 + std::exp(attn_sink(head) - lse));
}

// Positions of the tokens that query i of the q_len of a sequence sees, itself included: its path.
inline std::vector<int64_t> PathOf(bool causal, const View<const uint64_t, 2>& tree_mask,
                                   int64_t seq_len, int64_t q_len, int64_t i, int64_t token) {
  std::vector<int64_t> path;
  for (int64_t position = 0; position < seq_len; ++position) {
    const int64_t j = position - (seq_len - q_len);  // which query, if not below 0
    bool is_seen = !causal || j <= i;
    if (!tree_mask.empty() && j >= 0) {
      is_seen = (tree_mask(token, j / 64) >> j % 64) % 2 != 0;
    }
    if (is_seen) path.push_back(position);
  }
  return path;
}

// Tokens of sequence b; without lengths the cache holds those of one sequence.
inline int64_t SeqLen(const KeySet& keys, int64_t b) {
  return keys.seq_lens.empty() ? keys.cache.num_blocks * keys.cache.block_size : keys.seq_lens(b);
}

// The row of key number `key` of sequence b; without a block table it is in that slot of the cache.
inline std::vector<double> KeyRow(const KeySet& keys, int64_t b, int64_t key, int64_t width) {
  const int64_t page = key / keys.cache.block_size, slot = key % keys.cache.block_size;
  if (keys.block_table.empty()) return DecodeRow(keys.cache, page, slot, width);
  const int64_t column = keys.wraps ? page % keys.block_table.extent[1] : page;
  return DecodeRow(keys.cache, keys.block_table(b, column), slot, width);
}

// Query rows of a batch, sequence by sequence.
struct Rows {
  int64_t begin, end;
};
inline std::vector<Rows> RowsOfSequences(int64_t num_tokens, const IndexView<1>& query_start_loc,
                                         bool is_one_sequence) {
  if (is_one_sequence && query_start_loc.empty()) return {{0, num_tokens}};
  std::vector<Rows> rows;
  for (int64_t b = 0; query_start_loc.empty() && b < num_tokens; ++b) rows.push_back({b, b + 1});
  for (int64_t b = 0; !query_start_loc.empty() && b + 1 < query_start_loc.extent[0]; ++b) {
    rows.push_back({query_start_loc(b), query_start_loc(b + 1)});
  }
  return rows;
}
inline bool IsOneSequence(const KeySet& keys) {
  return keys.block_table.empty() && keys.index_space == IndexSpace::kLogical;
}

// The keys that query row `token` (query i of the q_len of sequence b) sees, in order; lists of indices apart.
inline std::vector<int64_t> VisibleKeys(const KeySet& keys, bool causal,
                                        const View<const uint64_t, 2>& tree_mask, int64_t b,
                                        int64_t q_len, int64_t i, int64_t token) {
  // Which are there, by length, causality and tree: key j of a set that stands for tokens j * ratio .. (j + 1) * ratio - 1
  // when the path has so many.
  const int64_t seq_len = SeqLen(keys, b), ratio = keys.compress_ratio;
  const std::vector<int64_t> path = PathOf(causal, tree_mask, seq_len, q_len, i, token);
  std::vector<int64_t> seen;
  if (!keys.row_kv_lens.empty()) {
    for (int64_t j = 0; j < keys.row_kv_lens(token) && (j + 1) * ratio <= seq_len; ++j) {
      seen.push_back(j);
    }
  } else if (ratio == 1) {
    seen = path;
  } else {
    const auto length = static_cast<int64_t>(path.size());
    for (int64_t j = 0; (j + 1) * ratio <= length; ++j) seen.push_back(j);
  }
  if (keys.has_indices()) return seen;
  std::vector<int64_t> kept;
  const auto count = static_cast<int64_t>(seen.size());
  for (int64_t k = keys.window < count ? count - keys.window : 0; k < count; ++k) {
    const int64_t key = seen[static_cast<size_t>(k)];
    if (keys.row_starts.empty() || key >= keys.row_starts(token)) kept.push_back(key);
  }
  return kept;
}

// The rows of those keys, or of the list's among them, decoded.
inline std::vector<std::vector<double>> VisibleRows(const MlaShape& shape,
                                                    const MlaDecodeOptions& options,
                                                    const View<const uint64_t, 2>& tree_mask,
                                                    const KeySet& keys, int64_t b, int64_t q_len,
                                                    int64_t i, int64_t token) {
  const int64_t width = shape.kv_lora_rank + shape.qk_rope_head_dim;
  const int64_t block_size = keys.cache.block_size;
  const bool is_physical = keys.has_indices() && keys.index_space == IndexSpace::kPhysical;
  std::vector<int64_t> seen;
  if (!is_physical) seen = VisibleKeys(keys, options.causal, tree_mask, b, q_len, i, token);
  std::vector<std::vector<double>> rows;
  if (!keys.has_indices()) {
    for (const int64_t key : seen) rows.push_back(KeyRow(keys, b, key, width));
    return rows;
  }
  const int64_t count = keys.topk_length.empty() ? keys.indices.extent[1] : keys.topk_length(token);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t index = keys.indices(token, k);
    if (is_physical) {
      if (index < 0 || index >= keys.cache.num_blocks * block_size) continue;
      rows.push_back(DecodeRow(keys.cache, index / block_size, index % block_size, width));
    } else {
      if (!std::binary_search(seen.begin(), seen.end(), index)) continue;
      rows.push_back(KeyRow(keys, b, index, width));
    }
  }
  return rows;
}

// What becomes of a score x = softmax_scale * <q, key> before the softmax, in the order of base/score_transforms.def.
template <class Options>
double TransformScore(const Options& options, double x) {
  if (options.soft_cap > 0.0f) x = options.soft_cap * std::tanh(x / options.soft_cap);
  return x;
}

// One row of `head`: softmax over the scores of the keys, the first v_dim columns of each value, sink on the output
// only. out and lse hold what an empty row has. Options: MlaDecodeOptions or PrefillOptions.
template <class Options>
void AttendRow(const std::vector<double>& q, const std::vector<std::vector<double>>& keys,
               const std::vector<std::vector<double>>& values, const Options& options, size_t v_dim,
               const View<const float, 1>& attn_sink, int64_t head, double* out, double* lse) {
  std::vector<double> score;
  double max = -kInf, sum = 0.0;
  for (const std::vector<double>& key : keys) {
    double dot = 0.0;
    for (size_t c = 0; c < q.size(); ++c) dot += q[c] * key[c];
    score.push_back(TransformScore(options, options.softmax_scale * dot));
    if (score.back() > max) max = score.back();
  }
  if (max == -kInf) max = 0.0;
  for (const double x : score) sum += std::exp(x - max);
  if (sum == 0.0) return;
  *lse = max + std::log(sum);
  const double factor = SinkFactor(attn_sink, head, *lse) / sum;
  for (size_t j = 0; j < keys.size(); ++j) {
    const double weight = std::exp(score[j] - max) * factor;
    for (size_t c = 0; c < v_dim; ++c) out[c] += weight * values[j][c];
  }
}

// Reference of RunMlaDecode: same arguments, results in double. Trusts its arguments.
inline AttentionResult MlaDecode(const MlaShape& shape, const MlaDecodeOptions& options,
                                 const MlaDecodeArgs& args) {
  const int64_t num_tokens = args.out.extent[0];
  const bool is_one_sequence =
      IsOneSequence(args.keys) && (!args.extra_keys.is_given() || IsOneSequence(args.extra_keys));
  const int64_t num_heads = shape.num_heads;
  const int64_t v_dim = shape.kv_lora_rank;
  AttentionResult result(num_tokens * num_heads, v_dim);
  int64_t b = -1;
  for (const auto [begin, end] :
       RowsOfSequences(num_tokens, args.query_start_loc, is_one_sequence)) {
    ++b;
    for (int64_t token = begin; token < end; ++token) {
      auto rows = VisibleRows(shape, options, args.tree_mask, args.keys, b, end - begin,
                              token - begin, token);
      if (args.extra_keys.is_given()) {
        const auto extra = VisibleRows(shape, options, args.tree_mask, args.extra_keys, b,
                                       end - begin, token - begin, token);
        rows.insert(rows.end(), extra.begin(), extra.end());
      }
      for (int64_t head = 0; head < num_heads; ++head) {
        const bool is_whole = args.q.extent[2] > 0;
        std::vector<double> q = TensorRow(is_whole ? args.q : args.q_nope, token, head);
        if (!is_whole) {
          for (const double x : TensorRow(args.q_pe, token, head)) q.push_back(x);
        }
        const auto at = static_cast<size_t>(token * num_heads + head);
        AttendRow(q, rows, rows, options, static_cast<size_t>(v_dim), args.attn_sink, head,
                  &result.out[at * static_cast<size_t>(v_dim)], &result.lse[at]);
        if (!args.out_rope.is_given() || rows.empty()) continue;
        int64_t position = 0;
        if (!args.positions.empty()) {
          position = args.positions(token);
        } else if (args.tree_mask.empty()) {
          position = SeqLen(args.keys, b) - (end - token);
        } else {
          const auto path =
              PathOf(true, args.tree_mask, SeqLen(args.keys, b), end - begin, token - begin, token);
          position = path.empty() ? 0 : static_cast<int64_t>(path.size()) - 1;
        }
        const auto first = result.out.begin() + static_cast<ptrdiff_t>(at) * v_dim;
        const auto rotated = RopeRow(args.out_rope, position, {first, first + v_dim});
        std::copy(rotated.begin(), rotated.end(), first);
      }
    }
  }
  return result;
}

// Reference of RunPrefill: same arguments, results in double. Trusts its arguments.
inline AttentionResult Prefill(const PrefillShape& shape, const PrefillOptions& options,
                               const PrefillArgs& args) {
  const int64_t num_tokens = args.out.extent[0], num_heads = shape.num_heads;
  const auto v_dim = static_cast<size_t>(shape.v_head_dim);
  AttentionResult result(num_tokens * num_heads, shape.v_head_dim);
  for (int64_t b = 0; b + 1 < args.query_start_loc.extent[0]; ++b) {
    const int64_t begin = args.query_start_loc(b), q_len = args.query_start_loc(b + 1) - begin;
    const int64_t kv_begin = args.kv_start_loc(b);
    const int64_t kv_len = args.kv_start_loc(b + 1) - kv_begin;
    for (int64_t i = 0; i < q_len; ++i) {
      const int64_t last = options.causal ? kv_len - q_len + i : kv_len - 1;
      for (int64_t head = 0; head < num_heads; ++head) {
        const int64_t kv_head = head / (num_heads / shape.kv_heads());
        std::vector<std::vector<double>> keys, values;
        for (int64_t j = 0; j <= last; ++j) {
          if (last - j >= options.window) continue;
          keys.push_back(TensorRow(args.k, kv_begin + j, kv_head));
          values.push_back(TensorRow(args.v, kv_begin + j, kv_head));
        }
        const auto at = static_cast<size_t>((begin + i) * num_heads + head);
        AttendRow(TensorRow(args.q, begin + i, head), keys, values, options, v_dim, args.attn_sink,
                  head, &result.out[at * v_dim], &result.lse[at]);
      }
    }
  }
  return result;
}

// Reference of MergeStates; lse natural, without the sink.
inline AttentionResult MergeStates(const MergeStatesArgs& args) {
  const int64_t num_tokens = args.out.extent[0], num_heads = args.out.extent[1];
  const int64_t v_dim = args.out.extent[2];
  AttentionResult result(num_tokens * num_heads, v_dim);
  for (int64_t row = 0; row < num_tokens * num_heads; ++row) {
    const int64_t token = row / num_heads, head = row % num_heads;
    std::vector<double> lse(args.num_parts);
    double max = -kInf;
    for (size_t i = 0; i < args.num_parts; ++i) {
      const MergePart& part = args.parts[i];
      const float given = part.lse(token, head);
      lse[i] = given == part.lse_policy.empty
                   ? -kInf
                   : given * (part.lse_policy.base2 ? std::log(2.0) : 1.0);
      if (lse[i] > max) max = lse[i];
    }
    if (max == -kInf) continue;
    double sum = 0.0;
    for (const double l : lse) sum += std::exp(l - max);
    const double merged = max + std::log(sum);
    const double factor = SinkFactor(args.attn_sink, head, merged);
    result.lse[static_cast<size_t>(row)] = merged;
    for (size_t i = 0; i < args.num_parts; ++i) {
      if (lse[i] == -kInf) continue;
      for (int64_t c = 0; c < v_dim; ++c) {
        result.out[static_cast<size_t>(row * v_dim + c)] +=
            factor * std::exp(lse[i] - merged) * At(args.parts[i].out, token, head, c);
      }
    }
  }
  return result;
}

}  // namespace lathe::ref

#endif  // LATHE_REF_ATTENTION_REF_H_
