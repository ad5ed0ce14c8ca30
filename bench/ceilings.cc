// SPDX-License-Identifier: Apache-2.0
#include "bench/ceilings.h"

#include <algorithm>
#include <cstring>

namespace lathe::bench {
namespace {

constexpr int kBursts = 3;
constexpr double kBurstSeconds = 3e-4;
constexpr size_t kLine = 64;

template <class F>
double BestThroughput(Team& team, double seconds, const F& work) {
  double best = 0.0;
  for (int burst = 0; burst < kBursts; ++burst) {
    best = std::max(best, Throughput(team, seconds, work));
  }
  return best;
}

}  // namespace

double FlopsPerSecond(Team& team, const FlopLoop& loop) {
  constexpr size_t kRounds = 1000;  // some microseconds
  return BestThroughput(team, kBurstSeconds, [&](size_t) {
    loop.run(kRounds);
    return static_cast<double>(kRounds) * loop.flops_per_round;
  });
}

// One load brings a whole line, so the loop has room for all the misses a core can have in flight.
double ReadProbe::ReadChunk(size_t ith, size_t nth) {
  constexpr size_t kChunk = size_t{64} << 10;
  constexpr size_t kAhead = size_t{8} << 10;
  Part& part = parts_[ith];
  const size_t begin = bytes_ * ith / nth / kLine * kLine;
  const size_t end = bytes_ * (ith + 1) / nth / kLine * kLine;
  if (part.next < begin || part.next >= end) part.next = begin;
  const size_t stop = std::min(end, part.next + kChunk);
  const double read = static_cast<double>(stop - part.next);
  uint64_t sum[4] = {};
  for (size_t i = part.next; i < stop; i += kLine) {
    const std::byte* line = data_ + i;
    __builtin_prefetch(line + kAhead);
    uint64_t word;
    std::memcpy(&word, line, sizeof(word));
    sum[i / kLine % 4] += word;
  }
  part.sum += sum[0] + sum[1] + sum[2] + sum[3];
  part.next = stop;
  return read;
}

double ReadProbe::BytesPerSecond(Team& team) {
  parts_.resize(team.size());
  // Twice the time of the others: memory takes longer to come up to speed.
  return BestThroughput(team, 2 * kBurstSeconds,
                        [&](size_t ith) { return ReadChunk(ith, team.size()); });
}

MemoryProbe::MemoryProbe(Team& team, size_t bytes)
    : memory_(bytes), read_(memory_.data(), memory_.size()) {
  team.Run([&](size_t ith) {
    const size_t begin = memory_.size() * ith / team.size();
    const size_t end = memory_.size() * (ith + 1) / team.size();
    std::memset(memory_.data() + begin, 1, end - begin);
  });
}

CopyProbe::CopyProbe(size_t bytes) : from_(bytes), to_(bytes) {
  std::memset(from_.data(), 1, bytes);
  std::memset(to_.data(), 1, bytes);
}

double CopyProbe::CopiesPerSecond(Team& team) {
  const size_t nth = team.size();
  return BestThroughput(team, kBurstSeconds, [&](size_t ith) {
    const size_t begin = from_.size() * ith / nth;
    const size_t end = from_.size() * (ith + 1) / nth;
    std::memcpy(to_.data() + begin, from_.data() + begin, end - begin);
    return static_cast<double>(end - begin) / static_cast<double>(from_.size());
  });
}

}  // namespace lathe::bench
