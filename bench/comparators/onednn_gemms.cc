// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "bench/comparators/gemms.h"

namespace lathe::bench {
namespace {

using dnnl::memory;

// out[m, n] (+)= a[m, k] * b[k, n]
class Product {
 public:
  Product(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
          const memory::desc& out, bool adds)
      : arguments_{{DNNL_ARG_SRC, memory(a, engine, DNNL_MEMORY_NONE)},
                   {DNNL_ARG_WEIGHTS, memory(b, engine, DNNL_MEMORY_NONE)},
                   {DNNL_ARG_DST, memory(out, engine, DNNL_MEMORY_NONE)}} {
    dnnl::primitive_attr attributes;
    if (adds) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    matmul_ = dnnl::matmul(dnnl::matmul::primitive_desc(engine, a, b, out, attributes));
#else
    matmul_ = dnnl::matmul(
        dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, out), attributes, engine));
#endif
  }

  void Run(dnnl::stream& stream, const std::byte* a, const std::byte* b, float* out) {
    arguments_[DNNL_ARG_SRC].set_data_handle(const_cast<std::byte*>(a));
    arguments_[DNNL_ARG_WEIGHTS].set_data_handle(const_cast<std::byte*>(b));
    arguments_[DNNL_ARG_DST].set_data_handle(out);
    matmul_.execute(stream, arguments_);
    stream.wait();
  }

 private:
  std::unordered_map<int, memory> arguments_;
  dnnl::matmul matmul_;
};

class OneDnnGemms : public Gemms {
 public:
  explicit OneDnnGemms(const GemmShape& s)
      : threads_(SetThreads(s.threads)),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        scores_(engine_, Matrix(s.rows, s.head_dim, s.head_dim, 1, TypeOf(s)),
                Matrix(s.head_dim, s.keys, 1, s.head_dim, TypeOf(s)),
                Matrix(s.rows, s.keys, s.keys, 1, memory::data_type::f32), false),
        values_(engine_, Matrix(s.rows, s.keys, s.keys, 1, TypeOf(s)),
                Matrix(s.keys, s.v_dim, s.head_dim, 1, TypeOf(s)),
                Matrix(s.rows, s.v_dim, s.v_dim, 1, memory::data_type::f32), true) {}

  void Begin() override { SetThreads(threads_); }
  void Scores(const std::byte* q, const std::byte* keys, float* scores) override {
    scores_.Run(stream_, q, keys, scores);
  }
  void AddValues(const std::byte* weights, const std::byte* keys, float* out) override {
    values_.Run(stream_, weights, keys, out);
  }

 private:
  static memory::data_type TypeOf(const GemmShape& s) {
    return s.type == DType::kBFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
  }
  static memory::desc Matrix(int64_t rows, int64_t columns, int64_t row_stride,
                             int64_t column_stride, memory::data_type type) {
    return {memory::dims{rows, columns}, type, memory::dims{row_stride, column_stride}};
  }
  // OpenMP counts for each calling thread, and oneDNN wants the count of creation at execution.
  static size_t SetThreads(size_t threads) {
    omp_set_num_threads(static_cast<int>(threads));
    return threads;
  }

  size_t threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  Product scores_, values_;
};

}  // namespace

std::unique_ptr<Gemms> MakeOneDnnGemms(const GemmShape& shape) {
  try {
    return std::make_unique<OneDnnGemms>(shape);
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

std::string DescribeOneDnn() {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

}  // namespace lathe::bench
