// SPDX-License-Identifier: Apache-2.0
// O[row][column] += P x V over one tile. Lanes are value columns: V comes straight from the rows that the
// scores have just read, a weight is broadcast from P.
//
//     O tile in registers: up to 6 rows x kValueVectors vectors, kept over all tokens of the tile
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

#include "lathe/kernel/score/arithmetic-inl.h"
#include "lathe/kernel/score/four_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

enum class Carry {
  kNone,     // the first tile of a split: O holds nothing yet
  kKeep,     // no maximum moved
  kRescale,  // O times alpha first
};

constexpr int kAccumulateRows = 6;
constexpr int64_t kValueColumns = kValueVectors * kLanes;

template <class A, class Stored, int kRows, Carry kCarry>
LATHE_INLINE void AccumulateBlock(const std::byte* const* rows, int64_t tokens, int64_t column,
                                  const uint32_t* HWY_RESTRICT p, int64_t p_stride,
                                  float* HWY_RESTRICT o, int64_t o_stride,
                                  const float* HWY_RESTRICT alpha) {
  const F32 d;
  VF acc[kRows][kValueVectors];
  LATHE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    LATHE_UNROLL
    for (int j = 0; j < kValueVectors; ++j) {
      acc[r][j] = kCarry == Carry::kNone ? hn::Zero(d) : hn::Load(d, o + r * o_stride + j * kLanes);
      if constexpr (kCarry == Carry::kRescale) acc[r][j] = hn::Mul(acc[r][j], hn::Set(d, alpha[r]));
    }
  }
  for (int64_t t = 0; t < tokens; t += A::kStepTokens, p += p_stride) {
    VU x[kValueVectors];
    A::template LoadValues<Stored>(rows + t, column, x);
    constexpr int kFirst = kRows >= 4 ? 4 : 0;  // there may be no four weights to load for fewer
    if constexpr (kFirst > 0) {
      const FourWords weights(p);
      LATHE_UNROLL
      for (int r = 0; r < kFirst; ++r) {
        LATHE_UNROLL
        for (int j = 0; j < kValueVectors; ++j) {
          acc[r][j] = weights.template MulAdd<A>(x[j], r, acc[r][j]);
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
  LATHE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    LATHE_UNROLL
    for (int j = 0; j < kValueVectors; ++j) hn::Store(acc[r][j], d, o + r * o_stride + j * kLanes);
  }
}

template <class A, class Stored, Carry kCarry>
HWY_NOINLINE void AccumulateTile(const std::byte* const* rows, int64_t tokens, int64_t column,
                                 int64_t column_end, const uint32_t* p, int64_t p_stride,
                                 int64_t num_rows, float* o, int64_t o_stride, const float* alpha) {
  for (; column < column_end; column += kValueColumns) {
    int64_t r = 0;
    while (r < num_rows) {
      // As even as possible: 16 rows are 6 + 5 + 5, not 6 + 6 + 4.
      const int64_t left = num_rows - r;
      const int64_t blocks = (left + kAccumulateRows - 1) / kAccumulateRows;
      const int64_t count = (left + blocks - 1) / blocks;
      float* to = o + r * o_stride + column;
      switch (count) {
#define LATHE_CASE(n)                                                                          \
  case n:                                                                                      \
    AccumulateBlock<A, Stored, n, kCarry>(rows, tokens, column, p + r, p_stride, to, o_stride, \
                                          alpha + r);                                          \
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
void AccumulateStored(Carry carry, const Args&... args) {
  switch (carry) {
    case Carry::kNone:
      return AccumulateTile<A, Stored, Carry::kNone>(args...);
    case Carry::kKeep:
      return AccumulateTile<A, Stored, Carry::kKeep>(args...);
    case Carry::kRescale:
      return AccumulateTile<A, Stored, Carry::kRescale>(args...);
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
