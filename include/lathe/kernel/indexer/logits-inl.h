// SPDX-License-Identifier: Apache-2.0
// Logits of an indexer: rows of queries against a range of keys.
//
//   pack queries [row][head group], once a task
//   for each tile of 64 (48) keys, decoded once for all rows, into L1:
//     for each query row:
//       ScoreStep       8 (6) keys x all heads, in registers; lanes = heads
//         WeighRelu     sums[key][lane] += weight * max(0, score), over the head groups
//       SumsOf          16 (8) keys at a time: one tree of shuffles adds up their lanes
//       * scale of the key
//
// The tile is half as long as attention's: a tile of 64 x 128 bfloat16 keys and the queries of a row of 64
// heads are 16 KB each. Lanes = keys lost: it transposes every key (64 shuffles a 16 x 32 block
// of words) for the same products.
//
// A cell's arithmetic knows neither its place in the tile nor its neighbours: every step adds up the words
// of a key in the same order, and the tree adds the lanes of each key in the same pairs.
#if defined(LATHE_KERNEL_INDEXER_LOGITS_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_INDEXER_LOGITS_INL_H_
#undef LATHE_KERNEL_INDEXER_LOGITS_INL_H_
#else
#define LATHE_KERNEL_INDEXER_LOGITS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "lathe/base/arena.h"
#include "lathe/kernel/indexer/heads-inl.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/row_source-inl.h"
#include "lathe/kernel/keys/visibility.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using detail::IndexerCall;
using detail::IndexerTask;
using detail::KeyRange;

// Scores of packed query rows, for whatever is to be done with them.
template <class Heads>
class IndexerScorer {
 public:
  using A = typename Heads::Arithmetic;
  using Element = typename A::Element;
  static constexpr int64_t kTile = kRegisters == 32 ? 64 : 48;
  static_assert(kTile <= kMaxTileKeys && kTile >= 2 * kLanes,
                "queries are packed by way of a tile");

  // Carves the scratch of one worker; with a counting arena, measures it.
  IndexerScorer(Arena& arena, int64_t num_heads, int64_t width, int64_t max_rows)
      : num_heads_(num_heads),
        padded_heads_(Heads::PaddedHeads(num_heads)),
        padded_width_(RowSource<A>::PaddedWidth(width)),
        heads_(arena, num_heads, width, max_rows, kTile) {
    const auto take = [&arena](int64_t n) { return arena.Take<float>(static_cast<size_t>(n)); };
    weights_ = take(max_rows * padded_heads_);
    staged_ = arena.Take<Element>(static_cast<size_t>(kTile * padded_width_));
    zeros_ = take(padded_width_);
    sums_ = take(kSums * kLanes);
    scales_ = take(kSums);
    scores_ = take(kSums);
    ranges_ = arena.Take<KeyRange>(static_cast<size_t>(max_rows));
  }

  // Rows [token, token + num_rows) of the batch, which see the keys of `ranges`.
  template <class RangeOf>
  void Pack(const IndexerCall& call, int64_t token, int64_t num_rows, const RowSource<A>& source,
            const RangeOf& range_of) {
    num_rows_ = num_rows;
    heads_.Start(source.words());
    for (int64_t r = 0; r < num_rows; ++r) {
      ranges_[r] = range_of(r);
      if (ranges_[r].begin >= ranges_[r].end) continue;
      heads_.Pack(r, staged_,
                  [&](int64_t head, Element* to) { LoadQuery(call, token + r, head, to); });
      const View<const float, 2>& weights = call.weights;
      const float* from = weights.data + (token + r) * weights.stride[0];
      float* to = weights_ + r * padded_heads_;
      for (int64_t h = 0; h < padded_heads_; ++h) {
        to[h] = h < num_heads_ ? from[h * weights.stride[1]] : 0.0f;
      }
    }
  }

  // emit(row, key, n, logits) for all keys in [begin, end) that the packed rows see; in the order of keys
  // for each row, up to a tile at a time.
  template <class Emit>
  void Score(const IndexerCall& call, int64_t seq, const RowSource<A>& source, int64_t begin,
             int64_t end, const Emit& emit) {
    [[maybe_unused]] const typename Heads::Session session;
    std::memset(zeros_, 0, static_cast<size_t>(padded_width_) * sizeof(float));
    KeyCursor cursor(call.keys, call.width, 0, seq, 0, kTile,
                     reinterpret_cast<const std::byte*>(zeros_));
    cursor.Seek(begin, end);
    int current = 0;
    cursor.Next(tiles_[current]);
    for (; tiles_[current].count > 0; current = 1 - current) {
      cursor.Next(tiles_[1 - current]);
      ScoreTile(call, source, tiles_[current], tiles_[1 - current], emit);
    }
  }

  RowSource<A> Source(const IndexerCall& call) const {
    return RowSource<A>(call.keys.cache.format, call.width, kTile, staged_, scales_);
  }
  KeyRange range(int64_t row) const { return ranges_[row]; }

 private:
  // Keys that sums have room for: steps and the tree take more than are left.
  static constexpr int64_t kSums = kTile + kScoreTokens + kLanes;

  void LoadQuery(const IndexerCall& call, int64_t token, int64_t head, Element* to) const {
    const In<3>& q = call.q;
    if (!q.empty()) {
      const int64_t offset = token * q.stride[0] + head * q.stride[1];
      return Convert(q.dtype, q.data + offset * static_cast<int64_t>(SizeOf(q.dtype)),
                     kDTypeOf<Element>, reinterpret_cast<std::byte*>(to), call.width);
    }
    const View<const float8_e4m3fn, 3>& codes = call.q_fp8;
    const float8_e4m3fn* from = codes.data + token * codes.stride[0] + head * codes.stride[1];
    DecodeCodes<float8_e4m3fn>(reinterpret_cast<const std::byte*>(from), call.width, Unscaled(),
                               to);
  }

