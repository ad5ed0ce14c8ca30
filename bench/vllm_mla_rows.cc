// SPDX-License-Identifier: Apache-2.0
// VllmMla/batch:B/heads:H/keys:S/format:F/target:T/threads:N
//
// The shapes that vLLM measures and tests its own MLA decode kernel for CPUs with, in pages of 16 tokens as its CPU
// backend has them: DeepSeek's 576 and 512 columns, query and output of the cache's type, shuffled pages, cold.
//
//   GFLOP/s, GB/s, tokens/s, of_flop_ceiling, of_read_ceiling, of_limit   as MlaDecode's
//   copy_ms, vs_copy   the time of copying as many bytes as the keys have, by the same threads and just as cold; over ours
#include <cstdio>
#include <cstring>
#include <string>

#include "bench/decode_step.h"
#include "bench/harness.h"
#include "bench/layered_cache.h"
#include "bench/versus.h"

namespace lathe::bench {
namespace {

constexpr int64_t kPageTokens = 16;

struct Size {
  int64_t batch, heads, keys;
};
constexpr Size kSizes[] = {
    {1, 16, 64000}, {1, 16, 54321}, {1, 5, 1243}, {3, 16, 1234}, {30, 16, 2048}};

struct Case {
  CacheSpec spec;
  int64_t heads;
  TargetInfo target;
  size_t threads;

  DecodeCall call() const {
    return {spec.shape(heads),
            OptionsOf(target.target),
            spec.batch,
            1,
            spec.format.activations,
            threads};
  }
  std::string Name() const {
    char name[160];
    std::snprintf(
        name, sizeof(name), "VllmMla/batch:%d/heads:%d/keys:%d/format:%s/target:%s/threads:%d",
        static_cast<int>(spec.batch), static_cast<int>(heads), static_cast<int>(spec.keys),
        spec.format.name, target.name, static_cast<int>(threads));
    return name;
  }
};

void RunRow(benchmark::State& state, const Case& c, Harness& harness, const CacheSlot& slot) {
  LayeredCache& cache = Provide(slot, c.spec, harness);
  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  MlaDecodeArgs args;
  args.keys = cache.Keys(0);
  DecodeStep step(c.call(), args, [&cache](int64_t layer, MlaDecodeArgs* a) {
    a->keys.cache.data = cache.Layer(layer);
  });
  step.Run(0, executor);
  step.results().Check(cache.Reference(c.call()));

  const int64_t pairs = c.spec.batch * c.spec.keys;
  const auto key_bytes = static_cast<double>(pairs * c.spec.token_bytes());
  const double seconds =
      MeasureDecode(state, team, step, {pairs, key_bytes},
                    FlopLoopOf(c.target, c.spec.format.format, Precision::kAuto), harness.dram());

  const HugeBuffer copy(static_cast<size_t>(key_bytes));
  int64_t layer = 0;
  const auto copy_keys = [&] {
    ++layer;
    team.Run([&](size_t ith) {
      const size_t begin = copy.size() * ith / team.size();
      const size_t end = copy.size() * (ith + 1) / team.size();
      std::memcpy(copy.data() + begin, cache.Layer(layer) + begin, end - begin);
    });
  };
  copy_keys();
  TakeTurns(state, team, seconds, [&] { step.RunNext(executor); }, {"copy", copy_keys, seconds});
}

}  // namespace

// Rows of the same cache follow each other, so that it is written once.
void RegisterVllmMla(Harness& harness) {
  const CacheSlot slot = MakeCacheSlot();
  for (const NamedFormat& format : kFormats) {
    for (const auto& [batch, heads, keys] : kSizes) {
      CacheSpec spec{format, keys, batch, 1};
      spec.block_size = kPageTokens;
      spec.layers = ColdLayers(spec.layer_bytes(), harness.machine());
      for (const TargetInfo& target : harness.targets()) {
        for (const size_t threads : harness.thread_counts()) {
          const bool by_default = format.format == kBFloat16Format.format &&
                                  harness.IsBest(target) && harness.IsShown(threads);
          if (!harness.Wants(by_default)) continue;
          const Case c{spec, heads, target, threads};
          harness.RegisterLarge(
              c.Name(), spec.bytes(),
              [c, &harness, slot](benchmark::State& state) { RunRow(state, c, harness, slot); });
        }
      }
    }
  }
}

}  // namespace lathe::bench
