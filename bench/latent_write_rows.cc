// SPDX-License-Identifier: Apache-2.0
// LatentWrite/tokens:N/from:F/to:G/target:T/threads:N
//
// N tokens of type F into a paged cache of format G, 576 wide: up to 256 tokens as a decode step
// writes them (each in a page of its own), more as prefill does (pages one after the other, in
// shuffled order).
//
//   GB/s, of_memcpy   copy_bound.h
//   tokens/s
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "bench/copy_bound.h"
#include "bench/harness.h"
#include "bench/layered_cache.h"
#include "bench/tensor.h"
#include "lathe/cache/formats.h"
#include "lathe/latent_cache.h"
#include "lathe/ref/attention_ref.h"

namespace lathe::bench {
namespace {

constexpr int64_t kMaxScattered = 256;

struct Case {
  int64_t tokens;
  NamedFormat from, to;
  TargetInfo target;
  size_t threads;

  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name), "LatentWrite/tokens:%d/from:%s/to:%s/target:%s/threads:%d",
                  static_cast<int>(tokens), from.name, to.name, target.name,
                  static_cast<int>(threads));
    return name;
  }
};

std::vector<int64_t> Slots(int64_t tokens) {
  std::vector<int64_t> pages(static_cast<size_t>((tokens + kBlockSize - 1) / kBlockSize));
  if (tokens <= kMaxScattered) pages.resize(static_cast<size_t>(tokens));
  std::iota(pages.begin(), pages.end(), int64_t{0});
  Random random(4);
  random.Shuffle(pages);
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < tokens; ++i) {
    const bool is_scattered = tokens <= kMaxScattered;
    const int64_t page = pages[static_cast<size_t>(is_scattered ? i : i / kBlockSize)];
    slots.push_back(page * kBlockSize + (is_scattered ? random.Below(kBlockSize) : i % kBlockSize));
  }
  return slots;
}

// What a plain format holds after x was written to it.
double Rounded(CacheFormat format, double x) {
  double rounded = 0.0;
  VisitFormat(format, [&](auto tag) {
    using Element = typename decltype(tag)::Type::Element;
    if constexpr (!std::is_void_v<Element>) {
      rounded = static_cast<double>(ToFloat(FromFloat<Element>(static_cast<float>(x))));
    }
  });
  return rounded;
}

void Check(const Out<3>& source, const std::vector<int64_t>& slots, const PagedCache& cache) {
  const auto tokens = static_cast<int64_t>(slots.size());
  for (int64_t i = 0; i < tokens; i += std::max<int64_t>(1, tokens / 100)) {
    const int64_t slot = slots[static_cast<size_t>(i)];
    const auto row = ref::DecodeRow(cache, slot / kBlockSize, slot % kBlockSize, kHeadDim);
    for (int64_t column = 0; column < kHeadDim; ++column) {
      const double x = ref::At(Input(source), i, 0, column);
      if (row[static_cast<size_t>(column)] != Rounded(cache.format, x)) {
        throw RowError("column " + std::to_string(column) + " of token " + std::to_string(i) +
                       " is not what was written");
      }
    }
  }
}

In<2> Part(const Out<3>& source, int64_t begin, int64_t end) {
  const In<3> part = Columns(source, begin, end);
  In<2> in;
  in.data = part.data;
  in.dtype = part.dtype;
  in.extent[0] = part.extent[0];
  in.extent[1] = part.extent[2];
  in.stride[0] = part.stride[0];
  in.stride[1] = part.stride[2];
  return in;
}

void RunRow(benchmark::State& state, const Case& c, Harness& harness) {
  Tensor<3> source(c.from.activations, {c.tokens, 1, kHeadDim});
  source.Fill(Random(5));
  const std::vector<int64_t> slots = Slots(c.tokens);
  const int64_t num_blocks = *std::max_element(slots.begin(), slots.end()) / kBlockSize + 1;
  const int64_t record = RecordBytes(c.to.format, kHeadDim);
  HugeBuffer cache(static_cast<size_t>(num_blocks * kBlockSize * record));

  LatentWriteArgs args;
  args.kv_c = Part(source.View(), 0, kKvLoraRank);
  args.k_pe = Part(source.View(), kKvLoraRank, kHeadDim);
  args.slot_mapping = Packed(slots.data(), slots.size());
  args.cache = {cache.data(), c.to.format, num_blocks, kBlockSize, kBlockSize * record, record};
  LatentWriteOptions options;
  options.target = c.target.target;

  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  Require(WriteLatentCache(args, options, executor));
  Check(source.View(), slots, args.cache);

  const double bytes = static_cast<double>(source.bytes()) + static_cast<double>(c.tokens * record);
  const double seconds = MeasureCopyBound(
      state, team, [&] { Require(WriteLatentCache(args, options, executor)); }, bytes);
  state.counters["tokens/s"] = static_cast<double>(c.tokens) / seconds;
}

bool IsDefault(const Harness& harness, const Case& c) {
  const auto is_shown = [](const NamedFormat& f) {
    return f.format != CacheFormat::kLatentFloat16;
  };
  return harness.IsBest(c.target) && harness.IsOneOrAll(c.threads) && is_shown(c.from) &&
         c.to.format == CacheFormat::kLatentBFloat16;
}

}  // namespace

void RegisterLatentWrite(Harness& harness) {
  for (const int64_t tokens : {32, 8192}) {
    for (const NamedFormat& from : kFormats) {
      for (const NamedFormat& to : kFormats) {
        for (const TargetInfo& target : harness.targets()) {
          for (const size_t threads : harness.thread_counts()) {
            const Case c{tokens, from, to, target, threads};
            if (!harness.Wants(IsDefault(harness, c))) continue;
            harness.Register(c.Name(),
                             [c, &harness](benchmark::State& state) { RunRow(state, c, harness); });
          }
        }
      }
    }
  }
}

}  // namespace lathe::bench
