// SPDX-License-Identifier: Apache-2.0
// The provider under a stand-in host, against attention in double: lengths 0, 1 and many, block size 3, odd head
// count, all element types, 1 to 4 threads; and what it throws.
#include <lathe/lathe.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "../reference.h"
#include "host/vt.h"
#include "lathe_provider.h"

namespace {

using reference::Vector;

reference::Checks checks;

// A dense tensor with memory of its own.
struct Array {
  Array(vt::DType dtype, const std::vector<int64_t>& shape) {
    tensor.dtype = dtype;
    tensor.rank = static_cast<int>(shape.size());
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      tensor.shape[i] = shape[i];
      tensor.stride[i] = stride;
      stride *= shape[i];
    }
    bytes.resize(static_cast<size_t>(stride) * 8);
    tensor.data = bytes.data();
    size = stride;
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  double Get(int64_t i) const {
    switch (tensor.dtype) {
      case vt::DType::kF32:
        return Load<float>(i);
      case vt::DType::kF16:
        return lathe::ToFloat(Load<lathe::float16>(i));
      case vt::DType::kBF16:
        return lathe::ToFloat(Load<lathe::bfloat16>(i));
      case vt::DType::kI32:
        return Load<int32_t>(i);
      case vt::DType::kI64:
        return static_cast<double>(Load<int64_t>(i));
      case vt::DType::kI8:
        return static_cast<double>(Load<int8_t>(i));
    }
    return 0.0;
  }
  void Set(int64_t i, double x) {
    const auto as_float = static_cast<float>(x);
    switch (tensor.dtype) {
      case vt::DType::kF32:
        return Store(i, as_float);
      case vt::DType::kF16:
        return Store(i, lathe::FromFloat<lathe::float16>(as_float));
      case vt::DType::kBF16:
        return Store(i, lathe::FromFloat<lathe::bfloat16>(as_float));
      case vt::DType::kI32:
        return Store(i, static_cast<int32_t>(x));
      case vt::DType::kI64:
        return Store(i, static_cast<int64_t>(x));
      case vt::DType::kI8:
        return Store(i, static_cast<int8_t>(x));
    }
  }
  Array& Assign(const std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i) Set(static_cast<int64_t>(i), values[i]);
    return *this;
  }
  Array& Waves(double step) {
    for (int64_t i = 0; i < size; ++i) Set(i, std::sin(step * static_cast<double>(i + 1)));
    return *this;
  }
  Vector Row(int64_t first, int64_t n) const {
    Vector row;
    for (int64_t i = first; i < first + n; ++i) row.push_back(Get(i));
    return row;
  }

  vt::Tensor tensor;
  std::vector<std::byte> bytes;
  int64_t size = 0;

 private:
  template <class T>
  T Load(int64_t i) const {
    T x;
    std::memcpy(&x, bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    return x;
  }
  template <class T>
  void Store(int64_t i, T x) {
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &x, sizeof(T));
  }
};

constexpr int64_t kSeqs = 4, kHeads = 5, kRank = 64, kRope = 16, kWidth = kRank + kRope;
constexpr int64_t kBlockSize = 3, kColumns = 30, kBlocks = kSeqs * kColumns;
const std::vector<double> kLens = {0, 1, 88, 37};
constexpr double kScale = 0.2;

