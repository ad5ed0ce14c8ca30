// SPDX-License-Identifier: Apache-2.0
// AMX tiles of x86: eight registers of up to 16 rows x 64 bytes, and products of them. Instructions
// as assembly of our own, because intrinsics are the wrong tool: they demand target attributes that
// replace those of Highway's passes (Clang), and GCC's name no memory operand, so that stores which
// fill a tile may be dropped or moved past its load. Every statement here orders all of memory.
//
// A tile policy is a struct with the functions of AmxTile: what runs kernels on this CPU's tiles,
// or on anything that behaves like them.
//
//   C[m][n] += sum over k of A[m][k] . B[k][n]       A: 16 rows x 32 bf16, row-major
//                                                    B: 16 pairs of k x 16 columns x 2 bf16
//                                                    C: 16 rows x 16 floats
#ifndef LATHE_ARCH_X86_AMX_H_
#define LATHE_ARCH_X86_AMX_H_

#include <cstddef>
#include <cstdint>

// Linux, because elsewhere nobody grants the permission to use tiles (or we do not know how to
// ask). LATHE_DISABLE_AMX leaves tiles out of a program.
#if !defined(LATHE_DISABLE_AMX) && defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#define LATHE_HAVE_AMX 1
#else
#define LATHE_HAVE_AMX 0
#endif

#include "lathe/base/config.h"

namespace lathe::arch {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileRowBytes = 64;
constexpr int64_t kTileBytes = kTileRows * kTileRowBytes;

// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette;  // 1, or 0 for no tiles at all
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];  // of tile 0, 1, ...; those past 7 must be 0
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64, "as LDTILECFG reads it");

// All eight tiles whole.
LATHE_HIDDEN inline constexpr TileConfig kWholeTiles = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

struct CpuidLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// What tiles need of CPU, hypervisor and operating system, each of which may be withheld alone.
struct TileUnit {
  bool has_tiles = false;     // AMX-TILE
  bool has_bf16 = false;      // AMX-BF16
  bool has_palette = false;   // palette 1 has eight tiles of 16 rows of 64 bytes, as in kWholeTiles
  bool saves_config = false;  // XCR0 bit 17, XTILECFG
  bool saves_data = false;    // XCR0 bit 18, XTILEDATA

  LATHE_INLINE constexpr bool is_complete() const {
    return has_tiles && has_bf16 && has_palette && saves_config && saves_data;
  }
};

// By what cpuid(leaf, subleaf) answers. A CPU without a leaf may answer with those of another: none is asked for what
// the one before it does not lead to.
template <class Cpuid>
LATHE_INLINE constexpr TileUnit TileUnitOf(const Cpuid& cpuid, uint32_t xcr0) {
  TileUnit unit = {};
  const CpuidLeaf features = cpuid(7, 0);
  unit.has_tiles = (features.edx >> 24 & 1) != 0;
  unit.has_bf16 = (features.edx >> 22 & 1) != 0;
  unit.saves_config = (xcr0 >> 17 & 1) != 0;
  unit.saves_data = (xcr0 >> 18 & 1) != 0;
  if (!unit.has_tiles || cpuid(0x1D, 0).eax < 1) return unit;  // the highest palette
  const CpuidLeaf palette = cpuid(0x1D, 1);
  const uint32_t row_bytes = palette.ebx & 0xFFFF, tiles = palette.ebx >> 16;
  const uint32_t tile_bytes = palette.eax >> 16, rows = palette.ecx & 0xFFFF;
  unit.has_palette =
      tiles >= 8 && row_bytes == kTileRowBytes && rows == kTileRows && tile_bytes == kTileBytes;
  return unit;
}

#if LATHE_HAVE_AMX

struct AmxTile {
  LATHE_INLINE static void Configure(const TileConfig& config) {
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  }
  LATHE_INLINE static void Release() { asm volatile("tilerelease" ::: "memory"); }

  template <int kTile>
  LATHE_INLINE static void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile) : "memory");
  }
  // Rows are `stride` bytes apart, anywhere.
  template <int kTile>
  LATHE_INLINE static void Load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(from), "r"(stride) : "memory");
  }
  // Load, of what L1 need not keep.
  template <int kTile>
  LATHE_INLINE static void LoadStreamed(const void* from, int64_t stride) {
    asm volatile("tileloaddt1 (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(from), "r"(stride) : "memory");
  }
  template <int kTile>
  LATHE_INLINE static void Store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(to), "r"(stride) : "memory");
  }
  // C += A . B, bf16 products, float32 sums.
  template <int kC, int kA, int kB>
  LATHE_INLINE static void MultiplyBFloat16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB) : "memory");
  }
};

// This CPU's leaves; zeros where it has none of that number.
struct ReadCpuid {
  LATHE_INLINE CpuidLeaf operator()(uint32_t leaf, uint32_t subleaf) const {
    CpuidLeaf at = {};
    __get_cpuid_count(leaf, subleaf, &at.eax, &at.ebx, &at.ecx, &at.edx);
    return at;
  }
};

// XCR0, the state that the operating system saves; 0 where it says nothing of the sort (OSXSAVE).
LATHE_INLINE uint32_t Xcr0() {
  if ((ReadCpuid()(1, 0).ecx >> 27 & 1) == 0) return 0;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

LATHE_INLINE TileUnit ThisTileUnit() { return TileUnitOf(ReadCpuid(), Xcr0()); }

// Asks Linux for the tile data, for all threads of this process, those that exist already too. 0 or
// an errno: ENOSPC where some thread has an alternate signal stack too small for the larger signal
// frames, EINVAL or ENOSYS before Linux 5.16, whatever a seccomp filter answers.
LATHE_INLINE int RequestTilePermission() {
  constexpr long kArchReqXcompPerm = 0x1023, kXfeatureXtiledata = 18;
  const int saved = errno;
  const bool granted = syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
  const int error = granted ? 0 : errno;
  errno = saved;
  return error;
}

#endif  // LATHE_HAVE_AMX

}  // namespace lathe::arch

#endif  // LATHE_ARCH_X86_AMX_H_
