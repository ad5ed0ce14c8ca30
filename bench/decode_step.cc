// SPDX-License-Identifier: Apache-2.0
#include "bench/decode_step.h"

#include <utility>

#include "bench/harness.h"
#include "bench/measure.h"
#include "lathe/cache/formats.h"

namespace lathe::bench {

DecodeStep::DecodeStep(const DecodeCall& call, const MlaDecodeArgs& args, Turns point)
    : call_(call),
      point_(std::move(point)),
      q_(MakeQuery(call)),
      query_start_loc_(static_cast<size_t>(call.batch + 1)),
      results_(call),
      args_(args) {
  for (size_t i = 0; i < query_start_loc_.size(); ++i) {
    query_start_loc_[i] = static_cast<int32_t>(static_cast<int64_t>(i) * call.q_len);
  }
  args_.q = Input(q_.View());
  if (call.q_len > 1) {
    args_.query_start_loc =
        Packed(static_cast<const int32_t*>(query_start_loc_.data()), query_start_loc_.size());
  }
  results_.AddTo(&args_);
  Plan();
}

void DecodeStep::Plan() {
  Limits limits;
  limits.max_num_seqs = call_.batch;
  limits.max_num_tokens = call_.tokens();
  for (const KeySet* keys : {&args_.keys, &args_.extra_keys}) {
    if (!keys->is_given()) continue;
    limits.max_num_keys +=
        keys->has_indices() ? keys->indices.extent[1] : keys->seq_lens(0) / keys->compress_ratio;
  }
  limits.num_workers = call_.threads;
  Sizes sizes;
  Require(MlaDecodeSizes(call_.shape, call_.options, limits, &sizes));
  plan_memory_ = HugeBuffer(sizes.plan_bytes);
  workspace_ = HugeBuffer(sizes.workspace_bytes);
  PlanAgain();
}

void DecodeStep::PlanAgain() {
  Require(PlanMlaDecode(call_.shape, call_.options, args_, call_.threads,
                        {plan_memory_.data(), plan_memory_.size()}, &plan_));
}

void DecodeStep::CheckOnly() const {
  const Status status =
      RunMlaDecode(*plan_, args_, {workspace_.data(), PlanWorkspaceBytes(*plan_) - 1});
  if (status.code != StatusCode::kBufferTooSmall) throw RowError("the last check does not refuse");
}

void DecodeStep::Run(int64_t turn, const Executor& executor) {
  point_(turn, &args_);
  const Status status =
      RunMlaDecode(*plan_, args_, {workspace_.data(), workspace_.size()}, executor);
  if (!status.ok()) Require(status);
}

MlaDecodeArgs DecodeStep::Args(int64_t turn, const Results& results) const {
  MlaDecodeArgs args = args_;
  point_(turn, &args);
  results.AddTo(&args);
  return args;
}

const FlopLoop& FlopLoopOf(const TargetInfo& target, CacheFormat format, Precision precision) {
  const BFloat16Rows rows = BFloat16UnscaledRowsOf(format);
  const bool is_bf16 = rows == BFloat16Rows::kExact ||
                       (precision == Precision::kBFloat16 && rows != BFloat16Rows::kNever);
  return FlopLoopOf(target, is_bf16);
}

double MeasureDecode(benchmark::State& state, Team& team, DecodeStep& step, const DecodeWork& work,
                     const FlopLoop& loop, ReadProbe& read) {
  const MlaShape& shape = step.call().shape;
  const double flops = 2.0 * static_cast<double>(work.pairs * shape.num_heads *
                                                 (shape.head_dim() + shape.kv_lora_rank));
  const double bytes = work.key_bytes + step.io_bytes();
  const Executor executor = team.executor();
  const double seconds = Measure(
      state, team, [&] { step.RunNext(executor); },
      {{"of_flop_ceiling", "flop_ceiling_GFLOP/s", flops,
        [&] { return FlopsPerSecond(team, loop); }},
       {"of_read_ceiling", "read_ceiling_GB/s", bytes, [&] { return read.BytesPerSecond(team); }}});
  state.counters["GFLOP/s"] = flops / seconds * 1e-9;
  state.counters["GB/s"] = bytes / seconds * 1e-9;
  state.counters["tokens/s"] = static_cast<double>(step.call().tokens()) / seconds;
  return seconds;
}

}  // namespace lathe::bench
