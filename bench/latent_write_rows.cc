// SPDX-License-Identifier: Apache-2.0
// LatentWrite/tokens:N/from:F/to:G/target:T/threads:N
//
// N tokens of type F into a paged cache of format G, of its width or 576: up to 256 tokens as a
// decode step writes them (each in a page of its own), more as prefill does (pages one after the
// other, in shuffled order).
//
//   GB/s, of_memcpy   copy_bound.h
//   tokens/s
#include <algorithm>
#include <cmath>
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

// Whether a format may hold `value` after x was written to it; the tests are there for the codes.
bool IsRounded(CacheFormat format, double x, double value, double amax) {
  bool is_right = std::abs(value - x) <= amax / 3;  // e2m1 rounds 5 to 4
  VisitFormat(format, [&](auto tag) {
    using Element = typename decltype(tag)::Type::Element;
    if constexpr (!std::is_void_v<Element>) {
      is_right = value == static_cast<double>(ToFloat(FromFloat<Element>(static_cast<float>(x))));
    }
  });
  return is_right;
}

void Check(const Out<3>& source, const std::vector<int64_t>& slots, const PagedCache& cache) {
  const auto tokens = static_cast<int64_t>(slots.size());
  const int64_t width = source.extent[2];
  for (int64_t i = 0; i < tokens; i += std::max<int64_t>(1, tokens / 100)) {
    const int64_t slot = slots[static_cast<size_t>(i)];
    const auto row = ref::DecodeRow(cache, slot / kBlockSize, slot % kBlockSize, width);
    double amax = 0.0;
    for (const double value : row) amax = std::max(amax, std::abs(value));
    for (int64_t column = 0; column < width; ++column) {
      const double x = ref::At(Input(source), i, 0, column);
      if (!IsRounded(cache.format, x, row[static_cast<size_t>(column)], amax)) {
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
  const int64_t width = WidthOf(c.to.format), rank = std::min(width, kKvLoraRank);
  Tensor<3> source(c.from.activations, {c.tokens, 1, width});
  source.Fill(Random(5));
  const std::vector<int64_t> slots = Slots(c.tokens);
  const int64_t num_blocks = *std::max_element(slots.begin(), slots.end()) / kBlockSize + 1;
  const int64_t record = RecordBytes(c.to.format, width);
  const int64_t token_bytes = record + SideBytes(c.to.format);
  HugeBuffer cache(static_cast<size_t>(num_blocks * kBlockSize * token_bytes));

  LatentWriteArgs args;
  args.kv_c = Part(source.View(), 0, rank);
  if (width > rank) args.k_pe = Part(source.View(), rank, width);
  args.slot_mapping = Packed(slots.data(), slots.size());
  args.cache = {cache.data(), c.to.format, num_blocks, kBlockSize, kBlockSize * token_bytes,
                record};
  LatentWriteOptions options;
  options.target = c.target.target;

  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  Require(WriteLatentCache(args, options, executor));
  Check(source.View(), slots, args.cache);

  const double bytes =
      static_cast<double>(source.bytes()) + static_cast<double>(c.tokens * token_bytes);
  const double seconds = MeasureCopyBound(
      state, team, [&] { Require(WriteLatentCache(args, options, executor)); }, bytes);
  state.counters["tokens/s"] = static_cast<double>(c.tokens) / seconds;
}

bool IsDefault(const Harness& harness, const Case& c) {
  const auto is_shown = [](const NamedFormat& f) {
    return f.format != CacheFormat::kLatentFloat16 && f.format != CacheFormat::kLatentFloat32;
  };
  return harness.IsBest(c.target) && harness.IsShown(c.threads) && is_shown(c.to) &&
         (is_shown(c.from) ||
          (c.from.format == CacheFormat::kLatentFloat32 && c.to.format == kBFloat16Format.format));
}

void RegisterCases(Harness& harness, int64_t tokens, const NamedFormat& from,
                   const NamedFormat& to) {
  for (const TargetInfo& target : harness.targets()) {
    for (const size_t threads : harness.thread_counts()) {
      const Case c{tokens, from, to, target, threads};
      if (!harness.Wants(IsDefault(harness, c))) continue;
      harness.Register(c.Name(),
                       [c, &harness](benchmark::State& state) { RunRow(state, c, harness); });
    }
  }
}

}  // namespace

void RegisterLatentWrite(Harness& harness) {
  for (const int64_t tokens : {32, 8192}) {
    for (const NamedFormat& from : kFormats) {
      for (const NamedFormat& to : kFormats) RegisterCases(harness, tokens, from, to);
      for (const NamedFormat& to : RecordFormats()) RegisterCases(harness, tokens, from, to);
    }
  }
}

}  // namespace lathe::bench
