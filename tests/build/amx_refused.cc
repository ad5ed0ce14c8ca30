// SPDX-License-Identifier: Apache-2.0
// A system that refuses the permission to use tiles (a seccomp filter on arch_prctl, as sandboxes
// have): lathe says so and computes with the best vectors. Exit code 77, skipped, where there are
// no tiles to refuse.
#include "lathe/arch/x86_amx.h"

#if LATHE_HAVE_AMX

#include <cstdio>
#include <cstring>

#include "lathe/lathe.h"

namespace ops = lathe;
#include "tests/build/exercise.h"
#include "tests/build/tile_permission.h"

int main() {
  if (!FilterTilePermission(SECCOMP_RET_ERRNO | EPERM)) return 77;
  const lathe::TargetInfo& amx = lathe::Targets().data[0];
  std::printf("%s: %s\n", amx.name, amx.reason);
  if (amx.target != lathe::Target::kAmxBf16 || amx.runnable || amx.reason[0] == '\0') return 1;
  if (lathe::BestTarget() == lathe::Target::kAmxBf16) return 2;
  if (!Exercise()) return 3;
  std::printf("computed with %s\n", lathe::Name(lathe::BestTarget()));
  if (!lathe::arch::ThisTileUnit().is_complete()) return 77;
  return std::strstr(amx.reason, "refuses AMX tiles") != nullptr ? 0 : 4;
}

#else

int main() { return 77; }

#endif
