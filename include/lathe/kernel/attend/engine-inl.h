// SPDX-License-Identifier: Apache-2.0
// RegisterEngine: scores and P x V in vector registers, for either arithmetic. What the attend kernel asks
// of an engine:
//
//   Arithmetic                    element type, weights, column order of O
//   kTileKeys                     keys of a tile, at most kMaxTileKeys
//   kGroupRows                    rows that are scored, weighed and accumulated before the next are
//   Session                       an object of it exists while Score and Accumulate are called
//   MaxPaddedRows                 rows that S, P and the softmax state of a task have room for
//   (arena, ...)                  carves its scratch, or counts it
//   Pack(rows)                    the queries of a task, once; then
//   padded_rows                   the rows of S, P and the softmax state
//   ClearPadding(S)               numbers for the lanes of S that no score is written to
//   StartTile(tile)               a tile is next
//   LoadValues(tile)              its values are as P x V shall read them
//   Score(columns, row)           S^T [token][row] of a group, over columns of keys
//   Accumulate(columns, row, P)   P x V of a group and columns of values, to O [row][column]
//
// An engine knows registers or tiles, nothing about pages, masks, softmax or results.
#if defined(LATHE_KERNEL_ATTEND_ENGINE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ATTEND_ENGINE_INL_H_
#undef LATHE_KERNEL_ATTEND_ENGINE_INL_H_
#else
#define LATHE_KERNEL_ATTEND_ENGINE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lathe/base/arena.h"
#include "lathe/kernel/attend/accumulate-inl.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/row_source-inl.h"
#include "lathe/kernel/score/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// Packs rows for ScoreKeys, group by group. load(row, to) writes query row `row` as elements. Rows of
// padding, and what `load` leaves of a row, are zero. `staging`: as many rows of `width` elements as the
// largest group, zero in the columns of padding.
template <class A, class LoadRow>
void PackRows(const RowGroups& groups, int64_t num_rows, int64_t width, int64_t words,
              typename A::Element* staging, const LoadRow& load, uint32_t* to) {
  groups.ForEach([&](const RowGroup& group, int64_t row) {
    for (int64_t i = 0; i < group.rows(); ++i) {
      auto* query = staging + i * width;
      if (row + i < num_rows) {
        load(row + i, query);
      } else {
        std::memset(query, 0, static_cast<size_t>(width) * sizeof(*query));
      }
    }
    PackGroup(reinterpret_cast<const uint32_t*>(staging), width / A::kWordElements, words, group,
              to);
    to += words / group.words * group.vectors * kLanes;
  });
}

template <class A>
class RegisterEngine {
 public:
  using Arithmetic = A;
  using Element = typename A::Element;
  // Long enough that the accumulators of P x V are loaded and stored seldom, short enough that a tile's rows (1152
  // bytes each in bf16) stay in L2 between the scores and P x V, and a multiple of the tokens that the score kernel
  // takes at once (8, or 6 with 16 registers).
  static constexpr int64_t kTileKeys = kRegisters == 32 ? 128 : 96;
  static constexpr int64_t kGroupRows =
      RoundUp(RowGroups::MaxScored(detail::kMaxBlockRows), kLanes);  // all of them
  struct Session {};

  static int64_t MaxPaddedRows(int64_t rows) { return RoundUp(RowGroups::MaxScored(rows), kLanes); }

  RegisterEngine(Arena& arena, int64_t qk_dim, int64_t, int64_t max_rows)
      : width_(RowSource<A>::PaddedWidth(qk_dim)) {
    const int64_t words = RowGroups::MaxPacked(max_rows) * width_ / A::kWordElements;
    q_ = arena.Take<uint32_t>(static_cast<size_t>(words));
  }

  // PackRows of a block whose first row is a head `head` of `num_heads`; `staging` has rows of padded width.
  template <class LoadRow>
  void Pack(int64_t head, int64_t num_rows, int64_t num_heads, int64_t words, Element* staging,
            const LoadRow& load) {
    groups_ = RowGroups(head, num_rows, num_heads);
    num_rows_ = num_rows;
    words_ = words;
    PackRows<A>(groups_, num_rows, width_, words, staging, load, q_);
  }

  int64_t padded_rows() const { return RoundUp(groups_.num_scored(), kLanes); }

  void ClearPadding(float* s) const {
    const int64_t stride = padded_rows();
    if (groups_.num_scored() == stride) return;
    for (int64_t t = 0; t < kTileKeys + kScoreTokens; ++t) {
      hn::Store(hn::Zero(F32()), F32(), s + (t + 1) * stride - kLanes);
    }
  }

  void StartTile(const RowSource<A>&, const KeyTile&, const KeyTile&) const {}
  void LoadValues(const KeyTile&, int64_t, int64_t) const {}

  // Rows past those that the tile has are zeros.
  void Score(const RowSource<A>& source, const KeyTile& tile, const KeyTile& next,
             const ScaleTile& columns, int64_t, float* s, int64_t s_stride) const {
    const WordRange words{columns.begin / A::kWordElements, columns.end / A::kWordElements, words_};
    const bool fetches = source.is_in_place() && next.count > 0;
    const std::byte* const* rows = tile.rows;
    const std::byte* const* ahead = fetches ? next.rows : nullptr;
    VisitStored<A>(source.row_type(), [&](auto stored) {
      ScoreKeys<A, decltype(stored)>(rows, ahead, source.scratch(), tile.count, q_, words, groups_,
                                     [&](int64_t t) {
                                       source.FetchValues(next, t, kScoreTokens);
                                       return StoreScores{s + t * s_stride, s_stride};
                                     });
    });
  }

  // `tokens` is a multiple of 2, columns are of 64; values of the tile past the live ones are zeros.
  void Accumulate(DType row_type, Sums sums, const KeyTile& tile, int64_t tokens,
                  const ScaleTile& columns, int64_t, const Weights& weights,
                  const Output& to) const {
    VisitStored<A>(row_type, [&](auto stored) {
      AccumulateStored<A, decltype(stored)>(sums, static_cast<const std::byte* const*>(tile.values),
                                            tokens, columns.begin, columns.end, weights, num_rows_,
                                            to);
    });
  }

 private:
  int64_t width_;
  uint32_t* q_;
  RowGroups groups_;
  int64_t num_rows_ = 0;
  int64_t words_ = 0;
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
