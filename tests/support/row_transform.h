// SPDX-License-Identifier: Apache-2.0
// A row transform with its tables and vectors, in adversarial memory.
#ifndef LATHE_TESTS_SUPPORT_ROW_TRANSFORM_H_
#define LATHE_TESTS_SUPPORT_ROW_TRANSFORM_H_

#include <cmath>

#include "lathe/base/row_transform.h"
#include "support/any_tensor.h"
#include "support/random.h"

namespace lathe::test {

struct TransformCase {
  NormKind norm = NormKind::kNone;
  bool has_weight = false;
  bool has_bias = false;
  int64_t rope_dim = 0;
  bool interleaved = true;
  bool leading = false;
  bool inverse = false;
  bool hadamard = false;
  bool round_to_bfloat16 = false;
  DType type = DType::kFloat32;  // of tables and vectors
};

constexpr int64_t kNumPositions = 11;

class TransformTables {
 public:
  // Norm over `width` columns.
  TransformTables(const TransformCase& c, int64_t width, uint64_t seed = 7) {
    transform.norm.kind = c.norm;
    Random random(seed);
    if (c.has_weight) transform.norm.weight = Fill(weight, c.type, width, random, 1.0f);
    if (c.has_bias) transform.norm.bias = Fill(bias, c.type, width, random, 0.0f);
    transform.rope.interleaved = c.interleaved;
    transform.rope.leading = c.leading;
    transform.rope.inverse = c.inverse;
    transform.hadamard = c.hadamard;
    transform.round_to_bfloat16 = c.round_to_bfloat16;
    if (c.rope_dim > 0) FillRope(c.type, c.rope_dim / 2);
  }

  RowTransform transform;
  AnyTensor<1> weight, bias;
  AnyTensor<2> angles;  // [position, cos | sin]

 private:
  static In<1> Fill(AnyTensor<1>& vector, DType type, int64_t width, Random& random, float mean) {
    vector = AnyTensor<1>(type, {width});
    for (size_t i = 0; i < vector.size(); ++i) vector.Set(i, mean + 0.5f * random.Normal());
    return vector.in();
  }
  void FillRope(DType type, int64_t num_pairs) {
    angles = AnyTensor<2>(type, {kNumPositions, 2 * num_pairs});
    for (int64_t p = 0; p < kNumPositions; ++p) {
      for (int64_t i = 0; i < num_pairs; ++i) {
        const double angle =
            static_cast<double>(p) *
            std::pow(1e4, -static_cast<double>(i) / static_cast<double>(num_pairs));
        const auto at = static_cast<size_t>(p * 2 * num_pairs + i);
        angles.Set(at, static_cast<float>(std::cos(angle)));
        angles.Set(at + static_cast<size_t>(num_pairs), static_cast<float>(std::sin(angle)));
      }
    }
    transform.rope.cos = angles.in();
    transform.rope.cos.extent[1] = num_pairs;
    transform.rope.sin = transform.rope.cos;
    transform.rope.sin.data += static_cast<size_t>(num_pairs) * SizeOf(type);
  }
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_ROW_TRANSFORM_H_
