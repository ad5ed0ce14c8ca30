// SPDX-License-Identifier: Apache-2.0
// One step of DeepSeek-V3.2's sparse attention on real tensors (tests/golden/dsa_v32): keys of the indexer and
// latents into paged caches, the 64 best keys of each query row by its index heads, attention over these alone.
// Compared with what an independent implementation selected and computed.
//
// Output (AVX3_ZEN4; the second line's indexer keys are fp8, its latents bfloat16):
//   target avx3_zen4, 7 query rows, 301 keys, 64 selected
//   float32: selected 100.0 % of the golden keys (good: 100), max |out - golden| = 3.7e-06 (below 2e-5),
//   max |lse - golden| = 1.4e-06 (below 1e-5)
//   fp8:     selected 98.7 % of the golden keys (good: above 95)
#include <lathe/lathe.h>

#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "examples/support/paged.h"
#include "tests/support/npy.h"

namespace {

using example::Attend;
using example::Cache;
using example::Check;
using example::MaxError;
using example::Pages;
using lathe::test::Npy;
using lathe::test::ReadNpy;

struct Golden {
  Npy<float> index_q, index_k, index_w, q, kv_c, k_pe, out, lse;
  Npy<int32_t> rows, topk;
};

Golden ReadGolden() {
  const std::string folder = LATHE_GOLDEN_DIR "/dsa_v32/";
  return {ReadNpy<float>(folder + "index_q.npy"),    ReadNpy<float>(folder + "index_k.npy"),
          ReadNpy<float>(folder + "index_w.npy"),    ReadNpy<float>(folder + "q.npy"),
          ReadNpy<float>(folder + "kv_c.npy"),       ReadNpy<float>(folder + "k_pe.npy"),
          ReadNpy<float>(folder + "out_latent.npy"), ReadNpy<float>(folder + "lse.npy"),
          ReadNpy<int32_t>(folder + "rows.npy"),     ReadNpy<int32_t>(folder + "topk.npy")};
}

struct Step {
  std::vector<int32_t> indices;  // [rows, topk]
  std::vector<float> out, lse;
};

// Writes, selects and attends. Row i is the token at position rows[i], and sees rows[i] + 1 keys.
Step SparseStep(const Golden& golden, lathe::CacheFormat index_format,
                lathe::CacheFormat latent_format) {
  const int64_t num_tokens = golden.kv_c.shape[0], num_rows = golden.q.shape[0];
  const int64_t index_heads = golden.index_q.shape[1], index_width = golden.index_q.shape[2];
  const int64_t topk = golden.topk.shape[1];
  const lathe::MlaShape shape{golden.q.shape[1], golden.kv_c.shape[1], golden.k_pe.shape[1]};
  const Pages pages(num_tokens, 16);
  const Cache index_cache(index_format, index_width, pages);
  const Cache latent_cache(latent_format, shape.head_dim(), pages);

  lathe::LatentWriteArgs write_key;
  write_key.kv_c = lathe::Packed(golden.index_k.values.data(), num_tokens, index_width);
  write_key.slot_mapping = pages.Slots();
  write_key.cache = index_cache.view;
  Check(lathe::WriteLatentCache(write_key));
  lathe::LatentWriteArgs write;
  write.kv_c = lathe::Packed(golden.kv_c.values.data(), num_tokens, shape.kv_lora_rank);
  write.k_pe = lathe::Packed(golden.k_pe.values.data(), num_tokens, shape.qk_rope_head_dim);
  write.slot_mapping = write_key.slot_mapping;
  write.cache = latent_cache.view;
  Check(lathe::WriteLatentCache(write));

  std::vector<int32_t> row_kv_lens(golden.rows.values);
  for (int32_t& length : row_kv_lens) ++length;
  const std::vector<int32_t> query_start_loc = {0, static_cast<int32_t>(num_rows)};
  const std::vector<int32_t> seq_lens = {static_cast<int32_t>(num_tokens)};
  const lathe::IndexView<1> starts = lathe::Packed(query_start_loc.data(), 2);
  const lathe::IndexView<1> lengths = lathe::Packed(seq_lens.data(), 1);
  const lathe::IndexView<2> table = pages.Table();

  // Scores and selection in one: there is never a logit for every key at once.
  Step step;
  step.indices.resize(static_cast<size_t>(num_rows * topk));
  lathe::IndexerTopkArgs select;
  select.inputs.q = lathe::Packed(golden.index_q.values.data(), num_rows, index_heads, index_width);
  select.inputs.weights = lathe::Packed(golden.index_w.values.data(), num_rows, index_heads);
  select.inputs.keys.cache = index_cache.view;
  select.inputs.keys.block_table = table;
  select.inputs.keys.seq_lens = lengths;
  select.inputs.query_start_loc = starts;
  select.inputs.keys.row_kv_lens = lathe::Packed(row_kv_lens.data(), num_rows);
  select.indices = lathe::Packed(step.indices.data(), num_rows, topk);
  lathe::IndexerTopkOptions select_options;
  select_options.k = topk;
  lathe::Sizes sizes;
  Check(lathe::IndexerTopkSizes({index_heads, index_width}, select_options,
                                {1, num_rows, num_tokens, 1}, &sizes));
  std::vector<std::byte> workspace(sizes.workspace_bytes);
  Check(lathe::SelectIndexerTopk(select, select_options, {workspace.data(), workspace.size()}));

  // Attention over the lists.
  step.out.resize(static_cast<size_t>(num_rows * shape.num_heads * shape.kv_lora_rank));
  step.lse.resize(static_cast<size_t>(num_rows * shape.num_heads));
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 0.07216878364870322f;  // 192^-0.5
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(golden.q.values.data(), num_rows, shape.num_heads, shape.head_dim());
  args.query_start_loc = starts;
  args.keys = lathe::ListedKeys(latent_cache.view, table, lengths,
                                lathe::Packed(step.indices.data(), num_rows, topk));
  args.keys.row_kv_lens = select.inputs.keys.row_kv_lens;
  args.out = lathe::Packed(step.out.data(), num_rows, shape.num_heads, shape.kv_lora_rank);
  args.lse = lathe::Packed(step.lse.data(), num_rows, shape.num_heads);
  Attend(shape, options, args, num_tokens);
  return step;
}

// The share of the golden keys that were selected, as sets.
double Agreement(const Golden& golden, const std::vector<int32_t>& indices) {
  const auto topk = static_cast<size_t>(golden.topk.shape[1]);
  size_t common = 0, all = 0;
  for (size_t row = 0; row < indices.size(); row += topk) {
    const std::set<int32_t> selected(indices.begin() + static_cast<ptrdiff_t>(row),
                                     indices.begin() + static_cast<ptrdiff_t>(row + topk));
    for (size_t i = row; i < row + topk; ++i) {
      const int32_t key = golden.topk.values[i];
      all += key >= 0 ? 1 : 0;
      common += key >= 0 && selected.count(key) == 1 ? 1 : 0;
    }
  }
  return static_cast<double>(common) / static_cast<double>(all);
}

}  // namespace

