// SPDX-License-Identifier: Apache-2.0
// The one loop over the tile unit: C[kA][kB] += A[kA] x B[kB] over `steps` tiles of the summed
// dimension. Scores and P x V are both made of it.
//
//                    B[0] B[1]       eight tile registers: C 0..3, A 4..5, B 6..7
//              A[0]  C[0] C[1]
//              A[1]  C[2] C[3]       2 x 2: one load a product. 4 x 1 and 1 x 4: 1.25
//
// A product takes 16 cycles, a load from L1 8: up to two loads a product cost nothing. The sums of
// one C are the same, bit for bit, whatever kA and kB it is computed under.
#if defined(LATHE_KERNEL_SCORE_TILE_MULTIPLY_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_SCORE_TILE_MULTIPLY_INL_H_
#undef LATHE_KERNEL_SCORE_TILE_MULTIPLY_INL_H_
#else
#define LATHE_KERNEL_SCORE_TILE_MULTIPLY_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lathe/arch/x86_amx.h"
#include "lathe/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using arch::kTileBytes;
using arch::kTileRows;

constexpr int64_t kTileColumns = 16;   // words or floats of a row
constexpr int64_t kTileElements = 32;  // bfloat16 of a row: what a step sums over
constexpr int64_t kTileWords = kTileRows * kTileColumns;

// Tiles of A along the summed dimension: the first at `data`, rows `stride` bytes apart.
struct TileRun {
  const std::byte* data;
  int64_t stride;
};

// Tiles belong to a thread and hold nothing between tasks: what a caller or another library has
// set up is neither used nor, by design of the instruction set, kept. On return there are none.
template <class Tile>
struct TileSession {
  TileSession() { Tile::Configure(arch::kWholeTiles); }
  ~TileSession() { Tile::Release(); }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
};

// f(0), ..., f(kN - 1), as compile-time constants.
template <int kN, class F>
LATHE_INLINE void ForEachIndex(const F& f) {
  if constexpr (kN > 0) {
    ForEachIndex<kN - 1>(f);
    f(std::integral_constant<int, kN - 1>());
  }
}

// Lines of the next keys, to be fetched a few at a time while tiles are multiplied: loads of tiles need the same
// miss buffers, and wait where a burst of prefetches holds them (twice as long for the scores of 128 rows).
struct LineFetcher {
  LineFetcher() = default;
  // Fetches `count` rows in `steps` steps.
  LineFetcher(const std::byte* const* rows, int64_t count, int64_t bytes, int64_t steps)
      : row(rows),
        end(rows + count),
        row_bytes(bytes),
        lines_per_step((count * ((bytes + 63) / 64) + steps - 1) / steps) {}

  const std::byte* const* row = nullptr;
  const std::byte* const* end = nullptr;
  int64_t row_bytes = 0;
  int64_t lines_per_step = 0;
  int64_t at = 0;

  LATHE_INLINE void Step() {
    for (int64_t i = 0; i < lines_per_step && row != end; ++i) {
      PrefetchToL2(*row + at);
      at += 64;
      if (at < row_bytes) continue;
      at = 0;
      ++row;
    }
  }
};

// Tiles of A are kAStep bytes apart, and past L1 if kStreamsA; those of B lie one after another, run j from b + j * b_run
// tiles on, and are passed `passes` times, by more of A. C[i][j] at c + 16 * (i * c_stride + j) is read first if kHasSums, else starts from 0.
template <class Tile, int kA, int kB, int64_t kAStep, bool kStreamsA, bool kHasSums>
HWY_NOINLINE void MultiplyTiles(const TileRun* a, const std::byte* b, int64_t b_run, int64_t steps,
                                int64_t passes, float* c, int64_t c_stride, LineFetcher& fetcher) {
  static_assert(kA * kB <= 4 && kA <= 4 && kB <= 4, "C has four registers");
  const int64_t c_bytes = c_stride * static_cast<int64_t>(sizeof(float));
  const auto sums = [c, c_stride](int i) {
    return c + (i / kB * kTileRows * c_stride + i % kB * kTileColumns);
  };
  ForEachIndex<kA * kB>([&](auto i) {
    constexpr int kC = decltype(i)::value;
    if constexpr (kHasSums) {
      Tile::template Load<kC>(sums(kC), c_bytes);
    } else {
      Tile::template Zero<kC>();
    }
  });
  int64_t b_step = 0;
  for (int64_t step = 0; step < steps * passes; ++step, ++b_step) {
    if (b_step == steps) b_step = 0;
    fetcher.Step();
    ForEachIndex<kA>([&](auto i) {
      constexpr int kRow = decltype(i)::value;
      const std::byte* tile = a[kRow].data + step * kAStep;
      if constexpr (kStreamsA) {
        Tile::template LoadStreamed<4 + kRow % 2>(tile, a[kRow].stride);
      } else {
        Tile::template Load<4 + kRow % 2>(tile, a[kRow].stride);
      }
      ForEachIndex<kB>([&](auto j) {
        constexpr int kColumn = decltype(j)::value;
        if constexpr (kRow == 0) {
          Tile::template Load<6 + kColumn % 2>(b + (kColumn * b_run + b_step) * kTileBytes,
                                               arch::kTileRowBytes);
        }
        Tile::template MultiplyBFloat16<kRow * kB + kColumn, 4 + kRow % 2, 6 + kColumn % 2>();
      });
    });
  }
  ForEachIndex<kA * kB>([&](auto i) {
    constexpr int kC = decltype(i)::value;
    Tile::template Store<kC>(sums(kC), c_bytes);
  });
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
