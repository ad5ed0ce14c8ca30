// SPDX-License-Identifier: Apache-2.0
// SparseMla/heads:H/keys:K/context:L/batch:B/format:F/target:T/threads:N/cache:warm|cold[/precision:bf16]
//     [/executor:openmp]
//
// One decode step of B sequences of L keys, of which each query sees K, picked at random and in ascending order:
// DeepSeek-V3.2 behind its indexer. Rows are 576 wide, values 512, query and output bfloat16. Cold: every call
// has lists of its own and reads the next of several layers, so that it finds no record in a cache; warm: always
// the same, only where the records fit into the last-level cache.
//
//   GFLOP/s, tokens/s, of_flop_ceiling, of_read_ceiling, of_limit   as MlaDecode's
//   GB/s       each record of a list once, the list, query and output, / time
//   vs_dense   the time of MlaDecode over sequences of K keys, just as warm or cold, over ours: what is lost
//              by gathering
#include <cstdio>
#include <string>

#include "bench/decode_step.h"
#include "bench/harness.h"
#include "bench/index_lists.h"
#include "bench/layered_cache.h"
#include "bench/versus.h"
#include "lathe/sparse_mla.h"

namespace lathe::bench {
namespace {

struct Case {
  CacheSpec spec;   // of the context
  CacheSpec dense;  // of as many keys as are seen
  int64_t heads;
  TargetInfo target;
  TeamSpec team;
  bool is_warm;
  Precision precision;

  int64_t topk() const { return dense.keys; }
  DecodeCall call() const {
    DecodeCall call{
        spec.shape(heads), OptionsOf(target.target), spec.batch, 1, spec.format.activations,
        team.threads};
    call.options.precision = precision;
    return call;
  }
  std::string Name() const {
    char name[160];
    std::snprintf(
        name, sizeof(name),
        "SparseMla/heads:%d/keys:%d/context:%d/batch:%d/format:%s/target:%s/threads:%d/cache:%s%s",
        static_cast<int>(heads), static_cast<int>(topk()), static_cast<int>(spec.keys),
        static_cast<int>(spec.batch), spec.format.name, target.name, static_cast<int>(team.threads),
        is_warm ? "warm" : "cold", precision == Precision::kBFloat16 ? "/precision:bf16" : "");
    return name + team.suffix();
  }
};

struct Slots {
  CacheSlot context = MakeCacheSlot();
  CacheSlot dense = MakeCacheSlot();
};

void RunRow(benchmark::State& state, const Case& c, Harness& harness, const Slots& slots) {
  LayeredCache& cache = Provide(slots.context, c.spec, harness);
  LayeredCache& dense_cache = Provide(slots.dense, c.dense, harness);
  const IndexLists lists(c.dense.layers, c.spec.batch, c.topk(), c.spec.keys);
  Team& team = harness.team(c.team);
  const Executor executor = team.executor();

  MlaDecodeArgs args;
  const KeySet all = cache.Keys(0);
  args.keys = ListedKeys(all.cache, all.block_table, all.seq_lens, lists.Turn(0));
  DecodeStep step(c.call(), args, [&](int64_t turn, MlaDecodeArgs* a) {
    a->keys.cache.data = cache.Layer(turn);
    a->keys.indices = lists.Turn(turn);
  });
  step.Run(0, executor);
  step.results().Check(CheckedReference(c.call(), args));

  const auto record_bytes = static_cast<double>(c.spec.token_bytes() + int64_t{sizeof(int32_t)});
  const int64_t pairs = c.spec.batch * c.topk();
  ReadProbe own(dense_cache.Layer(0), static_cast<size_t>(dense_cache.layer_bytes()));
  const double seconds = MeasureDecode(
      state, team, step, {pairs, static_cast<double>(pairs) * record_bytes},
      FlopLoopOf(c.target, c.spec.format.format, c.precision), c.is_warm ? own : harness.dram());

  if (harness.is_brief()) return;
  args.keys = dense_cache.Keys(0);
  DecodeStep dense(c.call(), args, [&](int64_t turn, MlaDecodeArgs* a) {
    a->keys.cache.data = dense_cache.Layer(turn);
  });
  TakeTurns(state, team, seconds, [&] { step.RunNext(executor); },
            {"dense", [&] { dense.RunNext(executor); }, seconds});
}

bool IsDefault(const Harness& harness, const Case& c) {
  return c.topk() == 2048 && c.spec.keys == 65536 && c.spec.batch == 1 && !c.is_warm &&
         (c.heads == 16 || c.heads == 128) && harness.IsBest(c.target) && harness.IsShown(c.team);
}

void RegisterCase(Harness& harness, const Case& c, const Slots& slots) {
  if (!harness.Wants(IsDefault(harness, c))) return;
  if (c.team.is_openmp && (c.is_warm || c.spec.batch > 1)) return;
  if (c.is_warm && c.dense.layer_bytes() > static_cast<int64_t>(harness.machine().llc_bytes))
    return;
  harness.RegisterLarge(
      c.Name(), c.spec.bytes() + c.dense.bytes(),
      [c, &harness, slots](benchmark::State& state) { RunRow(state, c, harness, slots); });
}

}  // namespace

// Rows of the same caches follow each other, so that they are written once.
void RegisterSparseMla(Harness& harness) {
  const Slots slots;
  const NamedFormat fp8_ds_mla = {CacheFormat::kFp8DsMla, "fp8_ds_mla", DType::kBFloat16};
  const auto register_with = [&](const CacheSpec& spec, const CacheSpec& dense, bool is_warm) {
    for (const TargetInfo& target : harness.targets()) {
      for (const TeamSpec& team : harness.team_specs()) {
        for (const int64_t heads : {16, 64, 128}) {
          for (const Precision precision : {Precision::kAuto, Precision::kBFloat16}) {
            if (precision == Precision::kBFloat16 && spec.format.format != fp8_ds_mla.format)
              continue;
            RegisterCase(harness, {spec, dense, heads, target, team, is_warm, precision}, slots);
          }
        }
      }
    }
  };
  for (const NamedFormat& format : {kBFloat16Format, fp8_ds_mla}) {
    for (const int64_t context : {65536, 131072}) {
      for (const int64_t batch : {1, 8}) {
        for (const int64_t topk : {512, 1024, 2048}) {
          for (const bool is_warm : {true, false}) {
            CacheSpec spec{format, context, batch, 1}, dense{format, topk, batch, 1};
            if (!is_warm) {
              spec.layers = ColdLayers(spec.layer_bytes(), harness.machine());
              dense.layers = ColdLayers(dense.layer_bytes(), harness.machine());
            }
            register_with(spec, dense, is_warm);
          }
        }
      }
    }
  }
}

}  // namespace lathe::bench
