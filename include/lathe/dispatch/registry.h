// SPDX-License-Identifier: Apache-2.0
// The table of targets: which are compiled, which can run, and their kernels. Not HWY_EXPORT: its
// index comes from an inline function that depends on macros of each translation unit, so two users
// of Highway with different HWY_DISABLED_TARGETS crash each other where it is not inlined (-O0).
#ifndef LATHE_DISPATCH_REGISTRY_H_
#define LATHE_DISPATCH_REGISTRY_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/status.h"
#include "lathe/base/target.h"
#include "lathe/dispatch/abi.h"
#include "lathe/dispatch/cpu.h"
#include "lathe/dispatch/foreach_target.h"
#include "lathe/kernel/kernel_table.h"

namespace lathe::detail {
namespace {

// The code that serves a row of targets.def, by Highway's target. Differs from the row's own where
// the baseline is one that we do not name: AVX3_DL serves as AVX3, AVX3_SPR as AVX3_ZEN4.
constexpr int64_t CodeFor(int64_t target) noexcept {
  if (target == HWY_STATIC_TARGET) return LATHE_BASELINE;
  if (target == HWY_AVX3 && LATHE_BASELINE == HWY_AVX3_DL) return LATHE_BASELINE;
  if (target == HWY_AVX3_ZEN4 && LATHE_BASELINE == HWY_AVX3_SPR) return LATHE_BASELINE;
  return target;
}

// The code that serves a row of targets.def whose kernels run on tiles.
constexpr int64_t TileCodeFor(int64_t target) noexcept {
  return LATHE_TILE_TARGET != 0 ? int64_t{LATHE_TILE_TARGET} : target;
}

constexpr const char* WhyNotCompiled(int64_t target) noexcept {
  constexpr int64_t kArm = HWY_NEON | HWY_NEON_BF16;
  if ((target & kArm) != 0 && HWY_ARCH_ARM == 0) return "not compiled: this is no Arm CPU";
  if ((target & kArm) == 0 && HWY_ARCH_X86 == 0) return "not compiled: this is no x86 CPU";
  if (LATHE_STATIC_ONLY != 0) return "not compiled: lathe/static.h has the one target of its flags";
#if defined(HWY_COMPILE_ONLY_STATIC) || defined(HWY_COMPILE_ONLY_SCALAR) || \
    defined(HWY_COMPILE_ONLY_EMU128)
  constexpr int64_t kDisabled = ~int64_t{0};
#else
  constexpr int64_t kDisabled = (LATHE_DISABLED_TARGETS) | (HWY_DISABLED_TARGETS);
#endif
  if ((target & kDisabled) != 0) return "not compiled: disabled when this program was built";
  // Highway's better targets have lower bits.
  if (target > LATHE_BASELINE) return "not compiled: the compiler flags demand a better target";
  return "not compiled: this compiler does not offer it";
}

constexpr const char* WhyNoTiles(int64_t target) noexcept {
#ifdef LATHE_DISABLE_AMX
  if (HWY_ARCH_X86 != 0) return "not compiled: disabled when this program was built";
#endif
  if (HWY_ARCH_X86 != 0 && LATHE_STATIC_ONLY == 0 && LATHE_HAVE_AMX == 0)
    return "not compiled: AMX needs x86-64 Linux and GCC or Clang";
  return WhyNotCompiled(target);
}

struct Row {
  Target target;
  const char* name;
  int64_t code;
  bool needs_tiles;
  CompiledTarget compiled;
  const char* why_not_compiled;
};

// Best first.
inline constexpr Row kRows[] = {
#define LATHE_TARGET(enumerator, number, name, highway) \
  {Target::enumerator,                                  \
   name,                                                \
   CodeFor(HWY_##highway),                              \
   false,                                               \
   kCompiled<CodeFor(HWY_##highway)>,                   \
   WhyNotCompiled(HWY_##highway)},
#define LATHE_TILE_TARGET_ROW(enumerator, number, name, highway) \
  {Target::enumerator,                                           \
   name,                                                         \
   TileCodeFor(HWY_##highway),                                   \
   true,                                                         \
   kCompiledTiles<TileCodeFor(HWY_##highway)>,                   \
   WhyNoTiles(HWY_##highway)},
#include "lathe/base/targets.def"
#undef LATHE_TARGET
};
inline constexpr size_t kNumRows = sizeof(kRows) / sizeof(kRows[0]);

// What the flags of this translation unit alone amount to: the best target they include.
constexpr Target BaselineTarget() noexcept {
  for (const Row& row : kRows)
    if (row.code == LATHE_BASELINE && !row.needs_tiles) return row.target;
  return Target::kPortable;
}

// The rows as this CPU sees them.
struct Registry {
  TargetInfo info[kNumRows];
  const KernelTable* kernels[kNumRows];  // null: not runnable
  size_t best;
  bool asked_for_tiles;
};

inline Registry MakeRegistry(const Cpu& cpu) noexcept {
  Registry registry = {};
  registry.best = kNumRows - 1;  // kPortable, which always runs
  registry.asked_for_tiles = cpu.asked_for_tiles;
  for (size_t i = kNumRows; i-- > 0;) {
    const Row& row = kRows[i];
    TargetInfo& info = registry.info[i];
    info.target = row.target;
    info.name = row.name;
    info.compiled = row.compiled.kernels != nullptr;
    info.native_bf16 = row.compiled.native_bf16;
    info.reason = !info.compiled    ? row.why_not_compiled
                  : row.needs_tiles ? TileObstacle(row.code, cpu)
                                    : Obstacle(row.code, cpu);
    info.runnable = info.reason[0] == '\0';
    if (!info.runnable) continue;
    registry.kernels[i] = &row.compiled.kernels();
    registry.best = i;
  }
  return registry;
}

inline constexpr bool kHasTileKernels = (LATHE_TARGETS & LATHE_TILE_TARGET) != 0;

// Asks the CPU once in a process: a later hwy::DisableTargets is not noticed, nor another `uses_tiles`.
inline const Registry& GetRegistry(bool uses_tiles = kHasTileKernels) noexcept {
  static const Registry registry = MakeRegistry(DetectCpu(uses_tiles));
  return registry;
}

// What options.target = `requested` means here, and its kernels.
inline Status ResolveTarget(Target requested, const KernelTable** kernels,
                            Target* resolved = nullptr) noexcept {
  const Registry& registry = GetRegistry();
  const char* reason = "no such target";
  bool is_known = false;
  for (size_t i = 0; i < kNumRows; ++i) {
    const TargetInfo& info = registry.info[i];
    if (requested == Target::kAuto ? i != registry.best : info.target != requested) continue;
    if (info.runnable) {
      if (resolved != nullptr) *resolved = info.target;
      *kernels = registry.kernels[i];
      return OkStatus();
    }
    reason = info.reason;
    is_known = true;
  }
  const Status refused = Refuse(StatusCode::kTargetUnavailable, "options.target")
                             .Must("be auto or a target that runs here")
                             .Because(reason);
  return is_known ? refused.IsNamed(Name(requested)) : refused.Is(requested);
}

}  // namespace
}  // namespace lathe::detail

lathe::TargetList lathe::Targets() noexcept {
  return {detail::GetRegistry().info, detail::kNumRows};
}

lathe::Target lathe::BestTarget() noexcept {
  const detail::Registry& registry = detail::GetRegistry();
  return registry.info[registry.best].target;
}

bool lathe::DeclineAmx() noexcept { return !detail::GetRegistry(false).asked_for_tiles; }

#endif  // LATHE_DISPATCH_REGISTRY_H_
