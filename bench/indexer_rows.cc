// SPDX-License-Identifier: Apache-2.0
// IndexerLogits/rows:R/keys:S/heads:H/format:F/target:T/threads:N[/executor:openmp]
// IndexerTopk/k:K/rows:R/keys:S/heads:H/format:F/target:T/threads:N[/executor:openmp]
//
// R query tokens of one sequence, 128 wide, against its S keys in pages of 64, shuffled; all rows see all
// keys but the causal few. Queries are bfloat16, or of the type of float caches. Logits alone, or the K best
// keys of each row without logits; these must be what SelectTopk finds in the logits.
//
//   GFLOP/s           2 * R * S * H * 128 / time
//   of_flop_ceiling   GFLOP/s against the register-only loop over the target's own multiplication
//   of_read_ceiling   each key once, / time, against a streaming read of these very keys, which the last-level
//                     cache holds where they fit
//   of_limit          of the nearer of both ceilings
//   ns/cell           of a logit
//   ms_two_steps      median of IndexerLogits, then SelectTopk
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
#include "lathe/indexer_logits.h"
#include "lathe/indexer_topk.h"
#include "lathe/latent_cache.h"
#include "lathe/ref/indexer_ref.h"
#include "lathe/topk.h"

namespace lathe::bench {
namespace {

constexpr int64_t kWidth = 128;

struct Case {
  int64_t k;  // 0: logits
  int64_t rows, keys, heads;
  NamedFormat format;
  TargetInfo target;
  TeamSpec team;

  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name), "rows:%d/keys:%d/heads:%d/format:%s/target:%s/threads:%d",
                  static_cast<int>(rows), static_cast<int>(keys), static_cast<int>(heads),
                  format.name, target.name, static_cast<int>(team.threads));
    if (k == 0) return std::string("IndexerLogits/") + name + team.suffix();
    return "IndexerTopk/k:" + std::to_string(k) + "/" + name + team.suffix();
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
    LatentWriteArgs args;
    args.kv_c = Input(k.View());
    args.slot_mapping = Packed(static_cast<const int64_t*>(slots.data()), slots.size());
    args.cache = cache_;
    Require(WriteLatentCache(args, {}, harness.team(c.team).executor()));
  }
  ReadProbe MakeReadProbe() const { return {memory_.data(), memory_.size()}; }
  void AddTo(IndexerInputs* inputs) {
    seq_len_ = static_cast<int32_t>(num_keys_);
    inputs->keys.cache = cache_;
    inputs->keys.seq_lens = Packed(static_cast<const int32_t*>(&seq_len_), 1);
    inputs->keys.block_table =
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
    const double expected = ref::IndexerLogit(query, ref::KeyRow(in.keys, 0, key, kWidth));
    const auto got = static_cast<double>(args.logits.data[row * args.logits.stride[0] + key]);
    product += expected * got;
    squares += expected * expected + got * got;
  }
  if (!(1.0 - 2.0 * product / squares <= 5e-6)) {
    throw RowError("logits are off the reference by " +
                   std::to_string(1.0 - 2.0 * product / squares));
  }
}

// Queries and keys of a row, and everything that both ways to run it need.
class Step {
 public:
  Step(const Case& c, Harness& harness)
      : case_(c),
        executor_(harness.team(c.team).executor()),
        keys_(c, harness),
        q_(c.format.activations, {c.rows, c.heads, kWidth}),
        weights_(DType::kFloat32, {c.rows, c.heads}),
        cells_(DType::kFloat32, {c.rows, c.keys}) {
    q_.Fill(Random(10));
    weights_.Fill(Random(11));
    starts_[1] = static_cast<int32_t>(c.rows);
    logits_.inputs.q = Input(q_.View());
    logits_.inputs.weights =
        Packed(reinterpret_cast<const float*>(weights_.View().data), c.rows, c.heads);
    logits_.inputs.query_start_loc = Packed(static_cast<const int32_t*>(starts_), 2);
    keys_.AddTo(&logits_.inputs);
    logits_.logits = Packed(reinterpret_cast<float*>(cells_.View().data), c.rows, c.keys);
    logits_options_.target = c.target.target;
    logits_options_.fill = c.k > 0;
    const IndexerShape shape{c.heads, kWidth};
    const Limits limits{1, c.rows, c.keys, c.team.threads};
    Sizes sizes;
    Require(IndexerLogitsSizes(shape, logits_options_, limits, &sizes));
    logits_workspace_ = HugeBuffer(sizes.workspace_bytes);
    if (c.k == 0) return;
    for (std::vector<int32_t>* list : {&lists_, &two_step_lists_}) {
      list->resize(static_cast<size_t>(c.rows * c.k));
    }
    topk_.inputs = logits_.inputs;
    topk_.indices = Packed(lists_.data(), c.rows, c.k);
    topk_options_.k = c.k;
    topk_options_.target = c.target.target;
    Require(IndexerTopkSizes(shape, topk_options_, limits, &sizes));
    topk_workspace_ = HugeBuffer(sizes.workspace_bytes);
    TopkOptions two_step_options;
    two_step_options.k = c.k;
    Require(TopkSizes(two_step_options, limits, &sizes));
    two_step_workspace_ = HugeBuffer(sizes.workspace_bytes);
  }

