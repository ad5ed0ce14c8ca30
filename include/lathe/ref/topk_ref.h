// SPDX-License-Identifier: Apache-2.0
// Top-k by sorting, written from the rules in topk.h: slow, allocating, obvious. Shares no code with the
// kernels.
#ifndef LATHE_REF_TOPK_REF_H_
#define LATHE_REF_TOPK_REF_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "lathe/topk.h"

namespace lathe::ref {

// One row: its places without padding.
struct TopkRowResult {
  std::vector<int64_t> indices;
  std::vector<float> values;
};

inline bool IsBetterScore(float a, float b) {
  if (std::isnan(b)) return !std::isnan(a);
  return a > b;  // false for NaN
}

// The order of selection: of equal scores the lower column. Said in full, for std::sort: Clang 19 warns of what
// std::stable_sort of libstdc++ 12 is made of.
inline bool IsSelectedFirst(const float* scores, int64_t a, int64_t b) {
  if (IsBetterScore(scores[a], scores[b])) return true;
  return !IsBetterScore(scores[b], scores[a]) && a < b;
}

// The columns among [begin, end) that a row selects, ascending.
inline std::vector<int64_t> SelectColumns(const float* scores, int64_t begin, int64_t end,
                                          int64_t k) {
  std::vector<int64_t> columns;
  for (int64_t c = begin; c < end; ++c) columns.push_back(c);
  std::sort(columns.begin(), columns.end(),
            [scores](int64_t a, int64_t b) { return IsSelectedFirst(scores, a, b); });
  if (static_cast<int64_t>(columns.size()) > k) columns.resize(static_cast<size_t>(k));
  std::sort(columns.begin(), columns.end());
  return columns;
}

inline TopkRowResult TopkOfRow(const TopkArgs& args, const TopkOptions& options, int64_t t) {
  const int64_t num_columns = args.logits.extent[1], pool = options.pool_size;
  int64_t begin = args.row_starts.empty() ? 0 : args.row_starts(t);
  int64_t end = args.row_ends.empty() ? num_columns : args.row_ends(t);
  begin = (std::min)((std::max<int64_t>)(begin, 0), num_columns);
  end = (std::max)((std::min)(end, num_columns), begin);
  const int64_t origin = options.index_base == TopkIndexBase::kRowStart ? begin : 0;
  const int64_t length = args.row_lens.empty() ? (end - origin) * pool : args.row_lens(t);

  // The first newest position that is always in: not before length - append_newest, at a pool's start.
  int64_t tail = (std::max<int64_t>)(0, length - options.append_newest);
  while (tail % pool != 0) ++tail;
  tail = (std::max)(tail, (begin - origin) * pool);
  while (end > begin && (end - 1 - origin) * pool >= (std::min)(tail, length)) --end;

  TopkRowResult row;
  const auto add = [&](int64_t position, float value) {
    int64_t index = position;
    if (!args.block_table.empty()) {
      const int64_t seq = args.row_seq.empty() ? t : args.row_seq(t);
      const int64_t block = args.block_table(seq, position / args.block_size);
      const bool is_hole = block < 0 || block >= args.num_blocks;
      index = is_hole ? -1 : block * args.block_size + position % args.block_size;
    }
    row.indices.push_back(index);
    row.values.push_back(value);
  };
  const float* scores = &args.logits(t);
  for (const int64_t c : SelectColumns(scores, begin, end, options.k)) {
    for (int64_t j = 0; j < pool; ++j) {
      const int64_t position = (c - origin) * pool + j;
      if (position < length) add(position, scores[c]);
    }
  }
  for (int64_t position = tail; position < length; ++position) {
    add(position, std::numeric_limits<float>::infinity());
  }
  return row;
}

}  // namespace lathe::ref

#endif  // LATHE_REF_TOPK_REF_H_
