// SPDX-License-Identifier: Apache-2.0
// The three kinds of DeepSeek-V4 attention layer on real tensors (tests/golden/v4_swa, v4_csa, v4_hca), stage by
// stage, each compared with what an independent implementation computed:
//
//   window      the last 128 keys
//   ratio 4     those, and the 32 best of the entries that a compressor made of 4 tokens each, picked by an indexer
//               with keys from a compressor of its own
//   ratio 128   those, and all entries of 128 tokens
//
// then a sink in the softmax and the inverse rope of the values, which are rotated keys.
//
// Output (AVX3_ZEN4; float32 caches, so that errors of the arithmetic show):
//   target avx3_zen4, 13 query rows of 16 heads, 421 tokens
//   window:    out 1.8e-06, lse 9.5e-07
//   ratio 4:   entries 4.1e-06, index keys 3.6e-06, selected 100.0 %, out 2.0e-06, lse 2.4e-06
//   ratio 128: entries 6.9e-06, out 2.1e-06, lse 9.5e-07
//   good: below 2e-5, lse below 1e-5, all of the golden keys selected
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
using lathe::CacheFormat;
using lathe::test::Npy;
using lathe::test::ReadNpy;

constexpr int64_t kWindow = 128, kHeads = 16, kWidth = 512, kTopK = 32;

struct Golden {
  explicit Golden(const char* layer) : folder(std::string(LATHE_GOLDEN_DIR "/") + layer + "/") {}
  Npy<float> Load(const std::string& name) const { return ReadNpy<float>(folder + name + ".npy"); }
  std::string folder;
  std::vector<int32_t> rows = ReadNpy<int32_t>(folder + "rows.npy").values;
};

lathe::View<const float, 2> Matrix(const Npy<float>& npy) {
  return lathe::Packed(npy.values.data(), npy.shape[0], npy.shape[1]);
}

// The entries of all tokens at once, as a prefill makes them; returns them for comparison. The files of an
// indexer's compressor begin with "index_".
std::vector<float> Compress(const Golden& golden, const std::string& prefix, int64_t ratio,
                            const Pages& pages, const Cache& cache) {
  const Npy<float> kv = golden.Load(prefix + "kv"), gate = golden.Load(prefix + "gate");
  const Npy<float> bias = golden.Load(prefix + "position_bias");
  const Npy<float> weight = golden.Load(prefix + "norm_weight");
  const Npy<float> cos = golden.Load("compress_cos"), sin = golden.Load("compress_sin");
  const int64_t num_tokens = kv.shape[0], width = kv.shape[1];
  const bool overlap = ratio == 4;
  const int64_t head_dim = overlap ? width / 2 : width;

  // What later tokens need of these: a ring of one window of rows.
  const int64_t ring = overlap ? 2 * ratio : ratio;
  std::vector<float> state(static_cast<size_t>(ring * 2 * width));
  const int32_t state_page = 0;
  std::vector<int64_t> positions(static_cast<size_t>(num_tokens));
  std::iota(positions.begin(), positions.end(), int64_t{0});
  const int64_t starts[] = {0, num_tokens};

  lathe::CompressorArgs args;
  args.kv = Matrix(kv);
  args.score = Matrix(gate);
  args.ape = Matrix(bias);
  args.positions = lathe::Packed(static_cast<const int64_t*>(positions.data()), num_tokens);
  args.query_start_loc = lathe::Packed(starts, 2);
  args.state = lathe::LatentPages(state.data(), 1, ring, 2 * width);
  args.state_block_table = lathe::Packed(&state_page, 1, 1);
  args.transform.norm.kind = lathe::NormKind::kRms;
  args.transform.norm.weight = lathe::Packed(weight.values.data(), head_dim);
  args.transform.rope.cos = Matrix(cos);
  args.transform.rope.sin = Matrix(sin);
  args.cache = cache.view;
  args.block_table = pages.Table();
  lathe::CompressorOptions options;
  options.ratio = ratio;
  options.overlap = overlap;
  lathe::Sizes sizes;
  Check(lathe::CompressorSizes({head_dim}, options, {1, num_tokens, 0, 1}, &sizes));
  std::vector<std::byte> workspace(sizes.workspace_bytes);
  Check(lathe::CompressTokens(args, options, {workspace.data(), workspace.size()}));

  // Back as rows, for the comparison.
  const int64_t num_entries = num_tokens / ratio;
  std::vector<float> entries(static_cast<size_t>(num_entries * head_dim));
  const auto seq_len = static_cast<int32_t>(num_entries);
  const int32_t first_row = 0;
  lathe::LatentGatherArgs gather;
  gather.cache = cache.view;
  gather.block_table = pages.Table();
  gather.gather_lens = lathe::Packed(&seq_len, 1);
  gather.out_start_loc = lathe::Packed(&first_row, 1);
  gather.out = lathe::Packed(entries.data(), num_entries, head_dim);
  Check(lathe::GatherLatentCache(gather));
  return entries;
}

