// SPDX-License-Identifier: Apache-2.0
// AMX without AMX: a SIGILL handler that decodes LDTILECFG, STTILECFG, TILELOADD, TILELOADDT1,
// TILESTORED, TILEZERO, TILERELEASE and TDPBF16PS where the CPU refuses them, and executes them on
// tiles in software, one set for each thread. Compiled code runs as it is: register allocation,
// addressing, tile shapes, order.
//
// What is no such instruction, or would fault on a CPU that has AMX, is reported on stderr and ends
// the process as it would there: #UD by SIGILL, #GP by SIGSEGV.
//
// x86-64 Linux on a CPU with AVX2 and FMA. About 10 us for a signal in a virtual machine;
// neighbouring tile instructions share one.
#ifndef LATHE_TESTS_SUPPORT_AMX_EMULATOR_H_
#define LATHE_TESTS_SUPPORT_AMX_EMULATOR_H_

#include <cstdint>

#include "lathe/arch/x86_amx.h"

namespace lathe::test {

#if LATHE_HAVE_AMX

// Whether this process may use tiles of the CPU's own. Asks for the permission.
bool HasRealAmx();

// Makes tile instructions work from here on, by the CPU or by the emulator; cheap when they do
// already. To be called inside a test case: Catch2 puts a SIGILL handler of its own in place for
// each, and restores what was there before when it ends.
void InstallAmxEmulator();

// Tile instructions that were emulated on this thread.
uint64_t EmulatedInstructions();

// The same as an object's lifetime.
class AmxEmulation {
 public:
  AmxEmulation();
  ~AmxEmulation();
  AmxEmulation(const AmxEmulation&) = delete;
  AmxEmulation& operator=(const AmxEmulation&) = delete;
};

// The library's own tiles, with the emulator brought up when a task begins.
struct EmulatedAmxTile : arch::AmxTile {
  static void Configure(const arch::TileConfig& config) {
    InstallAmxEmulator();
    arch::AmxTile::Configure(config);
  }
};

#endif  // LATHE_HAVE_AMX

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_AMX_EMULATOR_H_
