// SPDX-License-Identifier: Apache-2.0
// MlaDecode/heads:H/keys:S/batch:B/format:F/target:T/threads:N/cache:warm|cold
//
// One decode step of B sequences of S keys each, DeepSeek's row (576 wide, value 512). Query and
// output are of the cache's type. Cold: every call reads the cache of another layer, in all more
// than four last-level caches; warm: always the same one, only where it fits into the last-level
// cache.
//
//   GFLOP/s           2 * B * H * S * (576 + 512) / time
//   GB/s              each record once, query and output, / time
//   tokens/s          B / time: decoded tokens, for one layer
//   of_flop_ceiling   GFLOP/s against the register-only loop over the target's own multiplication
//   of_read_ceiling   GB/s against a streaming read with the same threads: cold of memory, warm of
//   this
//                     very cache
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/layered_cache.h"
#include "bench/measure.h"
#include "bench/tensor.h"
#include "lathe/mla_decode.h"

namespace lathe::bench {
namespace {

struct Case {
  CacheSpec spec;
  int64_t heads;
  TargetInfo target;
  size_t threads;
  bool is_warm;

  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name),
                  "MlaDecode/heads:%d/keys:%d/batch:%d/format:%s/target:%s/threads:%d/cache:%s",
                  static_cast<int>(heads), static_cast<int>(spec.keys),
                  static_cast<int>(spec.batch), spec.format.name, target.name,
                  static_cast<int>(threads), is_warm ? "warm" : "cold");
    return name;
  }
};

// Everything a decode step needs besides the caches.
class Step {
 public:
  Step(const Case& c, const LayeredCache& cache)
      : cache_(cache),
        heads_(c.heads),
        q_(c.spec.format.activations, {c.spec.batch, c.heads, kHeadDim}),
        out_(c.spec.format.activations, {c.spec.batch, c.heads, kKvLoraRank}),
        lse_(DType::kFloat32, {c.spec.batch, c.heads}) {
    q_.Fill(Random(3));
    for (int64_t i = 0; i < kCheckedHeads; ++i) {
      const int64_t begin = RowOf(i) * kHeadDim;
      q_.Fill(LayeredCache::CheckedQuery(i), begin, begin + kHeadDim);
    }
    args_.q = Input(q_.View());
    args_.out = out_.View();
    args_.lse = Packed(reinterpret_cast<float*>(lse_.View().data), c.spec.batch, c.heads);
    args_.keys = cache.Keys(0);
    Plan(c);
  }

  void Run(int64_t layer, const Executor& executor) {
    args_.keys.cache.data = cache_.Layer(layer);
    const Status status =
        RunMlaDecode(*plan_, args_, {workspace_.data(), workspace_.size()}, executor);
    if (!status.ok()) Require(status);
  }

  // Of layer 0. Relative to the size of the outputs, which shrink with the number of keys; a wrong
  // page or a lost key is far outside, while the tests are there for the last digits.
  void Check(const ref::AttentionResult& reference, bool is_bf16) const {
    double error = 0.0, size = 0.0;
    for (int64_t i = 0; i < kCheckedHeads; ++i) {
      for (int64_t column = 0; column < kKvLoraRank; ++column) {
        const double expected = reference.out[static_cast<size_t>(i * kKvLoraRank + column)];
        const double got = ref::At(Input(out_.View()), cache_.spec().batch - 1, HeadOf(i), column);
        error += (got - expected) * (got - expected);
        size += expected * expected;
      }
      const double lse = static_cast<double>(args_.lse.data[RowOf(i)]);
      const double expected_lse = reference.lse[static_cast<size_t>(i)];
      if (!(std::fabs(lse - expected_lse) < 1e-3)) {
        throw RowError("lse is " + std::to_string(lse) + ", the reference " +
                       std::to_string(expected_lse));
      }
    }
    const double relative = std::sqrt(error / size);
    if (!(relative < (is_bf16 ? 1e-2 : 1e-3))) {
      throw RowError("out is off the reference by " + std::to_string(relative * 100) + " %");
    }
  }

