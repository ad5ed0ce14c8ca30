// SPDX-License-Identifier: Apache-2.0
// TileScores: keys as they lie times packed rows of queries, on the tile unit, for attention and the
// indexer.
//
//   A: 16 rows of the cache, wherever 16 addresses have one stride (pages of 16 and more); else a copy of them
//   B: queries, packed once a task:              [row tile][step][pair][row]
//   C: S^T [key][row]
//
// Keys stream past L1, where the queries of two row tiles stay.
#if defined(LATHE_KERNEL_SCORE_TILE_SCORES_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_SCORE_TILE_SCORES_INL_H_
#undef LATHE_KERNEL_SCORE_TILE_SCORES_INL_H_
#else
#define LATHE_KERNEL_SCORE_TILE_SCORES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lathe/arch/x86_amx.h"
#include "lathe/base/arena.h"
#include "lathe/base/types.h"
#include "lathe/kernel/keys/row_source-inl.h"
#include "lathe/kernel/score/arithmetic-inl.h"
#include "lathe/kernel/score/score-inl.h"
#include "lathe/kernel/score/tile_multiply-inl.h"
#include "lathe/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Tile>
class TileScores {
 public:
  using Element = bfloat16;

  // Carves room for `max_tiles` tiles of 16 query rows and for copies of `max_keys` keys.
  TileScores(Arena& arena, int64_t qk_dim, int64_t max_tiles, int64_t max_keys)
      : width_(RowSource<BFloat16Arithmetic>::PaddedWidth(qk_dim)), max_keys_(max_keys) {
    q_ = arena.Take<uint32_t>(static_cast<size_t>(max_tiles * kTileRows * width_ / 2));
    keys_ = arena.Take<Element>(static_cast<size_t>(max_keys * width_));
  }

  int64_t steps() const { return steps_; }
  int64_t row_bytes() const { return row_bytes_; }

  // Rows of `words` words from now on.
  void Start(int64_t words) {
    row_bytes_ = words * static_cast<int64_t>(sizeof(uint32_t));
    steps_ = RoundUp(words, kTileColumns) / kTileColumns;
    padding_ = steps_ * kTileColumns - words;
    // The columns of padding of copied keys.
    for (int64_t t = 0; t < max_keys_ && padding_ > 0; ++t) {
      std::memset(keys_ + t * width_ + words * 2, 0,
                  static_cast<size_t>(padding_) * sizeof(uint32_t));
    }
  }

  // Rows 0, 1, ... go to the tiles from `first_tile` on, those that fill up the last one are zeros.
  // load(row, to) writes a row; `staging` has room for 16 of padded width.
  template <class LoadRow>
  void Pack(int64_t first_tile, int64_t num_rows, Element* staging, const LoadRow& load) {
    const int64_t words = row_bytes_ / static_cast<int64_t>(sizeof(uint32_t));
    uint32_t* to = q_ + first_tile * steps_ * kTileWords;
    for (int64_t row = 0; row < num_rows; row += kTileRows, to += steps_ * kTileWords) {
      for (int64_t i = 0; i < kTileRows; ++i) {
        Element* query = staging + i * width_;
        if (row + i < num_rows) {
          load(row + i, query);
        } else {
          std::memset(query, 0, static_cast<size_t>(width_) * sizeof(Element));
        }
      }
      PackGroup(reinterpret_cast<const uint32_t*>(staging), width_ / 2, words, kTileGroup, to);
      std::memset(to + words * kTileRows, 0,
                  static_cast<size_t>(padding_ * kTileRows) * sizeof(uint32_t));
    }
  }

  // runs[i]: keys 16 i .. 16 i + 15 of `count` keys, and what `rows` has beyond.
  void FindRuns(const std::byte* const* rows, int64_t count, TileRun* runs) const {
    for (int64_t t = 0; t < count; t += kTileRows) runs[t / kTileRows] = KeyRun(rows + t, t);
  }

  // S^T of 16 * num_runs keys and the rows of num_row_tiles (1 or 2) tiles from row_tile on, over steps
  // [step_begin, step_end) of the summed dimension. kStreams: no other rows will want the keys in L1.
  template <bool kStreams = true>
  void Multiply(const TileRun* keys, int64_t num_runs, int64_t row_tile, int64_t num_row_tiles,
                int64_t step_begin, int64_t step_end, float* s, int64_t s_stride,
                LineFetcher& fetcher) const {
    const bool is_pair = num_row_tiles == 2;
    const auto* q =
        reinterpret_cast<const std::byte*>(q_ + (row_tile * steps_ + step_begin) * kTileWords);
    for (int64_t k = 0; k < num_runs;) {
      const int64_t left = num_runs - k;
      float* to = s + k * kTileRows * s_stride;
      // One tile of rows shares its load of Q among four of keys; otherwise it is 2 x 2.
      const int64_t n = !is_pair && left >= 4 ? 4 : left >= 2 ? 2 : 1;
      const auto multiply =
          n == 4    ? MultiplyKeys<4, 1, kStreams>
          : n == 2  ? (is_pair ? MultiplyKeys<2, 2, kStreams> : MultiplyKeys<2, 1, kStreams>)
          : is_pair ? MultiplyKeys<1, 2, kStreams>
                    : MultiplyKeys<1, 1, kStreams>;
      TileRun runs[4];
      for (int64_t i = 0; i < n; ++i) {
        runs[i] = {keys[k + i].data + step_begin * arch::kTileRowBytes, keys[k + i].stride};
      }
      multiply(runs, q, steps_, step_end - step_begin, 1, to, s_stride, fetcher);
      k += n;
    }
  }

 private:
  static constexpr RowGroup kTileGroup = {static_cast<int>(kTileRows / kLanes), 1};

  template <int kA, int kB, bool kStreams>
  static constexpr auto MultiplyKeys =
      MultiplyTiles<Tile, kA, kB, arch::kTileRowBytes, kStreams, false>;

  // 16 rows as they lie, or a copy of them in the place of key t.
  TileRun KeyRun(const std::byte* const* rows, int64_t t) const {
    const auto address = [rows](int64_t i) { return reinterpret_cast<intptr_t>(rows[i]); };
    const int64_t stride = address(1) - address(0);
    bool is_in_place = row_bytes_ % arch::kTileRowBytes == 0;
    for (int64_t i = 2; i < kTileRows; ++i) {
      is_in_place = is_in_place && address(i) - address(i - 1) == stride;
    }
    if (is_in_place) return {rows[0], stride};
    Element* copy = keys_ + t * width_;
    for (int64_t i = 0; i < kTileRows; ++i) {
      std::memcpy(copy + i * width_, rows[i], static_cast<size_t>(row_bytes_));
    }
    return {reinterpret_cast<const std::byte*>(copy),
            width_ * static_cast<int64_t>(sizeof(Element))};
  }

  int64_t width_;
  int64_t max_keys_;
  uint32_t* q_;
  Element* keys_;
  int64_t row_bytes_ = 0;
  int64_t steps_ = 0;
  int64_t padding_ = 0;  // words
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
