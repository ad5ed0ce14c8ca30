// SPDX-License-Identifier: Apache-2.0
// What this CPU can run, and what it lacks for the rest. Reads no environment and keeps no state of
// its own; the permission to use tiles, once granted, is the process's.
#ifndef LATHE_DISPATCH_CPU_H_
#define LATHE_DISPATCH_CPU_H_

#include <cerrno>
#include <cstdint>

#include "hwy/detect_targets.h"
#include "hwy/targets.h"
#include "lathe/arch/x86_amx.h"
#include "lathe/dispatch/abi.h"

#if HWY_ARCH_X86 && (HWY_COMPILER_GCC || HWY_COMPILER_CLANG)
#include <cpuid.h>
#define LATHE_HAVE_CPUID 1
#else
#define LATHE_HAVE_CPUID 0
#endif

namespace lathe::detail {
namespace {

struct Cpu {
  int64_t highway = 0;  // Highway's targets; includes what the operating system saves
  bool avx512_bf16 = false;
  arch::TileUnit tiles = {};
  bool asked_for_tiles = false;   // the operating system for the permission
  int tile_permission_error = 0;  // errno of asking for tiles, 0 where granted
};

// "", or what keeps code for this target of Highway's from running on `cpu`.
//
// Highway offers AVX3_ZEN4 on AMD only, because it avoids compress-stores that are slow there. The
// code runs wherever AVX3_DL and AVX512_BF16 are, and it is the only bf16 target below AVX-512
// FP16, so we take it on Intel too.
constexpr const char* Obstacle(int64_t target, const Cpu& cpu) noexcept {
  const bool avx3 = (cpu.highway & HWY_AVX3) != 0;
  const bool avx3_dl = (cpu.highway & HWY_AVX3_DL) != 0;
  if (target == LATHE_BASELINE) return "";  // the program itself is compiled for it
  if (target == HWY_AVX3_ZEN4) {
    if (!avx3) return "this CPU or operating system lacks AVX-512 F, CD, BW, DQ or VL";
    if (!avx3_dl)
      return "this CPU lacks AVX512_VNNI, VBMI, VBMI2, BITALG, VPOPCNTDQ, VAES, VPCLMULQDQ or GFNI";
    if (!cpu.avx512_bf16) return "this CPU lacks AVX512_BF16";
    return "";
  }
  if ((cpu.highway & target) != 0) return "";
  switch (target) {
    case HWY_AVX2:
      return "this CPU or operating system lacks AVX2, BMI2, FMA, F16C, AES or PCLMUL";
    case HWY_AVX3:
      return "this CPU or operating system lacks AVX-512 F, CD, BW, DQ or VL";
    case HWY_NEON:
      return "this CPU lacks AES";
    case HWY_NEON_BF16:
      return "this CPU lacks BF16, dot products, FP16 arithmetic or AES";
    default:
      return "this CPU lacks it";
  }
}

// "", or what keeps code for this target that also uses tiles from running on `cpu`.
constexpr const char* TileObstacle(int64_t target, const Cpu& cpu) noexcept {
  if (!cpu.tiles.has_tiles) return "this CPU lacks AMX-TILE";
  if (!cpu.tiles.has_bf16) return "this CPU lacks AMX-BF16";
  if (!cpu.tiles.has_palette)
    return "this CPU lacks the AMX palette 1 of eight whole tiles (CPUID leaf 0x1D)";
  if (!cpu.tiles.saves_config)
    return "the operating system does not save the configuration of AMX tiles (XCR0 bit 17)";
  if (!cpu.tiles.saves_data)
    return "the operating system does not save the data of AMX tiles (XCR0 bit 18)";
  if (!cpu.asked_for_tiles) return "this program declines AMX tiles";
  switch (cpu.tile_permission_error) {
    case 0:
      return Obstacle(target, cpu);
    case ENOSPC:
      return "the operating system refuses AMX tiles: an alternate signal stack of this process is "
             "too small for them";
    case EINVAL:
    case ENOSYS:
      return "the operating system refuses AMX tiles: ARCH_REQ_XCOMP_PERM needs Linux 5.16";
    default:
      return "the operating system refuses AMX tiles (arch_prctl, ARCH_REQ_XCOMP_PERM)";
  }
}

inline bool HasAvx512Bf16() noexcept {
#if LATHE_HAVE_CPUID
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 5 & 1) != 0;
#else
  return false;
#endif
}

// Asks for the permission to use tiles where there are some, and `uses_tiles`. Tens of microseconds in a
// virtual machine, where CPUID traps.
inline Cpu DetectCpu([[maybe_unused]] bool uses_tiles) noexcept {
  Cpu cpu;
#if LATHE_STATIC_ONLY  // only the baseline is compiled, and libhwy is not there to be asked
  cpu.highway = LATHE_BASELINE;
#else
  cpu.highway = hwy::SupportedTargets();
#endif
  cpu.avx512_bf16 = HasAvx512Bf16();
#if defined(LATHE_TEST_TILE)  // foreach_target.h
  cpu.tiles = {true, true, true, true, true};
  cpu.asked_for_tiles = uses_tiles;
#elif LATHE_HAVE_AMX
  cpu.tiles = arch::ThisTileUnit();
  cpu.asked_for_tiles = uses_tiles && cpu.tiles.is_complete();
  if (cpu.asked_for_tiles) cpu.tile_permission_error = arch::RequestTilePermission();
#endif
  return cpu;
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_DISPATCH_CPU_H_