  double io_bytes() const { return static_cast<double>(q_.bytes() + out_.bytes()); }

 private:
  // The checked heads are the first and the last of the last sequence.
  int64_t HeadOf(int64_t i) const { return i == 0 ? 0 : heads_ - 1; }
  int64_t RowOf(int64_t i) const { return (cache_.spec().batch - 1) * heads_ + HeadOf(i); }

  void Plan(const Case& c) {
    const MlaShape shape = ShapeOf(c.heads);
    const MlaDecodeOptions options = OptionsOf(c.target.target);
    MlaDecodeLimits limits;
    limits.max_num_seqs = limits.max_num_tokens = c.spec.batch;
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
  int64_t heads_;
  Tensor<3> q_, out_;
  Tensor<2> lse_;
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

void RunRow(benchmark::State& state, const Case& c, Harness& harness, const CacheSlot& slot) {
  LayeredCache& cache = Provide(slot, c.spec, harness);
  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  const bool is_bf16 = c.spec.format.format == CacheFormat::kLatentBFloat16;
  Step step(c, cache);
  step.Run(0, executor);
  step.Check(cache.Reference(), is_bf16);

  const auto rows = static_cast<double>(c.spec.batch * c.heads);
  const double flops =
      2.0 * rows * static_cast<double>(c.spec.keys) * static_cast<double>(kHeadDim + kKvLoraRank);
  const auto records =
      static_cast<double>(c.spec.batch * c.spec.keys * RecordBytes(c.spec.format.format, kHeadDim));
  const double bytes = records + step.io_bytes();
  const FlopLoop& loop = FlopLoopOf(c.target, is_bf16);
  ReadProbe own(cache.Layer(0), static_cast<size_t>(cache.layer_bytes()));
  ReadProbe& read = c.is_warm ? own : harness.dram();

  int64_t layer = 0;
  const double seconds = Measure(
      state, team,
      [&] {
        step.Run(layer, executor);
        layer = (layer + 1) % c.spec.layers;
      },
      {{"of_flop_ceiling", "flop_ceiling_GFLOP/s", flops,
        [&] { return FlopsPerSecond(team, loop); }},
       {"of_read_ceiling", "read_ceiling_GB/s", bytes, [&] { return read.BytesPerSecond(team); }}});
  state.counters["GFLOP/s"] = flops / seconds * 1e-9;
  state.counters["GB/s"] = bytes / seconds * 1e-9;
  state.counters["tokens/s"] = static_cast<double>(c.spec.batch) / seconds;
}

// Enough layers that a call finds nothing of its cache left from the last time around.
int64_t ColdLayers(int64_t layer_bytes, const Machine& machine) {
  const auto enough = static_cast<int64_t>(4 * machine.all_llc_bytes);
  return layer_bytes >= enough ? 1 : enough / layer_bytes + 2;
}

// What ./dev bench shows when it is not asked for anything in particular.
bool IsDefault(const Harness& harness, const Case& c) {
  const bool is_plain = c.spec.format.format != CacheFormat::kLatentFloat16;
  const bool is_typical = c.heads == 16 || c.heads == 128;
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
  for (const NamedFormat& format : kFormats) {
    for (const int64_t keys : {4096, 32768, 131072}) {
      for (const int64_t batch : {1, 32}) {
        for (const bool is_warm : {true, false}) {
          CacheSpec spec{format, keys, batch, 1};
          if (!is_warm) spec.layers = ColdLayers(spec.layer_bytes(), harness.machine());
          for (const TargetInfo& target : harness.targets()) {
            for (const size_t threads : harness.thread_counts()) {
              for (const int64_t heads : {8, 16, 20, 64, 128}) {
                RegisterCase(harness, {spec, heads, target, threads, is_warm}, slot);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace lathe::bench
