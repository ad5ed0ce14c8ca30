// SPDX-License-Identifier: Apache-2.0
// From accumulated rows to results: folding of partial results and the final store. The only place that
// knows output types, the sink and the conventions of lse.
#if defined(LATHE_KERNEL_ATTEND_EPILOGUE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ATTEND_EPILOGUE_INL_H_
#undef LATHE_KERNEL_ATTEND_EPILOGUE_INL_H_
#else
#define LATHE_KERNEL_ATTEND_EPILOGUE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/visibility.h"
#include "lathe/kernel/rows/row_transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using detail::AttendCall;
using detail::AttendTask;

// One row's accumulated state; o in the engine's column order.
struct RowState {
  float* o;
  float m;
  float l;
};

// acc = acc (+) part, both over v_columns columns. Always called in split order, whoever computed the
// parts, so that a row's bits cannot depend on how the work was dealt out. A part without any live key
// (l == 0) leaves acc as it is.
inline void FoldRow(RowState& acc, const RowState& part, int64_t v_columns) {
  if (part.l == 0.0f) return;
  const F32 d;
  const float m = part.m > acc.m ? part.m : acc.m;
  const float acc_scale = std::exp2(acc.m - m);
  const float part_scale = std::exp2(part.m - m);
  const VF va = hn::Set(d, acc_scale);
  const VF vp = hn::Set(d, part_scale);
  for (int64_t c = 0; c < v_columns; c += kLanes) {
    const VF scaled = hn::Mul(hn::Load(d, acc.o + c), va);
    hn::Store(hn::MulAdd(hn::Load(d, part.o + c), vp, scaled), d, acc.o + c);
  }
  acc.m = m;
  acc.l = acc.l * acc_scale + part.l * part_scale;
}

// Natural column order, times `factor`.
template <class A>
void InNaturalOrder(const float* HWY_RESTRICT o, float factor, int64_t v_columns,
                    float* HWY_RESTRICT to) {
  const hn::CappedTag<float, A::kColumnRun> d;
  constexpr auto kRun = static_cast<int64_t>(HWY_MAX_LANES_D(decltype(d)));
  constexpr int64_t kPeriod = 2 * kLanes;  // of Position()
  const auto vf = hn::Set(d, factor);
  for (int64_t c = 0; c < v_columns; c += kPeriod) {
    LATHE_UNROLL
    for (int64_t i = 0; i < kPeriod; i += kRun) {
      hn::Store(hn::Mul(hn::Load(d, o + c + A::Position(i)), vf), d, to + c + i);
    }
  }
}

// Every NaN in a row becomes the one of type float32's quiet NaN: which of several a sum keeps, with its sign, depends on
// the order of its operands, and so on who folds which splits.
inline void MakeNanCanonical(float* row, int64_t columns) {
  const F32 d;
  const VF nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  for (int64_t c = 0; c < columns; c += kLanes) {
    const VF x = hn::Load(d, row + c);
    hn::Store(hn::IfThenElse(hn::IsNaN(x), nan, x), d, row + c);
  }
}

// Where the query of a task's row stands in its sequence.
inline int64_t PositionOf(const AttendCall& call, const AttendTask& task, int64_t i) {
  if (!call.positions.empty()) return call.positions(task.token_begin + i);
  const int64_t length = detail::PathLength(call.causality, detail::PlaceOfQuery(call, task, 0, i));
  return call.causality.tree_mask.empty() ? length - 1 : (std::max)(length - 1, int64_t{0});
}

// Writes out and lse of row `r` of a task. `natural` is scratch of v_columns floats.
template <class A>
void FinishRow(const AttendCall& call, const AttendTask& task, int64_t r, const RowState& row,
               float* natural) {
  const int64_t i = (task.row_begin + r) / call.unit_heads;
  const int64_t head = task.head_begin + (task.row_begin + r) % call.unit_heads;
  const int64_t token = task.token_begin + i;
  constexpr double kLn2 = 0.693147180559945309417;
  // l counts no key, or only keys of score -inf. (NaN is neither: it goes through.)
  const bool is_empty = row.l == 0.0f;
  const double lse2 = static_cast<double>(row.m) + std::log2(static_cast<double>(row.l));
  if (!call.lse.empty()) {
    const double lse = call.lse_policy.base2 ? lse2 : lse2 * kLn2;
    const float given =
        std::isnan(lse) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(lse);
    call.lse.data[token * call.lse.stride[0] + head * call.lse.stride[1]] =
        is_empty ? call.lse_policy.empty : given;
  }
  std::byte* out = call.out.data + (token * call.out.stride[0] + head * call.out.stride[1]) *
                                       static_cast<int64_t>(SizeOf(call.out.dtype));
  if (is_empty) {  // all bits 0 is the number 0 in every type
    std::memset(out, 0, static_cast<size_t>(call.v_dim) * SizeOf(call.out.dtype));
    return;
  }
  double factor = static_cast<double>(call.out_scale) / static_cast<double>(row.l);
  if (!call.attn_sink.empty()) {
    const double sink = static_cast<double>(call.attn_sink.data[head * call.attn_sink.stride[0]]);
    factor /= 1.0 + std::exp(sink - lse2 * kLn2);
  }
  const int64_t v_columns = detail::PartialColumns(call.v_dim);
  InNaturalOrder<A>(row.o, static_cast<float>(factor), v_columns, natural);
  if (call.out_rope.is_given()) {
    RopeRow(call.out_rope, PositionOf(call, task, i), call.v_dim, natural);
  }
  MakeNanCanonical(natural, v_columns);
  Convert(DType::kFloat32, reinterpret_cast<const std::byte*>(natural), call.out.dtype, out,
          call.v_dim);
}

// The pieces of one partial in memory: O [rows][v_stride], m [rows], l [rows].
struct Partial {
  float* o;
  float* m;
  float* l;

  LATHE_INLINE RowState Row(int64_t r, int64_t v_stride) const {
    return {o + r * v_stride, m[r], l[r]};
  }
};

LATHE_INLINE Partial PartialAt(float* base, int64_t num_rows, int64_t v_stride) {
  float* m = base + num_rows * v_stride;
  return {base, m, m + num_rows};
}

// Folds the stored partials of a row block and writes its rows [row_first, row_last).
template <class A>
void Fold(const AttendCall& call, const detail::FoldTask& fold) {
  const detail::AttendTask& task = fold.task;
  const int64_t v_columns = detail::PartialColumns(call.v_dim);
  const int64_t v_stride = detail::PartialStride(call.v_dim);
  const int64_t partial_floats = detail::PartialFloats(task.num_rows, call.v_dim);
  float* base = call.partials + task.partial;
  const Partial first = PartialAt(base, task.num_rows, v_stride);
  for (int64_t r = fold.row_first; r < fold.row_last; ++r) {
    RowState acc = first.Row(r, v_stride);
    for (int64_t i = 1; i < task.num_splits; ++i) {
      const Partial next = PartialAt(base + i * partial_floats, task.num_rows, v_stride);
      FoldRow(acc, next.Row(r, v_stride), v_columns);
    }
    // The second partial's row has been folded: its place serves as scratch.
    float* scratch = PartialAt(base + partial_floats, task.num_rows, v_stride).o;
    FinishRow<A>(call, task, r, acc, scratch + r * v_stride);
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
