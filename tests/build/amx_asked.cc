// SPDX-License-Identifier: Apache-2.0
// CA6: the permission for tiles is asked for at most once, and never where no tile code is compiled or the program
// declines. What the system is asked is counted by a seccomp filter on arch_prctl, whose signal answers it with
// a refusal. LATHE_TEST_MOST: how often a program of this kind may ask. Exit code 77, skipped, where there are
// no tiles to ask for.
#if defined(LATHE_TEST_STATIC)
#include "lathe/static.h"
namespace ops = lathe::st;
#elif defined(LATHE_TEST_IMPL)
#include "lathe/impl.h"
namespace ops = lathe;
#else
#include "lathe/lathe.h"
namespace ops = lathe;
#endif

#include "lathe/arch/x86_amx.h"

#if LATHE_HAVE_AMX || defined(LATHE_DISABLE_AMX)

#include <cstring>

#include "tests/build/exercise.h"
#include "tests/build/tile_permission.h"

namespace {

int num_requests = 0;

// Whether there is anything to ask for; where the program is built without, what it says of that is to be seen.
bool HasTiles() {
#ifdef LATHE_DISABLE_AMX
  return std::strcmp(ops::Targets().data[0].reason,
                     "not compiled: disabled when this program was built") == 0;
#else
  return lathe::arch::ThisTileUnit().is_complete();
#endif
}

// Of the system call that a filter trapped: it returns -EPERM.
void Count(int, siginfo_t*, void* context) {
  ++num_requests;
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX] = -EPERM;
}

}  // namespace

int main(int argc, char** argv) {
  struct sigaction action = {};
  action.sa_sigaction = Count;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSYS, &action, nullptr);
  if (!FilterTilePermission(SECCOMP_RET_TRAP)) return 77;
  const bool declines = argc > 1 && std::strcmp(argv[1], "decline") == 0;
  if (declines && !ops::DeclineAmx()) return 1;
  if (!Exercise()) return 2;
  const bool has_tiles = HasTiles();
  const int most = declines || !has_tiles ? 0 : LATHE_TEST_MOST;
  std::printf("asked %d times, expected %d\n", num_requests, most);
  if (num_requests != most) return 3;
  if (ops::DeclineAmx() != (most == 0)) return 4;  // too late to change anything, it tells
#ifdef LATHE_DISABLE_AMX
  if (!has_tiles) return 5;
#endif
  return has_tiles ? 0 : 77;
}

#else

int main() { return 77; }

#endif
