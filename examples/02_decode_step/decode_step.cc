// SPDX-License-Identifier: Apache-2.0
// One decode step of DeepSeek-V3 attention on real tensors: write the latents of 333 tokens into a paged
// bfloat16 cache through a slot mapping, decode some of its tokens with a plan and buffers of our own, project
// with W_UV and compare with what an independent implementation computed (tests/golden/mla_v3).
//
// Output (AVX3_ZEN4; the first error is bfloat16's, of cache, query and weights):
//   target avx3_zen4, 10 query rows, 333 keys in 21 pages of 16
//   bfloat16 cache: max |out - golden| = 1.1e-02, max |lse - golden| = 1.0e-02 (good: below 2e-2)
//   float32 cache:  max |out - golden| = 3.4e-06 (good: below 2e-5), max |lse - golden| = 2.4e-06 (1e-5)
#include <lathe/lathe.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "examples/support/mla_v3.h"
#include "examples/support/paged.h"

namespace {

using example::Check;
using Golden = example::MlaV3;

struct Errors {
  double out = 0.0;
  double lse = 0.0;
};

// out[row, head, v] = sum_c latent[row, head, c] * w_uv[head, v, c], against the golden output.
Errors Compare(const Golden& golden, const std::vector<float>& latent,
               const std::vector<float>& lse) {
  const auto heads = static_cast<size_t>(golden.w_uv.shape[0]);
  const auto v_dim = static_cast<size_t>(golden.w_uv.shape[1]);
  const auto rank = static_cast<size_t>(golden.w_uv.shape[2]);
  Errors errors;
  for (size_t row = 0; row < lse.size(); ++row) {
    errors.lse = std::max(errors.lse, std::abs(double{lse[row]} - golden.lse.values[row]));
    for (size_t v = 0; v < v_dim; ++v) {
      double sum = 0.0;
      for (size_t c = 0; c < rank; ++c) {
        sum += double{latent[row * rank + c]} *
               golden.w_uv.values[(row % heads * v_dim + v) * rank + c];
      }
      errors.out = std::max(errors.out, std::abs(sum - golden.out.values[row * v_dim + v]));
    }
  }
  return errors;
}

// The whole step with a cache and queries of type T.
template <class T>
Errors DecodeStep(const Golden& golden, float scale) {
  constexpr int64_t kBlockSize = 16;
  const int64_t num_tokens = golden.kv_c.shape[0];
  const int64_t num_rows = golden.q.shape[0];
  const lathe::MlaShape shape{golden.q.shape[1], golden.kv_c.shape[1], golden.k_pe.shape[1]};
  const int64_t width = shape.head_dim();

  // Pages of the one sequence lie anywhere; each token goes to block * block_size + offset.
  const int64_t num_blocks = (num_tokens + kBlockSize - 1) / kBlockSize;
  std::vector<int32_t> pages(static_cast<size_t>(num_blocks));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(7));
  std::vector<int64_t> slot_mapping;
  for (int64_t i = 0; i < num_tokens; ++i) {
    slot_mapping.push_back(int64_t{pages[static_cast<size_t>(i / kBlockSize)]} * kBlockSize +
                           i % kBlockSize);
  }
  std::vector<T> cache(static_cast<size_t>(num_blocks * kBlockSize * width));
  lathe::LatentWriteArgs write;
  write.kv_c = lathe::Packed(golden.kv_c.values.data(), num_tokens, shape.kv_lora_rank);
  write.k_pe = lathe::Packed(golden.k_pe.values.data(), num_tokens, shape.qk_rope_head_dim);
  write.slot_mapping = lathe::Packed(slot_mapping.data(), num_tokens);
  write.cache = lathe::LatentPages(cache.data(), num_blocks, kBlockSize, width);
  Check(lathe::WriteLatentCache(write));

  // The kept query rows are tokens of the sequence at positions rows[i]: row i sees rows[i] + 1 keys.
  std::vector<T> q(golden.q.values.size());
  std::transform(golden.q.values.begin(), golden.q.values.end(), q.begin(),
                 [](float x) { return lathe::FromFloat<T>(x); });
  std::vector<int32_t> row_kv_lens(golden.rows.values);
  for (int32_t& length : row_kv_lens) ++length;
  const auto rows = static_cast<int32_t>(num_rows);
  const std::vector<int32_t> query_start_loc = {0, rows},
                             seq_lens = {static_cast<int32_t>(num_tokens)};
  std::vector<float> latent(static_cast<size_t>(num_rows * shape.num_heads * shape.kv_lora_rank));
  std::vector<float> lse(static_cast<size_t>(num_rows * shape.num_heads));

  lathe::MlaDecodeOptions options;
  options.softmax_scale = scale;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(static_cast<const T*>(q.data()), num_rows, shape.num_heads, width);
  args.query_start_loc = lathe::Packed(query_start_loc.data(), 2);
  args.keys.cache = write.cache;
  args.keys.block_table = lathe::Packed(pages.data(), 1, num_blocks);
  args.keys.seq_lens = lathe::Packed(seq_lens.data(), 1);
  args.keys.row_kv_lens = lathe::Packed(row_kv_lens.data(), num_rows);
  args.out = lathe::Packed(latent.data(), num_rows, shape.num_heads, shape.kv_lora_rank);
  args.lse = lathe::Packed(lse.data(), num_rows, shape.num_heads);

  // Buffers once, at start-up; a plan once per step; a run per layer.
  lathe::Sizes sizes;
  Check(lathe::MlaDecodeSizes(shape, options, {1, num_rows, num_tokens, 1}, &sizes));
  std::vector<std::byte> plan_memory(sizes.plan_bytes), workspace(sizes.workspace_bytes);
  const lathe::MlaDecodePlan* plan = nullptr;
  Check(lathe::PlanMlaDecode(shape, options, args, 1, {plan_memory.data(), plan_memory.size()},
                             &plan));
  Check(lathe::RunMlaDecode(*plan, args, {workspace.data(), workspace.size()}));
  return Compare(golden, latent, lse);
}

}  // namespace

int main() {
  const Golden golden = example::ReadMlaV3();
  const float scale = 0.07216878364870322f;  // 192^-0.5
  std::printf("target %s, %d query rows, %d keys in pages of 16\n",
              lathe::Name(lathe::BestTarget()), static_cast<int>(golden.q.shape[0]),
              static_cast<int>(golden.kv_c.shape[0]));
  const Errors bf16 = DecodeStep<lathe::bfloat16>(golden, scale);
  std::printf(
      "bfloat16 cache: max |out - golden| = %.1e, max |lse - golden| = %.1e (good: below 2e-2)\n",
      bf16.out, bf16.lse);
  const Errors f32 = DecodeStep<float>(golden, scale);
  std::printf(
      "float32 cache:  max |out - golden| = %.1e (good: below 2e-5), max |lse - golden| = %.1e "
      "(1e-5)\n",
      f32.out, f32.lse);
  const bool is_right = bf16.out < 2e-2 && bf16.lse < 2e-2 && f32.out < 2e-5 && f32.lse < 1e-5;
  if (!is_right) std::fprintf(stderr, "the errors are too large\n");
  return is_right ? 0 : 1;
}
