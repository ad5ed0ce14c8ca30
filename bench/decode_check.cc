// SPDX-License-Identifier: Apache-2.0
#include "bench/decode_check.h"

#include <cmath>
#include <string>

#include "bench/harness.h"

namespace lathe::bench {
namespace {

// Where there is but one head, it is the last.
int64_t FirstChecked(int64_t heads) { return heads == 1 ? kCheckedHeads - 1 : 0; }
int64_t HeadOf(int64_t heads, int64_t i) { return i == 0 ? 0 : heads - 1; }

Random CheckedQuery(int64_t i) { return Random(1000, static_cast<uint64_t>(i)); }

template <size_t R>
IndexView<R> LastRow(IndexView<R> v) {
  if (v.empty()) return v;
  const int64_t bytes = v.is_int64 ? sizeof(int64_t) : sizeof(int32_t);
  v.data = static_cast<const std::byte*>(v.data) + (v.extent[0] - 1) * v.stride[0] * bytes;
  v.extent[0] = 1;
  return v;
}

KeySet KeysOfLastRow(KeySet keys) {
  keys.block_table = LastRow(keys.block_table);
  keys.seq_lens = LastRow(keys.seq_lens);
  keys.row_kv_lens = LastRow(keys.row_kv_lens);
  keys.indices = LastRow(keys.indices);
  keys.topk_length = LastRow(keys.topk_length);
  return keys;
}

}  // namespace

Tensor<3> MakeQuery(const DecodeCall& call) {
  const int64_t heads = call.shape.num_heads, d = call.shape.head_dim();
  Tensor<3> q(call.activations, {call.tokens(), heads, d});
  q.Fill(Random(3));
  for (int64_t i = FirstChecked(heads); i < kCheckedHeads; ++i) {
    const int64_t row = (call.tokens() - 1) * heads + HeadOf(heads, i);
    q.Fill(CheckedQuery(i), row * d, (row + 1) * d);
  }
  return q;
}

ref::AttentionResult CheckedReference(const DecodeCall& call, MlaDecodeArgs args) {
  MlaShape shape = call.shape;
  shape.num_heads = kCheckedHeads;
  const int64_t d = shape.head_dim();
  Tensor<3> q(call.activations, {1, kCheckedHeads, d});
  for (int64_t i = 0; i < kCheckedHeads; ++i) q.Fill(CheckedQuery(i), i * d, (i + 1) * d);
  args.q = Input(q.View());
  args.query_start_loc = {};
  args.keys = KeysOfLastRow(args.keys);
  args.extra_keys = KeysOfLastRow(args.extra_keys);
  args.positions = LastRow(args.positions);
  args.attn_sink.stride[0] *= call.shape.num_heads - 1;
  args.out = {};
  args.out.extent[0] = 1;
  return ref::MlaDecode(shape, call.options, args);
}

Results::Results(const DecodeCall& call)
    : tokens_(call.tokens()),
      heads_(call.shape.num_heads),
      out_(call.activations, {tokens_, heads_, call.shape.kv_lora_rank}),
      lse_(DType::kFloat32, {tokens_, heads_}),
      tolerance_(call.activations == DType::kBFloat16 ? 1e-2 : 1e-3) {}

void Results::AddTo(MlaDecodeArgs* args) const {
  args->out = out_.View();
  args->lse = Packed(reinterpret_cast<float*>(lse_.View().data), tokens_, heads_);
}

void Results::Check(const ref::AttentionResult& reference) const {
  const int64_t v_dim = out_.View().extent[2];
  MlaDecodeArgs args;
  AddTo(&args);
  double error = 0.0, size = 0.0;
  for (int64_t i = FirstChecked(heads_); i < kCheckedHeads; ++i) {
    for (int64_t column = 0; column < v_dim; ++column) {
      const double expected = reference.out[static_cast<size_t>(i * v_dim + column)];
      const double got = ref::At(Input(args.out), tokens_ - 1, HeadOf(heads_, i), column);
      error += (got - expected) * (got - expected);
      size += expected * expected;
    }
    const double lse =
        static_cast<double>(args.lse.data[(tokens_ - 1) * heads_ + HeadOf(heads_, i)]);
    const double expected_lse = reference.lse[static_cast<size_t>(i)];
    if (!(std::fabs(lse - expected_lse) < 1e-3)) {
      throw RowError("lse is " + std::to_string(lse) + ", the reference " +
                     std::to_string(expected_lse));
    }
  }
  const double relative = std::sqrt(error / size);
  if (!(relative < tolerance_)) {
    throw RowError("out is off the reference by " + std::to_string(relative * 100) + " %");
  }
}

}  // namespace lathe::bench
