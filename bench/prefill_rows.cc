// SPDX-License-Identifier: Apache-2.0
// Prefill/way:W/tokens:T/context:C/heads:H/format:F/target:T/threads:N
//
// A prompt of T tokens behind C cached ones, one sequence, in either way of DeepSeek-V3:
//
//   projected   RunPrefill over keys of 192 and values of 128 columns for each head, of all C + T tokens
//   absorbed    RunMlaDecode with T queries of 576 columns on the paged cache, values of 512
//
// The caller's matrix products are left out of time and rates: from latents to keys and values (C + T tokens), or of
// queries with W_UK and results with W_UV (T tokens). projection_GFLOP is their size.
//
//   GFLOP/s           2 * H * (D + Dv) for each pair of a query and a key that it sees / time
//   of_flop_ceiling   that against the register-only loop over the target's own multiplication
//   tokens/s          T / time, for one layer
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/layered_cache.h"
#include "bench/measure.h"
#include "bench/tensor.h"
#include "lathe/prefill.h"
#include "lathe/ref/attention_ref.h"

namespace lathe::bench {
namespace {

constexpr int64_t kNopeDim = 128, kQkDim = kNopeDim + kRopeDim, kVDim = 128;

struct Case {
  bool is_absorbed;
  int64_t tokens, context, heads;
  NamedFormat format;
  TargetInfo target;
  size_t threads;

  int64_t keys() const { return context + tokens; }
  int64_t head_dim() const { return is_absorbed ? kHeadDim : kQkDim; }
  int64_t v_dim() const { return is_absorbed ? kKvLoraRank : kVDim; }
  double flops() const {
    const auto pairs = static_cast<double>(tokens * context + tokens * (tokens + 1) / 2);
    return 2.0 * pairs * static_cast<double>(heads * (head_dim() + v_dim()));
  }
  double projection_flops() const {
    const int64_t rows = is_absorbed ? tokens : keys();
    return 2.0 * static_cast<double>(rows * heads * kKvLoraRank * (kNopeDim + kVDim));
  }
  int64_t bytes() const {
    const int64_t per_key = is_absorbed ? kHeadDim : heads * (kQkDim + kVDim);
    return (keys() * per_key + tokens * heads * (head_dim() + v_dim())) *
           static_cast<int64_t>(SizeOf(format.activations));
  }
  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name),
                  "Prefill/way:%s/tokens:%d/context:%d/heads:%d/format:%s/target:%s/threads:%d",
                  is_absorbed ? "absorbed" : "projected", static_cast<int>(tokens),
                  static_cast<int>(context), static_cast<int>(heads), format.name, target.name,
                  static_cast<int>(threads));
    return name;
  }
};

// Queries and results of either way, and memory for its plan.
class Call {
 public:
  explicit Call(const Case& c)
      : c_(c),
        q_(c.format.activations, {c.tokens, c.heads, c.head_dim()}),
        out_(c.format.activations, {c.tokens, c.heads, c.v_dim()}) {
    q_.Fill(Random(3));
    starts_[1] = static_cast<int32_t>(c.tokens);
    key_starts_[1] = static_cast<int32_t>(c.keys());
    limits_.max_num_seqs = 1;
    limits_.max_num_tokens = c.tokens;
    limits_.max_num_keys = c.keys();
    limits_.num_workers = c.threads;
  }
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  virtual void Run(const Executor& executor) = 0;

  // The last token's last head, relative to the size of its row.
  void Check() const {
    const std::vector<double> reference = ReferenceOfLastRow();
    double error = 0.0, size = 0.0;
    for (int64_t column = 0; column < c_.v_dim(); ++column) {
      const double expected = reference[static_cast<size_t>(column)];
      const double got = ref::At(Input(out_.View()), c_.tokens - 1, c_.heads - 1, column);
      error += (got - expected) * (got - expected);
      size += expected * expected;
    }
    const double tolerance = c_.format.activations == DType::kBFloat16 ? 1e-2 : 1e-3;
    if (std::sqrt(error / size) < tolerance) return;
    throw RowError("out is off the reference by " + std::to_string(std::sqrt(error / size) * 100) +
                   " %");
  }

