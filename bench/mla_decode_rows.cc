// SPDX-License-Identifier: Apache-2.0
// MlaDecode/heads:H/keys:S/batch:B/format:F/target:T/threads:N/cache:warm|cold[/q_len:Q][/dims:D-Dv]
//
// One decode step of B sequences of S keys and Q queries each (1 where the name does not say); rows
// are D wide, values Dv (DeepSeek's 576 and 512 where the name does not say). Query and output are
// of the cache's type. Cold: every call reads the cache of another layer, in all more than four
// last-level caches; warm: always the same one, only where it fits into the last-level cache.
//
//   GFLOP/s           2 * B * Q * H * S * (D + Dv) / time, less what causality leaves out
//   GB/s              each record once, query and output, / time
//   tokens/s          B * Q / time: decoded tokens, for one layer
//   of_flop_ceiling   GFLOP/s against the register-only loop over the target's own multiplication
//   of_read_ceiling   GB/s against a streaming read with the same threads: cold of memory, warm of
//                     this very cache
//   vs_<comparator>   its time over ours; versus.h. The best target's rows only
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/layered_cache.h"
#include "bench/measure.h"
#include "bench/tensor.h"
#include "bench/versus.h"
#include "lathe/mla_decode.h"

namespace lathe::bench {
namespace {

struct Dims {
  int64_t head_dim, kv_lora_rank;
};
// The fast paths, and one that has none.
constexpr Dims kDims[] = {{kHeadDim, kKvLoraRank}, {512, 512}, {320, 256}, {1088, 1024}, {100, 72}};

struct Case {
  CacheSpec spec;
  int64_t heads;
  TargetInfo target;
  size_t threads;
  bool is_warm;
  int64_t q_len;

  bool is_quantized() const {  // which comparators cannot read
    const auto is_same = [this](const NamedFormat& f) { return f.format == spec.format.format; };
    return std::any_of(std::begin(kQuantizedFormats), std::end(kQuantizedFormats), is_same);
  }
  bool is_deepseek() const { return spec.head_dim == kHeadDim && spec.kv_lora_rank == kKvLoraRank; }
  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name),
                  "MlaDecode/heads:%d/keys:%d/batch:%d/format:%s/target:%s/threads:%d/cache:%s",
                  static_cast<int>(heads), static_cast<int>(spec.keys),
                  static_cast<int>(spec.batch), spec.format.name, target.name,
                  static_cast<int>(threads), is_warm ? "warm" : "cold");
    std::string suffix;
    if (q_len != 1) suffix += "/q_len:" + std::to_string(q_len);
    if (!is_deepseek()) {
      suffix += "/dims:" + std::to_string(spec.head_dim) + "-" + std::to_string(spec.kv_lora_rank);
    }
    return name + suffix;
  }
};

// Where results go, and whether they are right.
class Results {
 public:
  explicit Results(const Case& c)
      : tokens_(c.spec.batch * c.q_len),
        heads_(c.heads),
        out_(c.spec.format.activations, {tokens_, c.heads, c.spec.kv_lora_rank}),
        lse_(DType::kFloat32, {tokens_, c.heads}),
        tolerance_(c.spec.format.activations == DType::kBFloat16 ? 1e-2 : 1e-3) {}

  void AddTo(MlaDecodeArgs* args) const {
    args->out = out_.View();
    args->lse = Packed(reinterpret_cast<float*>(lse_.View().data), tokens_, heads_);
  }

