// SPDX-License-Identifier: Apache-2.0
// Attention as one writes it first: a row at a time, scores, softmax, weighted sum. Rows are shared
// by the threads. It works on the first keys only, as many as take some hundredths of a second; its
// time grows with the keys in proportion, so the whole is as many times that. Those keys are warm
// even in a cold row, which it is too slow to notice.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "bench/comparators/comparator.h"

namespace lathe::bench {
namespace {

constexpr double kFlopsPerCall = 5e7;

template <class T>
class ScalarDecode : public Comparator {
 public:
  ScalarDecode(const DecodeTask& task, Team& team) : task_(task), team_(team) {
    while (task_.keys > 16 && Flops() > kFlopsPerCall * static_cast<double>(team.size())) {
      task_.keys /= 2;
    }
  }

  void Run(const MlaDecodeArgs& args) override {
    team_.Run([&](size_t ith) {
      std::vector<float> weights(static_cast<size_t>(task_.keys));
      std::vector<float> values(static_cast<size_t>(task_.shape.kv_lora_rank));
      const int64_t rows = task_.batch * task_.rows();
      for (auto row = static_cast<int64_t>(ith); row < rows;
           row += static_cast<int64_t>(team_.size())) {
        Row(args, row / task_.rows(), row % task_.rows(), weights, values);
      }
    });
  }
  int64_t keys() const override { return task_.keys; }
  std::string Describe() const override { return "first " + std::to_string(task_.keys) + " keys"; }

 private:
  double Flops() const {
    return 2.0 * static_cast<double>(task_.batch * task_.rows()) *
           static_cast<double>(task_.keys * (task_.shape.head_dim() + task_.shape.kv_lora_rank));
  }

  void Row(const MlaDecodeArgs& args, int64_t sequence, int64_t row, std::vector<float>& weights,
           std::vector<float>& values) const {
    const int64_t d = task_.shape.head_dim(), v_dim = task_.shape.kv_lora_rank;
    const int64_t token = sequence * task_.q_len + row / task_.shape.num_heads;
    const int64_t head = row % task_.shape.num_heads;
    const PagedCache& cache = args.keys.cache;
    const auto key_at = [&](int64_t i) {
      const int64_t page = args.keys.block_table(sequence, i / cache.block_size);
      return reinterpret_cast<const T*>(cache.RecordAt(page, i % cache.block_size));
    };
    const T* q = reinterpret_cast<const T*>(args.q.data) + token * args.q.stride[0] +
                 head * args.q.stride[1];

    const int64_t visible = task_.Visible(row);
    float max = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < visible; ++i) {
      const T* key = key_at(i);
      float dot = 0.0f;
      for (int64_t c = 0; c < d; ++c) dot += ToFloat(q[c]) * ToFloat(key[c]);
      weights[static_cast<size_t>(i)] = dot * task_.softmax_scale;
      max = std::max(max, dot * task_.softmax_scale);
    }
    float sum = 0.0f;
    for (int64_t i = 0; i < visible; ++i) {
      float& weight = weights[static_cast<size_t>(i)];
      weight = std::exp(weight - max);
      sum += weight;
    }
    std::fill(values.begin(), values.end(), 0.0f);
    for (int64_t i = 0; i < visible; ++i) {
      const T* key = key_at(i);
      const float weight = weights[static_cast<size_t>(i)] / sum;
      for (int64_t c = 0; c < v_dim; ++c)
        values[static_cast<size_t>(c)] += weight * ToFloat(key[c]);
    }
    T* out = reinterpret_cast<T*>(args.out.data) + token * args.out.stride[0] +
             head * args.out.stride[1];
    for (int64_t c = 0; c < v_dim; ++c) out[c] = FromFloat<T>(values[static_cast<size_t>(c)]);
    args.lse.data[token * args.lse.stride[0] + head * args.lse.stride[1]] = max + std::log(sum);
  }

  DecodeTask task_;
  Team& team_;
};

}  // namespace

std::unique_ptr<Comparator> MakeScalarDecode(const DecodeTask& task, Team& team) {
  switch (task.type) {
    case DType::kFloat32:
      return std::make_unique<ScalarDecode<float>>(task, team);
    case DType::kFloat16:
      return std::make_unique<ScalarDecode<float16>>(task, team);
    case DType::kBFloat16:
      return std::make_unique<ScalarDecode<bfloat16>>(task, team);
  }
  return nullptr;
}

}  // namespace lathe::bench