  template <class Emit>
  void ScoreTile(const IndexerCall& call, const RowSource<A>& source, KeyTile& tile,
                 const KeyTile& next, const Emit& emit) {
    const auto in_tile = [&tile](int64_t key) {
      return (std::min)((std::max)(key - tile.begin, int64_t{0}), tile.count);
    };
    bool is_loaded = false;
    for (int64_t r = 0; r < num_rows_; ++r) {
      const int64_t begin = in_tile(ranges_[r].begin), end = in_tile(ranges_[r].end);
      if (begin >= end) continue;
      const bool is_first = !is_loaded;
      if (is_first) {
        source.Load(tile, next);
        heads_.StartTile(tile);
        for (int64_t t = 0; t < tile.count; ++t) {
          scales_[t] = call.scale * source.RowScale(t);
        }
        is_loaded = true;
      }
      const bool fetches = is_first && source.is_in_place() && next.count > 0;
      ScoreRow(r, fetches ? &next : nullptr, begin, end);
      emit(r, tile.begin + begin, end - begin, scores_);
    }
  }

  // Logits of keys [begin, end) of the tile in scores_.
  void ScoreRow(int64_t row, const KeyTile* next, int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    heads_.Weigh(row, begin, end, next, weights_ + row * padded_heads_, sums_);
    const F32 d;
    for (int64_t t = 0; t < count; t += kLanes) {
      VF lanes[kLanes];
      LATHE_UNROLL
      for (int64_t i = 0; i < kLanes; ++i) lanes[i] = hn::Load(d, sums_ + (t + i) * kLanes);
      const VF sums = SumsOf<kLanes>(lanes);
      hn::Store(hn::Mul(sums, hn::LoadU(d, scales_ + begin + t)), d, scores_ + t);
    }
  }

  int64_t num_heads_;
  int64_t padded_heads_;
  int64_t padded_width_;
  Heads heads_;
  int64_t num_rows_ = 0;
  float* weights_;
  Element* staged_;
  float* zeros_;
  float* sums_;
  float* scales_;
  float* scores_;
  KeyRange* ranges_;
  KeyTile tiles_[2];
};

// f(begin, end) for the keys within [begin, end) that row `token` may see: all, or its candidate blocks.
template <class F>
void ForEachCandidate(const IndexerCall& call, int64_t token, int64_t begin, int64_t end,
                      const F& f) {
  if (begin >= end) return;
  if (call.candidate_block_size == 0) return f(begin, end);
  const int64_t size = call.candidate_block_size;
  for (int64_t i = 0; i < call.candidate_blocks.extent[1]; ++i) {
    const int64_t block = call.candidate_blocks(token, i);
    if (block < begin / size || block > (end - 1) / size) continue;
    const int64_t first = block * size;
    f((std::max)(begin, first), size > end - first ? end : first + size);
  }
}

// What row r of a task sees.
LATHE_INLINE KeyRange KeysOf(const detail::KeyRows& keys, const IndexerTask& task, int64_t r) {
  return detail::VisibleKeys(keys, {}, detail::PlaceOfQuery(keys, task, task.row_begin + r));
}

// -inf in the cells of a row that the task owns and that hold no logits: all, where candidates follow.
LATHE_INLINE void FillRow(const IndexerCall& call, const IndexerTask& task, int64_t token,
                          KeyRange range) {
  constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
  const int64_t width = call.logits.extent[1];
  const int64_t begin = task.is_first ? 0 : task.key_begin;
  const int64_t end = task.is_last ? width : task.key_end;
  float* row = call.logits.data + token * call.logits.stride[0];
  const bool has_candidates = call.candidate_block_size > 0;
  const int64_t first = has_candidates ? end : (std::min)((std::max)(range.begin, begin), end);
  const int64_t last = has_candidates ? end : (std::max)((std::min)(range.end, end), first);
  std::fill(row + begin, row + first, kMinusInf);
  std::fill(row + last, row + end, kMinusInf);
}

template <class Heads>
void IndexLogits(const IndexerCall& call, const IndexerTask& task, void* scratch) {
  Arena arena(scratch);
  IndexerScorer<Heads> scorer(arena, call.num_heads, call.width, task.num_rows);
  const int64_t token = task.token_begin + task.row_begin;
  const auto source = scorer.Source(call);
  KeyRange seen{task.key_end, task.key_begin};
  scorer.Pack(call, token, task.num_rows, source, [&](int64_t r) {
    const KeyRange range = KeysOf(call.keys, task, r);
    if (call.fill) FillRow(call, task, token + r, range);
    if (range.begin < range.end) {
      seen.begin = (std::min)(seen.begin, range.begin);
      seen.end = (std::max)(seen.end, range.end);
    }
    return range;
  });
  const int64_t begin = (std::max)(seen.begin, task.key_begin);
  const int64_t end = (std::min)(seen.end, task.key_end);
  ForEachCandidate(call, token, begin, end, [&](int64_t from, int64_t to) {
    scorer.Score(call, task.seq, source, from, to,
                 [&](int64_t r, int64_t key, int64_t n, const float* logits) {
                   std::memcpy(call.logits.data + (token + r) * call.logits.stride[0] + key, logits,
                               static_cast<size_t>(n) * sizeof(float));
                 });
  });
}

template <class Heads>
size_t IndexerScratchBytes(int64_t num_heads, int64_t width, int64_t max_rows) {
  Arena counting;
  IndexerScorer<Heads> scorer(counting, num_heads, width, max_rows);
  return counting.bytes();
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
