// SPDX-License-Identifier: Apache-2.0
// Query preparation: rows of queries through their transform, into rows or into codes with folded scales.
#if defined(LATHE_KERNEL_ROWS_QUERY_PREP_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ROWS_QUERY_PREP_INL_H_
#undef LATHE_KERNEL_ROWS_QUERY_PREP_INL_H_
#else
#define LATHE_KERNEL_ROWS_QUERY_PREP_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "lathe/cache/encode_tiles-inl.h"
#include "lathe/kernel/rows/row_transform-inl.h"
#include "lathe/query_prep.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// One row; its scale where it becomes codes, else 1.
inline float PrepareRow(const QueryPrepArgs& args, bool power_of_two_scales, int64_t token,
                        int64_t head, float* row) {
  const int64_t width = args.q.extent[2];
  Convert(args.q.dtype, args.q.At(token, head), DType::kFloat32, reinterpret_cast<std::byte*>(row),
          width);
  const int64_t position = args.transform.rope.is_given() ? args.positions(token) : 0;
  TransformRow(args.transform, position, width, row);
  if (!args.codes.empty()) {
    return EncodeIndexerRow(row, width, FiniteMax(row, width), power_of_two_scales,
                            reinterpret_cast<std::byte*>(&args.codes(token, head)));
  }
  Convert(DType::kFloat32, reinterpret_cast<const std::byte*>(row), args.out.dtype,
          args.out.At(token, head), width);
  return 1.0f;
}

// Rows [row_begin, row_end) of T * H.
inline void PrepareQueryRows(const QueryPrepArgs& args, const QueryPrepOptions& options,
                             int64_t row_begin, int64_t row_end) {
  HWY_ALIGN float scratch[kMaxTransformWidth];
  const int64_t num_heads = args.q.empty() ? args.weights.extent[1] : args.q.extent[1];
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t token = row / num_heads, head = row % num_heads;
    float scale = 1.0f;
    if (!args.q.empty()) {
      scale = PrepareRow(args, options.power_of_two_scales, token, head, scratch);
    }
    if (!args.q_scales.empty()) args.q_scales(token, head) = scale;
    if (args.weights.empty()) continue;
    float weight;
    Convert(args.weights.dtype, args.weights.At(token, head), DType::kFloat32,
            reinterpret_cast<std::byte*>(&weight), 1);
    args.weights_out(token, head) = weight * scale * options.softmax_scale * options.head_scale;
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
