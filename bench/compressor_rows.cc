// SPDX-License-Identifier: Apache-2.0
// Compressor/kind:K/seqs:B/tokens:N/from:F/target:T/threads:N
//
// N tokens of each of B sequences, kv and scores of type F, with RMSNorm and rope; states in rings as short as
// they may be.
//   kind    csa      ratio 4 with overlap, 512 columns to fp8_ds4
//           hca      ratio 128, 512 columns to fp8_ds4
//           indexer  ratio 4 with overlap, 128 columns to indexer_fp8
//   tokens  4096     prefill from position 0
//           1        decode of position 4095, which completes an entry: the step that costs most
//
//   GB/s, of_memcpy   copy_bound.h; of rows of tokens and states that are read, rows and entries written
//   tokens/s
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "bench/copy_bound.h"
#include "bench/harness.h"
#include "bench/tensor.h"
#include "lathe/cache/formats.h"
#include "lathe/compressor.h"
#include "lathe/ref/attention_ref.h"
#include "lathe/ref/compressor_ref.h"

namespace lathe::bench {
namespace {

constexpr int64_t kContext = 4096;
constexpr int64_t kNumPairs = 32;
constexpr int64_t kEntriesOfBlock = 64;

struct Kind {
  const char* name;
  int64_t ratio;
  bool overlap;
  int64_t head_dim;
  CacheFormat format;

  int64_t window() const { return overlap ? 2 * ratio : ratio; }
  int64_t width() const { return overlap ? 2 * head_dim : head_dim; }
};
constexpr Kind kKinds[] = {{"csa", 4, true, 512, CacheFormat::kFp8Ds4},
                           {"hca", 128, false, 512, CacheFormat::kFp8Ds4},
                           {"indexer", 4, true, 128, CacheFormat::kIndexerFp8}};

struct Case {
  Kind kind;
  int64_t seqs, tokens;
  NamedFormat from;
  TargetInfo target;
  size_t threads;

  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name),
                  "Compressor/kind:%s/seqs:%d/tokens:%d/from:%s/target:%s/threads:%d", kind.name,
                  static_cast<int>(seqs), static_cast<int>(tokens), from.name, target.name,
                  static_cast<int>(threads));
    return name;
  }
};

In<2> Rows(const Tensor<2>& tensor, int64_t begin, int64_t end) {
  return Input(tensor.View(begin, end));
}

struct Problem {
  // Of every sequence, the rows of positions [first, kContext) are there.
  explicit Problem(const Case& the_case)
      : c(the_case),
        first(c.tokens > 1 ? 0 : kContext - c.kind.window()),
        kv(c.from.activations, {c.seqs * (kContext - first), c.kind.width()}),
        score(c.from.activations, {c.seqs * (kContext - first), c.kind.width()}),
        ape(DType::kFloat32, {c.kind.ratio, c.kind.width()}),
        weight(DType::kFloat32, {1, c.kind.head_dim}),
        angles(DType::kFloat32, {kContext, 2 * kNumPairs}),
        blocks(kContext / c.kind.ratio / kEntriesOfBlock + 1),
        state(static_cast<size_t>(c.seqs * c.kind.window() * 2 * c.kind.width()) * sizeof(float)),
        cache(static_cast<size_t>(c.seqs * blocks * kEntriesOfBlock * EntryBytes())) {
    kv.Fill(Random(1));
    score.Fill(Random(2));
    ape.Fill(Random(3));
    weight.Fill(Random(4));
    for (int64_t p = 0; p < kContext; ++p) {
      for (int64_t i = 0; i < kNumPairs; ++i) {
        const double angle = static_cast<double>(p) * std::pow(1e4, -static_cast<double>(i) / 32);
        angles.Set(p * 2 * kNumPairs + i, static_cast<float>(std::cos(angle)));
        angles.Set(p * 2 * kNumPairs + kNumPairs + i, static_cast<float>(std::sin(angle)));
      }
    }
    state_table.resize(static_cast<size_t>(c.seqs));
    std::iota(state_table.begin(), state_table.end(), 0);
    table.resize(static_cast<size_t>(c.seqs * blocks));
    std::iota(table.begin(), table.end(), 0);
    Random random(5);
    random.Shuffle(table);
    options.target = c.target.target;
    options.ratio = c.kind.ratio;
    options.overlap = c.kind.overlap;
    options.power_of_two_scales = true;
    Sizes sizes;
    Require(CompressorSizes({c.kind.head_dim}, options, {c.seqs, c.seqs * kContext, 0, c.threads},
                            &sizes));
    workspace.resize(sizes.workspace_bytes);
    const float* apes = reinterpret_cast<const float*>(ape.View().data);
    args.ape = Packed(apes, c.kind.ratio, c.kind.width());
    args.state = LatentPages(reinterpret_cast<float*>(state.data()), c.seqs, c.kind.window(),
                             2 * c.kind.width());
    args.state_block_table = View<const int32_t, 2>(Packed(state_table.data(), c.seqs, 1));
    args.transform.norm.kind = NormKind::kRms;
    args.transform.norm.weight = View<const float, 1>(
        Packed(reinterpret_cast<const float*>(weight.View().data), c.kind.head_dim));
    args.transform.rope.cos = Columns(angles.View(), 0, kNumPairs);
    args.transform.rope.sin = Columns(angles.View(), kNumPairs, 2 * kNumPairs);
    args.cache = {cache.data(),
                  c.kind.format,
                  c.seqs * blocks,
                  kEntriesOfBlock,
                  kEntriesOfBlock * EntryBytes(),
                  RecordBytes(c.kind.format, c.kind.head_dim)};
    args.block_table = View<const int32_t, 2>(Packed(table.data(), c.seqs, blocks));
  }

