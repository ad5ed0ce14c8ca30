// SPDX-License-Identifier: Apache-2.0
// MlaDecode/heads:H/keys:S/batch:B/format:F/target:T/threads:N/cache:warm|cold[/q_len:Q][/dims:D-Dv]
//     [/precision:bf16][/executor:openmp]
//
// One decode step of B sequences of S keys and Q queries each (1 where the name does not say); rows
// are D wide, values Dv (DeepSeek's 576 and 512 where the name does not say). Query and output are
// of the cache's type. precision:bf16 is Precision::kBFloat16, for bfloat16 rows of up to 1024 keys,
// where kAuto (all other rows) multiplies more; oneDNN's composition rounds like it.
// executor:openmp: on OpenMP's threads instead of a spinning hwy::ThreadPool's, for one sequence, cold.
// Cold: every call reads the cache of another layer, in all more than four
// last-level caches; warm: always the same one, only where it fits into the last-level cache.
//
//   GFLOP/s           2 * B * Q * H * S * (D + Dv) / time, less what causality leaves out
//   GB/s              each record once, query and output, / time
//   tokens/s          B * Q / time: decoded tokens, for one layer
//   of_flop_ceiling   GFLOP/s against the register-only loop over the target's own multiplication
//   of_read_ceiling   GB/s against a streaming read with the same threads: cold of memory, warm of
//                     this very cache
//   of_limit          of the nearer of both ceilings
//   vs_<comparator>   its time over ours; versus.h. The best target's rows only
#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <string>

#include "bench/decode_step.h"
#include "bench/harness.h"
#include "bench/layered_cache.h"
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
  TeamSpec team;
  bool is_warm;
  int64_t q_len;
  Precision precision;

  bool is_record() const {  // which comparators cannot read
    const auto is_same = [this](const NamedFormat& f) { return f.format == spec.format.format; };
    return std::none_of(std::begin(kFormats), std::end(kFormats), is_same);
  }
  DecodeCall call() const {
    DecodeCall call{
        spec.shape(heads), OptionsOf(target.target), spec.batch, q_len, spec.format.activations,
        team.threads};
    call.options.precision = precision;
    return call;
  }
  bool is_deepseek() const { return spec.head_dim == kHeadDim && spec.kv_lora_rank == kKvLoraRank; }
  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name),
                  "MlaDecode/heads:%d/keys:%d/batch:%d/format:%s/target:%s/threads:%d/cache:%s",
                  static_cast<int>(heads), static_cast<int>(spec.keys),
                  static_cast<int>(spec.batch), spec.format.name, target.name,
                  static_cast<int>(team.threads), is_warm ? "warm" : "cold");
    std::string suffix;
    if (q_len != 1) suffix += "/q_len:" + std::to_string(q_len);
    if (!is_deepseek()) {
      suffix += "/dims:" + std::to_string(spec.head_dim) + "-" + std::to_string(spec.kv_lora_rank);
    }
    if (precision == Precision::kBFloat16) suffix += "/precision:bf16";
    return name + suffix + team.suffix();
  }
};

// Against other ways to decode, on the same data, taking turns with us through the layers.
void Compare(benchmark::State& state, const Case& c, LayeredCache& cache, DecodeStep& step,
             Team& team, double seconds) {
  const DecodeCall call = c.call();
  const DecodeTask task{call.shape,  call.options.softmax_scale,
                        call.batch,  call.q_len,
                        c.spec.keys, call.activations};
  const Executor executor = team.executor();
  const Results results(call);
  int64_t layer = 0;
  MeasureVersus(
      state, task, team, seconds, [&] { step.Run(++layer, executor); },
      [&](Comparator& comparator) { comparator.Run(step.Args(++layer, results)); },
      [&](Comparator& comparator) {
        comparator.Run(step.Args(0, results));
        const int64_t keys = comparator.keys();
        results.Check(keys == c.spec.keys ? cache.Reference(call) : cache.Reference(call, keys));
      });
}

