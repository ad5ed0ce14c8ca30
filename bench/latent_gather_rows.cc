// SPDX-License-Identifier: Apache-2.0
// LatentGather/tokens:N/from:F/to:G/target:T/threads:N
//
// N tokens of one sequence, in pages of 64 in shuffled order, out of a paged cache of format F, of
// its width or 576, into rows of type G.
//
//   GB/s, of_memcpy   copy_bound.h
//   tokens/s
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "bench/copy_bound.h"
#include "bench/harness.h"
#include "bench/layered_cache.h"
#include "bench/tensor.h"
#include "lathe/latent_cache.h"
#include "lathe/ref/attention_ref.h"

namespace lathe::bench {
namespace {

struct Case {
  int64_t tokens;
  NamedFormat from, to;
  TargetInfo target;
  size_t threads;

  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name), "LatentGather/tokens:%d/from:%s/to:%s/target:%s/threads:%d",
                  static_cast<int>(tokens), from.name, to.name, target.name,
                  static_cast<int>(threads));
    return name;
  }
};

Out<2> Rows(const Out<3>& tensor) {
  Out<2> rows;
  rows.data = tensor.data;
  rows.dtype = tensor.dtype;
  rows.extent[0] = tensor.extent[0];
  rows.extent[1] = tensor.extent[2];
  rows.stride[0] = tensor.stride[0];
  rows.stride[1] = 1;
  return rows;
}

void Check(const LatentGatherArgs& args, const In<3>& rows) {
  const int64_t tokens = rows.extent[0], width = rows.extent[2];
  for (int64_t i = 0; i < tokens; i += std::max<int64_t>(1, tokens / 100)) {
    const int64_t block = args.block_table(0, i / kBlockSize);
    const auto row = ref::DecodeRow(args.cache, block, i % kBlockSize, width);
    for (int64_t column = 0; column < width; ++column) {
      const double x = row[static_cast<size_t>(column)];
      if (!(std::abs(ref::At(rows, i, 0, column) - x) <= std::abs(x) / 256)) {
        throw RowError("column " + std::to_string(column) + " of token " + std::to_string(i) +
                       " is not what the cache holds");
      }
    }
  }
}

void RunRow(benchmark::State& state, const Case& c, Harness& harness) {
  const int64_t width = WidthOf(c.from.format);
  const CacheSpec spec{c.from, c.tokens, 1, 1, width, std::min(width, kKvLoraRank)};
  const LayeredCache cache(spec, harness);
  const Tensor<3> out(c.to.activations, {c.tokens, 1, width});
  const int32_t out_start_loc = 0;

  const KeySet keys = cache.Keys(0);
  LatentGatherArgs args;
  args.cache = keys.cache;
  args.cache.scale = 0.75f;  // for formats that have one: a factor of 1 costs nothing
  args.block_table = keys.block_table;
  args.gather_lens = keys.seq_lens;
  args.out_start_loc = Packed(&out_start_loc, 1);
  args.out = Rows(out.View());
  LatentGatherOptions options;
  options.target = c.target.target;

  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  Require(GatherLatentCache(args, options, executor));
  Check(args, Input(out.View()));

  const double bytes =
      static_cast<double>(out.bytes()) + static_cast<double>(c.tokens * spec.token_bytes());
  const double seconds = MeasureCopyBound(
      state, team, [&] { Require(GatherLatentCache(args, options, executor)); }, bytes);
  state.counters["tokens/s"] = static_cast<double>(c.tokens) / seconds;
}

bool IsDefault(const Harness& harness, const Case& c) {
  return harness.IsBest(c.target) && harness.IsShown(c.threads) &&
         c.from.format != CacheFormat::kLatentFloat16 && c.to.activations == DType::kBFloat16;
}

void RegisterCases(Harness& harness, const NamedFormat& from, const NamedFormat& to) {
  for (const TargetInfo& target : harness.targets()) {
    for (const size_t threads : harness.thread_counts()) {
      const Case c{8192, from, to, target, threads};
      if (!harness.Wants(IsDefault(harness, c))) continue;
      harness.Register(c.Name(),
                       [c, &harness](benchmark::State& state) { RunRow(state, c, harness); });
    }
  }
}

}  // namespace

void RegisterLatentGather(Harness& harness) {
  for (const NamedFormat& to : kFormats) {
    for (const NamedFormat& from : kFormats) RegisterCases(harness, from, to);
    for (const NamedFormat& from : RecordFormats()) RegisterCases(harness, from, to);
  }
}

}  // namespace lathe::bench
