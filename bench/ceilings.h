// SPDX-License-Identifier: Apache-2.0
// Probes: what this machine can do at this moment with a row's threads, as rates per second.
//
// Each takes about a millisecond and is run right before and right after every sample of a row,
// because clocks drift (turbo, neighbours in a virtual machine) by more than the differences of
// interest; a ceiling from the start of the program would be another machine's. The best of a few
// bursts counts: disturbance only ever slows a probe down.
#ifndef LATHE_BENCH_CEILINGS_H_
#define LATHE_BENCH_CEILINGS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/flop_loop.h"
#include "bench/huge_buffer.h"
#include "bench/team.h"

namespace lathe::bench {

double FlopsPerSecond(Team& team, const FlopLoop& loop);

// Reads memory front to back, each thread a part of its own, and goes on where the last probe
// stopped. Over more than the last-level cache this is the streaming read of DRAM; over a row's own
// warm data, what the caches give.
class ReadProbe {
 public:
  ReadProbe(const std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
  double BytesPerSecond(Team& team);

 private:
  struct alignas(64) Part {
    size_t next = 0;
    uint64_t sum = 0;  // keeps the loads alive
  };
  double ReadChunk(size_t ith, size_t nth);

  const std::byte* data_;
  size_t bytes_;
  std::vector<Part> parts_;
};

// Reads memory of its own, which all threads of `team` have written: untouched memory would be one page of
// zeros, and first touch decides which memory controller a page belongs to.
class MemoryProbe {
 public:
  MemoryProbe(Team& team, size_t bytes);
  ReadProbe& read() { return read_; }

 private:
  HugeBuffer memory_;
  ReadProbe read_;
};

// Copies `bytes` from one buffer to another, each thread a part of its own.
class CopyProbe {
 public:
  explicit CopyProbe(size_t bytes);
  double CopiesPerSecond(Team& team);

 private:
  HugeBuffer from_, to_;
};

}  // namespace lathe::bench

#endif  // LATHE_BENCH_CEILINGS_H_