// A cache filled through the provider, sequence after sequence, and the op's other tensors.
struct Step {
  Step(vt::DType dtype, size_t num_threads) : pool(num_threads), type(dtype) {
    queue.pool = &pool;
    std::vector<double> slots;
    for (int64_t i = 0; i < kBlocks; ++i) table.Set(i, static_cast<double>(i * 7 % kBlocks));
    lens.Assign(kLens);
    for (int64_t b = 0; b < kSeqs; ++b) {
      for (int64_t p = 0; p < static_cast<int64_t>(lens.Get(b)); ++p) {
        slots.push_back(static_cast<double>(Slot(b, p)));
      }
    }
    const auto n = static_cast<int64_t>(slots.size());
    // Two rows more than slots, as padded batches have; one token is not written.
    Array kv_c(type, {n + 2, kRank}), k_pe(type, {n + 2, kRope}), mapping(vt::DType::kI64, {n});
    kv_c.Waves(0.7);
    k_pe.Waves(0.3);
    mapping.Assign(slots);
    lathe_provider::ConcatAndCacheMla(queue, kv_c.tensor, k_pe.tensor, cache.tensor,
                                      mapping.tensor);
    for (int64_t t = 0; t < n; ++t) {
      Vector key = kv_c.Row(t * kRank, kRank);
      const Vector rope = k_pe.Row(t * kRope, kRope);
      key.insert(key.end(), rope.begin(), rope.end());
      keys.push_back(key);
    }
    query.Waves(1.1);
    sink.Waves(2.0);
    args.scale = static_cast<float>(kScale);
  }
  int64_t Slot(int64_t b, int64_t p) const {
    const auto block = static_cast<int64_t>(table.Get(b * kColumns + p / kBlockSize));
    return block * kBlockSize + p % kBlockSize;
  }
  std::vector<Vector> KeysOf(int64_t b) const {
    auto first = keys.begin();
    for (int64_t i = 0; i < b; ++i) first += static_cast<int64_t>(kLens[static_cast<size_t>(i)]);
    return {first, first + static_cast<int64_t>(kLens[static_cast<size_t>(b)])};
  }

  // Runs the op; `seen` gives the keys that a sequence's query sees.
  template <class Seen>
  void RequireDecode(const char* what, const Seen& seen) {
    lathe_provider::MlaDecodeAttention(queue, out.tensor, &lse.tensor, query.tensor, cache.tensor,
                                       table.tensor, lens.tensor, args);
    const double tolerance = type == vt::DType::kF32 ? 1e-5 : type == vt::DType::kF16 ? 1e-3 : 1e-2;
    for (int64_t b = 0; b < kSeqs; ++b) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const int64_t row = b * kHeads + h;
        const double with_sink =
            args.attn_sink == nullptr ? -std::numeric_limits<double>::infinity() : sink.Get(h);
        const reference::Row expected =
            reference::Attend(query.Row(row * kWidth, kWidth), seen(KeysOf(b)), kScale,
                              static_cast<size_t>(kRank), with_sink);
        checks.Near(what, lse.Get(row), expected.lse, tolerance);
        for (int64_t c = 0; c < kRank; ++c) {
          checks.Near(what, out.Get(row * kRank + c), expected.out[static_cast<size_t>(c)],
                      tolerance);
        }
      }
    }
  }

  vt::ThreadPool pool;
  vt::Queue queue;
  vt::DType type;
  Array table{vt::DType::kI32, {kSeqs, kColumns}}, lens{vt::DType::kI32, {kSeqs}};
  Array cache{type, {kBlocks, kBlockSize, kWidth}}, query{type, {kSeqs, kHeads, kWidth}};
  Array sink{vt::DType::kF32, {kHeads}};
  Array out{type, {kSeqs, kHeads, kRank}}, lse{vt::DType::kF32, {kSeqs, kHeads}};
  vt::MlaDecodeAttentionArgs args;
  std::vector<Vector> keys;
};

void TestDecode() {
  const auto all = [](std::vector<Vector> keys) { return keys; };
  for (const vt::DType type : {vt::DType::kF32, vt::DType::kF16, vt::DType::kBF16}) {
    for (const size_t threads : {1, 2, 4}) {
      Step step(type, threads);
      step.RequireDecode("dense", all);
      step.args.attn_sink = &step.sink.tensor;
      step.RequireDecode("sink", all);
      step.args.window_size = vt::WindowSize{9, 0};
      step.RequireDecode("window", [](std::vector<Vector> keys) {
        if (keys.size() > 10) keys.erase(keys.begin(), keys.end() - 10);
        return keys;
      });
      step.args.window_size.reset();
      Array list(vt::DType::kI32, {kSeqs, 4}), counts(vt::DType::kI32, {kSeqs});
      list.Assign({-1, 0, 7, 7, 0, -1, -1, 9, 36, 3, 12, 5, 2, 30, -1, 0});
      counts.Assign({0, 2, 4, 3});
      step.args.topk_indices = &list.tensor;
      step.args.valid_counts = &counts.tensor;
      step.RequireDecode("list", [](const std::vector<Vector>& keys) {
        std::vector<Vector> listed;
        const std::vector<size_t> positions = keys.size() == 1 ? std::vector<size_t>{0}
                                              : keys.size() == 88
                                                  ? std::vector<size_t>{36, 3, 12, 5}
                                              : keys.size() == 37 ? std::vector<size_t>{2, 30}
                                                                  : std::vector<size_t>{};
        for (const size_t p : positions) listed.push_back(keys[p]);
        return listed;
      });
    }
  }
}

