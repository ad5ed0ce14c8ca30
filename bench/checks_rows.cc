// SPDX-License-Identifier: Apache-2.0
// Checks/call:plan|run/heads:H/keys:S/batch:B/target:T/threads:N
//
// What decode costs besides its arithmetic. plan: PlanMlaDecode, with every check, block ids too, once a step.
// run: the checks that RunMlaDecode makes in each layer, timed as a run that the last of them refuses, so its message
// is part of it. bfloat16, DeepSeek's dimensions.
//
//   of_decode   its time over that of the decode itself: RunMlaDecode over the same keys, one layer, which
//               lie in the last-level cache if they fit; the fastest of four samples around each
#include <cstdio>
#include <string>
#include <utility>

#include "bench/decode_step.h"
#include "bench/harness.h"
#include "bench/layered_cache.h"
#include "bench/measure.h"

namespace lathe::bench {
namespace {

struct Case {
  bool is_plan;
  int64_t heads;
  CacheSpec spec;
  TargetInfo target;
  size_t threads;

  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name),
                  "Checks/call:%s/heads:%d/keys:%d/batch:%d/target:%s/threads:%d",
                  is_plan ? "plan" : "run", static_cast<int>(heads), static_cast<int>(spec.keys),
                  static_cast<int>(spec.batch), target.name, static_cast<int>(threads));
    return name;
  }
};

void RunRow(benchmark::State& state, const Case& c, Harness& harness, const CacheSlot& slot) {
  LayeredCache& cache = Provide(slot, c.spec, harness);
  const DecodeCall call{c.spec.shape(c.heads),
                        OptionsOf(c.target.target),
                        c.spec.batch,
                        1,
                        c.spec.format.activations,
                        c.threads};
  MlaDecodeArgs args;
  args.keys = cache.Keys(0);
  DecodeStep step(call, args, [](int64_t, MlaDecodeArgs*) {});
  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  step.Run(0, executor);
  step.results().Check(cache.Reference(call));
  const auto decodes_per_second = [&] {
    return 1.0 / TimeCalls([&] { step.RunNext(executor); }, 1);
  };
  Measure(state, team, [&] { c.is_plan ? step.PlanAgain() : step.CheckOnly(); },
          {{"per_decode", "", 1.0, decodes_per_second}});
  state.counters["of_decode"] = 1.0 / state.counters["per_decode"];
}

}  // namespace

void RegisterChecks(Harness& harness) {
  const CacheSlot slot = MakeCacheSlot();
  const auto register_case = [&](const Case& c) {
    if (!harness.Wants(harness.IsBest(c.target) && harness.IsShown(c.threads))) return;
    harness.RegisterLarge(c.Name(), c.spec.bytes(), [c, &harness, slot](benchmark::State& state) {
      RunRow(state, c, harness, slot);
    });
  };
  const std::pair<int64_t, int64_t> sizes[] = {{1, 16}, {1, 128}, {32, 16}};
  for (const auto& [batch, heads] : sizes) {
    for (const TargetInfo& target : harness.targets()) {
      for (const size_t threads : harness.thread_counts()) {
        for (const bool is_plan : {true, false}) {
          register_case({is_plan, heads, {kBFloat16Format, 4096, batch, 1}, target, threads});
        }
      }
    }
  }
}

}  // namespace lathe::bench
