// SPDX-License-Identifier: Apache-2.0
#include "lathe/dispatch/cpu.h"

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <string>

namespace {

using lathe::detail::LATHE_ABI::Cpu;
using lathe::detail::LATHE_ABI::Obstacle;
using lathe::detail::LATHE_ABI::TileObstacle;

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

// AMX is CPUID, XCR0 and a permission, on top of what its vector code needs.
TEST_CASE("TileObstacle: names the first of what is missing") {
  constexpr Cpu kGranted = {kSapphireRapids, true, true, true, 0};
  const auto reason = [](const Cpu& cpu) { return std::string(TileObstacle(HWY_AVX3_ZEN4, cpu)); };
  CHECK(reason(kGranted) == "");
  Cpu cpu = kGranted;
  cpu.highway = kIceLake;  // no FP16, as under hypervisors: not needed
  CHECK(reason(cpu) == "");
  cpu = kGranted;
  cpu.amx_bf16 = false;
  CHECK(reason(cpu) == "this CPU lacks AMX-TILE or AMX-BF16");
  cpu = kGranted;
  cpu.saves_tiles = false;
  CHECK(reason(cpu) == "the operating system does not save AMX tiles (XCR0 bits 17, 18)");
  for (const int error : {EPERM, EACCES, EOPNOTSUPP}) {
    cpu = kGranted;
    cpu.tile_permission_error = error;
    CHECK(reason(cpu) ==
          "the operating system refuses AMX tiles (arch_prctl, ARCH_REQ_XCOMP_PERM)");
  }
  cpu.tile_permission_error = ENOSPC;
  CHECK(reason(cpu).find("signal stack") != std::string::npos);
  cpu.tile_permission_error = EINVAL;
  CHECK(reason(cpu).find("Linux 5.16") != std::string::npos);
  // Losing tiles loses nothing else.
  CHECK(Runs(HWY_AVX3_SPR, cpu));
  if (LATHE_BASELINE == HWY_AVX3_ZEN4) return;
  cpu = kGranted;
  cpu.avx512_bf16 = false;
  CHECK(reason(cpu) == "this CPU lacks AVX512_BF16");
}

TEST_CASE("DetectCpu: agrees with the compiler's own detection") {
  const Cpu cpu = lathe::detail::LATHE_ABI::DetectCpu();
  CHECK(cpu.avx512_bf16 == (__builtin_cpu_supports("avx512bf16") != 0));
#if LATHE_HAVE_AMX
  CHECK(cpu.amx_bf16 == lathe::arch::CpuHasAmxBf16());
  // What was granted once is granted again.
  if (cpu.amx_bf16 && cpu.saves_tiles) {
    CHECK(lathe::arch::RequestTilePermission() == cpu.tile_permission_error);
  }
#endif
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
