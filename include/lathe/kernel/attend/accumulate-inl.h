// SPDX-License-Identifier: Apache-2.0
// O [row][column] and P x V of one tile. Lanes are value columns: V comes straight from the rows that the
// scores have just read, a weight is broadcast from P.
//
//     sums in registers: up to 6 rows x kValueVectors vectors, kept over all tokens of the tile, and
//     folded into O as they are stored
//     V:  kValueVectors loads a step, shared by the rows of the tile
//
// Lanes = rows (as in the scores) lost at 16 rows, 61 % of the dot peak against 95: V would have to be
// interleaved through memory.
#if defined(LATHE_KERNEL_ATTEND_ACCUMULATE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ATTEND_ACCUMULATE_INL_H_
#undef LATHE_KERNEL_ATTEND_ACCUMULATE_INL_H_
#else
#define LATHE_KERNEL_ATTEND_ACCUMULATE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "lathe/kernel/attend/fold-inl.h"
#include "lathe/kernel/score/arithmetic-inl.h"
#include "lathe/kernel/score/four_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// What becomes of the sums of a tile.
enum class Sums {
  kStore,  // they are O
  kAdd,    // they go on from O
  kFold,   // O = O * alpha + sums * beta
};

// Weights of a group of rows, [step][row]; `residual`, unless null, are what packing took of them.
struct Weights {
  const uint32_t* p;
  const uint32_t* residual;
  int64_t stride;
};

// O [row][column] of a group, and the factors of its rows.
struct Output {
  float* o;
  int64_t stride;
  const float* alpha;
  const float* beta;

  LATHE_INLINE Output At(int64_t row, int64_t column) const {
    return {o + row * stride + column, stride, alpha + row, beta + row};
  }
};

constexpr int kAccumulateRows = 6;
constexpr int64_t kValueColumns = kValueVectors * kLanes;

template <class A, class Stored, int kRows, Sums kSums>
LATHE_INLINE void AccumulateBlock(const std::byte* const* rows, int64_t tokens, int64_t column,
                                  const Weights& weights, int64_t row, const Output& to) {
  const F32 d;
  VF acc[kRows][kValueVectors];
  LATHE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    LATHE_UNROLL
    for (int j = 0; j < kValueVectors; ++j) {
      acc[r][j] =
          kSums == Sums::kAdd ? hn::Load(d, to.o + r * to.stride + j * kLanes) : hn::Zero(d);
    }
  }
  const uint32_t* HWY_RESTRICT p = weights.p + row;
  [[maybe_unused]] const uint32_t* residual = weights.residual;
  for (;;) {
    for (int64_t t = 0; t < tokens; t += A::kStepTokens, p += weights.stride) {
      VU x[kValueVectors];
      A::template LoadValues<Stored>(rows + t, column, x);
      constexpr int kFirst = kRows >= 4 ? 4 : 0;  // there may be no four weights to load for fewer
      if constexpr (kFirst > 0) {
        const FourWords four(p);
        LATHE_UNROLL
        for (int r = 0; r < kFirst; ++r) {
          LATHE_UNROLL
          for (int j = 0; j < kValueVectors; ++j) {
            acc[r][j] = four.template MulAdd<A>(x[j], r, acc[r][j]);
          }
        }
      }
      LATHE_UNROLL
      for (int r = kFirst; r < kRows; ++r) {
        const VU weight = hn::Set(U32(), p[r]);
        LATHE_UNROLL
        for (int j = 0; j < kValueVectors; ++j) acc[r][j] = A::MulAdd(x[j], weight, acc[r][j]);
      }
    }
    if constexpr (A::kHasResidual) {
      if (residual != nullptr) {
        p = residual + row;
        residual = nullptr;
        continue;
      }
    }
    break;
  }
  LATHE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    float* o = to.o + r * to.stride;
    LATHE_UNROLL
    for (int j = 0; j < kValueVectors; ++j) {
      if constexpr (kSums == Sums::kFold) {
        FoldVector(acc[r][j], hn::Set(d, to.alpha[r]), hn::Set(d, to.beta[r]), o + j * kLanes);
      } else {
        hn::Store(acc[r][j], d, o + j * kLanes);
      }
    }
  }
}

template <class A, class Stored, Sums kSums>
HWY_NOINLINE void AccumulateTile(const std::byte* const* rows, int64_t tokens, int64_t column,
                                 int64_t column_end, const Weights& weights, int64_t num_rows,
                                 const Output& to) {
  for (; column < column_end; column += kValueColumns) {
    int64_t r = 0;
    while (r < num_rows) {
      // As even as possible: 16 rows are 6 + 5 + 5, not 6 + 6 + 4.
      const int64_t left = num_rows - r;
      const int64_t blocks = (left + kAccumulateRows - 1) / kAccumulateRows;
      const int64_t count = (left + blocks - 1) / blocks;
      switch (count) {
#define LATHE_CASE(n)                                                                         \
  case n:                                                                                     \
    AccumulateBlock<A, Stored, n, kSums>(rows, tokens, column, weights, r, to.At(r, column)); \
    break;
        LATHE_CASE(1)
        LATHE_CASE(2)
        LATHE_CASE(3)
        LATHE_CASE(4)
        LATHE_CASE(5)
        default:
          LATHE_CASE(6)
#undef LATHE_CASE
      }
      r += count;
    }
  }
}

template <class A, class Stored, class... Args>
void AccumulateStored(Sums sums, const Args&... args) {
  switch (sums) {
    case Sums::kStore:
      return AccumulateTile<A, Stored, Sums::kStore>(args...);
    case Sums::kAdd:
      return AccumulateTile<A, Stored, Sums::kAdd>(args...);
    case Sums::kFold:
      return AccumulateTile<A, Stored, Sums::kFold>(args...);
  }
}

// f(T{}) for the type of the rows, among those that the arithmetic reads.
template <class A, class F>
LATHE_INLINE void VisitStored(DType type, const F& f) {
  if constexpr (A::template ReadsValues<float>()) {
    if (type == DType::kFloat32) return f(float{});
  }
  if constexpr (A::template ReadsValues<float16>()) {
    if (type == DType::kFloat16) return f(float16{});
  }
  if constexpr (A::template ReadsValues<bfloat16>()) {
    if (type == DType::kBFloat16) return f(bfloat16{});
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
