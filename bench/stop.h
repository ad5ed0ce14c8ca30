// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and SIGTERM end a run after the row that is being measured: rows, JSON and summary are kept.
#ifndef LATHE_BENCH_STOP_H_
#define LATHE_BENCH_STOP_H_

namespace lathe::bench {

// From here on the first signal makes IsStopped() true; the second ends the process as it used to.
void StopOnSignals();
bool IsStopped();

}  // namespace lathe::bench

#endif  // LATHE_BENCH_STOP_H_
