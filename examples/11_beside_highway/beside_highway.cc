// SPDX-License-Identifier: Apache-2.0
// A file that uses Highway's own dynamic dispatch, written as Highway's documentation shows it, and that holds
// lathe's implementation as well: both compile for all of their targets, neither disturbs the other.
//
// Output (the target and the last digits depend on the machine):
//   our own kernel runs on AVX3_ZEN4
//   lathe runs on avx3_zen4
//   largest output: 0.75 (right: 0.75)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "examples/11_beside_highway/beside_highway.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace app {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The largest of x[0..n), n a multiple of 64; and the name of the target that found it.
float Largest(const float* x, size_t n, const char** target) {
  const hn::CappedTag<float, 64> d;
  auto largest = hn::LoadU(d, x);
  for (size_t i = hn::Lanes(d); i < n; i += hn::Lanes(d)) {
    largest = hn::Max(largest, hn::LoadU(d, x + i));
  }
  *target = hwy::TargetName(HWY_TARGET);
  return hn::ReduceMax(d, largest);
}

}  // namespace HWY_NAMESPACE
}  // namespace app
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <lathe/easy.h>
#include <lathe/impl.h>

#include <cmath>
#include <cstdio>
#include <vector>

namespace app {
HWY_EXPORT(Largest);
}  // namespace app

int main() {
  constexpr int64_t kWidth = 576, kBlockSize = 4;
  std::vector<float> cache(kBlockSize * kWidth), q(kWidth), out(512);
  cache[7] = 1.5f;  // of one of two keys, which weigh the same
  const int32_t block_table[] = {0}, seq_lens[] = {2};
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 0.0721688f;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(q.data(), 1, 1, kWidth);
  args.keys.cache = lathe::LatentPages(cache.data(), 1, kBlockSize, kWidth);
  args.keys.block_table = lathe::Packed(block_table, 1, 1);
  args.keys.seq_lens = lathe::Packed(seq_lens, 1);
  args.out = lathe::Packed(out.data(), 1, 1, 512);
  const lathe::Status status = lathe::easy::MlaDecode({1, 512, 64}, options, args);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", lathe::Format(status).c_str());
    return 1;
  }

  const char* target = "";
  const float largest = HWY_DYNAMIC_DISPATCH(app::Largest)(out.data(), out.size(), &target);
  std::printf("our own kernel runs on %s\nlathe runs on %s\nlargest output: %.2f (right: 0.75)\n",
              target, lathe::Name(lathe::BestTarget()), static_cast<double>(largest));
  return std::fabs(largest - 0.75f) < 1e-5f ? 0 : 1;
}

#endif  // HWY_ONCE