  void Logits() {
    Require(ComputeIndexerLogits(logits_, logits_options_,
                                 {logits_workspace_.data(), logits_workspace_.size()}, executor_));
  }
  void Fused() {
    Require(SelectIndexerTopk(topk_, topk_options_,
                              {topk_workspace_.data(), topk_workspace_.size()}, executor_));
  }
  void TwoSteps() {
    Logits();
    TopkArgs args;
    args.logits = logits_.logits;
    args.indices = Packed(two_step_lists_.data(), case_.rows, case_.k);
    TopkOptions options;
    options.k = case_.k;
    options.target = case_.target.target;
    Require(SelectTopk(args, options, {two_step_workspace_.data(), two_step_workspace_.size()},
                       executor_));
  }
  const Keys& keys() const { return keys_; }
  void CheckAll() {
    Logits();
    Check(logits_);
    if (case_.k == 0) return;
    Fused();
    TwoSteps();
    if (lists_ != two_step_lists_) throw RowError("the lists are not those of Topk");
  }

 private:
  const Case& case_;
  Executor executor_;
  Keys keys_;
  Tensor<3> q_;
  Tensor<2> weights_, cells_;
  int32_t starts_[2] = {};
  IndexerLogitsArgs logits_;
  IndexerLogitsOptions logits_options_;
  IndexerTopkArgs topk_;
  IndexerTopkOptions topk_options_;
  std::vector<int32_t> lists_, two_step_lists_;
  HugeBuffer logits_workspace_, topk_workspace_, two_step_workspace_;
};

void RunRow(benchmark::State& state, const Case& c, Harness& harness) {
  Team& team = harness.team(c.team);
  Step step(c, harness);
  step.CheckAll();
  const double cells = static_cast<double>(c.rows * c.keys - c.rows * (c.rows - 1) / 2);
  const double flops = 2.0 * cells * static_cast<double>(c.heads * kWidth);
  const bool is_bf16 = BFloat16KeysOf(c.format.format) == BFloat16Rows::kExact;
  const FlopLoop& loop = FlopLoopOf(c.target, is_bf16);
  ReadProbe read = step.keys().MakeReadProbe();
  const auto key_bytes = static_cast<double>(
      c.keys * (RecordBytes(c.format.format, kWidth) + SideBytes(c.format.format)));
  const double seconds = Measure(state, team, [&] { c.k == 0 ? step.Logits() : step.Fused(); },
                                 {{"of_flop_ceiling", "flop_ceiling_GFLOP/s", flops,
                                   [&] { return FlopsPerSecond(team, loop); }},
                                  {"of_read_ceiling", "own_read_ceiling_GB/s", key_bytes,
                                   [&] { return read.BytesPerSecond(team); }}});
  state.counters["GFLOP/s"] = flops / seconds * 1e-9;
  state.counters["ns/cell"] = seconds / cells * 1e9;
  if (c.k == 0 || harness.is_brief()) return;
  std::vector<double> two_steps;
  for (int i = 0; i < 9; ++i) two_steps.push_back(TimeCalls([&] { step.TwoSteps(); }, 1));
  state.counters["ms_two_steps"] = Median(two_steps) * 1e3;
}

}  // namespace

void RegisterIndexer(Harness& harness) {
  std::vector<NamedFormat> formats(std::begin(kFormats), std::end(kFormats));
  for (const NamedFormat& format : RecordFormats()) {
    if (FixedWidth(format.format) == kWidth) formats.push_back(format);
  }
  const auto register_with = [&](int64_t k, int64_t rows, int64_t keys, int64_t heads,
                                 const NamedFormat& format) {
    for (const TargetInfo& target : harness.targets()) {
      for (const TeamSpec& team : harness.team_specs()) {
        const Case c{k, rows, keys, heads, format, target, team};
        const bool is_shown = format.format == CacheFormat::kIndexerFp8 ||
                              (format.format == kBFloat16Format.format && rows != 2 && k == 0);
        const bool by_default = heads == 64 && keys != 131072 && is_shown &&
                                harness.IsBest(target) && harness.IsShown(team);
        if (!harness.Wants(by_default) || (team.is_openmp && rows > 1)) continue;
        harness.Register(c.Name(),
                         [c, &harness](benchmark::State& state) { RunRow(state, c, harness); });
      }
    }
  };
  for (const int64_t k : {0, 512, 1024, 2048}) {
    for (const int64_t rows : {1, 2, 64}) {
      for (const int64_t keys : {16384, 65536, 131072}) {
        for (const int64_t heads : {4, 16, 32, 64}) {
          for (const NamedFormat& format : formats) register_with(k, rows, keys, heads, format);
        }
      }
    }
  }
}

}  // namespace lathe::bench
