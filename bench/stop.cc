// SPDX-License-Identifier: Apache-2.0
#include "bench/stop.h"

#include <unistd.h>

#include <csignal>

namespace lathe::bench {
namespace {

volatile std::sig_atomic_t stopped = 0;

void Stop(int signal) {
  constexpr char kText[] = "\nstopping after this row; once more to end at once\n";
  stopped = 1;
  std::signal(signal, SIG_DFL);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
}

}  // namespace

void StopOnSignals() {
  std::signal(SIGINT, Stop);
  std::signal(SIGTERM, Stop);
}

bool IsStopped() { return stopped != 0; }

}  // namespace lathe::bench
