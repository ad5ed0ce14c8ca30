// SPDX-License-Identifier: Apache-2.0
#include <cblas.h>

#include "bench/comparators/gemms.h"

namespace lathe::bench {
namespace {

class OpenBlasGemms : public Gemms {
 public:
  explicit OpenBlasGemms(const GemmShape& shape) : shape_(shape) {}

  void Begin() override { openblas_set_num_threads(static_cast<int>(shape_.threads)); }

  void Scores(const std::byte* q, const std::byte* keys, float* scores) override {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, Int(shape_.rows), Int(shape_.keys),
                Int(shape_.head_dim), 1.0f, Floats(q), Int(shape_.head_dim), Floats(keys),
                Int(shape_.head_dim), 0.0f, scores, Int(shape_.keys));
  }

  void AddValues(const std::byte* weights, const std::byte* keys, float* out) override {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, Int(shape_.rows), Int(shape_.v_dim),
                Int(shape_.keys), 1.0f, Floats(weights), Int(shape_.keys), Floats(keys),
                Int(shape_.head_dim), 1.0f, out, Int(shape_.v_dim));
  }

 private:
  static blasint Int(int64_t n) { return static_cast<blasint>(n); }
  static const float* Floats(const std::byte* p) { return reinterpret_cast<const float*>(p); }

  GemmShape shape_;
};

}  // namespace

// Distributions build it without products of bfloat16.
std::unique_ptr<Gemms> MakeOpenBlasGemms(const GemmShape& shape) {
  if (shape.type != DType::kFloat32) return nullptr;
  return std::make_unique<OpenBlasGemms>(shape);
}

std::string DescribeOpenBlas() {
  return std::string(openblas_get_config()) + ", kernels for " + openblas_get_corename();
}

}  // namespace lathe::bench
