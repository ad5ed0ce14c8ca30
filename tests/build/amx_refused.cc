// SPDX-License-Identifier: Apache-2.0
// A system that refuses the permission to use tiles (a seccomp filter on arch_prctl, as sandboxes
// have): lathe says so and computes with the best vectors. Exit code 77, skipped, where there are
// no tiles to refuse.
#include "lathe/arch/x86_amx.h"

#if LATHE_HAVE_AMX

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

#include "lathe/lathe.h"

namespace ops = lathe;
#include "tests/build/exercise.h"

namespace {

bool RefusePermission() {
  const auto at = [](size_t offset) { return static_cast<unsigned>(offset); };
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at(offsetof(seccomp_data, nr))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at(offsetof(seccomp_data, args))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x1023, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

int main() {
  if (!RefusePermission()) {
    std::printf("skipped: no seccomp filter can be set here\n");
    return 77;
  }
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
