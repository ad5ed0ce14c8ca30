// SPDX-License-Identifier: Apache-2.0
// A seccomp filter on the request for the permission to use tiles, as sandboxes have.
#ifndef LATHE_TESTS_BUILD_TILE_PERMISSION_H_
#define LATHE_TESTS_BUILD_TILE_PERMISSION_H_

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>

// From now on the request gets `answer`, a SECCOMP_RET_ value. False, and says so, where no filter can be set.
inline bool FilterTilePermission(unsigned answer) {
  const auto at = [](size_t offset) { return static_cast<unsigned>(offset); };
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at(offsetof(seccomp_data, nr))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at(offsetof(seccomp_data, args))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x1023, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
  const bool is_set = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  if (!is_set) std::printf("skipped: no seccomp filter can be set here\n");
  return is_set;
}

#endif  // LATHE_TESTS_BUILD_TILE_PERMISSION_H_
