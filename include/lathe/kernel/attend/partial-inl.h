// SPDX-License-Identifier: Apache-2.0
// Partial results of a row block: their layout in memory, and those that a task holds while its nodes are open.
#if defined(LATHE_KERNEL_ATTEND_PARTIAL_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ATTEND_PARTIAL_INL_H_
#undef LATHE_KERNEL_ATTEND_PARTIAL_INL_H_
#else
#define LATHE_KERNEL_ATTEND_PARTIAL_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "lathe/base/arena.h"
#include "lathe/kernel/attend/fold-inl.h"
#include "lathe/kernel/attend/leaves.h"
#include "lathe/kernel/kernel_table.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

struct Partial {
  float* o = nullptr;
  float* m = nullptr;
  float* l = nullptr;
  int64_t v_stride = 0;

  // Of a block of `num_rows` rows, at `base`.
  static Partial At(float* base, int64_t num_rows, int64_t v_dim) {
    const int64_t v_stride = detail::PartialStride(v_dim);
    float* m = base + detail::PartialRows(num_rows) * v_stride;
    return {base, m, m + detail::PartialStates(num_rows), v_stride};
  }
  LATHE_INLINE RowState Row(int64_t r) const { return {o + r * v_stride, m[r], l[r]}; }
};

// As many as a task may hold at once: one of every open node, of all sets so far, and of a leaf apart.
class PartialPool {
 public:
  PartialPool(Arena& arena, int64_t v_dim, int64_t max_rows, int64_t padded_rows,
              int64_t max_leaves)
      : num_partials_(detail::MaxOpenNodes(max_leaves) + 2),
        v_columns_(detail::PartialColumns(v_dim)) {
    const auto take = [&arena](int64_t n) { return arena.Take<float>(static_cast<size_t>(n)); };
    const int64_t v_stride = detail::PartialStride(v_dim);
    for (int i = 0; i < num_partials_; ++i) {
      float* o = take(detail::PartialRows(max_rows) * v_stride);
      float* m = take(padded_rows);
      partials_[i] = {o, m, take(padded_rows), v_stride};
    }
    for (float** factors : {&alpha_, &beta_}) *factors = take(padded_rows);
  }

  // Nothing is held; blocks have so many rows from now on.
  void Start(int64_t num_rows, int64_t padded_rows) {
    num_rows_ = num_rows;
    padded_rows_ = padded_rows;
    for (num_free_ = 0; num_free_ < num_partials_; ++num_free_) {
      free_[num_free_] = &partials_[num_free_];
    }
  }

  // Holds anything.
  Partial* Take() { return free_[--num_free_]; }

  // What O of either is multiplied by, for each row.
  float* alpha() const { return alpha_; }
  float* beta() const { return beta_; }

  // Adds `from`, which is free then.
  void Fold(Partial* to, Partial* from) {
    FoldStates(from->m, from->l, padded_rows_, to->m, to->l, alpha_, beta_);
    FoldOutput(to, from);
  }
  // O alone, by alpha and beta.
  void FoldOutput(Partial* to, Partial* from) {
    const F32 d;
    for (int64_t r = 0; r < num_rows_; ++r) {
      FoldColumns(from->o + r * from->v_stride, hn::Set(d, alpha_[r]), hn::Set(d, beta_[r]),
                  v_columns_, to->o + r * to->v_stride);
    }
    Free(from);
  }

  // Moves `from`, or where that is null what has seen nothing, to memory outside.
  void Store(Partial* from, const Partial& to) {
    const auto n = static_cast<size_t>(num_rows_);
    const size_t o_bytes = n * static_cast<size_t>(to.v_stride) * sizeof(float);
    if (from == nullptr) {
      std::memset(to.o, 0, o_bytes);
      std::memset(to.l, 0, n * sizeof(float));
      std::fill_n(to.m, n, -std::numeric_limits<float>::infinity());
      return;
    }
    std::memcpy(to.o, from->o, o_bytes);
    std::memcpy(to.m, from->m, n * sizeof(float));
    std::memcpy(to.l, from->l, n * sizeof(float));
    Free(from);
  }

 private:
  static constexpr int kMaxPartials = detail::kMaxLevels + 2;

  void Free(Partial* partial) { free_[num_free_++] = partial; }

  int num_partials_;
  int64_t v_columns_;
  int64_t num_rows_ = 0;
  int64_t padded_rows_ = 0;
  Partial partials_[kMaxPartials];
  Partial* free_[kMaxPartials];
  int num_free_ = 0;
  float* alpha_;
  float* beta_;
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
