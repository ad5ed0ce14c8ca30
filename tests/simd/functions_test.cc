// SPDX-License-Identifier: Apache-2.0
// The functions of simd/ against double, for every target that Highway has for this machine.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

// Not for vectors of SVE, which have no size, nor for SCALAR, in whose place kernels take EMU128 (dispatch/abi.h).
#define HWY_DISABLED_TARGETS HWY_ALL_SVE
#define HWY_BROKEN_EMU128 0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/functions_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lathe/simd/exp2-inl.h"
#include "lathe/simd/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe {
namespace HWY_NAMESPACE {
namespace {

template <class F>
void Apply(const F& f, const float* x, int64_t n, float* y) {
  HWY_ALIGN float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = (std::min)(kLanes, n - i);
    std::copy_n(x + i, count, lanes);
    hn::Store(f(hn::Load(F32(), lanes)), F32(), lanes);
    std::copy_n(lanes, count, y + i);
  }
}

void Exp2Of(const float* x, int64_t n, float* y) {
  Apply([](VF v) { return Exp2(v); }, x, n, y);
}
void TanhOf(const float* x, int64_t n, float* y) {
  Apply([](VF v) { return Tanh(v); }, x, n, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lathe
HWY_AFTER_NAMESPACE();
#include "lathe/simd/end_pass.h"

#if HWY_ONCE

#include <catch2/catch_test_macros.hpp>

namespace lathe {
HWY_EXPORT(Exp2Of);
HWY_EXPORT(TanhOf);

namespace test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// f(y of x, target by target) for a function of vectors.
template <class Call, class F>
void ForEachTarget(const std::vector<float>& x, const Call& call, const F& f) {
  std::vector<float> y(x.size());
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    INFO("Highway target " << hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    call(x.data(), static_cast<int64_t>(x.size()), y.data());
    hwy::SetSupportedTargetsForTest(0);
    f(y);
  }
}

void RequireClose(const std::vector<float>& x, const std::vector<float>& y, double (*exact)(double),
                  double bound) {
  double worst = 0.0;
  float at = 0.0f;
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(static_cast<double>(x[i]));
    const double error = std::fabs(static_cast<double>(y[i]) - expected) / std::fabs(expected);
    if (!(error <= worst)) worst = error, at = x[i];
  }
  CAPTURE(worst, at);
  REQUIRE(worst < bound);
}

TEST_CASE("2^x is within 3e-7, exact at 0, and 0 for what no weight can be", "[simd]") {
  std::vector<float> x;
  for (int i = 0; i <= 126 * 4096; ++i) x.push_back(static_cast<float>(i) * (-1.0f / 4096));
  const auto call = [](const float* from, int64_t n, float* to) {
    HWY_DYNAMIC_DISPATCH(Exp2Of)(from, n, to);
  };
  ForEachTarget(x, call, [&](const std::vector<float>& y) {
    RequireClose(
        x, y, [](double v) { return std::exp2(v); }, 3e-7);
    REQUIRE(y[0] == 1.0f);
  });
  ForEachTarget({-126.5f, -1e30f, -kInfinity, kNaN}, call, [](const std::vector<float>& y) {
    REQUIRE((y[0] == 0.0f && y[1] == 0.0f && y[2] == 0.0f));
    REQUIRE(std::isnan(y[3]));
  });
}

TEST_CASE("tanh is within 4e-7 of any float", "[simd]") {
  std::vector<float> x;
  for (int i = -40960; i <= 40960; ++i) {
    if (i != 0) x.push_back(static_cast<float>(i) * (1.0f / 4096));
  }
  for (float v = 1e-30f; v < 1e30f; v *= 1.03f) x.insert(x.end(), {v, -v});
  const auto call = [](const float* from, int64_t n, float* to) {
    HWY_DYNAMIC_DISPATCH(TanhOf)(from, n, to);
  };
  ForEachTarget(x, call, [&](const std::vector<float>& y) {
    RequireClose(
        x, y, [](double v) { return std::tanh(v); }, 4e-7);
  });
  const std::vector<float> special = {0.0f, kInfinity, -kInfinity, kNaN};
  ForEachTarget(special, call, [](const std::vector<float>& y) {
    REQUIRE((y[0] == 0.0f && y[1] == 1.0f && y[2] == -1.0f));
    REQUIRE(std::isnan(y[3]));
  });
}

}  // namespace
}  // namespace test
}  // namespace lathe

#endif  // HWY_ONCE