int main() {
  const Golden golden = ReadGolden();
  std::printf("target %s, %d query rows, %d keys, %d selected\n", lathe::Name(lathe::BestTarget()),
              static_cast<int>(golden.q.shape[0]), static_cast<int>(golden.kv_c.shape[0]),
              static_cast<int>(golden.topk.shape[1]));
  const Step exact =
      SparseStep(golden, lathe::CacheFormat::kLatentFloat32, lathe::CacheFormat::kLatentFloat32);
  const double selected = Agreement(golden, exact.indices);
  const double out = MaxError(exact.out, golden.out.values);
  const double lse = MaxError(exact.lse, golden.lse.values);
  std::printf(
      "float32: selected %.1f %% of the golden keys (good: 100), max |out - golden| = %.1e "
      "(below 2e-5), max |lse - golden| = %.1e (below 1e-5)\n",
      100.0 * selected, out, lse);
  const Step fp8 =
      SparseStep(golden, lathe::CacheFormat::kIndexerFp8, lathe::CacheFormat::kLatentBFloat16);
  const double selected_fp8 = Agreement(golden, fp8.indices);
  std::printf("fp8:     selected %.1f %% of the golden keys (good: above 95)\n",
              100.0 * selected_fp8);
  const bool is_right = selected == 1.0 && out < 2e-5 && lse < 1e-5 && selected_fp8 > 0.95;
  if (!is_right) std::fprintf(stderr, "the errors are too large\n");
  return is_right ? 0 : 1;
}
