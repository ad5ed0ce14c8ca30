// SPDX-License-Identifier: Apache-2.0
// Which targets there are and why some cannot run; then the same step on each that can, forced by
// options.target, with its distance from the portable one.
//
// Output (Zen 4):
//   amx_bf16    not runnable: this CPU lacks AMX-TILE or AMX-BF16
//   avx3_zen4   largest difference from portable: 9.2e-05 (good: below 8e-04)
//   avx3        largest difference from portable: 5.5e-08 (good: below 1e-05)
//   avx2        largest difference from portable: 2.2e-08 (good: below 1e-05)
//   neon_bf16   not runnable: not compiled: this is no Arm CPU
//   neon        not runnable: not compiled: this is no Arm CPU
//   portable    largest difference from portable: 0.0e+00 (good: below 1e-05)
//   kAuto takes avx3_zen4
#include <lathe/easy.h>
#include <lathe/lathe.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "examples/support/paged.h"

namespace {

constexpr int64_t kHeads = 16, kWidth = 576, kBlocks = 32, kBlockSize = 64;

std::vector<lathe::bfloat16> Random(int64_t size, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<lathe::bfloat16> values(static_cast<size_t>(size));
  for (lathe::bfloat16& x : values) x = lathe::FromFloat<lathe::bfloat16>(uniform(generator));
  return values;
}

std::vector<float> Decode(lathe::Target target) {
  static const std::vector<lathe::bfloat16> cache = Random(kBlocks * kBlockSize * kWidth, 1);
  static const std::vector<lathe::bfloat16> q = Random(kHeads * kWidth, 2);
  std::vector<int32_t> block_table;
  for (int32_t i = 0; i < kBlocks; ++i) block_table.push_back(i);
  const int32_t seq_lens[] = {2000};
  std::vector<float> out(kHeads * 512);

  lathe::MlaDecodeOptions options;
  options.softmax_scale = 0.0721688f;
  options.target = target;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(q.data(), 1, kHeads, kWidth);
  args.keys.cache = lathe::LatentPages(cache.data(), kBlocks, kBlockSize, kWidth);
  args.keys.block_table = lathe::Packed(block_table.data(), 1, kBlocks);
  args.keys.seq_lens = lathe::Packed(seq_lens, 1);
  args.out = lathe::Packed(out.data(), 1, kHeads, 512);
  example::Check(lathe::easy::MlaDecode({kHeads, 512, 64}, options, args));
  return out;
}

}  // namespace

int main() {
  const std::vector<float> portable = Decode(lathe::Target::kPortable);
  bool is_right = true;
  for (const lathe::TargetInfo& info : lathe::Targets()) {
    if (!info.runnable) {
      std::printf("%-11s not runnable: %s\n", info.name, info.reason);
      continue;
    }
    const std::vector<float> out = Decode(info.target);
    float difference = 0.0f;
    for (size_t i = 0; i < out.size(); ++i) {
      difference = std::max(difference, std::fabs(out[i] - portable[i]));
    }
    const float bound = info.native_bf16 ? 8e-4f : 1e-5f;
    std::printf("%-11s largest difference from portable: %.1e (good: below %.0e)\n", info.name,
                static_cast<double>(difference), static_cast<double>(bound));
    is_right = is_right && difference < bound;
  }
  std::printf("kAuto takes %s\n", lathe::Name(lathe::BestTarget()));
  return is_right ? 0 : 1;
}
