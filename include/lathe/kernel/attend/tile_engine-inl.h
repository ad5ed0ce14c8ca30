// SPDX-License-Identifier: Apache-2.0
// TileEngine: scores and P x V on the tile unit (AMX), under a tile policy of arch/x86_amx.h.
//
//   scores  S^T [token][row]  = K x Q^T           (tile_scores-inl.h)
//   P x V   O [row][column]
//     A: P transposed, once a group of rows:       [row tile][step][row][pair], then what P lost likewise
//     B: token pairs of V, once a tile of keys:    [column tile][step][pair][column]
//     O (256 KiB for 128 rows) is read and written once a leaf
//
// Groups of 32 rows outside, keys inside: the queries, S and P of a group stay in L1, which keys pass by
// (LoadStreamed). Out of L2, on a Xeon, products of 256 keys and 128 rows (of zeros) take 16.5 us for the
// scores and 17.8 for P x V; with keys outside, 20.8 and 19.1. Softmax, masks, folding and the column order of O (that of
// interleaving inside 128-bit blocks) are those of the bf16 dot engine.
#if defined(LATHE_KERNEL_ATTEND_TILE_ENGINE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ATTEND_TILE_ENGINE_INL_H_
#undef LATHE_KERNEL_ATTEND_TILE_ENGINE_INL_H_
#else
#define LATHE_KERNEL_ATTEND_TILE_ENGINE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lathe/arch/x86_amx.h"
#include "lathe/base/arena.h"
#include "lathe/kernel/attend/accumulate-inl.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/row_source-inl.h"
#include "lathe/kernel/score/tile_scores-inl.h"
#include "lathe/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Tile>
class TileEngine {
 public:
  using Arithmetic = BFloat16Arithmetic;
  using Element = bfloat16;
  static constexpr int64_t kTileKeys = 128;  // of a leaf, as on registers
  static constexpr int64_t kGroupRows = 2 * kTileRows;

  using Session = TileSession<Tile>;

  // Whole tiles everywhere.
  static int64_t MaxPaddedRows(int64_t rows) { return RoundUp(rows, kTileRows); }

  TileEngine(Arena& arena, int64_t qk_dim, int64_t v_dim, int64_t max_rows)
      : scores_(arena, qk_dim, MaxPaddedRows(max_rows) / kTileRows, kTileKeys) {
    const auto take = [&arena](int64_t words) {
      return arena.Take<uint32_t>(static_cast<size_t>(words));
    };
    weights_ = take(2 * kGroupRows * kTileKeys / 2);
    values_ = take(detail::PartialColumns(v_dim) * kTileKeys / 2);
    folded_ = arena.Take<float>(static_cast<size_t>(kGroupRows * kSliceStride));
  }

  // As RegisterEngine::Pack.
  template <class LoadRow>
  void Pack(int64_t, int64_t num_rows, int64_t, int64_t words, Element* staging,
            const LoadRow& load) {
    row_tiles_ = MaxPaddedRows(num_rows) / kTileRows;
    scores_.Start(words);
    scores_.Pack(0, num_rows, staging, load);
  }

  int64_t padded_rows() const { return row_tiles_ * kTileRows; }
  void ClearPadding(float*) const {}

  void StartTile(const RowSource<Arithmetic>& source, const KeyTile& tile, const KeyTile& next) {
    fetcher_ = {};
    if (source.is_in_place()) Fetch(next, tile.count);
    scores_.FindRuns(tile.rows, tile.count, runs_);
    source.FetchValues(next, 0, tile.count);
  }