 protected:
  virtual std::vector<double> ReferenceOfLastRow() const = 0;

  // Head `head` of rows [begin, ...) of a tensor, alone.
  static In<3> OneHead(In<3> tensor, int64_t begin, int64_t head) {
    tensor.data += (begin * tensor.stride[0] + head * tensor.stride[1]) *
                   static_cast<int64_t>(SizeOf(tensor.dtype));
    tensor.extent[0] -= begin;
    tensor.extent[1] = 1;
    return tensor;
  }
  void Allocate(const Sizes& sizes) {
    plan_memory_ = HugeBuffer(sizes.plan_bytes);
    workspace_ = HugeBuffer(sizes.workspace_bytes);
  }
  Buffer plan_buffer() { return {plan_memory_.data(), plan_memory_.size()}; }
  Buffer workspace() { return {workspace_.data(), workspace_.size()}; }

  Case c_;
  Tensor<3> q_, out_;
  int32_t starts_[2] = {}, key_starts_[2] = {};
  Limits limits_;

 private:
  HugeBuffer plan_memory_, workspace_;
};

class ProjectedCall : public Call {
 public:
  explicit ProjectedCall(const Case& c)
      : Call(c),
        k_(c.format.activations, {c.keys(), c.heads, kQkDim}),
        v_(c.format.activations, {c.keys(), c.heads, kVDim}) {
    k_.Fill(Random(4));
    v_.Fill(Random(5));
    const PrefillShape shape{c.heads, c.heads, kQkDim, kVDim};
    options_.softmax_scale = OptionsOf(c.target.target).softmax_scale;
    options_.target = c.target.target;
    args_.q = Input(q_.View());
    args_.query_start_loc = Packed(static_cast<const int32_t*>(starts_), 2);
    args_.k = Input(k_.View());
    args_.v = Input(v_.View());
    args_.kv_start_loc = Packed(static_cast<const int32_t*>(key_starts_), 2);
    args_.out = out_.View();
    Sizes sizes;
    Require(PrefillSizes(shape, options_, limits_, &sizes));
    Allocate(sizes);
    Require(PlanPrefill(shape, options_, args_, c.threads, plan_buffer(), &plan_));
  }
  void Run(const Executor& executor) override {
    Require(RunPrefill(*plan_, args_, workspace(), executor));
  }

 private:
  std::vector<double> ReferenceOfLastRow() const override {
    PrefillArgs args = args_;
    const int32_t one_query[] = {0, 1};
    args.query_start_loc = Packed(one_query, 2);
    args.q = OneHead(args_.q, c_.tokens - 1, c_.heads - 1);
    args.k = OneHead(args_.k, 0, c_.heads - 1);
    args.v = OneHead(args_.v, 0, c_.heads - 1);
    args.out.extent[0] = args.out.extent[1] = 1;
    return ref::Prefill({1, 1, kQkDim, kVDim}, options_, args).out;
  }

  Tensor<3> k_, v_;
  PrefillOptions options_;
  PrefillArgs args_;
  const PrefillPlan* plan_ = nullptr;
};

