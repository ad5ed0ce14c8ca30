// SPDX-License-Identifier: Apache-2.0
// TileHeads: as RegisterHeads, with the scores of a query row's heads on the tile unit. Those of a tile of keys are
// 16 KiB for 64 heads, written and read in L1.
#if defined(LATHE_KERNEL_INDEXER_TILE_HEADS_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_INDEXER_TILE_HEADS_INL_H_
#undef LATHE_KERNEL_INDEXER_TILE_HEADS_INL_H_
#else
#define LATHE_KERNEL_INDEXER_TILE_HEADS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lathe/base/arena.h"
#include "lathe/kernel/indexer/heads-inl.h"
#include "lathe/kernel/score/arithmetic-inl.h"
#include "lathe/kernel/score/tile_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Tile>
class TileHeads {
 public:
  using Arithmetic = BFloat16Arithmetic;
  using Session = TileSession<Tile>;

  static int64_t PaddedHeads(int64_t num_heads) { return RoundUp(num_heads, kTileRows); }

  TileHeads(Arena& arena, int64_t num_heads, int64_t width, int64_t max_rows, int64_t tile_keys)
      : num_heads_(num_heads),
        row_tiles_(PaddedHeads(num_heads) / kTileRows),
        scores_(arena, width, max_rows * row_tiles_, tile_keys) {
    s_ = arena.Take<float>(static_cast<size_t>(tile_keys * PaddedHeads(num_heads)));
  }

  void Start(int64_t words) { scores_.Start(words); }

  template <class LoadHead>
  void Pack(int64_t row, bfloat16* staging, const LoadHead& load) {
    scores_.Pack(row * row_tiles_, num_heads_, staging, load);
  }

  void StartTile(const KeyTile& tile) { scores_.FindRuns(tile.rows, tile.count, runs_); }

  void Weigh(int64_t row, int64_t begin, int64_t end, const KeyTile* next, const float* weights,
             float* sums) {
    const int64_t first = begin / kTileRows, last = (end + kTileRows - 1) / kTileRows;
    const int64_t stride = PaddedHeads(num_heads_);
    LineFetcher fetcher;
    if (next != nullptr) {
      const int64_t steps = (last - first + 1) / 2 * ((row_tiles_ + 1) / 2) * scores_.steps();
      fetcher = LineFetcher(next->rows, next->count, scores_.row_bytes(), steps);
    }
    const WeighRelu weigh{weights, num_heads_, nullptr};
    // Sums of some runs of keys are made while the tile unit has those that follow.
    const int64_t step = row_tiles_ % 2 == 0 ? 2 : 4;
    int64_t key = begin;
    for (int64_t run = first; key < end; run += step) {
      const int64_t num_runs = (std::min)(last - run, step);
      for (int64_t tile = 0; num_runs > 0 && tile < row_tiles_; tile += 2) {
        scores_.template Multiply<false>(
            runs_ + run, num_runs, row * row_tiles_ + tile,
            (std::min)(row_tiles_ - tile, int64_t{2}), 0, scores_.steps(),
            s_ + (run - first) * kTileRows * stride + tile * kTileRows, stride, fetcher);
      }
      for (; key < (std::min)(end, run * kTileRows); ++key, sums += kLanes) {
        hn::Store(weigh.SumOf(s_ + (key - first * kTileRows) * stride), F32(), sums);
      }
    }
  }

 private:
  int64_t num_heads_;
  int64_t row_tiles_;
  TileScores<Tile> scores_;
  float* s_;
  TileRun runs_[kMaxTileKeys / kTileRows];
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
