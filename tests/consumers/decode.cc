// SPDX-License-Identifier: Apache-2.0
// What a stranger's first program does, in every form in which lathe can be consumed: one head, three
// keys that weigh the same, out is the mean of their latents.
#ifdef LATHE_CONSUMER_STATIC
#include <lathe/static.h>
namespace ops = lathe::st;
#else
#include <lathe/lathe.h>
namespace ops = lathe;
#endif

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace {

bool Ok(const lathe::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", lathe::Format(status).c_str());
  return status.ok();
}

bool Decode(float* out, float* lse) {
  constexpr int64_t kRank = 64, kRope = 16, kWidth = kRank + kRope, kBlockSize = 2;
  std::vector<float> cache(2 * kBlockSize * kWidth), q(kWidth);
  const int32_t block_table[] = {1, 0}, seq_lens[] = {3};
  const int64_t slots[] = {2, 3, 0};
  for (int i = 0; i < 3; ++i) {
    cache[static_cast<size_t>(slots[i] * kWidth)] = static_cast<float>(i + 1);
  }

  const lathe::MlaShape shape{1, kRank, kRope};
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 0.125f;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(q.data(), 1, 1, kWidth);
  args.keys.cache = lathe::LatentPages(cache.data(), 2, kBlockSize, kWidth);
  args.keys.block_table = lathe::Packed(block_table, 1, 2);
  args.keys.seq_lens = lathe::Packed(seq_lens, 1);
  args.out = lathe::Packed(out, 1, 1, kRank);
  args.lse = lathe::Packed(lse, 1, 1);

  lathe::Limits limits;
  limits.max_num_seqs = limits.max_num_tokens = 1;
  limits.max_num_keys = 3;
  lathe::Sizes sizes;
  if (!Ok(ops::MlaDecodeSizes(shape, options, limits, &sizes))) return false;
  std::vector<std::byte> plan_memory(sizes.plan_bytes), workspace(sizes.workspace_bytes);
  const lathe::MlaDecodePlan* plan = nullptr;
  return Ok(ops::PlanMlaDecode(shape, options, args, 1, {plan_memory.data(), plan_memory.size()},
                               &plan)) &&
         Ok(ops::RunMlaDecode(*plan, args, {workspace.data(), workspace.size()}));
}

}  // namespace

int main() {
  float out[64] = {}, lse = 0.0f;
  if (!Decode(out, &lse)) return 1;
  std::printf("lathe %d.%d.%d: out[0] = %.3f, lse = %.4f\n", LATHE_VERSION_MAJOR,
              LATHE_VERSION_MINOR, LATHE_VERSION_PATCH, static_cast<double>(out[0]),
              static_cast<double>(lse));
  const bool is_right = std::fabs(out[0] - 2.0f) < 1e-4f && std::fabs(lse - std::log(3.0f)) < 1e-4f;
  return is_right ? 0 : 1;
}
