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

#include "lathe/kernel/attend/partial-inl.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/visibility.h"
#include "lathe/kernel/rows/row_transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using detail::AttendCall;
using detail::AttendTask;

// Natural column order, times `factor`. A negative zero, which a key that is not seen would make a positive one of,
// becomes one.
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
      hn::Store(hn::MulAdd(hn::Load(d, o + c + A::Position(i)), vf, hn::Zero(d)), d, to + c + i);
    }
  }
}

// Every NaN in a row becomes the one of type float32's quiet NaN: which of several a sum keeps, with its sign, depends on
// the order of its operands, and so on who folds which pieces.
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

// Folds what the tasks of a row block have left and writes its rows [row_first, row_last).
template <class A>
void Fold(const AttendCall& call, const detail::FoldTask& fold) {
  const detail::AttendTask& task = fold.task;
  const int64_t v_columns = detail::PartialColumns(call.v_dim);
  const auto fold_rows = [v_columns](RowState& to, const RowState& from) {
    FoldRow(to, from, v_columns);
  };
  const auto row_of = [&](int64_t span, int64_t r) {
    return Partial::At(call.partials + fold.spans[span].partial, task.num_rows, call.v_dim).Row(r);
  };
  for (int64_t r = fold.row_first; r < fold.row_last; ++r) {
    RowState all{};
    detail::OpenNodes<RowState> nodes;
    for (int64_t i = 0; i < fold.num_spans; ++i) {
      const detail::LeafSpan& span = fold.spans[i];
      nodes.CloseBefore(span.leaf, fold_rows);
      nodes.Add(row_of(i, r), fold_rows);
      if (i + 1 < fold.num_spans && fold.spans[i + 1].set == span.set) continue;
      const RowState of_set = nodes.CloseAll(fold_rows);
      if (all) {
        fold_rows(all, of_set);
      } else {
        all = of_set;
      }
    }
    // The last row has been folded: its place serves as scratch.
    FinishRow<A>(call, task, r, all, row_of(fold.num_spans - 1, r).o);
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
