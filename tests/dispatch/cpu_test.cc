// SPDX-License-Identifier: Apache-2.0
#include "lathe/dispatch/cpu.h"

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <string>

namespace {

using lathe::arch::CpuidLeaf;
using lathe::arch::TileUnit;
using lathe::arch::TileUnitOf;
using lathe::detail::Cpu;
using lathe::detail::Obstacle;
using lathe::detail::TileObstacle;

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
    bool avx2, avx3, zen4;
  };
  const Case cases[] = {
      {{HWY_SCALAR | HWY_SSE2, false}, false, false, false},
      {{kHaswell, false}, true, false, false},
      {{kSkylakeServer, false}, true, true, false},
      // Cooper Lake: BF16 without VBMI2 and others that AVX3_ZEN4 code may use.
      {{kSkylakeServer, true}, true, true, false},
      {{kIceLake, false}, true, true, false},
      {{kZen4, true}, true, true, true},
      // Highway offers AVX3_ZEN4 on AMD only; lathe takes it on Intel as well.
      {{kSapphireRapids, true}, true, true, true},
      // FP16 masked by a hypervisor.
      {{kIceLake, true}, true, true, true},
  };
  for (const Case& c : cases) {
    CAPTURE(c.cpu.highway, c.cpu.avx512_bf16);
    CHECK(Runs(HWY_AVX2, c.cpu) == (c.avx2 || LATHE_BASELINE == HWY_AVX2));
    CHECK(Runs(HWY_AVX3, c.cpu) == (c.avx3 || LATHE_BASELINE == HWY_AVX3));
    CHECK(Runs(HWY_AVX3_ZEN4, c.cpu) == (c.zen4 || LATHE_BASELINE == HWY_AVX3_ZEN4));
    CHECK(Runs(LATHE_BASELINE, c.cpu));
  }
}

TEST_CASE("Obstacle: names what is missing") {
  CHECK(std::string(Obstacle(HWY_AVX3_ZEN4, {kIceLake, false})) == "this CPU lacks AVX512_BF16");
  CHECK(std::string(Obstacle(HWY_AVX3_ZEN4, {kHaswell, false})).find("AVX-512 F") !=
        std::string::npos);
}

// A Xeon of the fourth generation, as CPUID and XCR0 tell of its tiles, with everything or without one thing.
struct MockedTiles {
  uint32_t features = 1u << 24 | 1u << 22;  // leaf 7, EDX: AMX-TILE, AMX-BF16
  uint32_t max_palette = 1;                 // leaf 0x1D, EAX
  CpuidLeaf palette = {1024u << 16 | 8192, 8u << 16 | 64, 16, 0};
  uint32_t xcr0 = 0x602E7;  // x87, SSE, AVX, AVX-512 (bits 5 to 7), PKRU, tiles

  TileUnit Unit() const {
    return TileUnitOf(
        [this](uint32_t leaf, uint32_t subleaf) -> CpuidLeaf {
          if (leaf == 7 && subleaf == 0) return {1, 0, 0, features};
          // Beyond the highest leaf Intel's CPUs answer with that leaf, AMD's with zeros.
          if (leaf != 0x1D) return {~0u, ~0u, ~0u, ~0u};
          return subleaf == 0 ? CpuidLeaf{max_palette, 0, 0, 0} : palette;
        },
        xcr0);
  }
};

