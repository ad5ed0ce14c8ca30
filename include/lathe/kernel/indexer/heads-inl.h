// SPDX-License-Identifier: Apache-2.0
// The heads of an indexer's query rows, and a key's weighted sum of scores over them, in registers. What the scorer
// (indexer_logits-inl.h) asks of heads:
//
//   Arithmetic           element type of keys and queries
//   Session              an object of it exists while the functions below are called
//   PaddedHeads          heads that weights have room for
//   (arena, ...)         carves its scratch, or counts it
//   Start(words)         words of a key
//   Pack(row)            the heads of a query row
//   StartTile(tile)      a tile of keys is next
//   Weigh(row)           sums[key][lane] of some keys of the tile: partial sums over heads
//
// Every Weigh adds up a key's heads in the same order, wherever the key lies.
#if defined(LATHE_KERNEL_INDEXER_HEADS_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_INDEXER_HEADS_INL_H_
#undef LATHE_KERNEL_INDEXER_HEADS_INL_H_
#else
#define LATHE_KERNEL_INDEXER_HEADS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lathe/base/arena.h"
#include "lathe/kernel/attend/engine-inl.h"
#include "lathe/kernel/keys/row_source-inl.h"
#include "lathe/kernel/score/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// The sink of scores (score-inl.h) that keeps a weighted sum over rows, here heads: in kLanes partial sums
// for each token, `sums` [token][kLanes]. Rows past num_rows are left out by selection: their score is
// 0 * NaN where the key is not finite.
struct WeighRelu {
  const float* weights;  // room for whole groups
  int64_t num_rows;
  float* sums;

  template <int kTokens, int kVectors, int kWords>
  LATHE_INLINE void Take(const VF (&acc)[kTokens][2], int64_t row) const {
    if constexpr (kWords == 1) {
      const F32 d;
      LATHE_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const VF first = kVectors == 2 ? acc[t][0] : hn::Add(acc[t][0], acc[t][1]);
        VF sum = Add(d, first, row, hn::Load(d, sums + t * kLanes));
        if constexpr (kVectors == 2) sum = Add(d, acc[t][1], row + kLanes, sum);
        hn::Store(sum, d, sums + t * kLanes);
      }
    } else {
      const hn::CappedTag<float, static_cast<size_t>(kLanes / kWords)> d;
      ForEachNarrow<kTokens, kWords>(acc, [&](int t, const float* scores) {
        float* sum = sums + t * kLanes;
        hn::StoreU(Add(d, hn::LoadU(d, scores), row, hn::LoadU(d, sum)), d, sum);
      });
    }
  }

  // The partial sums of a key whose scores of all rows are in memory.
  LATHE_INLINE VF SumOf(const float* scores) const {
    const F32 d;
    VF sum = hn::Zero(d);
    int64_t row = 0;
    for (; row + kLanes <= num_rows; row += kLanes) {
      sum = AddWhole(d, hn::Load(d, scores + row), row, sum);
    }
    if (row < num_rows) sum = Add(d, hn::Load(d, scores + row), row, sum);
    return sum;
  }

 private:
  // sum + weights * max(0, scores) of the rows from `row` on.
  template <class D>
  LATHE_INLINE hn::Vec<D> Add(D d, hn::Vec<D> scores, int64_t row, hn::Vec<D> sum) const {
    constexpr auto kCount = static_cast<int64_t>(HWY_MAX_LANES_D(D));
    const int64_t left = (std::min)((std::max)(num_rows - row, int64_t{0}), kCount);
    const auto with = AddWhole(d, scores, row, sum);
    return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(left)), with, sum);
  }
  template <class D>
  LATHE_INLINE hn::Vec<D> AddWhole(D d, hn::Vec<D> scores, int64_t row, hn::Vec<D> sum) const {
    const auto relu = hn::IfThenZeroElse(hn::Lt(scores, hn::Zero(d)), scores);  // NaN stays
    return hn::MulAdd(hn::LoadU(d, weights + row), relu, sum);
  }
};

template <class A>
class RegisterHeads {
 public:
  using Arithmetic = A;
  struct Session {};

  static int64_t PaddedHeads(int64_t num_heads) { return RoundUp(num_heads, kLanes); }

  RegisterHeads(Arena& arena, int64_t num_heads, int64_t width, int64_t max_rows, int64_t)
      : num_heads_(num_heads), padded_width_(RowSource<A>::PaddedWidth(width)) {
    groups_ = RowGroups(0, num_heads, num_heads);
    q_ = arena.Take<uint32_t>(static_cast<size_t>(max_rows * PackedWords()));
  }

  void Start(int64_t words) { words_ = words; }

  // load(head, to) writes a head; `staging` as for PackRows.
  template <class LoadHead>
  void Pack(int64_t row, typename A::Element* staging, const LoadHead& load) {
    PackRows<A>(groups_, num_heads_, padded_width_, words_, staging, load,
                q_ + row * PackedWords());
  }

  void StartTile(const KeyTile& tile) { rows_ = tile.rows; }

  // Keys [begin, end); those of `next`, if given, are fetched. `sums`: room for a step more.
  void Weigh(int64_t row, int64_t begin, int64_t end, const KeyTile* next, const float* weights,
             float* sums) const {
    const uint32_t* q = q_ + row * PackedWords();
    const int64_t count = end - begin;
    std::memset(sums, 0, static_cast<size_t>(RoundUp(count, kLanes) * kLanes) * sizeof(float));
    const std::byte* const* ahead = next != nullptr ? next->rows + begin : nullptr;
    ScoreKeys<A, typename A::Element>(rows_ + begin, ahead, nullptr, count, q,
                                      WordRange::All(words_), groups_, [&](int64_t t) {
                                        return WeighRelu{weights, num_heads_, sums + t * kLanes};
                                      });
  }

 private:
  int64_t PackedWords() const { return PaddedHeads(num_heads_) * padded_width_ / A::kWordElements; }

  int64_t num_heads_;
  int64_t padded_width_;
  int64_t words_ = 0;
  RowGroups groups_;
  const std::byte* const* rows_ = nullptr;
  uint32_t* q_;
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
