// SPDX-License-Identifier: Apache-2.0
// MergeStates/parts:P/tokens:T/heads:H/format:F/target:T/threads:N
//
// P partial results of T rows and H heads, 512 wide, of type F, into one.
//
//   GB/s, of_memcpy   copy_bound.h
//   tokens/s
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/copy_bound.h"
#include "bench/harness.h"
#include "bench/layered_cache.h"
#include "bench/tensor.h"
#include "lathe/merge_states.h"
#include "lathe/ref/attention_ref.h"

namespace lathe::bench {
namespace {

struct Case {
  int64_t parts, tokens, heads;
  NamedFormat format;
  TargetInfo target;
  size_t threads;

  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name),
                  "MergeStates/parts:%d/tokens:%d/heads:%d/format:%s/target:%s/threads:%d",
                  static_cast<int>(parts), static_cast<int>(tokens), static_cast<int>(heads),
                  format.name, target.name, static_cast<int>(threads));
    return name;
  }
};

// The first token.
void Check(MergeStatesArgs args) {
  std::vector<MergePart> parts(args.parts, args.parts + args.num_parts);
  args.parts = parts.data();
  args.out.extent[0] = 1;
  const std::vector<double> expected = ref::MergeStates(args).out;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double got = ref::At(Input(args.out), 0, static_cast<int64_t>(i) / kKvLoraRank,
                               static_cast<int64_t>(i) % kKvLoraRank);
    if (!(std::fabs(got - expected[i]) < 2e-2)) {
      throw RowError("element " + std::to_string(i) + " is " + std::to_string(got) +
                     ", the reference " + std::to_string(expected[i]));
    }
  }
}

void RunRow(benchmark::State& state, const Case& c, Harness& harness) {
  const auto num_parts = static_cast<size_t>(c.parts);
  Tensor<3> in(c.format.activations, {c.parts * c.tokens, c.heads, kKvLoraRank});
  Tensor<2> lse(DType::kFloat32, {c.parts * c.tokens, c.heads});
  Tensor<3> out(c.format.activations, {c.tokens, c.heads, kKvLoraRank});
  in.Fill(Random(6));
  lse.Fill(Random(7));
  std::vector<MergePart> parts(num_parts);
  for (int64_t i = 0; i < c.parts; ++i) {
    MergePart& part = parts[static_cast<size_t>(i)];
    part.out = Input(in.View(i * c.tokens, (i + 1) * c.tokens));
    part.lse =
        Packed(reinterpret_cast<const float*>(lse.View(i * c.tokens, (i + 1) * c.tokens).data),
               c.tokens, c.heads);
  }
  MergeStatesArgs args;
  args.parts = parts.data();
  args.num_parts = num_parts;
  args.out = out.View();
  MergeStatesOptions options;
  options.target = c.target.target;

  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  Require(MergeStates(args, options, executor));
  Check(args);
  const double seconds = MeasureCopyBound(
      state, team, [&] { Require(MergeStates(args, options, executor)); },
      static_cast<double>(in.bytes() + lse.bytes() + out.bytes()));
  state.counters["tokens/s"] = static_cast<double>(c.tokens) / seconds;
}

}  // namespace

void RegisterMergeStates(Harness& harness) {
  for (const int64_t parts : {2, 8}) {
    for (const NamedFormat& format : {kBFloat16Format, kFloat32Format}) {
      for (const TargetInfo& target : harness.targets()) {
        for (const size_t threads : harness.thread_counts()) {
          const Case c{parts, 32, 128, format, target, threads};
          const bool by_default = harness.IsBest(target) && harness.IsShown(threads) &&
                                  format.format == CacheFormat::kLatentFloat32;
          if (!harness.Wants(by_default)) continue;
          harness.Register(c.Name(),
                           [c, &harness](benchmark::State& state) { RunRow(state, c, harness); });
        }
      }
    }
  }
}

}  // namespace lathe::bench
