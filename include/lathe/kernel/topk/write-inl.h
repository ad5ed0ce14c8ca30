// SPDX-License-Identifier: Apache-2.0
// Top-k of rows in memory: selection, and writing it as positions or slots.
#if defined(LATHE_KERNEL_TOPK_WRITE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_TOPK_WRITE_INL_H_
#undef LATHE_KERNEL_TOPK_WRITE_INL_H_
#else
#define LATHE_KERNEL_TOPK_WRITE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "lathe/kernel/topk/row.h"
#include "lathe/kernel/topk/select-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using detail::TopkRow;
using detail::TopkRowOf;

// position -> what is written, where there is no block table.
struct TopkPositions {
  LATHE_INLINE int64_t operator()(int64_t position) const { return position; }
};

// position -> slot of the cache, or -1. Positions come in ascending order, so a page is looked up once.
class TopkSlots {
 public:
  TopkSlots(const TopkArgs& args, int64_t t)
      : args_(args), seq_(args.row_seq.empty() ? t : args.row_seq(t)) {}

  LATHE_INLINE int64_t operator()(int64_t position) {
    if (position >= page_end_) {
      const int64_t page = position / args_.block_size;
      const int64_t block = args_.block_table(seq_, page);
      page_end_ = (page + 1) * args_.block_size;
      is_hole_ = block < 0 || block >= args_.num_blocks;
      to_slot_ = (block - page) * args_.block_size;
    }
    return is_hole_ ? -1 : position + to_slot_;
  }

 private:
  const TopkArgs& args_;
  int64_t seq_;
  int64_t page_end_ = 0;
  int64_t to_slot_ = 0;
  bool is_hole_ = false;
};

// The places of row t: f(position) for each, ascending. `column_at(i)` is the i-th of `num_selected`
// columns, counted from row.begin. Returns how many places there are.
template <class ColumnAt, class F>
LATHE_INLINE int64_t ForEachPlace(const TopkRow& row, int64_t pool, int64_t num_selected,
                                  const ColumnAt& column_at, const F& f) {
  const int64_t first_column = row.begin - row.origin;
  int64_t place = 0;
  for (int64_t i = 0; i < num_selected; ++i) {
    const int64_t position = (first_column + column_at(i)) * pool;
    const int64_t end = (std::min)(position + pool, row.length);
    for (int64_t p = position; p < end; ++p) f(place++, p);
  }
  for (int64_t p = row.tail_begin; p < row.length; ++p) f(place++, p);
  return place;
}

template <class Index, class ColumnAt, class ToIndex>
int64_t WriteIndices(const TopkArgs& args, const TopkOptions& options, const TopkRow& row,
                     int64_t t, int64_t num_selected, const ColumnAt& column_at, ToIndex to_index) {
  const int64_t stride = args.indices.stride[1];
  Index* to = static_cast<Index*>(args.indices.data) + t * args.indices.stride[0];
  int64_t place = 0;
  if (options.pool_size == 1) {  // the same, at the speed of copying
    const int64_t first = row.begin - row.origin;
    for (; place < num_selected; ++place) {
      to[place * stride] = static_cast<Index>(to_index(first + column_at(place)));
    }
    for (int64_t p = row.tail_begin; p < row.length; ++p, ++place) {
      to[place * stride] = static_cast<Index>(to_index(p));
    }
  } else {
    place = ForEachPlace(row, options.pool_size, num_selected, column_at,
                         [&](int64_t at, int64_t position) {
                           to[at * stride] = static_cast<Index>(to_index(position));
                         });
  }
  for (int64_t i = place; i < args.indices.extent[1]; ++i) to[i * stride] = -1;
  return place;
}

template <class ColumnAt>
void WriteValues(const TopkArgs& args, const TopkOptions& options, const TopkRow& row, int64_t t,
                 int64_t num_selected, const ColumnAt& column_at) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float* scores = args.logits.data + t * args.logits.stride[0];
  const int64_t stride = args.values.stride[1];
  float* to = args.values.data + t * args.values.stride[0];
  const int64_t places = ForEachPlace(
      row, options.pool_size, num_selected, column_at, [&](int64_t place, int64_t position) {
        const bool is_scored = position < row.tail_begin;
        to[place * stride] =
            is_scored ? scores[row.origin + position / options.pool_size] : kInfinity;
      });
  for (int64_t i = places; i < args.values.extent[1]; ++i) to[i * stride] = -kInfinity;
}

