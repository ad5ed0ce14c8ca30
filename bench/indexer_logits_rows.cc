// SPDX-License-Identifier: Apache-2.0
// IndexerLogits/rows:R/keys:S/heads:H/format:F/target:T/threads:N
//
// R query tokens of one sequence, 128 wide, against its S keys in pages of 64, shuffled; all rows see all
// keys but the causal few. Queries are bfloat16, or of the type of float caches.
//
//   GFLOP/s           2 * R * S * H * 128 / time
//   of_flop_ceiling   GFLOP/s against the register-only loop over the target's own multiplication
//   ns/cell           of a logit
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/layered_cache.h"
#include "bench/measure.h"
#include "bench/tensor.h"
#include "lathe/indexer.h"
#include "lathe/indexer_logits.h"
#include "lathe/ref/indexer_ref.h"

namespace lathe::bench {
namespace {

constexpr int64_t kWidth = 128;

struct Case {
  int64_t rows, keys, heads;
  NamedFormat format;
  TargetInfo target;
  size_t threads;

  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name),
                  "IndexerLogits/rows:%d/keys:%d/heads:%d/format:%s/target:%s/threads:%d",
                  static_cast<int>(rows), static_cast<int>(keys), static_cast<int>(heads),
                  format.name, target.name, static_cast<int>(threads));
    return name;
  }
};

// Keys of one sequence, written by lathe itself.
class Keys {
 public:
  Keys(const Case& c, Harness& harness)
      : num_keys_(c.keys), block_table_(static_cast<size_t>(c.keys / kBlockSize)) {
    std::iota(block_table_.begin(), block_table_.end(), 0);
    Random random(8);
    random.Shuffle(block_table_);
    const int64_t record = RecordBytes(c.format.format, kWidth);
    const int64_t page = kBlockSize * (record + SideBytes(c.format.format));
    memory_ = HugeBuffer(static_cast<size_t>(c.keys / kBlockSize * page));
    cache_ = {memory_.data(), c.format.format, c.keys / kBlockSize, kBlockSize, page, record};

    Tensor<2> k(DType::kFloat32, {c.keys, kWidth});
    k.Fill(Random(9));
    std::vector<int64_t> slots(static_cast<size_t>(c.keys));
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      slots[i] = block_table_[i / kBlockSize] * kBlockSize + at % kBlockSize;
    }
    IndexerWriteArgs args;
    args.k = Input(k.View());
    args.slot_mapping = Packed(static_cast<const int64_t*>(slots.data()), slots.size());
    args.cache = cache_;
    Require(WriteIndexerCache(args, {}, harness.team(c.threads).executor()));
  }
  void AddTo(IndexerInputs* inputs) {
    seq_len_ = static_cast<int32_t>(num_keys_);
    inputs->cache = cache_;
    inputs->seq_lens = Packed(static_cast<const int32_t*>(&seq_len_), 1);
    inputs->block_table =
        Packed(static_cast<const int32_t*>(block_table_.data()), 1, block_table_.size());
  }

 private:
  int64_t num_keys_;
  int32_t seq_len_ = 0;
  std::vector<int32_t> block_table_;
  HugeBuffer memory_;
  MutablePagedCache cache_;
};

// Every few hundredth cell of the last row.
void Check(const IndexerLogitsArgs& args) {
  const IndexerInputs& in = args.inputs;
  const int64_t row = args.logits.extent[0] - 1, keys = args.logits.extent[1];
  const ref::IndexerRow query = ref::IndexerRowAt(in, row);
  double product = 0.0, squares = 0.0;
  for (int64_t key = 0; key < keys; key += keys / 64 + 1) {
    const double expected = ref::IndexerLogit(
        query,
        ref::DecodeRow(in.cache, in.block_table(0, key / kBlockSize), key % kBlockSize, kWidth));
    const auto got = static_cast<double>(args.logits.data[row * args.logits.stride[0] + key]);
    product += expected * got;
    squares += expected * expected + got * got;
  }
  if (!(1.0 - 2.0 * product / squares <= 5e-6)) {
    throw RowError("logits are off the reference by " +
                   std::to_string(1.0 - 2.0 * product / squares));
  }
}

void RunRow(benchmark::State& state, const Case& c, Harness& harness) {
  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  Keys keys(c, harness);
  Tensor<3> q(c.format.activations, {c.rows, c.heads, kWidth});
  Tensor<2> weights(DType::kFloat32, {c.rows, c.heads});
  Tensor<2> logits(DType::kFloat32, {c.rows, c.keys});
  q.Fill(Random(10));
  weights.Fill(Random(11));
  const int32_t starts[2] = {0, static_cast<int32_t>(c.rows)};

  IndexerLogitsArgs args;
  args.inputs.q = Input(q.View());
  args.inputs.weights =
      Packed(reinterpret_cast<const float*>(weights.View().data), c.rows, c.heads);
  args.inputs.query_start_loc = Packed(starts, 2);
  keys.AddTo(&args.inputs);
  args.logits = Packed(reinterpret_cast<float*>(logits.View().data), c.rows, c.keys);
  IndexerLogitsOptions options;
  options.target = c.target.target;
  size_t bytes = 0;
  Require(IndexerLogitsWorkspaceBytes(c.heads, kWidth, c.rows, c.threads, options, &bytes));
  const HugeBuffer workspace(bytes);
  const auto run = [&] {
    Require(ComputeIndexerLogits(args, {workspace.data(), bytes}, options, executor));
  };
  run();
  Check(args);

  const double cells = static_cast<double>(c.rows * c.keys - c.rows * (c.rows - 1) / 2);
  const double flops = 2.0 * cells * static_cast<double>(c.heads * kWidth);
  const bool is_bf16 = BFloat16UnscaledRowsOf(c.format.format) == BFloat16Rows::kExact;
  const FlopLoop& loop = FlopLoopOf(c.target, is_bf16);
  const double seconds = Measure(state, team, run,
                                 {{"of_flop_ceiling", "flop_ceiling_GFLOP/s", flops,
                                   [&] { return FlopsPerSecond(team, loop); }}});
  state.counters["GFLOP/s"] = flops / seconds * 1e-9;
  state.counters["ns/cell"] = seconds / cells * 1e9;
}

}  // namespace

void RegisterIndexerLogits(Harness& harness) {
  std::vector<NamedFormat> formats(std::begin(kFormats), std::end(kFormats));
  for (const NamedFormat& format : kQuantizedFormats) {
    if (FixedWidth(format.format) == kWidth) formats.push_back(format);
  }
  for (const int64_t rows : {1, 2, 64}) {
    for (const int64_t keys : {16384, 65536, 131072}) {
      for (const int64_t heads : {4, 16, 32, 64}) {
        for (const NamedFormat& format : formats) {
          for (const TargetInfo& target : harness.targets()) {
            for (const size_t threads : harness.thread_counts()) {
              const Case c{rows, keys, heads, format, target, threads};
              const bool is_typical = heads == 64 && keys != 131072;
              const bool is_shown = format.format == CacheFormat::kIndexerFp8 ||
                                    (format.format == kBFloat16Format.format && rows != 2);
              const bool by_default =
                  is_typical && is_shown && harness.IsBest(target) && harness.IsOneOrAll(threads);
              if (!harness.Wants(by_default)) continue;
              harness.Register(
                  c.Name(), [c, &harness](benchmark::State& state) { RunRow(state, c, harness); });
            }
          }
        }
      }
    }
  }
}

}  // namespace lathe::bench