  // Of layer 0. Relative to the size of the outputs, which shrink with the number of keys; a wrong
  // page or a lost key is far outside, while the tests are there for the last digits.
  void Check(const ref::AttentionResult& reference) const {
    const int64_t v_dim = out_.View().extent[2];
    MlaDecodeArgs args;
    AddTo(&args);
    double error = 0.0, size = 0.0;
    for (int64_t i = FirstChecked(heads_); i < kCheckedHeads; ++i) {
      for (int64_t column = 0; column < v_dim; ++column) {
        const double expected = reference.out[static_cast<size_t>(i * v_dim + column)];
        const double got = ref::At(Input(args.out), tokens_ - 1, HeadOf(heads_, i), column);
        error += (got - expected) * (got - expected);
        size += expected * expected;
      }
      const double lse =
          static_cast<double>(args.lse.data[(tokens_ - 1) * heads_ + HeadOf(heads_, i)]);
      const double expected_lse = reference.lse[static_cast<size_t>(i)];
      if (!(std::fabs(lse - expected_lse) < 1e-3)) {
        throw RowError("lse is " + std::to_string(lse) + ", the reference " +
                       std::to_string(expected_lse));
      }
    }
    const double relative = std::sqrt(error / size);
    if (!(relative < tolerance_)) {
      throw RowError("out is off the reference by " + std::to_string(relative * 100) + " %");
    }
  }

  // The first and the last head of the last token are checked, where there is but one the last.
  static int64_t FirstChecked(int64_t heads) { return heads == 1 ? kCheckedHeads - 1 : 0; }
  static int64_t HeadOf(int64_t heads, int64_t i) { return i == 0 ? 0 : heads - 1; }

  size_t bytes() const { return out_.bytes(); }

 private:
  int64_t tokens_, heads_;
  Tensor<3> out_;
  Tensor<2> lse_;
  double tolerance_;
};

// Everything a decode step needs besides the caches.
class Step {
 public:
  Step(const Case& c, const LayeredCache& cache)
      : cache_(cache),
        q_(c.spec.format.activations, {c.spec.batch * c.q_len, c.heads, c.spec.head_dim}),
        query_start_loc_(static_cast<size_t>(c.spec.batch + 1)),
        results_(c) {
    const int64_t tokens = c.spec.batch * c.q_len;
    q_.Fill(Random(3));
    for (int64_t i = Results::FirstChecked(c.heads); i < kCheckedHeads; ++i) {
      const int64_t row = (tokens - 1) * c.heads + Results::HeadOf(c.heads, i);
      q_.Fill(LayeredCache::CheckedQuery(i), row * c.spec.head_dim, (row + 1) * c.spec.head_dim);
    }
    for (size_t i = 0; i < query_start_loc_.size(); ++i) {
      query_start_loc_[i] = static_cast<int32_t>(static_cast<int64_t>(i) * c.q_len);
    }
    args_.q = Input(q_.View());
    if (c.q_len > 1) {
      args_.query_start_loc =
          Packed(static_cast<const int32_t*>(query_start_loc_.data()), query_start_loc_.size());
    }
    results_.AddTo(&args_);
    args_.keys = cache.Keys(0);
    Plan(c);
  }

  void Run(int64_t layer, const Executor& executor) {
    args_.keys.cache.data = cache_.Layer(layer);
    const Status status =
        RunMlaDecode(*plan_, args_, {workspace_.data(), workspace_.size()}, executor);
    if (!status.ok()) Require(status);
  }

  // What Run() is given, with another place for results.
  MlaDecodeArgs Args(int64_t layer, const Results& results) const {
    MlaDecodeArgs args = args_;
    args.keys.cache.data = cache_.Layer(layer);
    results.AddTo(&args);
    return args;
  }

  const Results& results() const { return results_; }
  double io_bytes() const { return static_cast<double>(q_.bytes() + results_.bytes()); }

 private:
  void Plan(const Case& c) {
    const MlaShape shape = c.spec.shape(c.heads);
    const MlaDecodeOptions options = OptionsOf(c.target.target);
    MlaDecodeLimits limits;
    limits.max_num_seqs = c.spec.batch;
    limits.max_num_tokens = c.spec.batch * c.q_len;
    limits.max_seq_len = c.spec.keys;
    limits.num_workers = c.threads;
    Sizes sizes;
    Require(MlaDecodeSizes(shape, options, limits, &sizes));
    plan_memory_ = HugeBuffer(sizes.plan_bytes);
    workspace_ = HugeBuffer(sizes.workspace_bytes);
    Require(PlanMlaDecode(shape, options, args_, c.threads,
                          {plan_memory_.data(), plan_memory_.size()}, &plan_));
  }