template <class ColumnAt>
void WriteTopk(const TopkArgs& args, const TopkOptions& options, const TopkRow& row, int64_t t,
               int64_t num_selected, const ColumnAt& column_at) {
  const auto write = [&](auto to_index) {
    return args.indices.is_int64
               ? WriteIndices<int64_t>(args, options, row, t, num_selected, column_at, to_index)
               : WriteIndices<int32_t>(args, options, row, t, num_selected, column_at, to_index);
  };
  const int64_t places =
      args.block_table.empty() ? write(TopkPositions()) : write(TopkSlots(args, t));
  if (!args.counts.empty()) args.counts.Set(places, t);
  if (!args.values.empty()) WriteValues(args, options, row, t, num_selected, column_at);
}

inline void WriteCandidates(const TopkArgs& args, const TopkOptions& options, const TopkRow& row,
                            int64_t t, const TopkCandidates& c) {
  WriteTopk(args, options, row, t, c.count,
            [&c](int64_t i) { return static_cast<int64_t>(c.indices[i]); });
}

// The k best of a row with more columns, with indices from row.begin on. `guess`: or fewer, if the guess
// was too high.
inline void SelectColumns(const float* scores, int64_t n, int64_t k, bool guess,
                          TopkCandidates* c) {
  int32_t floor = guess ? GuessFloor(scores, n, k, c->keys) : kNoFloor;
  c->count = 0;
  SelectRange(scores, n, 0, k, &floor, c);
  if (c->count > k) KeepBest(k, &floor, c);
}

inline const float* ScoresOf(const TopkArgs& args, const TopkRow& row, int64_t t) {
  return args.logits.data + t * args.logits.stride[0] + row.begin;
}

// Row t, by one worker; `c` is scratch.
inline void SelectTopk(const TopkArgs& args, const TopkOptions& options, int64_t t,
                       TopkCandidates c) {
  const TopkRow row = TopkRowOf(args, options, t);
  const int64_t n = row.num_columns(), k = options.k;
  if (n <= k) return WriteTopk(args, options, row, t, n, [](int64_t i) { return i; });
  c.count = 0;
  if (k > 0) {
    SelectColumns(ScoresOf(args, row, t), n, k, true, &c);
    if (c.count < k) SelectColumns(ScoresOf(args, row, t), n, k, false, &c);
  }
  WriteCandidates(args, options, row, t, c);
}

// Columns [begin, end) of row t, counted from its first, into `out`, which has room for k; `c` is scratch.
inline void SelectTopkPart(const TopkArgs& args, const TopkOptions& options, int64_t t,
                           int64_t begin, int64_t end, TopkCandidates c, TopkCandidates* out) {
  const TopkRow row = TopkRowOf(args, options, t);
  const int64_t k = options.k;
  const float* scores = ScoresOf(args, row, t);
  // Every part guesses from the whole row: cheaper than waiting for one another.
  int32_t floor = GuessFloor(scores, row.num_columns(), k, c.keys);
  c.count = 0;
  SelectRange(scores + begin, end - begin, begin, k, &floor, &c);
  if (c.count > k) KeepBest(k, &floor, &c);
  MergeCandidates(1, k, out, [&c](int64_t) { return c; });
}

// Row t from its parts, `parts[0]` having room for all. Where the guess was too high, which takes scores
// far from random, one worker does the row again.
inline void MergeTopkParts(const TopkArgs& args, const TopkOptions& options, int64_t t,
                           const TopkCandidates* parts, int64_t num_parts, TopkCandidates scratch) {
  const TopkRow row = TopkRowOf(args, options, t);
  TopkCandidates all = parts[0];
  MergeCandidates(num_parts, options.k, &all, [parts](int64_t part) { return parts[part]; });
  if (all.count < options.k) {
    SelectColumns(ScoresOf(args, row, t), row.num_columns(), options.k, false, &scratch);
    all = scratch;
  }
  WriteCandidates(args, options, row, t, all);
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
