// SPDX-License-Identifier: Apache-2.0
// Plan and run of attention over one or two caches, against the reference.
#include "fuzz_input.h"
#include "lathe/ref/attention_ref.h"
#include "row_transform.h"

namespace lathe::fuzz {
namespace {

constexpr int64_t kLongest = 60;  // of a sequence, where nothing is absurd

// Lengths and rows of a batch.
struct Batch {
  std::vector<int64_t> seq_lens, q_lens;
  int64_t num_tokens = 0;

  explicit Batch(Input& in) : seq_lens(static_cast<size_t>(in.Int(0, 3))) {
    for (int64_t& length : seq_lens) {
      length = in.Int(0, kLongest);
      q_lens.push_back(in.Int(0, 3));
      num_tokens += q_lens.back();
    }
  }
  int64_t num_seqs() const { return static_cast<int64_t>(seq_lens.size()); }
};

struct Call {
  MlaShape shape;
  MlaDecodeOptions options;
  MlaDecodeArgs args;
  bool is_comparable = true;  // by the reference, in a time that a fuzzer has
};

KeySet MakeKeys(Input& in, Arrays& arrays, const Batch& batch, CacheFormat format, int64_t width) {
  KeySet keys;
  const int64_t block_size = in.Int(1, 9), ratio = in.Pick<int64_t>({1, 1, 1, 4, 3});
  const int64_t num_blocks = in.Int(1, 12);
  const int64_t columns = (kLongest + block_size - 1) / block_size;
  keys.cache = arrays.FilledCache(format, width, num_blocks, block_size);
  keys.block_table = arrays.Indices<2>({batch.num_seqs(), in.Odd(columns)},
                                       [&] { return in.Int(0, num_blocks - 1); });
  size_t b = 0;
  keys.seq_lens = arrays.Indices<1>(
      {batch.num_seqs()}, [&] { return b < batch.seq_lens.size() ? batch.seq_lens[b++] : 0; });
  keys.compress_ratio = in.Odd(ratio);
  if (in.Chance(4)) keys.window = in.Odd(in.Int(1, 20));
  if (in.Chance(5))
    keys.row_kv_lens =
        arrays.Indices<1>({batch.num_tokens}, [&] { return in.Int(-2, kLongest + 2); });
  if (in.Chance(3)) {
    keys.index_space = in.Flip() ? IndexSpace::kPhysical : IndexSpace::kLogical;
    const int64_t k = in.Int(0, 12);
    keys.indices =
        arrays.Indices<2>({batch.num_tokens, k}, [&] { return in.Int(-3, kLongest + 3); });
    if (in.Flip())
      keys.topk_length = arrays.Indices<1>({batch.num_tokens}, [&] { return in.Int(0, k); });
  }
  if (in.Chance(5) && !(in.is_calm() && keys.has_indices()))
    keys.row_starts =
        arrays.Indices<1>({batch.num_tokens}, [&] { return in.Int(-2, kLongest + 2); });
  // The slots of the cache, of one sequence.
  const bool is_one_sequence =
      batch.num_seqs() == 1 && ratio == 1 && num_blocks * block_size <= kLongest;
  if (in.Chance(3) && (is_one_sequence || !in.is_calm())) keys.block_table = {}, keys.seq_lens = {};
  keys.wraps = in.Absurd(32);
  return keys;
}

// Queries that are a tree: any bits.
void MakeTree(Input& in, Arrays& arrays, int64_t tokens, Call& call) {
  call.args.tree_mask = arrays.Make<View<const uint64_t, 2>, 2>({tokens, 1}, 8, true, {});
  test::Random random = in.Numbers();
  for (std::byte& byte : arrays.last()) byte = static_cast<std::byte>(random.Below(256));
  if (!in.is_calm()) return;
  call.options.causal = true;
  call.args.keys.row_starts = call.args.extra_keys.row_starts = {};
}

// Positions are given where the rules ask for it: rows in front of a sequence, lists of slots.
void MakeOutRope(Input& in, Arrays& arrays, int64_t tokens, int64_t rank, Call& call) {
  MlaDecodeArgs& args = call.args;
  args.out_rope = MakeRope(in, arrays, rank, kLongest + 1);
  bool is_needed = !call.options.causal;
  for (const KeySet* keys : {&args.keys, &args.extra_keys}) {
    is_needed = is_needed || keys->has_indices() || !keys->row_kv_lens.empty();
  }
  if (in.Flip() || (is_needed && in.is_calm()))
    args.positions = arrays.Indices<1>({tokens}, [&] { return in.Int(0, kLongest); });
}

Call MakeCall(Input& in, Arrays& arrays) {
  Call call;
  const Batch batch(in);
  CacheFormat formats[2];
  int64_t rank = in.Pick<int64_t>({16, 64, 40, 7}), rope = in.Pick<int64_t>({0, 16, 5});
  for (CacheFormat& format : formats) {
    format = in.Pick({CacheFormat::kLatentFloat32, CacheFormat::kLatentBFloat16,
                      CacheFormat::kLatentFloat16, CacheFormat::kLatentFp8E4m3,
                      CacheFormat::kLatentFp8E5m2, CacheFormat::kFp8DsMla, CacheFormat::kFp8Ds4});
  }
  for (const CacheFormat format : formats) {
    if (FixedWidth(format) == 0) continue;
    rank = 512;
    rope = FixedWidth(format) - rank;
  }
  for (CacheFormat& format : formats) {
    if (FixedWidth(format) != 0 && FixedWidth(format) != rank + rope)
      format = CacheFormat::kLatentBFloat16;
  }
  const int64_t heads = in.Int(1, 5), tokens = batch.num_tokens;
  call.shape.num_heads = in.Odd(heads);
  call.shape.kv_lora_rank = in.Odd(rank);
  call.shape.qk_rope_head_dim = in.Odd(rope);
  call.options.softmax_scale = in.Absurd(64) ? in.Pick({0.0f, -1.0f, NAN, INFINITY}) : 0.125f;
  call.options.causal = !in.Chance(4);
  call.options.lse_policy.base2 = in.Flip();
  call.options.target = in.Absurd(64) ? static_cast<Target>(in.Int(0, 255)) : TargetOf(in);
  call.options.check_indices = !in.Chance(8) || !in.is_calm();
  MlaDecodeArgs& args = call.args;
  const DType q_type = DTypeOf(in);
  if (in.Flip()) {
    args.q = arrays.FloatInput<3>({tokens, heads, rank + rope}, q_type);
  } else {
    args.q_nope = arrays.FloatInput<3>({tokens, heads, rank}, q_type);
    if (rope > 0) args.q_pe = arrays.FloatInput<3>({tokens, heads, rope}, DTypeOf(in));
  }
  int64_t next = 0;
  size_t b = 0;
  args.query_start_loc = arrays.Indices<1>({batch.num_seqs() + 1}, [&] {
    const int64_t start = next;
    if (b < batch.q_lens.size()) next += batch.q_lens[b++];
    return start;
  });
  args.keys = MakeKeys(in, arrays, batch, formats[0], rank + rope);
  if (in.Chance(3)) args.extra_keys = MakeKeys(in, arrays, batch, formats[1], rank + rope);
  if (in.Chance(3)) args.attn_sink = arrays.Float32<1>({heads});
  args.out = arrays.Floats<3>({tokens, heads, rank}, DTypeOf(in));
  if (in.Flip()) args.lse = arrays.Float32<2>({tokens, heads});
  if (in.Chance(4)) MakeTree(in, arrays, tokens, call);
  if (in.Chance(4) && rank > 1) MakeOutRope(in, arrays, tokens, rank, call);
  for (const KeySet* keys : {&args.keys, &args.extra_keys}) {
    for (int64_t i = 0; arrays.fit() && !keys->seq_lens.empty() && i < keys->seq_lens.extent[0];
         ++i) {
      if (keys->seq_lens.stride[0] != 1) call.is_comparable = false;
      if (call.is_comparable && keys->seq_lens(i) > 4 * kLongest) call.is_comparable = false;
    }
  }
  return call;
}

void Compare(const Call& call) {
  const MlaDecodeArgs& args = call.args;
  const ref::AttentionResult expected = ref::MlaDecode(call.shape, call.options, args);
  const int64_t heads = call.shape.num_heads, width = call.shape.kv_lora_rank;
  for (int64_t row = 0; row < args.out.extent[0] * heads; ++row) {
    double largest = 0;
    for (int64_t c = 0; c < width; ++c)
      largest = std::fmax(largest, std::abs(expected.out[static_cast<size_t>(row * width + c)]));
    for (int64_t c = 0; c < width; ++c) {
      RequireNear(ref::At(ReadOnly(args.out), row / heads, row % heads, c),
                  expected.out[static_cast<size_t>(row * width + c)], largest, args.out.dtype);
    }
    if (args.lse.empty()) continue;
    const double lse = expected.lse[static_cast<size_t>(row)];
    const float got =
        args.lse.data[row / heads * args.lse.stride[0] + row % heads * args.lse.stride[1]];
    RequireNear(static_cast<double>(got), call.options.lse_policy.base2 ? lse / std::log(2.0) : lse,
                1.0, DType::kFloat32);
  }
}

}  // namespace
}  // namespace lathe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  fuzz::Input in(data, size);
  in.DecideMood();
  fuzz::Arrays arrays(in);
  fuzz::Call call = fuzz::MakeCall(in, arrays);
  if (!arrays.fit()) return 0;
  alignas(64) static std::byte plan_memory[1 << 20];
  const MlaDecodePlan* plan = nullptr;
  const auto workers = static_cast<size_t>(in.Odd(in.Int(1, 4)));
  const Status planned = PlanMlaDecode(call.shape, call.options, call.args, workers,
                                       {plan_memory, sizeof(plan_memory)}, &plan);
  if (!planned.ok()) {
    LATHE_FUZZ_REQUIRE(!in.is_calm(), "%s", Format(planned).c_str());
    return 0;
  }
  const auto bytes = static_cast<int64_t>(PlanWorkspaceBytes(*plan));
  if (bytes > (1 << 22)) return 0;
  const Buffer workspace{arrays.Take(bytes), static_cast<size_t>(bytes)};
  if (!fuzz::RunAccepted(in, arrays, [&] { return RunMlaDecode(*plan, call.args, workspace); }))
    return 0;
  if (call.is_comparable) fuzz::Compare(call);
  fuzz::RunInParts(
      arrays, workers,
      [&](size_t ith) { return RunMlaDecodePart(*plan, call.args, workspace, ith, workers); },
      [&](size_t ith) { return RunMlaDecodeMerge(*plan, call.args, workspace, ith, workers); });
  return 0;
}