void RunRow(benchmark::State& state, const Case& c, Harness& harness, const CacheSlot& slot) {
  LayeredCache& cache = Provide(slot, c.spec, harness);
  Team& team = harness.team(c.team);
  MlaDecodeArgs args;
  args.keys = cache.Keys(0);
  DecodeStep step(c.call(), args, [&cache](int64_t layer, MlaDecodeArgs* a) {
    a->keys.cache.data = cache.Layer(layer);
  });
  step.Run(0, team.executor());
  step.results().Check(cache.Reference(c.call()));

  const CacheSpec& spec = c.spec;
  // Query i of a sequence does not see the q_len - 1 - i last keys.
  const int64_t pairs = spec.batch * (c.q_len * spec.keys - c.q_len * (c.q_len - 1) / 2);
  const auto key_bytes = static_cast<double>(spec.batch * spec.keys * spec.token_bytes());
  ReadProbe own(cache.Layer(0), static_cast<size_t>(cache.layer_bytes()));
  const double seconds = MeasureDecode(state, team, step, {pairs, key_bytes},
                                       FlopLoopOf(c.target, spec.format.format, c.precision),
                                       c.is_warm ? own : harness.dram());
  if (harness.compares() && harness.IsBest(c.target) && !c.is_record()) {
    Compare(state, c, cache, step, team, seconds);
  }
}

// What ./dev bench shows when it is not asked for anything in particular.
bool IsDefault(const Harness& harness, const Case& c) {
  const auto is_one_of = [](int64_t x, std::initializer_list<int64_t> list) {
    return std::find(list.begin(), list.end(), x) != list.end();
  };
  const bool is_typical = c.heads == 16 || c.heads == 128;
  if (c.is_record()) {
    return is_typical && c.q_len == 1 && !c.is_warm && harness.IsBest(c.target) &&
           harness.IsShown(c.team);
  }
  const bool is_plain = c.spec.format.format != CacheFormat::kLatentFloat16 && c.is_deepseek() &&
                        c.q_len == 1 && c.precision == Precision::kAuto &&
                        is_one_of(c.heads, {8, 16, 20, 64, 128}) &&
                        is_one_of(c.spec.keys, {4096, 32768, 131072});
  if (!is_plain || !harness.IsShown(c.team)) return false;
  if (!harness.IsBest(c.target)) {
    return is_typical && c.spec.keys == 4096 && c.spec.batch == 1 && c.team.threads == 1 &&
           c.is_warm;
  }
  return c.spec.batch == 1 || (is_typical && c.spec.keys == 4096);
}

void RegisterCase(Harness& harness, const Case& c, const CacheSlot& slot) {
  if (!harness.Wants(IsDefault(harness, c))) return;
  if (c.team.is_openmp && (c.is_warm || c.spec.batch > 1)) return;
  if (c.is_warm && c.spec.layer_bytes() > static_cast<int64_t>(harness.machine().llc_bytes)) return;
  harness.RegisterLarge(c.Name(), c.spec.bytes(), [c, &harness, slot](benchmark::State& state) {
    RunRow(state, c, harness, slot);
  });
}

}  // namespace

// Rows of the same cache follow each other, so that it is written once.
void RegisterMlaDecode(Harness& harness) {
  const CacheSlot slot = MakeCacheSlot();
  const auto register_with = [&](CacheSpec spec, bool is_warm) {
    if (!is_warm) spec.layers = ColdLayers(spec.layer_bytes(), harness.machine());
    for (const TargetInfo& target : harness.targets()) {
      for (const TeamSpec& team : harness.team_specs()) {
        for (const int64_t heads : {1, 4, 5, 8, 12, 16, 20, 32, 64, 96, 128}) {
          for (const int64_t q_len : {1, 2, 4}) {
            RegisterCase(harness, {spec, heads, target, team, is_warm, q_len, Precision::kAuto},
                         slot);
            if (spec.format.format != CacheFormat::kLatentBFloat16 || spec.keys > 1024) continue;
            RegisterCase(harness, {spec, heads, target, team, is_warm, q_len, Precision::kBFloat16},
                         slot);
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
  for (const NamedFormat& format : RecordFormats()) {
    const int64_t width = WidthOf(format.format);
    if (width < kKvLoraRank) continue;  // an indexer's
    for (const bool is_warm : {true, false}) {
      register_with({format, 32768, 1, 1, width, kKvLoraRank}, is_warm);
    }
  }
}

}  // namespace lathe::bench
