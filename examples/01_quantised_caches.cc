// SPDX-License-Identifier: Apache-2.0
// What a narrow cache costs in accuracy: the same 1000 tokens in every format, the same query rows, and the
// distance from a float32 cache.
//
// Output (AVX3_ZEN4; bytes a token, then errors relative to the size of rows and of outputs):
//   format            columns  bytes   row error   out error   good: below
//   bfloat16              576   1152     0.17 %      0.26 %    0.3 %, 0.6 %
//   fp8_e4m3              576    576     2.66 %      4.73 %    3.0 %, 6.0 %
//   fp8_ds_mla            576    656     2.43 %      4.37 %    3.0 %, 6.0 %
//   nvfp4_ds_mla          576    352     8.99 %     13.71 %    15.0 %, 30.0 %
//   fp8_ds4               512    584     2.49 %      3.80 %    3.0 %, 6.0 %
//   ds41_fp8              512    528     2.66 %      3.99 %    3.0 %, 6.0 %
//   ds41_fp4              512    288     9.49 %     14.18 %    15.0 %, 30.0 %
//
// The data are random and normally distributed, so no key stands out and every score's error shows in the
// outputs.
#include <lathe/lathe.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "examples/support/paged.h"

namespace {

using example::Check;

constexpr int64_t kTokens = 1000, kHeads = 16, kBlockSize = 64;

std::vector<float> Random(int64_t size, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(size));
  for (float& x : values) x = normal(generator);
  return values;
}

struct Result {
  std::vector<float> rows, out;
};

// Writes the tokens, reads them back, and decodes.
Result WriteAndDecode(lathe::CacheFormat format, int64_t width, const example::Pages& pages) {
  example::Cache cache(format, width, pages);
  // One scale for a tensor of normally distributed values; other formats keep scales of their own.
  cache.view.scale = 1.0f / 64;
  const int64_t rope = width == 576 ? 64 : 0;
  const std::vector<float> kv_c = Random(kTokens * 512, 1), k_pe = Random(kTokens * 64, 2);
  const std::vector<float> values = Random(kHeads * width, 3);
  std::vector<lathe::bfloat16> q;
  for (const float x : values) q.push_back(lathe::FromFloat<lathe::bfloat16>(x));
  const int32_t seq_lens[] = {kTokens}, out_start_loc[] = {0};

  lathe::LatentWriteArgs write;
  write.kv_c = lathe::Packed(kv_c.data(), kTokens, 512);
  if (rope > 0) write.k_pe = lathe::Packed(k_pe.data(), kTokens, rope);
  write.slot_mapping = pages.Slots();
  write.cache = cache.view;
  Check(lathe::WriteLatentCache(write));

  Result result;
  result.rows.resize(static_cast<size_t>(kTokens * width));
  lathe::LatentGatherArgs gather;
  gather.cache = cache.view;
  gather.block_table = pages.Table();
  gather.gather_lens = lathe::Packed(seq_lens, 1);
  gather.out_start_loc = lathe::Packed(out_start_loc, 1);
  gather.out = lathe::Packed(result.rows.data(), kTokens, width);
  Check(lathe::GatherLatentCache(gather));

  result.out.resize(kHeads * 512);
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 0.0721688f;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(q.data(), 1, kHeads, width);
  args.keys.cache = cache.view;
  args.keys.block_table = gather.block_table;
  args.keys.seq_lens = lathe::Packed(seq_lens, 1);
  args.out = lathe::Packed(result.out.data(), 1, kHeads, 512);
  example::Attend({kHeads, 512, rope}, options, args, kTokens);
  return result;
}

// |got - expected| / |expected|, of the whole vectors.
double Distance(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0.0, size = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(double{got[i]} - double{expected[i]}, 2);
    size += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(error / size);
}

}  // namespace

int main() {
  struct Row {
    const char* name;
    lathe::CacheFormat format;
    int64_t width;
    double largest;  // error of a row that the format's mantissa allows
  };
  using F = lathe::CacheFormat;
  const Row rows[] = {
      {"bfloat16", F::kLatentBFloat16, 576, 0.003}, {"fp8_e4m3", F::kLatentFp8E4m3, 576, 0.03},
      {"fp8_ds_mla", F::kFp8DsMla, 576, 0.03},      {"nvfp4_ds_mla", F::kNvfp4DsMla, 576, 0.15},
      {"fp8_ds4", F::kFp8Ds4, 512, 0.03},           {"ds41_fp8", F::kDs41Fp8, 512, 0.03},
      {"ds41_fp4", F::kDs41Fp4, 512, 0.15}};
  std::printf("format            columns  bytes   row error   out error   good: below\n");
  const example::Pages pages(kTokens, kBlockSize);
  bool is_right = true;
  for (const Row& row : rows) {
    const Result expected = WriteAndDecode(F::kLatentFloat32, row.width, pages);
    const Result got = WriteAndDecode(row.format, row.width, pages);
    const double row_error = Distance(got.rows, expected.rows);
    const double out_error = Distance(got.out, expected.out);
    std::printf(
        "%-16s %8d %6d %8.2f %% %9.2f %%    %.1f %%, %.1f %%\n", row.name,
        static_cast<int>(row.width),
        static_cast<int>(lathe::RecordBytes(row.format, row.width) + lathe::SideBytes(row.format)),
        100 * row_error, 100 * out_error, 100 * row.largest, 200 * row.largest);
    is_right = is_right && row_error < row.largest && out_error < 2 * row.largest;
  }
  return is_right ? 0 : 1;
}