TEST_CASE("D4: tiles need each of what may be withheld alone, and say which is missing", "[D4]") {
  struct Case {
    const char* reason;
    void (*withhold)(MockedTiles& tiles, Cpu& cpu);
  };
  constexpr const char* kNoPalette =
      "this CPU lacks the AMX palette 1 of eight whole tiles (CPUID leaf 0x1D)";
  constexpr const char* kNoConfig =
      "the operating system does not save the configuration of AMX tiles (XCR0 bit 17)";
  constexpr const char* kRefused =
      "the operating system refuses AMX tiles (arch_prctl, ARCH_REQ_XCOMP_PERM)";
  constexpr const char* kTooOld =
      "the operating system refuses AMX tiles: ARCH_REQ_XCOMP_PERM needs Linux 5.16";
  const Case cases[] = {
      {"", [](MockedTiles&, Cpu&) {}},
      // Masked by hypervisors, and not needed.
      {"", [](MockedTiles&, Cpu& cpu) { cpu.highway = kIceLake; }},
      // Of later CPUs.
      {"", [](MockedTiles& tiles, Cpu&) { tiles.max_palette = 2; }},
      {"", [](MockedTiles& tiles, Cpu&) { tiles.palette.ebx = 16u << 16 | 64; }},
      {"this CPU lacks AMX-TILE", [](MockedTiles& tiles, Cpu&) { tiles.features &= ~(1u << 24); }},
      {"this CPU lacks AMX-BF16", [](MockedTiles& tiles, Cpu&) { tiles.features &= ~(1u << 22); }},
      {kNoPalette, [](MockedTiles& tiles, Cpu&) { tiles.max_palette = 0; }},
      {kNoPalette, [](MockedTiles& tiles, Cpu&) { tiles.palette = {}; }},
      {kNoPalette, [](MockedTiles& tiles, Cpu&) { tiles.palette.ebx = 4u << 16 | 64; }},
      {kNoPalette, [](MockedTiles& tiles, Cpu&) { tiles.palette.ebx = 8u << 16 | 32; }},
      {kNoPalette, [](MockedTiles& tiles, Cpu&) { tiles.palette.ecx = 8; }},
      {kNoPalette, [](MockedTiles& tiles, Cpu&) { tiles.palette.eax = 512u << 16 | 4096; }},
      {kNoConfig, [](MockedTiles& tiles, Cpu&) { tiles.xcr0 &= ~(1u << 17); }},
      {"the operating system does not save the data of AMX tiles (XCR0 bit 18)",
       [](MockedTiles& tiles, Cpu&) { tiles.xcr0 &= ~(1u << 18); }},
      {kNoConfig, [](MockedTiles& tiles, Cpu&) { tiles.xcr0 = 0; }},  // no OSXSAVE
      {kRefused, [](MockedTiles&, Cpu& cpu) { cpu.tile_permission_error = EPERM; }},
      {kRefused, [](MockedTiles&, Cpu& cpu) { cpu.tile_permission_error = EACCES; }},
      {kRefused, [](MockedTiles&, Cpu& cpu) { cpu.tile_permission_error = EOPNOTSUPP; }},
      {kTooOld, [](MockedTiles&, Cpu& cpu) { cpu.tile_permission_error = EINVAL; }},
      {kTooOld, [](MockedTiles&, Cpu& cpu) { cpu.tile_permission_error = ENOSYS; }},
      {"the operating system refuses AMX tiles: an alternate signal stack of this process is too "
       "small for them",
       [](MockedTiles&, Cpu& cpu) { cpu.tile_permission_error = ENOSPC; }},
      // The vector code beside the tiles. Without AVX-512 state Highway offers no such target.
      {"this CPU or operating system lacks AVX-512 F, CD, BW, DQ or VL",
       [](MockedTiles&, Cpu& cpu) { cpu.highway = kHaswell; }},
      {"this CPU lacks AVX512_VNNI, VBMI, VBMI2, BITALG, VPOPCNTDQ, VAES, VPCLMULQDQ or GFNI",
       [](MockedTiles&, Cpu& cpu) { cpu.highway = kSkylakeServer; }},
      {"this CPU lacks AVX512_BF16", [](MockedTiles&, Cpu& cpu) { cpu.avx512_bf16 = false; }},
      {"this program declines AMX tiles",
       [](MockedTiles&, Cpu& cpu) { cpu.asked_for_tiles = false; }},
  };
  if (LATHE_BASELINE == HWY_AVX3_ZEN4) SKIP("this program itself needs the vector code");
  for (const Case& c : cases) {
    INFO("expected: " << c.reason);
    MockedTiles tiles;
    Cpu cpu = {kSapphireRapids, true, {}, true, 0};
    c.withhold(tiles, cpu);
    cpu.tiles = tiles.Unit();
    CHECK(std::string(TileObstacle(HWY_AVX3_ZEN4, cpu)) == c.reason);
    // Losing tiles loses nothing else.
    if ((cpu.highway & HWY_AVX3_DL) != 0 && cpu.avx512_bf16) CHECK(Runs(HWY_AVX3_ZEN4, cpu));
  }
}

TEST_CASE("DetectCpu: agrees with the compiler's own detection") {
  const Cpu cpu = lathe::detail::DetectCpu(true);
  CHECK(cpu.avx512_bf16 == (__builtin_cpu_supports("avx512bf16") != 0));
  CHECK_FALSE(lathe::detail::DetectCpu(false).asked_for_tiles);
#if LATHE_HAVE_AMX
  // What was granted once is granted again.
  if (cpu.tiles.is_complete()) {
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