  int64_t EntryBytes() const {
    return RecordBytes(c.kind.format, c.kind.head_dim) + SideBytes(c.kind.format);
  }

  // Positions [begin, end) of every sequence, whose rows come one after another in calls.
  void Take(int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    positions.clear();
    starts.clear();
    for (int64_t b = 0; b < c.seqs; ++b) {
      starts.push_back(b * count);
      for (int64_t p = begin; p < end; ++p) positions.push_back(p);
    }
    starts.push_back(c.seqs * count);
    args.positions = Packed(static_cast<const int64_t*>(positions.data()), positions.size());
    args.query_start_loc = Packed(static_cast<const int64_t*>(starts.data()), starts.size());
    // Rows of position p of all sequences lie together in decode; there is one sequence in prefill.
    const int64_t row = (begin - first) * c.seqs;
    args.kv = Rows(kv, row, row + c.seqs * count);
    args.score = Rows(score, row, row + c.seqs * count);
  }
  void Run(const Executor& executor) {
    Require(CompressTokens(args, options, {workspace.data(), workspace.size()}, executor));
  }

  // The last entry of the last sequence; the tests are there for the bits.
  void Check() const {
    CompressorArgs whole = args;
    const int64_t seq = c.seqs - 1;
    whole.kv = Rows(kv, 0, kv.View().extent[0]);
    whole.score = Rows(score, 0, score.View().extent[0]);
    for (In<2>* rows : {&whole.kv, &whole.score}) {
      rows->data += seq * rows->stride[0] * static_cast<int64_t>(SizeOf(rows->dtype));
      rows->stride[0] *= c.seqs;
    }
    const auto row = ref::CompressedRow(whole, options, -first, kContext - 1);
    const int64_t entry = kContext / c.kind.ratio - 1;
    const int64_t block = table[static_cast<size_t>(seq * blocks + entry / kEntriesOfBlock)];
    const auto got = ref::DecodeRow(args.cache, block, entry % kEntriesOfBlock, c.kind.head_dim);
    double amax = 0.0;
    for (const double x : row) amax = std::max(amax, std::abs(x));
    for (size_t i = 0; i < row.size(); ++i) {
      if (!(std::abs(got[i] - row[i]) <= std::abs(row[i]) / 15 + amax / 500)) {
        throw RowError("column " + std::to_string(i) + " is " + std::to_string(got[i]) +
                       ", the reference " + std::to_string(row[i]));
      }
    }
  }

  double MovedBytes() const {
    const int64_t row = 2 * c.kind.width();
    const int64_t tokens = c.seqs * c.tokens, entries = std::max(tokens / c.kind.ratio, c.seqs);
    const int64_t from_state = c.tokens > 1 ? 0 : c.seqs * c.kind.window() * 2 * c.kind.head_dim;
    const int64_t saved = c.seqs * std::min(c.tokens, c.kind.window()) * row;
    return static_cast<double>(tokens * row) * static_cast<double>(SizeOf(c.from.activations)) +
           4.0 * static_cast<double>(from_state + saved) +
           static_cast<double>(entries * EntryBytes());
  }

  Case c;
  int64_t first;
  Tensor<2> kv, score, ape, weight, angles;
  int64_t blocks;
  HugeBuffer state, cache;
  std::vector<int32_t> state_table, table;
  std::vector<int64_t> positions, starts;
  std::vector<std::byte> workspace;
  CompressorArgs args;
  CompressorOptions options;
};

void RunRow(benchmark::State& state, const Case& c, Harness& harness) {
  Problem problem(c);
  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  for (int64_t p = problem.first; c.tokens == 1 && p < kContext - 1; ++p) {
    problem.Take(p, p + 1);
    problem.Run(executor);
  }
  problem.Take(kContext - c.tokens, kContext);
  problem.Run(executor);
  problem.Check();
  const double seconds = MeasureCopyBound(
      state, team, [&] { problem.Run(executor); }, problem.MovedBytes());
  state.counters["tokens/s"] = static_cast<double>(c.seqs * c.tokens) / seconds;
}

}  // namespace

void RegisterCompressor(Harness& harness) {
  struct Size {
    int64_t seqs, tokens;
  };
  for (const Kind& kind : kKinds) {
    for (const Size& size : {Size{1, kContext}, Size{1, 1}, Size{64, 1}}) {
      for (const NamedFormat& from : {kBFloat16Format, kFloat32Format}) {
        for (const TargetInfo& target : harness.targets()) {
          for (const size_t threads : harness.thread_counts()) {
            const Case c{kind, size.seqs, size.tokens, from, target, threads};
            if (!harness.Wants(harness.IsBest(target) && harness.IsShown(threads))) continue;
            harness.Register(c.Name(),
                             [c, &harness](benchmark::State& state) { RunRow(state, c, harness); });
          }
        }
      }
    }
  }
}

}  // namespace lathe::bench
