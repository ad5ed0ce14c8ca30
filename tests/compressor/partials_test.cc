// SPDX-License-Identifier: Apache-2.0
// Partial statistics of ranks that own a share of the tokens, and entries made from them.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "compressor/compressor_problem.h"
#include "support/targets.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

// One sequence, so that entries are numbered as they come.
CompressorCase CaseOf(int64_t ratio, bool overlap) {
  CompressorCase c;
  c.ratio = ratio;
  c.overlap = overlap;
  c.seq_lens = {130};
  return c;
}

// The entries of all ranks' partials, into the cache of `problem`.
Status Merge(CompressorProblem& problem, const std::vector<Guarded<float>>& partials,
             const Executor& executor = {}) {
  const CompressorCase& c = problem.c;
  const int64_t num_entries = c.seq_lens[0] / c.ratio;
  std::vector<View<const float, 3>> parts;
  for (const Guarded<float>& p : partials) {
    parts.push_back(Packed(p.data(), num_entries, 3, c.head_dim));
  }
  std::vector<int64_t> positions, slots;
  for (int64_t e = 0; e < num_entries; ++e) {
    positions.push_back(e * c.ratio + c.ratio - 1);
    slots.push_back(problem.EntrySlot(0, e));
  }
  CompressedMergeArgs args;
  args.parts = parts.data();
  args.num_parts = parts.size();
  args.positions = Packed(positions.data(), positions.size());
  args.slot_mapping = Packed(slots.data(), slots.size());
  args.transform = problem.transform;
  args.cache = problem.cache.cache;
  CompressedMergeOptions options;
  options.target = problem.options.target;
  options.ratio = c.ratio;
  return MergeCompressed(args, options, executor);
}

void RequirePartials(const CompressorProblem& problem) {
  const CompressorCase& c = problem.c;
  const CompressorArgs whole = problem.Whole();
  for (int64_t e = 0; e < c.seq_lens[0] / c.ratio; ++e) {
    CAPTURE(e);
    const ref::PooledStats stats = ref::PoolTokens(whole.kv, whole.score, whole.ape,
                                                   problem.options, 0, (e + 1) * c.ratio - 1);
    for (int64_t i = 0; i < c.head_dim; ++i) {
      CAPTURE(i);
      const auto at = static_cast<size_t>(i);
      const auto have = [&](int64_t which) {
        return static_cast<double>(
            problem.partials[static_cast<size_t>((e * 3 + which) * c.head_dim + i)]);
      };
      if (stats.sum[at] == 0.0) {
        REQUIRE(have(0) == -ref::kInf);
        REQUIRE(have(1) == 0.0);
        REQUIRE(have(2) == 0.0);
        continue;
      }
      REQUIRE(have(0) == static_cast<double>(static_cast<float>(stats.max[at])));
      REQUIRE(std::abs(have(1) - stats.sum[at]) <= 1e-5 * stats.sum[at]);
      REQUIRE(std::abs(have(2) - stats.weighted[at]) <= 1e-5 * 4 * stats.sum[at]);
    }
  }
}

TEST_CASE("ranks pool what they own, and together all", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  const auto [ratio, overlap] =
      GENERATE(table<int64_t, bool>({{4, true}, {33, false}, {1, false}, {3, true}}));
  const auto [world, interleave] =
      GENERATE(table<int64_t, int64_t>({{1, 1}, {2, 1}, {3, 2}, {2, 16}, {5, 7}}));
  CAPTURE(Name(target), ratio, overlap, world, interleave);
  CompressorProblem merged(CaseOf(ratio, overlap));
  merged.options.target = target;
  std::vector<Guarded<float>> partials;
  for (int64_t rank = 0; rank < world; ++rank) {
    CAPTURE(rank);
    CompressorCase c = CaseOf(ratio, overlap);
    c.shard = {world, rank, interleave};
    // The least ring: as many rows as the rank can own of one entry's.
    const int64_t cycle = world * interleave;
    const int64_t owned =
        c.window() / cycle * interleave + std::min(c.window() % cycle, interleave);
    c.state_block_size = 2;
    c.ring_pages = CeilDiv(owned, 2);
    CompressorProblem problem(c);
    problem.options.target = target;
    problem.always_partials = true;
    problem.FeedInChunks(1, 30, ThreadExecutor(2));
    RequirePartials(problem);
    REQUIRE(SameBits(problem.ExpectedState(), problem.state.bytes));
    for (const std::byte b : problem.cache.bytes) REQUIRE(b == static_cast<std::byte>(kPoison));
    partials.push_back(Guarded<float>(problem.partials));
  }
  const Status status = Merge(merged, partials, ThreadExecutor(3));
  INFO(Format(status).c_str());
  REQUIRE(status.ok());
  merged.done = merged.c.seq_lens;
  merged.RequireEntries();
}

TEST_CASE("one rank's partials become the entries of a direct call, bit for bit", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  CompressorProblem direct(CaseOf(33, false)), indirect(CaseOf(33, false));
  direct.options.target = indirect.options.target = target;
  direct.FeedRest();
  indirect.always_partials = true;
  indirect.FeedRest();
  std::vector<Guarded<float>> partials;
  partials.push_back(Guarded<float>(indirect.partials));
  REQUIRE(Merge(indirect, partials).ok());
  REQUIRE(SameBits(direct.cache.bytes, indirect.cache.bytes));
}

}  // namespace
}  // namespace lathe::test
