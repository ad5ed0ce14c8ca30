// SPDX-License-Identifier: Apache-2.0
// CA7: a caller's -ffast-math changes nothing. Defaults of all structs have the bytes of a plain build, and a row
// without keys its lse; default_bytes.cc says what is compared. This file is compiled with the caller's flags.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "lathe/easy.h"
#include "lathe/lathe.h"

std::vector<unsigned char> DefaultBytesPlain();
std::vector<unsigned char> DefaultBytesFast();

int main() {
  const std::vector<unsigned char> plain = DefaultBytesPlain(), fast = DefaultBytesFast();
  if (plain != fast) {
    for (size_t i = 0; i < plain.size(); ++i) {
      if (plain[i] != fast[i]) std::printf("byte %zu: %02x, %02x\n", i, plain[i], fast[i]);
    }
    return 1;
  }
  constexpr int64_t kHeads = 2, kWidth = 64;
  const std::vector<float> cache(kWidth), q(kHeads * kWidth);
  std::vector<float> out(kHeads * kWidth), lse(kHeads);
  const int32_t block_table[] = {0}, seq_lens[] = {0};
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 1.0f;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(q.data(), 1, kHeads, kWidth);
  args.keys.cache = lathe::LatentPages(cache.data(), 1, 1, kWidth);
  args.keys.block_table = lathe::Packed(block_table, 1, 1);
  args.keys.seq_lens = lathe::Packed(seq_lens, 1);
  args.out = lathe::Packed(out.data(), 1, kHeads, kWidth);
  args.lse = lathe::Packed(lse.data(), 1, kHeads);
  if (!lathe::easy::MlaDecode({kHeads, kWidth, 0}, options, args).ok()) return 2;
  uint32_t bits;
  std::memcpy(&bits, &lse[0], sizeof(bits));
  std::printf("lse of a row without keys: %08x\n", bits);
  return bits == 0xFF800000u ? 0 : 3;
}