  const LayeredCache& cache_;
  Tensor<3> q_;
  std::vector<int32_t> query_start_loc_;
  Results results_;
  MlaDecodeArgs args_;
  HugeBuffer plan_memory_, workspace_;
  const MlaDecodePlan* plan_ = nullptr;
};

// The cache of the last row, kept because the next one often wants the same.
using CacheSlot = std::shared_ptr<std::unique_ptr<LayeredCache>>;

LayeredCache& Provide(const CacheSlot& slot, const CacheSpec& spec, Harness& harness) {
  std::unique_ptr<LayeredCache>& cache = *slot;
  if (cache == nullptr || !(cache->spec() == spec)) {
    cache = nullptr;  // before the next one is allocated
    cache = std::make_unique<LayeredCache>(spec, harness);
  }
  return *cache;
}

// Against other ways to decode, on the same data, taking turns with us through the layers.
void Compare(benchmark::State& state, const Case& c, LayeredCache& cache, Step& step, Team& team,
             double seconds) {
  const DecodeTask task{c.spec.shape(c.heads), OptionsOf(c.target.target).softmax_scale,
                        c.spec.batch,          c.q_len,
                        c.spec.keys,           c.spec.format.activations};
  const Executor executor = team.executor();
  const Results results(c);
  int64_t layer = 0;
  const auto next_layer = [&] { return layer = (layer + 1) % c.spec.layers; };
  MeasureVersus(
      state, task, team, seconds, [&] { step.Run(next_layer(), executor); },
      [&](Comparator& comparator) { comparator.Run(step.Args(next_layer(), results)); },
      [&](Comparator& comparator) {
        comparator.Run(step.Args(0, results));
        const int64_t keys = comparator.keys();
        results.Check(keys == c.spec.keys ? cache.Reference() : cache.Reference(keys));
      });
}

void RunRow(benchmark::State& state, const Case& c, Harness& harness, const CacheSlot& slot) {
  LayeredCache& cache = Provide(slot, c.spec, harness);
  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  Step step(c, cache);
  step.Run(0, executor);
  step.results().Check(cache.Reference());

  const CacheSpec& spec = c.spec;
  // Query i of a sequence does not see the q_len - 1 - i last keys.
  const int64_t pairs = spec.batch * (c.q_len * spec.keys - c.q_len * (c.q_len - 1) / 2);
  const double flops =
      2.0 * static_cast<double>(pairs * c.heads * (spec.head_dim + spec.kv_lora_rank));
  const double bytes =
      static_cast<double>(spec.batch * spec.keys * spec.token_bytes()) + step.io_bytes();
  const FlopLoop& loop =
      FlopLoopOf(c.target, BFloat16RowsOf(spec.format.format) == BFloat16Rows::kExact);
  ReadProbe own(cache.Layer(0), static_cast<size_t>(cache.layer_bytes()));
  ReadProbe& read = c.is_warm ? own : harness.dram();

  int64_t layer = 0;
  const double seconds = Measure(
      state, team,
      [&] {
        step.Run(layer, executor);
        layer = (layer + 1) % spec.layers;
      },
      {{"of_flop_ceiling", "flop_ceiling_GFLOP/s", flops,
        [&] { return FlopsPerSecond(team, loop); }},
       {"of_read_ceiling", "read_ceiling_GB/s", bytes, [&] { return read.BytesPerSecond(team); }}});
  state.counters["GFLOP/s"] = flops / seconds * 1e-9;
  state.counters["GB/s"] = bytes / seconds * 1e-9;
  state.counters["tokens/s"] = static_cast<double>(spec.batch * c.q_len) / seconds;
  if (harness.compares() && harness.IsBest(c.target) && !c.is_quantized()) {
    Compare(state, c, cache, step, team, seconds);
  }
}