// The best entries of each row by the layer's indexer; returns [rows, kTopK].
std::vector<int32_t> SelectEntries(const Golden& golden, const Pages& pages, const Cache& keys,
                                   const std::vector<int32_t>& seq_lens) {
  const Npy<float> q = golden.Load("index_q"), w = golden.Load("index_w");
  const int64_t num_rows = q.shape[0];
  std::vector<int32_t> indices(static_cast<size_t>(num_rows * kTopK));
  lathe::IndexerTopkArgs args;
  args.inputs.q = lathe::Packed(q.values.data(), num_rows, q.shape[1], q.shape[2]);
  args.inputs.weights = Matrix(w);
  args.inputs.keys.cache = keys.view;
  args.inputs.keys.block_table = pages.Table(num_rows);
  args.inputs.keys.seq_lens = lathe::Packed(seq_lens.data(), num_rows);
  args.inputs.keys.compress_ratio = 4;
  args.indices = lathe::Packed(indices.data(), num_rows, kTopK);
  lathe::IndexerTopkOptions options;
  options.k = kTopK;
  const int64_t max_keys = keys.view.num_blocks * keys.view.block_size;
  lathe::Sizes sizes;
  Check(lathe::IndexerTopkSizes({q.shape[1], q.shape[2]}, options,
                                {num_rows, num_rows, max_keys, 1}, &sizes));
  std::vector<std::byte> workspace(sizes.workspace_bytes);
  Check(lathe::SelectIndexerTopk(args, options, {workspace.data(), workspace.size()}));
  return indices;
}

double Agreement(const Golden& golden, const std::vector<int32_t>& indices) {
  const std::vector<int32_t> expected = ReadNpy<int32_t>(golden.folder + "topk.npy").values;
  size_t common = 0, all = 0;
  for (size_t row = 0; row < indices.size(); row += kTopK) {
    const std::set<int32_t> selected(indices.begin() + static_cast<ptrdiff_t>(row),
                                     indices.begin() + static_cast<ptrdiff_t>(row + kTopK));
    for (size_t i = row; i < row + kTopK; ++i) {
      if (expected[i] < 0) continue;
      ++all;
      common += selected.count(expected[i]);
    }
  }
  return static_cast<double>(common) / static_cast<double>(all);
}

struct Errors {
  double entries = 0.0, index_keys = 0.0, selected = 1.0, out = 0.0, lse = 0.0;
};

