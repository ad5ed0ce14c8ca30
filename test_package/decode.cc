// SPDX-License-Identifier: Apache-2.0
// One head over three keys that weigh the same: out is the mean of their latents.
#ifdef LATHE_TEST_HEADER_ONLY
#include <lathe/impl.h>
#endif

#include <lathe/easy.h>
#include <lathe/lathe.h>

#include <cstdio>

int main() {
  float cache[4 * 20] = {}, q[20] = {}, out[16] = {}, lse = 0.0f;
  for (int token = 0; token < 3; ++token) cache[token * 20] = static_cast<float>(token + 1);
  const int32_t block_table[] = {0}, seq_lens[] = {3};

  lathe::MlaDecodeOptions options;
  options.softmax_scale = 0.25f;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(q, 1, 1, 20);
  args.keys.cache = lathe::LatentPages(cache, 1, 4, 20);
  args.keys.block_table = lathe::Packed(block_table, 1, 1);
  args.keys.seq_lens = lathe::Packed(seq_lens, 1);
  args.out = lathe::Packed(out, 1, 1, 16);
  args.lse = lathe::Packed(&lse, 1, 1);
  const lathe::Status status = lathe::easy::MlaDecode({1, 16, 4}, options, args);
  std::printf("%s: out[0] = %.3f\n", lathe::Format(status).c_str(), static_cast<double>(out[0]));
  return status.ok() && out[0] > 1.999f && out[0] < 2.001f ? 0 : 1;
}
