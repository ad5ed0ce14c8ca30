// SPDX-License-Identifier: Apache-2.0
// The smallest complete program: two sequences of different length share a paged cache, two heads decode
// one token each.
//
// Output (the last digits of lse may differ between targets):
//   sequence 0 head 0: out[1] = 3.00 (right: 3.00), lse = 1.6094
//   sequence 0 head 1: out[1] = 3.00 (right: 3.00), lse = 1.6094
//   sequence 1 head 0: out[1] = 9.00 (right: 9.00), lse = 0.0000
//   sequence 1 head 1: out[1] = 9.00 (right: 9.00), lse = 0.0000
#include <lathe/easy.h>
#include <lathe/lathe.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  constexpr int64_t kHeads = 2, kBlocks = 4, kBlockSize = 4;
  const lathe::MlaShape shape{kHeads, /*kv_lora_rank=*/512, /*qk_rope_head_dim=*/64};
  const int64_t width = shape.head_dim();

  // Pages of 4 tokens. Sequence 0 has 5 tokens on pages 2 and 0, sequence 1 has one on page 3. Column 1 of
  // each row is its value, all queries are zero: every key weighs the same.
  std::vector<float> cache(kBlocks * kBlockSize * static_cast<size_t>(width), 0.0f);
  const auto set = [&](int64_t block, int64_t offset, float value) {
    cache[static_cast<size_t>((block * kBlockSize + offset) * width + 1)] = value;
  };
  for (int64_t i = 0; i < 4; ++i) set(2, i, static_cast<float>(i + 1));
  set(0, 0, 5.0f);
  set(3, 0, 9.0f);
  const std::vector<int32_t> block_table = {2, 0, 3, -1};
  const std::vector<int32_t> seq_lens = {5, 1};
  const std::vector<float> q(2 * kHeads * static_cast<size_t>(width), 0.0f);
  std::vector<float> out(2 * kHeads * 512), lse(2 * kHeads);

  lathe::MlaDecodeOptions options;
  options.softmax_scale = 0.0721688f;  // (128 + 64)^-0.5 in DeepSeek-V2 and V3
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(q.data(), 2, kHeads, width);
  args.keys.cache =
      lathe::LatentPages(static_cast<const float*>(cache.data()), kBlocks, kBlockSize, width);
  args.keys.block_table = lathe::Packed(block_table.data(), 2, 2);
  args.keys.seq_lens = lathe::Packed(seq_lens.data(), 2);
  args.out = lathe::Packed(out.data(), 2, kHeads, 512);
  args.lse = lathe::Packed(lse.data(), 2, kHeads);

  const lathe::Status status = lathe::easy::MlaDecode(shape, options, args);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", lathe::Format(status).c_str());
    return 1;
  }
  bool is_right = true;
  for (size_t row = 0; row < 2 * kHeads; ++row) {
    const float value = out[row * 512 + 1];
    const float expected = row < kHeads ? 3.0f : 9.0f;  // the mean of the sequence's values
    std::printf("sequence %zu head %zu: out[1] = %.2f (right: %.2f), lse = %.4f\n", row / kHeads,
                row % kHeads, static_cast<double>(value), static_cast<double>(expected),
                static_cast<double>(lse[row]));
    const float difference = value - expected;
    is_right = is_right && difference < 1e-4f && difference > -1e-4f;
  }
  return is_right ? 0 : 1;
}
