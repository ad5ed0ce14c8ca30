// SPDX-License-Identifier: Apache-2.0
// One target, the one of this file's own flags: no table, no detection, no library. This file is compiled
// with -march=native where the compiler has it (CMakeLists.txt beside it) and links nothing but the C++ library.
//
// Output (Zen 4, -march=native -DHWY_WANT_AVX3_ZEN4):
//   compiled for avx3_zen4, Highway calls it AVX3_ZEN4
//   three equal keys: out[0] = 2.00 (right: 2.00), lse = 1.0986 (right: 1.0986)
#include <lathe/static.h>

#include <cmath>
#include <cstdio>
#include <vector>

// A program that counts on a target says so; with -march=native anything may come.
static_assert(lathe::st::kStaticTarget >= lathe::Target::kPortable, "check the flags");

int main() {
  std::printf("compiled for %s, Highway calls it %s\n", lathe::Name(lathe::st::kStaticTarget),
              lathe::st::kStaticTargetName);

  constexpr int64_t kWidth = 576;
  std::vector<lathe::bfloat16> cache(4 * kWidth), q(kWidth);
  for (size_t token = 0; token < 3; ++token) {
    cache[token * kWidth] = lathe::FromFloat<lathe::bfloat16>(static_cast<float>(token + 1));
  }
  const int32_t block_table[] = {0}, seq_lens[] = {3};
  float out[512], lse[1];

  const lathe::MlaShape shape{1, 512, 64};
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 0.0721688f;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(q.data(), 1, 1, kWidth);
  args.keys.cache = lathe::LatentPages(cache.data(), 1, 4, kWidth);
  args.keys.block_table = lathe::Packed(block_table, 1, 1);
  args.keys.seq_lens = lathe::Packed(seq_lens, 1);
  args.out = lathe::Packed(out, 1, 1, 512);
  args.lse = lathe::Packed(lse, 1, 1);

  // The calls of lathe/lathe.h, in lathe::st.
  lathe::Sizes sizes;
  lathe::Status status = lathe::st::MlaDecodeSizes(shape, options, {1, 1, 3, 1}, &sizes);
  std::vector<std::byte> plan_memory(sizes.plan_bytes), workspace(sizes.workspace_bytes);
  const lathe::MlaDecodePlan* plan = nullptr;
  if (status.ok()) {
    status = lathe::st::PlanMlaDecode(shape, options, args, 1,
                                      {plan_memory.data(), plan_memory.size()}, &plan);
  }
  if (status.ok()) {
    status = lathe::st::RunMlaDecode(*plan, args, {workspace.data(), workspace.size()});
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", lathe::Format(status).c_str());
    return 1;
  }
  std::printf("three equal keys: out[0] = %.2f (right: 2.00), lse = %.4f (right: 1.0986)\n",
              static_cast<double>(out[0]), static_cast<double>(lse[0]));
  return std::fabs(out[0] - 2.0f) < 1e-2f && std::fabs(lse[0] - std::log(3.0f)) < 1e-4f ? 0 : 1;
}
