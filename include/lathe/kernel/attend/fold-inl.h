// SPDX-License-Identifier: Apache-2.0
// How two partial results become one: O = O * alpha + part * beta, l likewise, by the larger of both maxima. One
// arithmetic for a leaf whose sums are still in registers, for nodes of a task, and for what tasks leave to be folded, so
// that a row's bits do not tell who folded what.
#if defined(LATHE_KERNEL_ATTEND_FOLD_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ATTEND_FOLD_INL_H_
#undef LATHE_KERNEL_ATTEND_FOLD_INL_H_
#else
#define LATHE_KERNEL_ATTEND_FOLD_INL_H_
#endif

#include <cstdint>

#include "lathe/simd/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// One row of a partial result; o in the engine's column order, m its maximum (exp2 domain), l its sum. Where a row has
// seen nothing l is 0, m -inf and o holds zeros.
struct RowState {
  float* o;
  float m;
  float l;

  explicit operator bool() const { return o != nullptr; }
};

struct FoldFactors {
  VF m;  // of both
  VF alpha;
  VF beta;
};

// Of results with the maxima m and part_m, which are no NaN.
LATHE_INLINE FoldFactors FactorsOf(VF m, VF part_m) {
  const F32 d;
  const VF top = hn::IfThenElse(hn::Gt(part_m, m), part_m, m);
  // -inf - -inf would be NaN: rows that have seen nothing subtract 0 instead.
  const VF shift = hn::IfThenZeroElse(hn::Eq(top, hn::Neg(hn::Inf(d))), top);
  return {top, Exp2(hn::Sub(m, shift)), Exp2(hn::Sub(part_m, shift))};
}

LATHE_INLINE VF Folded(VF x, VF part, VF alpha, VF beta) {
  return hn::MulAdd(part, beta, hn::Mul(x, alpha));
}
LATHE_INLINE void FoldVector(VF part, VF alpha, VF beta, float* o) {
  const F32 d;
  hn::Store(Folded(hn::Load(d, o), part, alpha, beta), d, o);
}

// The state of `padded_rows` rows, one a lane, and the factors that their O wants.
inline void FoldStates(const float* part_m, const float* part_l, int64_t padded_rows,
                       float* HWY_RESTRICT m, float* HWY_RESTRICT l, float* HWY_RESTRICT alpha,
                       float* HWY_RESTRICT beta) {
  const F32 d;
  for (int64_t r = 0; r < padded_rows; r += kLanes) {
    const FoldFactors factors = FactorsOf(hn::Load(d, m + r), hn::Load(d, part_m + r));
    hn::Store(factors.m, d, m + r);
    hn::Store(factors.alpha, d, alpha + r);
    hn::Store(factors.beta, d, beta + r);
    FoldVector(hn::Load(d, part_l + r), factors.alpha, factors.beta, l + r);
  }
}

// O of a row of whole vectors.
inline void FoldColumns(const float* HWY_RESTRICT part, VF alpha, VF beta, int64_t v_columns,
                        float* HWY_RESTRICT o) {
  for (int64_t c = 0; c < v_columns; c += kLanes) {
    FoldVector(hn::Load(F32(), part + c), alpha, beta, o + c);
  }
}

inline void FoldRow(RowState& row, const RowState& part, int64_t v_columns) {
  const F32 d;
  const FoldFactors factors = FactorsOf(hn::Set(d, row.m), hn::Set(d, part.m));
  FoldColumns(part.o, factors.alpha, factors.beta, v_columns, row.o);
  row.m = hn::GetLane(factors.m);
  row.l = hn::GetLane(Folded(hn::Set(d, row.l), hn::Set(d, part.l), factors.alpha, factors.beta));
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
