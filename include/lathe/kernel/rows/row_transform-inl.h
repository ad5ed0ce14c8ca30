// SPDX-License-Identifier: Apache-2.0
// Row transforms (base/row_transform.h) of one float32 row in place. Nothing beside the row's own columns is
// read or written. Bits depend on the row, its width and the target: sums have an order that the width fixes,
// products that may be fused are fused by name, and every step is one function of its own, so that no caller's
// code can make the compiler choose otherwise.
#if defined(LATHE_KERNEL_ROWS_ROW_TRANSFORM_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ROWS_ROW_TRANSFORM_INL_H_
#undef LATHE_KERNEL_ROWS_ROW_TRANSFORM_INL_H_
#else
#define LATHE_KERNEL_ROWS_ROW_TRANSFORM_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "lathe/base/row_transform.h"
#include "lathe/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// The first min(n, kLanes) elements; other lanes are 0.
template <class T>
LATHE_INLINE VF LoadFirst(const T* from, int64_t n) {
  if (n >= kLanes) return LoadFloats(from);
  HWY_ALIGN T lanes[kLanes] = {};
  std::memcpy(lanes, from, static_cast<size_t>(n) * sizeof(T));
  return LoadFloats(lanes);
}

LATHE_INLINE void StoreFirst(VF v, float* to, int64_t n) {
  if (n >= kLanes) return StoreFloats(v, to);
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, F32(), lanes);
  std::memcpy(to, lanes, static_cast<size_t>(n) * sizeof(float));
}

// Columns [at, at + min(n, kLanes)) of a row of any dtype.
LATHE_INLINE VF LoadFirst(DType dtype, const std::byte* row, int64_t at, int64_t n) {
  if (dtype == DType::kFloat32) return LoadFirst(reinterpret_cast<const float*>(row) + at, n);
  if (dtype == DType::kFloat16) return LoadFirst(reinterpret_cast<const float16*>(row) + at, n);
  return LoadFirst(reinterpret_cast<const bfloat16*>(row) + at, n);
}

// Columns x become f(column, number of columns, x), a vector of them at a time.
template <class F>
LATHE_INLINE void UpdateRow(int64_t width, float* row, const F& f) {
  int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    StoreFloats(f(c, kLanes, LoadFloats(row + c)), row + c);
  }
  const int64_t rest = width - c;
  if (rest > 0) StoreFirst(f(c, rest, LoadFirst(row + c, rest)), row + c, rest);
}

// The sum of x^kPower over a row.
template <int kPower>
HWY_NOINLINE double SumRow(const float* row, int64_t width) {
  const F32 d;
  const auto add = [](VF x, VF sum) {
    return kPower == 2 ? hn::MulAdd(x, x, sum) : hn::Add(x, sum);
  };
  constexpr int64_t kChains = 4;
  VF sums[kChains];
  for (VF& sum : sums) sum = hn::Zero(d);
  int64_t c = 0;
  for (; c + kChains * kLanes <= width; c += kChains * kLanes) {
    LATHE_UNROLL
    for (int64_t i = 0; i < kChains; ++i) {
      sums[i] = add(LoadFloats(row + c + i * kLanes), sums[i]);
    }
  }
  for (; c < width; c += kLanes) sums[0] = add(LoadFirst(row + c, width - c), sums[0]);
  const float sum = hn::ReduceSum(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
  const float magnitude = std::fabs(sum);
  if (magnitude > 1e-30f && magnitude <= (std::numeric_limits<float>::max)()) {
    return static_cast<double>(sum);
  }
  // Zero and NaN come here too, and what is out of float's range but not of double's.
  double exact = 0.0;
  for (int64_t i = 0; i < width; ++i) {
    const auto x = static_cast<double>(row[i]);
    exact += kPower == 2 ? x * x : x;
  }
  return exact;
}

HWY_NOINLINE inline void NormRow(const RowNorm& norm, int64_t width, float* row) {
  if (norm.kind == NormKind::kNone) return;
  const auto n = static_cast<double>(width);
  if (norm.kind == NormKind::kLayer) {
    const VF mean = hn::Set(F32(), static_cast<float>(SumRow<1>(row, width) / n));
    UpdateRow(width, row, [mean](int64_t, int64_t, VF x) { return hn::Sub(x, mean); });
  }
  const double variance = SumRow<2>(row, width) / n;
  const VF factor =
      hn::Set(F32(), static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(norm.eps))));
  const In<1>&weight = norm.weight, &bias = norm.bias;
  if (weight.empty()) {
    UpdateRow(width, row, [factor](int64_t, int64_t, VF x) { return hn::Mul(x, factor); });
  } else {
    UpdateRow(width, row, [factor, &weight](int64_t c, int64_t count, VF x) {
      return hn::Mul(hn::Mul(x, factor), LoadFirst(weight.dtype, weight.data, c, count));
    });
  }
  if (bias.empty()) return;
  UpdateRow(width, row, [&bias](int64_t c, int64_t count, VF x) {
    return hn::Add(x, LoadFirst(bias.dtype, bias.data, c, count));
  });
}

