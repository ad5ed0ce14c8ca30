// SPDX-License-Identifier: Apache-2.0
// The HWY_ONCE part of foreign.h's user; LATHE_TEST_STATIC: one who has no foreach_target.h.
#include <cstdio>

namespace foreign {
namespace {

#if LATHE_TEST_STATIC
#define LATHE_TEST_SUM HWY_STATIC_DISPATCH(Sum)
constexpr int64_t Candidates() { return HWY_STATIC_TARGET; }
#else
HWY_EXPORT(Sum);
#define LATHE_TEST_SUM HWY_DYNAMIC_DISPATCH(Sum)
int64_t Candidates() { return hwy::SupportedTargets() & HWY_TARGETS; }
#endif

// Whether Highway chooses and runs what it would without lathe.
bool Works() {
  float x[67];
  for (float& element : x) element = 2.0f;
  float sum = 0.0f;
  const int64_t target = LATHE_TEST_SUM(x, 67, &sum);
  std::printf("foreign: %s\n", hwy::TargetName(target));
  return target == (Candidates() & -Candidates()) && sum == 134.0f;
}

}  // namespace
}  // namespace foreign