  // Token pairs, columns in the order of O.
  void LoadValues(const KeyTile& tile, int64_t tokens, int64_t v_columns) const {
    const int64_t steps = NumSteps(tokens);
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t c = 0; c < v_columns; c += kValueColumns) {
        for (int64_t pair = 0; pair < kTileRows; ++pair) {
          VU x[kValueVectors];
          Arithmetic::LoadValues<bfloat16>(tile.values + 2 * (step * kTileRows + pair), c, x);
          LATHE_UNROLL
          for (int j = 0; j < kValueVectors; ++j) {
            const int64_t at = c + j * kLanes;
            uint32_t* to = values_ + (at / kTileColumns * steps + step) * kTileWords;
            hn::Store(x[j], U32(), to + pair * kTileColumns + at % kTileColumns);
          }
        }
      }
    }
  }

  // Scores up to 15 rows more than the tile has: they are zeros.
  void Score(const RowSource<Arithmetic>&, const KeyTile& tile, const KeyTile&,
             const ScaleTile& columns, int64_t row, float* s, int64_t s_stride) {
    scores_.Multiply(runs_, RoundUp(tile.count, kTileRows) / kTileRows, row / kTileRows,
                     NumTiles(row), columns.begin / kTileElements, NumSteps(columns.end), s,
                     s_stride, fetcher_);
  }

  // As RegisterEngine::Accumulate, of what LoadValues has read. The sums of padding rows are finite or NaN, and
  // never used.
  void Accumulate(DType, Sums sums, const KeyTile&, int64_t tokens, const ScaleTile& columns,
                  int64_t row, const Weights& weights, const Output& to) {
    const int64_t steps = NumSteps(tokens);
    const int64_t num_tiles = NumTiles(row);
    const int64_t passes = weights.residual != nullptr ? 2 : 1;
    TransposeWeights(weights, tokens / 2, steps, passes, num_tiles);
    for (int64_t column = columns.begin; column < columns.end; column += kSliceColumns) {
      const Output slice = to.At(0, column);
      if (sums == Sums::kFold) {
        MultiplySlice<false>(num_tiles, column, steps, passes, folded_, kSliceStride);
        FoldSlice(num_tiles * kTileRows, slice);
      } else if (sums == Sums::kStore) {
        MultiplySlice<false>(num_tiles, column, steps, passes, slice.o, slice.stride);
      } else {
        MultiplySlice<true>(num_tiles, column, steps, passes, slice.o, slice.stride);
      }
    }
  }

 private:
  static constexpr int64_t kSliceColumns = 64;  // what v_columns is a multiple of
  static constexpr int64_t kSliceTiles = kSliceColumns / kTileColumns;
  static constexpr int64_t kSliceStride = kSliceColumns + kTileColumns;  // as PartialStride
  static_assert(kTileKeys % kTileElements == 0, "a tile of keys is whole steps of P x V");
  static_assert(kSliceColumns % kValueColumns == 0);

  static int64_t NumSteps(int64_t tokens) { return RoundUp(tokens, kTileElements) / kTileElements; }

  // Of the group from `row` on.
  int64_t NumTiles(int64_t row) const {
    return (std::min)(row_tiles_ - row / kTileRows, kGroupRows / kTileRows);
  }

  // Deals the lines of `next` out over the steps that `count` keys will take: P x V has about as many as the scores.
  void Fetch(const KeyTile& next, int64_t count) {
    const int64_t key_pairs = (count + 2 * kTileRows - 1) / (2 * kTileRows);
    const int64_t steps = 2 * key_pairs * ((row_tiles_ + 1) / 2) * scores_.steps();
    fetcher_ = LineFetcher(next.rows, next.count, scores_.row_bytes(), steps);
  }

  template <bool kHasSums>
  void MultiplySlice(int64_t num_tiles, int64_t column, int64_t steps, int64_t passes, float* o,
                     int64_t o_stride) {
    const int64_t a_run = passes * steps * kTileWords;
    const TileRun a[2] = {
        {reinterpret_cast<const std::byte*>(weights_), arch::kTileRowBytes},
        {reinterpret_cast<const std::byte*>(weights_ + a_run), arch::kTileRowBytes}};
    const auto* b =
        reinterpret_cast<const std::byte*>(values_ + column / kTileColumns * steps * kTileWords);
    if (num_tiles == 1) {
      return MultiplyTiles<Tile, 1, kSliceTiles, kTileBytes, false, kHasSums>(
          a, b, steps, steps, passes, o, o_stride, fetcher_);
    }
    for (int64_t j = 0; j < kSliceTiles; j += 2) {
      MultiplyTiles<Tile, 2, 2, kTileBytes, false, kHasSums>(a, b + j * steps * kTileBytes, steps,
                                                             steps, passes, o + j * kTileColumns,
                                                             o_stride, fetcher_);
    }
  }

  // From [pair][row]; pairs past the last become weights of 0.
  void TransposeWeights(const Weights& weights, int64_t num_pairs, int64_t steps, int64_t passes,
                        int64_t num_tiles) const {
    uint32_t* to = weights_;
    for (int64_t row_tile = 0; row_tile < num_tiles; ++row_tile) {
      for (int64_t step = 0; step < passes * steps; ++step, to += kTileWords) {
        const bool is_lost = step >= steps;
        const int64_t pair = (is_lost ? step - steps : step) * kTileRows;
        TransposeTile(
            (is_lost ? weights.residual : weights.p) + pair * weights.stride + row_tile * kTileRows,
            weights.stride, (std::min)(num_pairs - pair, kTileRows), to);
      }
    }
  }

  // The sums of a slice into O.
  void FoldSlice(int64_t num_rows, const Output& to) const {
    for (int64_t r = 0; r < num_rows; ++r) {
      FoldColumns(folded_ + r * kSliceStride, hn::Set(F32(), to.alpha[r]),
                  hn::Set(F32(), to.beta[r]), kSliceColumns, to.o + r * to.stride);
    }
  }

  TileScores<Tile> scores_;
  uint32_t* weights_;
  uint32_t* values_;
  float* folded_;                        // sums of a slice that are about to be
  TileRun runs_[kTileKeys / kTileRows];  // of the tile's keys
  LineFetcher fetcher_;
  int64_t row_tiles_ = 0;
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
