// SPDX-License-Identifier: Apache-2.0
// A graph of two layers, each a cache write and a decode in two nodes, run as ggml runs one: every node on all
// threads, a barrier after each. Against attention in double, for three element types and 1, 2 and 4 threads.
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "../reference.h"
#include "lathe_ggml.h"

namespace {

using reference::Vector;

reference::Checks checks;

size_t ElementBytes(ggml_type type) {
  return type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 ? 2 : 4;
}

// A dense tensor with memory of its own.
struct Tensor : ggml_tensor {
  Tensor(ggml_type the_type, const std::vector<int64_t>& shape) : ggml_tensor() {
    type = the_type;
    size_t stride = ElementBytes(type);
    for (size_t i = 0; i < 4; ++i) {
      ne[i] = i < shape.size() ? shape[i] : 1;
      nb[i] = stride;
      stride *= static_cast<size_t>(ne[i]);
    }
    memory.resize(stride);
    data = memory.data();
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  double Get(int64_t i) const {
    const std::byte* at = memory.data() + static_cast<size_t>(i) * ElementBytes(type);
    const auto load = [at](auto x) {
      std::memcpy(&x, at, sizeof(x));
      return x;
    };
    return type == GGML_TYPE_F32    ? double{load(float{})}
           : type == GGML_TYPE_F16  ? double{lathe::ToFloat(load(lathe::float16{}))}
           : type == GGML_TYPE_BF16 ? double{lathe::ToFloat(load(lathe::bfloat16{}))}
                                    : load(int32_t{});
  }
  void Set(int64_t i, double x) {
    std::byte* at = memory.data() + static_cast<size_t>(i) * ElementBytes(type);
    const auto store = [at](auto value) { std::memcpy(at, &value, sizeof(value)); };
    const auto as_float = static_cast<float>(x);
    if (type == GGML_TYPE_F32) store(as_float);
    if (type == GGML_TYPE_F16) store(lathe::FromFloat<lathe::float16>(as_float));
    if (type == GGML_TYPE_BF16) store(lathe::FromFloat<lathe::bfloat16>(as_float));
    if (type == GGML_TYPE_I32) store(static_cast<int32_t>(x));
  }
  void Waves(double step) {
    const auto n = static_cast<int64_t>(memory.size() / ElementBytes(type));
    for (int64_t i = 0; i < n; ++i) Set(i, std::sin(step * static_cast<double>(i + 1)));
  }
  Vector Row(int64_t row) const {
    Vector values;
    for (int64_t i = row * ne[0]; i < (row + 1) * ne[0]; ++i) values.push_back(Get(i));
    return values;
  }

  std::vector<std::byte> memory;
};

using Node = std::function<void(int ith, int nth)>;

void Compute(const std::vector<Node>& graph, int num_threads) {
  for (const Node& node : graph) {
    std::vector<std::thread> threads;
    for (int ith = 0; ith < num_threads; ++ith) threads.emplace_back(node, ith, num_threads);
    for (std::thread& thread : threads) thread.join();
  }
}

constexpr int64_t kHeads = 6, kRank = 64, kRope = 16, kWidth = kRank + kRope;
constexpr int64_t kBlockSize = 8, kColumns = 9, kSeqs = 2, kRows = 3;
constexpr int64_t kLens[kSeqs] = {70, 11}, kTokens = 70 + 11;
constexpr double kScale = 0.2;

struct Layer {
  Layer(ggml_type type, double seed)
      : cache(type, {kWidth, kBlockSize, kSeqs * kColumns}),
        latents(GGML_TYPE_F32, {kWidth, kTokens}),
        q(type, {kWidth, kHeads, kRows}),
        part(GGML_TYPE_F32, {kRank, kHeads, kRows}) {
    latents.Waves(0.7 * seed);
    q.Waves(1.1 * seed);
  }
  Tensor cache, latents, q, part;
};

// Sequence 0 has one query row, sequence 1 has two, causal; head sinks.
void TestGraph(ggml_type type, int num_threads) {
  Layer layers[2] = {{type, 1.0}, {type, 1.3}};
  Tensor block_table(GGML_TYPE_I32, {kColumns, kSeqs}), seq_lens(GGML_TYPE_I32, {kSeqs}),
      starts(GGML_TYPE_I32, {kSeqs + 1}), sink(GGML_TYPE_F32, {kHeads}),
      slots(GGML_TYPE_I32, {kTokens});
  sink.Waves(2.0);
  for (int64_t i = 0; i < kSeqs * kColumns; ++i) {
    block_table.Set(i, static_cast<double>(i * 5 % (kSeqs * kColumns)));
  }
  const int64_t first_rows[kSeqs + 1] = {0, 1, 3};
  for (int64_t b = 0, token = 0; b < kSeqs; ++b) {
    seq_lens.Set(b, static_cast<double>(kLens[b]));
    for (int64_t p = 0; p < kLens[b]; ++p, ++token) {
      const double block = block_table.Get(b * kColumns + p / kBlockSize);
      slots.Set(token, block * kBlockSize + static_cast<double>(p % kBlockSize));
    }
  }
  for (int64_t b = 0; b <= kSeqs; ++b) starts.Set(b, static_cast<double>(first_rows[b]));

  lathe_ggml::DecodeStep step;
  step.options.softmax_scale = static_cast<float>(kScale);
  step.num_threads = static_cast<size_t>(num_threads);
  lathe_ggml::WriteStep written;
  std::vector<Node> graph;
  for (Layer& layer : layers) {
    ggml_tensor* const src[] = {&layer.q, &layer.cache, &block_table, &seq_lens, &starts, &sink};
    std::copy(std::begin(src), std::end(src), layer.part.src);
    graph.push_back([&](int ith, int nth) {
      lathe_ggml::WriteLatents(&layer.cache, &layer.cache, &layer.latents, &slots, ith, nth,
                               &written);
    });
    graph.push_back(
        [&](int ith, int nth) { lathe_ggml::MlaDecodePart(&layer.part, ith, nth, &step); });
    graph.push_back([&](int ith, int nth) {
      lathe_ggml::MlaDecodeMerge(&layer.part, &layer.part, ith, nth, &step);
    });
  }
  checks.True("planned", lathe_ggml::Plan(&layers[0].part, &step).ok());
  Compute(graph, num_threads);
  checks.True("written", written.status.ok());
  checks.True("computed", step.status.ok());

  const double tolerance = type == GGML_TYPE_F32 ? 1e-5 : type == GGML_TYPE_F16 ? 1e-3 : 5e-3;
  for (Layer& layer : layers) {
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t b = row == 0 ? 0 : 1;
      std::vector<Vector> keys;
      for (int64_t p = 0; p < kLens[b] - (row == 1 ? 1 : 0); ++p) {
        const auto slot = static_cast<int64_t>(slots.Get((b == 0 ? 0 : kLens[0]) + p));
        keys.push_back(layer.cache.Row(slot));
        checks.Near("cache", keys.back()[3],
                    layer.latents.Get(((b == 0 ? 0 : kLens[0]) + p) * kWidth + 3), 4e-3);
      }
      for (int64_t h = 0; h < kHeads; ++h) {
        const reference::Row expected =
            reference::Attend(layer.q.Row(row * kHeads + h), keys, kScale, kRank, sink.Get(h));
        const Vector got = layer.part.Row(row * kHeads + h);
        for (size_t c = 0; c < got.size(); ++c) {
          checks.Near("out", got[c], expected.out[c], tolerance);
        }
      }
    }
  }

  // What is refused stands in the step, and nothing is written.
  const std::vector<std::byte> before = layers[0].part.memory;
  seq_lens.Set(1, 12);
  Compute(graph, num_threads);
  checks.True("stale", step.status.code == lathe::StatusCode::kStalePlan);
  checks.True("nothing is written", layers[0].part.memory == before);
  seq_lens.Set(1, 9999);
  checks.True("too long",
              lathe_ggml::Plan(&layers[0].part, &step).code == lathe::StatusCode::kIndexOutOfRange);
  slots.Set(kTokens - 1, kSeqs * kColumns * kBlockSize);
  Compute(graph, num_threads);
  checks.True("bad slot", written.status.code == lathe::StatusCode::kIndexOutOfRange);
}

}  // namespace

int main() {
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16}) {
    for (const int num_threads : {1, 2, 4}) TestGraph(type, num_threads);
  }
  return checks.Finish("graph_test");
}