void TestThreadsGiveTheSameBits() {
  Step one(vt::DType::kF32, 1), four(vt::DType::kF32, 4);
  for (Step* step : {&one, &four}) {
    lathe_provider::MlaDecodeAttention(step->queue, step->out.tensor, nullptr, step->query.tensor,
                                       step->cache.tensor, step->table.tensor, step->lens.tensor,
                                       step->args);
  }
  checks.True("same bits for 1 and 4 threads", one.out.bytes == four.out.bytes);
}

void TestGather() {
  Step step(vt::DType::kBF16, 2);
  Array dst(vt::DType::kBF16, {60, kWidth}), ends(vt::DType::kI32, {kSeqs + 1}),
      starts(vt::DType::kI32, {kSeqs}), owners(vt::DType::kI32, {50});
  ends.Assign({0, 0, 1, 31, 50});
  starts.Assign({0, 0, 5, 18});
  lathe_provider::GatherMlaCache(step.queue, dst.tensor, step.cache.tensor, step.table.tensor,
                                 ends.tensor, owners.tensor, &starts.tensor, 50);
  for (int64_t b = 0; b < kSeqs; ++b) {
    const std::vector<Vector> keys = step.KeysOf(b);
    for (auto row = static_cast<int64_t>(ends.Get(b)); row < ends.Get(b + 1); ++row) {
      const auto p = static_cast<size_t>(starts.Get(b) + static_cast<double>(row) - ends.Get(b));
      checks.True("gathered row", dst.Row(row * kWidth, kWidth) == keys[p]);
    }
  }
}

void TestMerge() {
  constexpr int64_t kTokens = 3, kPrefixed = 2;
  vt::ThreadPool pool(2);
  vt::Queue queue{&pool};
  Array prefix(vt::DType::kF32, {kTokens, kHeads, kRank}),
      suffix(vt::DType::kF32, {kTokens, kHeads, kRank}),
      out(vt::DType::kF32, {kTokens, kHeads, kRank});
  Array prefix_lse(vt::DType::kF32, {kHeads, kTokens}),
      suffix_lse(vt::DType::kF32, {kHeads, kTokens}), lse(vt::DType::kF32, {kHeads, kTokens});
  prefix.Waves(0.3);
  suffix.Waves(0.4);
  prefix_lse.Waves(0.5);
  suffix_lse.Waves(0.6);
  prefix_lse.Set(1, std::numeric_limits<double>::infinity());         // head 0, token 1: no prefix
  suffix_lse.Set(kTokens, -std::numeric_limits<double>::infinity());  // head 1, token 0: no suffix
  lathe_provider::MergeAttnStates(queue, out.tensor, &lse.tensor, prefix.tensor, prefix_lse.tensor,
                                  suffix.tensor, suffix_lse.tensor, kPrefixed);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const double p = prefix_lse.Get(h * kTokens + t), s = suffix_lse.Get(h * kTokens + t);
      const double wp = t < kPrefixed && !std::isinf(p) ? std::exp(p) : 0.0;
      const double ws = std::isinf(s) ? 0.0 : std::exp(s);
      checks.Near("merged lse", lse.Get(h * kTokens + t), std::log(wp + ws), 1e-6);
      for (int64_t i = (t * kHeads + h) * kRank; i < (t * kHeads + h + 1) * kRank; ++i) {
        checks.Near("merged out", out.Get(i), (wp * prefix.Get(i) + ws * suffix.Get(i)) / (wp + ws),
                    1e-6);
      }
    }
  }
}

