// SPDX-License-Identifier: Apache-2.0
// lathe_info [--quick]
//
// Prints what a bug report needs and what a user wants to know: the machine, every target and why it can or cannot
// run, which one lathe takes, and what the machine can reach with one thread and with all. --quick leaves out what
// has to be measured (a second; memory of four last-level caches).
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/ceilings.h"
#include "bench/flop_loop.h"
#include "bench/machine.h"
#include "bench/team.h"
#include "lathe/lathe.h"

namespace lathe::bench {
namespace {

double Gib(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }
double Mib(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void PrintMachine(const Machine& machine) {
  std::printf("lathe %s, compiled by %s\n", LatheVersion().c_str(), CompilerName());
  std::printf("cpu      %s", machine.cpu.c_str());
  if (!machine.microcode.empty()) std::printf(", microcode %s", machine.microcode.c_str());
  if (!machine.governor.empty()) std::printf(", governor %s", machine.governor.c_str());
  std::printf("\ncores    %d\n", static_cast<int>(machine.cores));
  std::printf("caches   last level %.0f MiB, all of that level %.0f MiB\n", Mib(machine.llc_bytes),
              Mib(machine.all_llc_bytes));
  std::printf("memory   %.1f GiB\n", Gib(machine.memory_bytes));
}

void PrintTargets() {
  std::printf("\ntargets, best first\n");
  for (const TargetInfo& info : Targets()) {
    if (info.runnable) {
      std::printf("  %-10s runs%s\n", info.name,
                  info.native_bf16 ? ", bf16 products for bfloat16 caches" : "");
    } else {
      std::printf("  %-10s -     %s\n", info.name, info.reason);
    }
  }
  std::printf("lathe takes %s, the first that runs; options.target forces another\n",
              Name(BestTarget()));
}

// A line for each loop that some target multiplies with, once.
void PrintFlopCeilings(const std::vector<Team*>& teams) {
  std::vector<const FlopLoop*> seen;
  for (const TargetInfo& info : Targets()) {
    if (!info.runnable) continue;
    for (const bool is_bf16 : {true, false}) {
      const FlopLoop& loop = FlopLoopOf(info, is_bf16);
      bool is_new = true;
      for (const FlopLoop* other : seen) is_new = is_new && other != &loop;
      if (!is_new) continue;
      seen.push_back(&loop);
      std::printf("  %-24s", loop.instruction);
      for (Team* team : teams) std::printf(" %9.1f", FlopsPerSecond(*team, loop) * 1e-9);
      std::printf("  GFLOP/s   %s, %s caches\n", info.name,
                  is_bf16 && info.native_bf16 ? "bfloat16" : "float32");
    }
  }
}

void PrintCeilings(const Machine& machine) {
  Team one({1, false}), all({machine.cores, false});
  std::vector<Team*> teams = {&one};
  std::printf("\nwhat this machine can reach %13s", "1 thread");
  if (machine.cores > 1) {
    teams.push_back(&all);
    std::printf(" %9d", static_cast<int>(machine.cores));
  }
  std::printf("\n");
  PrintFlopCeilings(teams);
  MemoryProbe memory(all, 4 * machine.all_llc_bytes);
  std::printf("  %-24s", "streaming read");
  for (Team* team : teams) std::printf(" %9.1f", memory.read().BytesPerSecond(*team) * 1e-9);
  std::printf("  GB/s\n");
}

int Main(int argc, char** argv) {
  const bool is_quick = argc == 2 && std::strcmp(argv[1], "--quick") == 0;
  if (argc > 1 && !is_quick) {
    std::fprintf(stderr, "usage: lathe_info [--quick]\n");
    return 2;
  }
  const Machine machine = DescribeMachine();
  PrintMachine(machine);
  PrintTargets();
  if (!is_quick) PrintCeilings(machine);
  return 0;
}

}  // namespace
}  // namespace lathe::bench

int main(int argc, char** argv) { return lathe::bench::Main(argc, argv); }
