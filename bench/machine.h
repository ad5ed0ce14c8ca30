// SPDX-License-Identifier: Apache-2.0
// What a measurement depends on and cannot be read from its numbers.
#ifndef LATHE_BENCH_MACHINE_H_
#define LATHE_BENCH_MACHINE_H_

#include <cstddef>
#include <string>

namespace lathe::bench {

struct Machine {
  std::string cpu;
  std::string microcode;  // "" where the system does not say
  std::string governor;
  size_t cores = 1;          // logical, those this process may use
  size_t llc_bytes = 0;      // one last-level cache
  size_t all_llc_bytes = 0;  // all of them: a CPU may have one for every few cores
  size_t memory_bytes = 0;
};

Machine DescribeMachine();

// "GCC 12.2.0", the compiler of this program; "0.1.0", lathe's version.
const char* CompilerName();
std::string LatheVersion();

}  // namespace lathe::bench

#endif  // LATHE_BENCH_MACHINE_H_
