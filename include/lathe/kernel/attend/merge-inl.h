// SPDX-License-Identifier: Apache-2.0
// Merging of finished partial results (out, lse), one row at a time.
#if defined(LATHE_KERNEL_ATTEND_MERGE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ATTEND_MERGE_INL_H_
#undef LATHE_KERNEL_ATTEND_MERGE_INL_H_
#else
#define LATHE_KERNEL_ATTEND_MERGE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "lathe/merge_states.h"
#include "lathe/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// Columns summed at once: all of a DeepSeek row, in a buffer that stays in L1.
constexpr int64_t kMergeColumns = 512;

// Natural-log lse of one part's row; -inf for an empty part.
inline double PartLse(const MergePart& part, int64_t token, int64_t head) {
  const float lse = part.lse.data[token * part.lse.stride[0] + head * part.lse.stride[1]];
  const bool is_empty = lse == part.lse_policy.empty;
  if (is_empty) return -std::numeric_limits<double>::infinity();
  return static_cast<double>(lse) * (part.lse_policy.base2 ? 0.693147180559945309417 : 1.0);
}

// sum += weight * from; the first part that counts is stored, so that a weight of 1 keeps bits.
// What lies `to_next` elements on is needed next: each part is a stream of its own, too short-lived
// in each row for hardware prefetchers to run ahead.
template <class T>
void AddColumns(const std::byte* bytes, int64_t to_next, float weight, bool is_first, int64_t n,
                float* HWY_RESTRICT sum) {
  const F32 d;
  const T* from = reinterpret_cast<const T*>(bytes);
  const VF w = hn::Set(d, weight);
  int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) {
    PrefetchToL2(reinterpret_cast<const std::byte*>(from + c + to_next));
    const VF x = LoadFloats(from + c);
    hn::Store(is_first ? hn::Mul(x, w) : hn::MulAdd(x, w, hn::Load(d, sum + c)), d, sum + c);
  }
  for (; c < n; ++c) {
    const float x = ToFloat(from[c]) * weight;
    sum[c] = is_first ? x : sum[c] + x;
  }
}
using AddColumnsFn = void (*)(const std::byte* bytes, int64_t to_next, float weight, bool is_first,
                              int64_t n, float* HWY_RESTRICT sum);
constexpr AddColumnsFn kAddColumns[3] = {AddColumns<float>, AddColumns<float16>,
                                         AddColumns<bfloat16>};  // by DType

// exp(lse - max lse) of the parts of one row: an exp costs as much as a hundred columns.
class PartWeights {
 public:
  PartWeights(const MergeStatesArgs& args, int64_t token, int64_t head)
      : args_(args), token_(token), head_(head) {
    for (size_t i = 0; i < args.num_parts; ++i) {
      const double lse = PartLse(args.parts[i], token, head);
      if (lse > max_lse_ || std::isnan(lse)) max_lse_ = lse;
    }
    if (is_empty()) return;
    for (size_t i = 0; i < args.num_parts; ++i) {
      const double weight = Compute(i);
      if (i < kKept) kept_[i] = weight;
      if (weight != kDead) sum_ += weight;
    }
  }

  // No part counts.
  bool is_empty() const { return max_lse_ == -std::numeric_limits<double>::infinity(); }
  double sum() const { return sum_; }
  double merged_lse() const { return max_lse_ + std::log(sum_); }

  // Negative for an empty part, which must not be read.
  static constexpr double kDead = -1.0;
  double operator[](size_t i) const { return i < kKept ? kept_[i] : Compute(i); }

 private:
  // Any number of parts, without memory for all: those past these are computed again.
  static constexpr size_t kKept = 64;

  double Compute(size_t i) const {
    const double lse = PartLse(args_.parts[i], token_, head_);
    return lse == -std::numeric_limits<double>::infinity() ? kDead : std::exp(lse - max_lse_);
  }

  const MergeStatesArgs& args_;
  int64_t token_, head_;
  double max_lse_ = -std::numeric_limits<double>::infinity();
  double sum_ = 0.0;
  double kept_[kKept];
};

inline void MergeRow(const MergeStatesArgs& args, const LsePolicy& lse_policy, int64_t token,
                     int64_t head) {
  const PartWeights weights(args, token, head);
  const bool is_empty = weights.is_empty();
  const double merged = weights.merged_lse();
  double factor = 1.0 / weights.sum();
  if (!args.attn_sink.empty()) {
    const double sink = static_cast<double>(args.attn_sink.data[head * args.attn_sink.stride[0]]);
    factor /= 1.0 + std::exp(sink - merged);
  }

  HWY_ALIGN float sum[kMergeColumns];
  const int64_t v_dim = args.out.extent[2];
  for (int64_t c = 0; c < v_dim; c += kMergeColumns) {
    const int64_t n = (std::min)(kMergeColumns, v_dim - c);
    bool is_first = true;
    for (size_t i = 0; i < args.num_parts && !is_empty; ++i) {
      if (weights[i] == PartWeights::kDead) continue;
      const In<3>& out = args.parts[i].out;
      const int64_t offset = token * out.stride[0] + head * out.stride[1] + c;
      kAddColumns[static_cast<size_t>(out.dtype)](
          out.data + offset * static_cast<int64_t>(SizeOf(out.dtype)),
          head + 1 < args.out.extent[1] ? out.stride[1] : 0,
          static_cast<float>(weights[i] * factor), is_first, n, sum);
      is_first = false;
    }
    if (is_first) std::fill_n(sum, n, 0.0f);
    const int64_t to = token * args.out.stride[0] + head * args.out.stride[1] + c;
    Convert(DType::kFloat32, reinterpret_cast<const std::byte*>(sum), args.out.dtype,
            args.out.data + to * static_cast<int64_t>(SizeOf(args.out.dtype)), n);
  }
  if (!args.lse.empty()) {
    const double lse = lse_policy.base2 ? merged / 0.693147180559945309417 : merged;
    args.lse.data[token * args.lse.stride[0] + head * args.lse.stride[1]] =
        is_empty ? lse_policy.empty : static_cast<float>(lse);
  }
}

inline void Merge(const MergeStatesArgs& args, const LsePolicy& lse_policy, int64_t row_begin,
                  int64_t row_end) {
  const int64_t num_heads = args.out.extent[1];
  for (int64_t row = row_begin; row < row_end; ++row) {
    MergeRow(args, lse_policy, row / num_heads, row % num_heads);
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
