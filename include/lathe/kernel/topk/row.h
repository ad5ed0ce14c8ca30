// SPDX-License-Identifier: Apache-2.0
// What a row of top-k chooses from, and the memory that choosing takes.
#ifndef LATHE_KERNEL_TOPK_ROW_H_
#define LATHE_KERNEL_TOPK_ROW_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/arena.h"
#include "lathe/base/config.h"
#include "lathe/topk.h"

namespace lathe::detail {
namespace {

// Columns [begin, end) of logits are to be chosen from. Column c stands for the positions from
// (c - origin) * pool_size on, those below `length`. Positions [tail_begin, length) are in whatever happens.
struct TopkRow {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t origin = 0;
  int64_t length = 0;
  int64_t tail_begin = 0;

  LATHE_INLINE constexpr int64_t num_columns() const { return end - begin; }
};

LATHE_INLINE int64_t ClampTopk(int64_t x, int64_t least, int64_t most) {
  return x < least ? least : (x > most ? most : x);
}

// Absurd lengths are checked to be at most kMaxSpan, so nothing here overflows.
LATHE_INLINE TopkRow TopkRowOf(const TopkArgs& args, const TopkOptions& options, int64_t t) {
  const int64_t num_columns = args.logits.extent[1], pool = options.pool_size;
  TopkRow row;
  row.begin = args.row_starts.empty() ? 0 : ClampTopk(args.row_starts(t), 0, num_columns);
  row.end =
      args.row_ends.empty() ? num_columns : ClampTopk(args.row_ends(t), row.begin, num_columns);
  if (row.end < row.begin) row.end = row.begin;
  row.origin = options.index_base == TopkIndexBase::kRowStart ? row.begin : 0;
  const int64_t first = (row.begin - row.origin) * pool;
  row.length = args.row_lens.empty() ? (row.end - row.origin) * pool : args.row_lens(t);
  if (row.length < first) row.length = first;
  const int64_t rest = row.length - options.append_newest;
  // Up to a whole pool; never past the end, never before the row.
  row.tail_begin = ClampTopk(rest < 0 ? 0 : (rest + pool - 1) / pool * pool, first, row.length);
  const int64_t end = row.origin + (row.tail_begin + pool - 1) / pool;
  if (row.end > end) row.end = end;
  return row;
}

// Candidates of a range of columns: keys that order scores (topk-inl.h) and indices, ascending. Vectors
// are stored whole, so kSlack elements past `capacity` are written, too.
struct TopkCandidates {
  static constexpr int64_t kSlack = 64;

  int32_t* keys = nullptr;
  int32_t* indices = nullptr;
  int64_t count = 0;
  int64_t capacity = 0;
};

// What is known of a range of a row's columns that workers share: its k best, and how good they are.
struct TopkPart {
  static constexpr int kNumBars = 16;  // whole vectors

  int32_t bars[kNumBars];  // keys that at least RankOfBar of the best reach; descending
  TopkCandidates best;
  int64_t num_parts = 1;  // of the row

  // From an even part of k on, up to k, in steps of 4.
  LATHE_INLINE static constexpr int64_t RankOfBar(int i, int64_t k, int64_t num_parts) {
    const int64_t first = (k + num_parts - 1) / num_parts;
    return k >> 2 * i < first ? k : first << 2 * i;
  }
};

// Scores that are looked at between two looks at the room for candidates, and that a sample may have.
constexpr int64_t kTopkChunk = 4096;

// Candidates that selecting k of n needs room for. The more, the fewer times they are thinned out; with
// 3 k and two chunks, 2 ns a score where all of them pass (Zen 4, 131072 ascending scores and no guess).
LATHE_INLINE constexpr int64_t TopkCapacity(int64_t n, int64_t k) {
  const int64_t most = 3 * k + 2 * kTopkChunk;
  return n < most ? n : most;
}

LATHE_INLINE TopkCandidates CarveTopkCandidates(Arena& arena, int64_t capacity) {
  const auto elements = static_cast<size_t>(capacity + TopkCandidates::kSlack);
  TopkCandidates candidates;
  candidates.keys = arena.Take<int32_t>(elements);
  candidates.indices = arena.Take<int32_t>(elements);
  candidates.capacity = capacity;
  return candidates;
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_KERNEL_TOPK_ROW_H_
