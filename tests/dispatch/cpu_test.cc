// SPDX-License-Identifier: Apache-2.0
#include "lathe/dispatch/cpu.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace {

using lathe::detail::LATHE_ABI::Cpu;
using lathe::detail::LATHE_ABI::Obstacle;

bool Runs(int64_t target, const Cpu& cpu) { return Obstacle(target, cpu)[0] == '\0'; }

#if HWY_ARCH_X86

// As hwy::SupportedTargets() reports these families.
constexpr int64_t kHaswell = HWY_SCALAR | HWY_SSE2 | HWY_SSSE3 | HWY_SSE4 | HWY_AVX2;
constexpr int64_t kSkylakeServer = kHaswell | HWY_AVX3;
constexpr int64_t kIceLake = kSkylakeServer | HWY_AVX3_DL;
constexpr int64_t kZen4 = kIceLake | HWY_AVX3_ZEN4;
constexpr int64_t kSapphireRapids = kIceLake | HWY_AVX3_SPR;

TEST_CASE("Obstacle: x86 targets run where their instructions are") {
  struct Case {
    Cpu cpu;
    bool avx2, avx3, zen4, spr;
  };
  const Case cases[] = {
      {{HWY_SCALAR | HWY_SSE2, false}, false, false, false, false},
      {{kHaswell, false}, true, false, false, false},
      {{kSkylakeServer, false}, true, true, false, false},
      // Cooper Lake: BF16 without VBMI2 and others that AVX3_ZEN4 code may use.
      {{kSkylakeServer, true}, true, true, false, false},
      {{kIceLake, false}, true, true, false, false},
      {{kZen4, true}, true, true, true, false},
      // Highway offers AVX3_ZEN4 on AMD only; lathe takes it on Intel as well.
      {{kSapphireRapids, true}, true, true, true, true},
      // FP16 masked by a hypervisor.
      {{kIceLake, true}, true, true, true, false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.cpu.highway, c.cpu.avx512_bf16);
    CHECK(Runs(HWY_AVX2, c.cpu) == (c.avx2 || LATHE_BASELINE == HWY_AVX2));
    CHECK(Runs(HWY_AVX3, c.cpu) == (c.avx3 || LATHE_BASELINE == HWY_AVX3));
    CHECK(Runs(HWY_AVX3_ZEN4, c.cpu) == (c.zen4 || LATHE_BASELINE == HWY_AVX3_ZEN4));
    CHECK(Runs(HWY_AVX3_SPR, c.cpu) == (c.spr || LATHE_BASELINE == HWY_AVX3_SPR));
    CHECK(Runs(LATHE_BASELINE, c.cpu));
  }
}

TEST_CASE("Obstacle: names what is missing") {
  CHECK(std::string(Obstacle(HWY_AVX3_ZEN4, {kIceLake, false})) == "this CPU lacks AVX512_BF16");
  CHECK(std::string(Obstacle(HWY_AVX3_SPR, {kZen4, true})) == "this CPU lacks AVX512_FP16");
  CHECK(std::string(Obstacle(HWY_AVX3_SPR, {kHaswell, false})).find("AVX-512 F") !=
        std::string::npos);
}

TEST_CASE("DetectCpu: agrees with the compiler's own detection") {
  const Cpu cpu = lathe::detail::LATHE_ABI::DetectCpu();
  CHECK(cpu.avx512_bf16 == (__builtin_cpu_supports("avx512bf16") != 0));
  if (Runs(HWY_AVX3_ZEN4, cpu)) {
    CHECK(__builtin_cpu_supports("avx512bf16"));
    CHECK(__builtin_cpu_supports("avx512vbmi2"));
    CHECK(__builtin_cpu_supports("avx512vpopcntdq"));
    CHECK(__builtin_cpu_supports("avx512vl"));
  }
}

#endif  // HWY_ARCH_X86

TEST_CASE("Obstacle: the baseline always runs, foreign targets never") {
  CHECK(Runs(LATHE_BASELINE, Cpu{}));
  CHECK_FALSE(Runs(HWY_ARCH_X86 ? HWY_NEON_BF16 : HWY_AVX2, Cpu{}));
}

}  // namespace