class AbsorbedCall : public Call {
 public:
  explicit AbsorbedCall(const Case& c)
      : Call(c),
        num_blocks_((c.keys() + kBlockSize - 1) / kBlockSize),
        cache_(c.format.activations, {num_blocks_, kBlockSize, kHeadDim}),
        block_table_(static_cast<size_t>(num_blocks_)),
        options_(OptionsOf(c.target.target)) {
    cache_.Fill(Random(4));
    std::iota(block_table_.begin(), block_table_.end(), 0);
    const MlaShape shape{c.heads, kKvLoraRank, kRopeDim};
    const Out<3> pages = cache_.View();
    const auto element = static_cast<int64_t>(SizeOf(pages.dtype));
    args_.q = Input(q_.View());
    args_.query_start_loc = Packed(static_cast<const int32_t*>(starts_), 2);
    args_.keys.cache = {pages.data, c.format.format,           num_blocks_,
                        kBlockSize, pages.stride[0] * element, pages.stride[1] * element,
                        1.0f};
    args_.keys.block_table =
        Packed(static_cast<const int32_t*>(block_table_.data()), 1, num_blocks_);
    args_.keys.seq_lens = Packed(static_cast<const int32_t*>(key_starts_ + 1), 1);
    args_.out = out_.View();
    Sizes sizes;
    Require(MlaDecodeSizes(shape, options_, limits_, &sizes));
    Allocate(sizes);
    Require(PlanMlaDecode(shape, options_, args_, c.threads, plan_buffer(), &plan_));
  }
  void Run(const Executor& executor) override {
    Require(RunMlaDecode(*plan_, args_, workspace(), executor));
  }

 private:
  std::vector<double> ReferenceOfLastRow() const override {
    MlaDecodeArgs args = args_;
    args.query_start_loc = {};
    args.q = OneHead(args_.q, c_.tokens - 1, c_.heads - 1);
    args.out.extent[0] = args.out.extent[1] = 1;
    return ref::MlaDecode({1, kKvLoraRank, kRopeDim}, options_, args).out;
  }

  int64_t num_blocks_;
  Tensor<3> cache_;
  std::vector<int32_t> block_table_;
  MlaDecodeOptions options_;
  MlaDecodeArgs args_;
  const MlaDecodePlan* plan_ = nullptr;
};

std::unique_ptr<Call> MakeCall(const Case& c) {
  if (c.is_absorbed) return std::make_unique<AbsorbedCall>(c);
  return std::make_unique<ProjectedCall>(c);
}

void RunRow(benchmark::State& state, const Case& c, Harness& harness) {
  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  const std::unique_ptr<Call> call = MakeCall(c);
  call->Run(executor);
  call->Check();
  const FlopLoop& loop =
      FlopLoopOf(c.target, BFloat16RowsOf(c.format.format) == BFloat16Rows::kExact);
  const double seconds = Measure(state, team, [&] { call->Run(executor); },
                                 {{"of_flop_ceiling", "flop_ceiling_GFLOP/s", c.flops(),
                                   [&] { return FlopsPerSecond(team, loop); }}});
  state.counters["GFLOP/s"] = c.flops() / seconds * 1e-9;
  state.counters["tokens/s"] = static_cast<double>(c.tokens) / seconds;
  state.counters["projection_GFLOP"] = c.projection_flops() * 1e-9;
}

void RegisterCase(Harness& harness, const Case& c) {
  const bool by_default = harness.IsBest(c.target) && harness.IsShown(c.threads) &&
                          c.tokens == 512 && c.heads == 16 &&
                          c.format.format == CacheFormat::kLatentBFloat16;
  if (!harness.Wants(by_default)) return;
  harness.RegisterLarge(c.Name(), c.bytes(),
                        [c, &harness](benchmark::State& state) { RunRow(state, c, harness); });
}

}  // namespace

void RegisterPrefill(Harness& harness) {
  for (const NamedFormat& format : {kBFloat16Format, kFloat32Format}) {
    for (const TargetInfo& target : harness.targets()) {
      for (const size_t threads : harness.thread_counts()) {
        for (const int64_t heads : {16, 128}) {
          for (const int64_t tokens : {128, 512, 2048}) {
            for (const int64_t context : {0, 4096}) {
              for (const bool is_absorbed : {false, true}) {
                RegisterCase(harness,
                             {is_absorbed, tokens, context, heads, format, target, threads});
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace lathe::bench