// Enough layers that a call finds nothing of its cache left from the last time around.
int64_t ColdLayers(int64_t layer_bytes, const Machine& machine) {
  const auto enough = static_cast<int64_t>(4 * machine.all_llc_bytes);
  return layer_bytes >= enough ? 1 : enough / layer_bytes + 2;
}

// What ./dev bench shows when it is not asked for anything in particular.
bool IsDefault(const Harness& harness, const Case& c) {
  const auto is_one_of = [](int64_t x, std::initializer_list<int64_t> list) {
    return std::find(list.begin(), list.end(), x) != list.end();
  };
  const bool is_typical = c.heads == 16 || c.heads == 128;
  if (c.is_quantized()) {
    return is_typical && c.q_len == 1 && !c.is_warm && harness.IsBest(c.target) &&
           harness.IsOneOrAll(c.threads);
  }
  const bool is_plain = c.spec.format.format != CacheFormat::kLatentFloat16 && c.is_deepseek() &&
                        c.q_len == 1 && is_one_of(c.heads, {8, 16, 20, 64, 128}) &&
                        is_one_of(c.spec.keys, {4096, 32768, 131072});
  if (!is_plain || !harness.IsOneOrAll(c.threads)) return false;
  if (!harness.IsBest(c.target)) {
    return is_typical && c.spec.keys == 4096 && c.spec.batch == 1 && c.threads == 1 && c.is_warm;
  }
  return c.spec.batch == 1 || (is_typical && c.spec.keys == 4096);
}

void RegisterCase(Harness& harness, const Case& c, const CacheSlot& slot) {
  if (!harness.Wants(IsDefault(harness, c))) return;
  const int64_t layer_bytes = c.spec.layer_bytes();
  if (c.is_warm && layer_bytes > static_cast<int64_t>(harness.machine().llc_bytes)) return;
  if (c.spec.layers * layer_bytes > static_cast<int64_t>(harness.memory_budget())) {
    harness.SkipForMemory();
    return;
  }
  harness.Register(
      c.Name(), [c, &harness, slot](benchmark::State& state) { RunRow(state, c, harness, slot); });
}

}  // namespace

// Rows of the same cache follow each other, so that it is written once.
void RegisterMlaDecode(Harness& harness) {
  const auto slot = std::make_shared<std::unique_ptr<LayeredCache>>();
  const auto register_with = [&](CacheSpec spec, bool is_warm) {
    if (!is_warm) spec.layers = ColdLayers(spec.layer_bytes(), harness.machine());
    for (const TargetInfo& target : harness.targets()) {
      for (const size_t threads : harness.thread_counts()) {
        for (const int64_t heads : {1, 4, 5, 8, 12, 16, 20, 32, 64, 96, 128}) {
          for (const int64_t q_len : {1, 2, 4}) {
            RegisterCase(harness, {spec, heads, target, threads, is_warm, q_len}, slot);
          }
        }
      }
    }
  };
  for (const NamedFormat& format : kFormats) {
    for (const auto& [head_dim, kv_lora_rank] : kDims) {
      for (int64_t keys = 128; keys <= 131072; keys *= 2) {
        for (const int64_t batch : {1, 32}) {
          for (const bool is_warm : {true, false}) {
            register_with({format, keys, batch, 1, head_dim, kv_lora_rank}, is_warm);
          }
        }
      }
    }
  }
  for (const NamedFormat& format : kQuantizedFormats) {
    const int64_t width = WidthOf(format.format);
    if (width < kKvLoraRank) continue;  // an indexer's
    for (const bool is_warm : {true, false}) {
      register_with({format, 32768, 1, 1, width, kKvLoraRank}, is_warm);
    }
  }
}

}  // namespace lathe::bench
