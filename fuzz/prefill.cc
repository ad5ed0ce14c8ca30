// SPDX-License-Identifier: Apache-2.0
// Plan and run of prefill, against the reference.
#include "fuzz_input.h"
#include "lathe/ref/attention_ref.h"

namespace lathe::fuzz {
namespace {

// Sums of numbers in [0, most], from 0.
std::vector<int64_t> Starts(Input& in, int64_t count, int64_t most) {
  std::vector<int64_t> starts{0};
  for (int64_t i = 0; i < count; ++i) starts.push_back(starts.back() + in.Int(0, most));
  return starts;
}

IndexView<1> Give(Arrays& arrays, const std::vector<int64_t>& values) {
  size_t i = 0;
  return arrays.Indices<1>({static_cast<int64_t>(values.size())},
                           [&] { return i < values.size() ? values[i++] : 0; });
}

void Compare(const PrefillShape& shape, const PrefillOptions& options, const PrefillArgs& args) {
  const ref::AttentionResult expected = ref::Prefill(shape, options, args);
  const int64_t heads = shape.num_heads, width = shape.v_head_dim;
  for (int64_t row = 0; row < args.out.extent[0] * heads; ++row) {
    for (int64_t c = 0; c < width; ++c) {
      RequireNear(ref::At(ReadOnly(args.out), row / heads, row % heads, c),
                  expected.out[static_cast<size_t>(row * width + c)], 2.0, args.out.dtype);
    }
    if (args.lse.empty()) continue;
    const float got =
        args.lse.data[row / heads * args.lse.stride[0] + row % heads * args.lse.stride[1]];
    RequireNear(static_cast<double>(got), expected.lse[static_cast<size_t>(row)], 1.0,
                DType::kFloat32);
  }
}

}  // namespace
}  // namespace lathe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  fuzz::Input in(data, size);
  in.DecideMood();
  fuzz::Arrays arrays(in);
  const int64_t kv_heads = in.Int(1, 3), heads = kv_heads * in.Int(1, 3);
  const int64_t qk_dim = in.Pick<int64_t>({16, 48, 7}), v_dim = in.Pick<int64_t>({64, 16, 5});
  const int64_t num_seqs = in.Int(0, 3);
  const std::vector<int64_t> rows = fuzz::Starts(in, num_seqs, 5);
  const std::vector<int64_t> keys = fuzz::Starts(in, num_seqs, 70);
  PrefillShape shape;
  shape.num_heads = in.Odd(heads);
  shape.num_kv_heads = in.Odd(kv_heads == heads && in.Flip() ? 0 : kv_heads);
  shape.qk_head_dim = in.Odd(qk_dim);
  shape.v_head_dim = in.Odd(v_dim);
  PrefillOptions options;
  options.softmax_scale = in.Absurd(64) ? in.Pick({0.0f, -1.0f, NAN, INFINITY}) : 0.125f;
  options.causal = in.Flip();
  if (in.Chance(4)) options.window = in.Odd(in.Int(1, 20));
  options.target = in.Absurd(64) ? static_cast<Target>(in.Int(0, 255)) : fuzz::TargetOf(in);
  PrefillArgs args;
  const DType kv_type = fuzz::DTypeOf(in);
  args.q = arrays.FloatInput<3>({rows.back(), heads, qk_dim}, fuzz::DTypeOf(in));
  args.k = arrays.FloatInput<3>({keys.back(), kv_heads, qk_dim}, kv_type);
  args.v = arrays.FloatInput<3>({keys.back(), kv_heads, v_dim}, kv_type);
  args.query_start_loc = fuzz::Give(arrays, rows);
  args.kv_start_loc = fuzz::Give(arrays, keys);
  if (in.Chance(3)) args.attn_sink = arrays.Float32<1>({heads});
  args.out = arrays.Floats<3>({rows.back(), heads, v_dim}, fuzz::DTypeOf(in));
  if (in.Flip()) args.lse = arrays.Float32<2>({rows.back(), heads});
  if (!arrays.fit()) return 0;
  alignas(64) static std::byte plan_memory[1 << 20];
  const PrefillPlan* plan = nullptr;
  const auto workers = static_cast<size_t>(in.Odd(in.Int(1, 4)));
  const Status planned =
      PlanPrefill(shape, options, args, workers, {plan_memory, sizeof(plan_memory)}, &plan);
  if (!planned.ok()) {
    LATHE_FUZZ_REQUIRE(!in.is_calm(), "%s", Format(planned).c_str());
    return 0;
  }
  const auto bytes = static_cast<int64_t>(PlanWorkspaceBytes(*plan));
  if (bytes > (1 << 22)) return 0;
  const Buffer workspace{arrays.Take(bytes), static_cast<size_t>(bytes)};
  if (!fuzz::RunAccepted(in, arrays, [&] { return RunPrefill(*plan, args, workspace); })) return 0;
  fuzz::Compare(shape, options, args);
  fuzz::RunInParts(
      arrays, workers,
      [&](size_t ith) { return RunPrefillPart(*plan, args, workspace, ith, workers); },
      [&](size_t ith) { return RunPrefillMerge(*plan, args, workspace, ith, workers); });
  return 0;
}