void TestV4WriteAndTopk() {
  vt::ThreadPool pool(2);
  vt::Queue queue{&pool};
  Array k(vt::DType::kBF16, {2, 512}), cache(vt::DType::kI8, {2, 4 * 584 + 24}),
      slots(vt::DType::kI64, {2});
  for (int64_t i = 0; i < k.size; ++i) k.Set(i, static_cast<double>(i % 8));  // exact in e4m3
  slots.Assign({6, -1});
  lathe_provider::ConcatAndCacheDsMla(queue, k.tensor, cache.tensor, slots.tensor, 4);
  const auto* row = reinterpret_cast<const uint8_t*>(cache.bytes.data()) + 4 * 584 + 24 + 2 * 576;
  const auto* scales =
      reinterpret_cast<const uint8_t*>(cache.bytes.data()) + 4 * 584 + 24 + 4 * 576 + 2 * 8;
  for (int64_t c = 0; c < 448; ++c) {
    const float scale = lathe::ToFloat(lathe::float8_e8m0{scales[c / 64]});
    checks.Near("V4 record", scale * lathe::ToFloat(lathe::float8_e4m3fn{row[c]}), k.Get(c), 0.0);
  }

  Array logits(vt::DType::kF32, {2, 100}), indices(vt::DType::kI32, {2, 5}),
      counts(vt::DType::kI32, {2}), begin(vt::DType::kI32, {2}), end(vt::DType::kI32, {2});
  logits.Waves(0.9);
  begin.Assign({10, 98});
  end.Assign({90, 200});
  lathe_provider::DsaTopkSelect(queue, indices.tensor, counts.tensor, logits.tensor, begin.tensor,
                                end.tensor);
  std::vector<int64_t> order;
  for (int64_t i = 10; i < 90; ++i) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return logits.Get(a) != logits.Get(b) ? logits.Get(a) > logits.Get(b) : a < b;
  });
  order.resize(5);
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < 5; ++i) {
    checks.Near("selected", indices.Get(static_cast<int64_t>(i)), static_cast<double>(order[i]),
                0.0);
  }
  checks.True("short row", indices.Row(5, 5) == Vector({98, 99, -1, -1, -1}));
  checks.True("counts", counts.Row(0, 2) == Vector({5, 2}));
}

template <class Call>
void RequireThrows(const char* message, const Call& call) {
  std::string got = "nothing was thrown";
  try {
    call();
  } catch (const std::runtime_error& error) {
    got = error.what();
  }
  if (got != message) std::fprintf(stderr, "got      %s\nexpected %s\n", got.c_str(), message);
  checks.True("throws", got == message);
}

void TestThrows() {
  Step step(vt::DType::kF32, 2);
  const auto decode = [&] {
    lathe_provider::MlaDecodeAttention(step.queue, step.out.tensor, nullptr, step.query.tensor,
                                       step.cache.tensor, step.table.tensor, step.lens.tensor,
                                       step.args);
  };
  step.args.window_size = vt::WindowSize{3, 1};
  RequireThrows("lathe: window_size.right must be 0", decode);
  step.args.window_size.reset();
  step.args.scale = 0.0f;
  RequireThrows(
      "lathe: invalid argument: options.softmax_scale is 0, must be finite and above 0 (it has no "
      "default)",
      decode);
  step.args.scale = 1.0f;
  step.table.Set(kColumns, static_cast<double>(kBlocks));
  RequireThrows(
      "lathe: index out of range: keys.block_table[30] is 120, must be within 0 and "
      "keys.cache.num_blocks - 1 = 119",
      decode);
  step.query.tensor.rank = 2;
  RequireThrows("lathe: a tensor has the wrong rank", decode);
  step.query.tensor.dtype = vt::DType::kI8;
  RequireThrows("lathe: a tensor must be f32, f16 or bf16", [&] {
    lathe_provider::ConcatAndCacheMla(step.queue, step.query.tensor, step.query.tensor,
                                      step.query.tensor, step.lens.tensor);
  });
}

void TestTable() {
  for (size_t i = 0; i < lathe_provider::kNumProviders; ++i) {
    const vt::OpProvider& provider = lathe_provider::kProviders[i];
    checks.True("provider", provider.fn != nullptr && provider.priority > 0 &&
                                std::string(provider.name) == "lathe");
  }
}

}  // namespace

int main() {
  TestDecode();
  TestThreadsGiveTheSameBits();
  TestGather();
  TestMerge();
  TestV4WriteAndTopk();
  TestThrows();
  TestTable();
  return checks.Finish("provider_test");
}