// (a, b) -> (a * cos - b * sin, b * cos + a * sin)
LATHE_INLINE void RotatePairs(VF cos, VF sin, VF& a, VF& b) {
  const VF rotated = hn::NegMulAdd(b, sin, hn::Mul(a, cos));
  b = hn::MulAdd(a, sin, hn::Mul(b, cos));
  a = rotated;
}

// Pairs (2i, 2i + 1) for i in [0, min(n, kLanes)).
LATHE_INLINE void RotateNeighbours(VF cos, VF sin, int64_t n, float* pairs) {
  const F32 d;
  HWY_ALIGN float lanes[2 * kLanes] = {};
  float* at = n >= kLanes ? pairs : lanes;
  const auto bytes = static_cast<size_t>((std::min)(n, kLanes)) * 2 * sizeof(float);
  if (at == lanes) std::memcpy(lanes, pairs, bytes);
  VF a, b;
  hn::LoadInterleaved2(d, at, a, b);
  RotatePairs(cos, sin, a, b);
  hn::StoreInterleaved2(a, b, d, at);
  if (at == lanes) std::memcpy(pairs, lanes, bytes);
}

HWY_NOINLINE inline void RopeRow(const Rope& rope, int64_t position, int64_t width, float* row) {
  if (!rope.is_given()) return;
  const int64_t num_pairs = rope.dim() / 2;
  float* first = rope.leading ? row : row + width - rope.dim();
  const std::byte *cos_row = rope.cos.At(position), *sin_row = rope.sin.At(position);
  for (int64_t i = 0; i < num_pairs; i += kLanes) {
    const int64_t rest = num_pairs - i;
    const VF cos = LoadFirst(rope.cos.dtype, cos_row, i, rest);
    VF sin = LoadFirst(rope.sin.dtype, sin_row, i, rest);
    if (rope.inverse) sin = hn::Neg(sin);
    if (rope.interleaved) {
      RotateNeighbours(cos, sin, rest, first + 2 * i);
    } else {
      VF a = LoadFirst(first + i, rest);
      VF b = LoadFirst(first + num_pairs + i, rest);
      RotatePairs(cos, sin, a, b);
      StoreFirst(a, first + i, rest);
      StoreFirst(b, first + num_pairs + i, rest);
    }
  }
}

// Lane i gets lane i ^ kDistance.
template <int64_t kDistance>
LATHE_INLINE VF SwapLanes(VF v) {
  if constexpr (kDistance == 1) return hn::Reverse2(F32(), v);
  if constexpr (kDistance == 2) return hn::Shuffle1032(v);
  if constexpr (kDistance == 4) return hn::SwapAdjacentBlocks(v);
  if constexpr (kDistance == 8) return hn::SwapAdjacentBlocks(hn::ReverseBlocks(F32(), v));
}

// Sums and differences of lanes kDistance apart, and of those nearer, inside of blocks of `width` lanes.
template <int64_t kDistance>
LATHE_INLINE VF HadamardLanes(VF v, int64_t width) {
  if constexpr (kDistance == 0) {
    return v;
  } else {
    if (kDistance < width) {
      const U32 du;
      constexpr int kShift = kDistance == 1 ? 31 : kDistance == 2 ? 30 : kDistance == 4 ? 29 : 28;
      static_assert(static_cast<uint64_t>(kDistance) << kShift == detail::kFloatSign);
      // The upper lane of a pair is subtracted from the lower one.
      const VU is_upper = hn::And(hn::Iota(du, 0), hn::Set(du, static_cast<uint32_t>(kDistance)));
      const VF own = hn::Xor(v, hn::BitCast(F32(), hn::ShiftLeft<kShift>(is_upper)));
      v = hn::Add(SwapLanes<kDistance>(v), own);
    }
    return HadamardLanes<kDistance / 2>(v, width);
  }
}

// width: a power of two.
HWY_NOINLINE inline void HadamardRow(int64_t width, float* row) {
  const F32 d;
  for (int64_t distance = width / 2; distance >= kLanes; distance /= 2) {
    for (int64_t block = 0; block < width; block += 2 * distance) {
      for (int64_t c = block; c < block + distance; c += kLanes) {
        const VF a = hn::LoadU(d, row + c), b = hn::LoadU(d, row + c + distance);
        hn::StoreU(hn::Add(a, b), d, row + c);
        hn::StoreU(hn::Sub(a, b), d, row + c + distance);
      }
    }
  }
  const VF factor = hn::Set(d, static_cast<float>(1.0 / std::sqrt(static_cast<double>(width))));
  UpdateRow(width, row, [factor, width](int64_t, int64_t, VF x) {
    return hn::Mul(HadamardLanes<kLanes / 2>(x, width), factor);
  });
}

HWY_NOINLINE inline void RoundRowToBFloat16(int64_t width, float* row) {
  UpdateRow(width, row, [](int64_t, int64_t, VF x) { return OddFloats(RoundToBFloat16(x)); });
}

// All of it. `position` counts where there is a rope.
inline void TransformRow(const RowTransform& transform, int64_t position, int64_t width,
                         float* row) {
  NormRow(transform.norm, width, row);
  RopeRow(transform.rope, position, width, row);
  if (transform.hadamard) HadamardRow(width, row);
  if (transform.round_to_bfloat16) RoundRowToBFloat16(width, row);
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