// One layer; ratio 0 has a window alone. Every kept row is a sequence that ends with it.
Errors RunLayer(const char* name, int64_t ratio) {
  const Golden golden(name);
  const auto num_rows = static_cast<int64_t>(golden.rows.size());
  const Npy<float> kv = golden.Load("kv"), q = golden.Load("q"), sinks = golden.Load("sinks");
  const Npy<float> cos = golden.Load("cos"), sin = golden.Load("sin");
  const int64_t num_tokens = kv.shape[0];
  std::vector<int32_t> seq_lens(golden.rows);
  for (int32_t& length : seq_lens) ++length;
  const lathe::IndexView<1> lengths = lathe::Packed(seq_lens.data(), num_rows);
  Errors errors;

  // The tokens' own keys; a row transform in the write would do their norm and rope as well.
  const Pages window_pages(num_tokens, 64);
  const Cache window(CacheFormat::kLatentFloat32, kWidth, window_pages);
  lathe::LatentWriteArgs write;
  write.kv_c = Matrix(kv);
  write.slot_mapping = window_pages.Slots();
  write.cache = window.view;
  Check(lathe::WriteLatentCache(write));

  lathe::MlaDecodeArgs args;
  args.keys = lathe::WindowKeys(window.view, window_pages.Table(num_rows), lengths, kWindow);

  const int64_t num_entries = ratio > 0 ? num_tokens / ratio : 1;
  const Pages pages(num_entries, 16);
  const Cache entries(CacheFormat::kLatentFloat32, kWidth, pages);
  const Cache index_keys(CacheFormat::kLatentFloat32, 128, pages);
  std::vector<int32_t> indices;
  if (ratio > 0) {
    errors.entries = MaxError(Compress(golden, "compressor_", ratio, pages, entries),
                              golden.Load("compressed").values);
    args.extra_keys = lathe::CompressedKeys(entries.view, pages.Table(num_rows), lengths, ratio);
  }
  if (ratio == 4) {
    errors.index_keys = MaxError(Compress(golden, "index_compressor_", ratio, pages, index_keys),
                                 golden.Load("index_k").values);
    indices = SelectEntries(golden, pages, index_keys, seq_lens);
    errors.selected = Agreement(golden, indices);
    args.extra_keys = lathe::ListedEntries(
        entries.view, pages.Table(num_rows), lengths, ratio,
        lathe::Packed(static_cast<const int32_t*>(indices.data()), num_rows, kTopK));
  }

  std::vector<float> out(static_cast<size_t>(num_rows * kHeads * kWidth));
  std::vector<float> lse(static_cast<size_t>(num_rows * kHeads));
  // The golden angles are those of the rows, not of all positions.
  std::vector<int32_t> angles(golden.rows.size());
  std::iota(angles.begin(), angles.end(), 0);
  args.q = lathe::Packed(q.values.data(), num_rows, kHeads, kWidth);
  args.attn_sink = lathe::Packed(sinks.values.data(), kHeads);
  args.out_rope.cos = Matrix(cos);
  args.out_rope.sin = Matrix(sin);
  args.out_rope.inverse = true;
  args.positions = lathe::Packed(static_cast<const int32_t*>(angles.data()), num_rows);
  args.out = lathe::Packed(out.data(), num_rows, kHeads, kWidth);
  args.lse = lathe::Packed(lse.data(), num_rows, kHeads);
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 0.04419417382415922f;  // 512^-0.5
  Attend({kHeads, kWidth, 0}, options, args, num_tokens + num_entries);
  errors.out = MaxError(out, golden.Load("out_unrotated").values);
  errors.lse = MaxError(lse, golden.Load("lse").values);
  return errors;
}

bool IsSmall(const Errors& e) {
  return e.entries < 2e-5 && e.index_keys < 2e-5 && e.selected == 1.0 && e.out < 2e-5 &&
         e.lse < 1e-5;
}

}  // namespace

int main() {
  std::printf("target %s, 13 query rows of 16 heads, 421 tokens\n",
              lathe::Name(lathe::BestTarget()));
  const Errors swa = RunLayer("v4_swa", 0);
  std::printf("window:    out %.1e, lse %.1e\n", swa.out, swa.lse);
  const Errors csa = RunLayer("v4_csa", 4);
  std::printf("ratio 4:   entries %.1e, index keys %.1e, selected %.1f %%, out %.1e, lse %.1e\n",
              csa.entries, csa.index_keys, 100.0 * csa.selected, csa.out, csa.lse);
  const Errors hca = RunLayer("v4_hca", 128);
  std::printf("ratio 128: entries %.1e, out %.1e, lse %.1e\n", hca.entries, hca.out, hca.lse);
  std::printf("good: below 2e-5, lse below 1e-5, all of the golden keys selected\n");
  const bool is_right = IsSmall(swa) && IsSmall(csa) && IsSmall(hca);
  if (!is_right) std::fprintf(stderr, "the errors are too large\n");
  return is_right ? 0 : 1;
}
