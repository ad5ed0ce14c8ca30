// SPDX-License-Identifier: Apache-2.0
// Edges of windows and ratios against brute force, rings, pages that are never read.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "sliding_window/v4_problem.h"

namespace lathe::test {
namespace {

TEST_CASE("A18: every position up to 600 sees its window and its entries",
          "[sliding_window][A18]") {
  const int64_t window = GENERATE(1, 3, 128);
  const int64_t ratio = GENERATE(4, 128);
  CAPTURE(window, ratio);
  // One sequence of 601 queries, so that row i stands at position i.
  const int64_t kLength = 601;
  V4Problem<float> problem({{1, 64, 0}, {kLength}, {kLength}, window, ratio, 16, 2});
  problem.CheckEveryTarget();
}

TEST_CASE("A18: keys that a position sees are counted right", "[sliding_window][A18]") {
  const int64_t window = GENERATE(1, 3, 127, 128);
  const int64_t ratio = GENERATE(1, 4, 128);
  CAPTURE(window, ratio);
  // Scores are 0, so lse is the logarithm of the number of keys, and out the mean of what they hold.
  const int64_t kLength = 601;
  V4Problem<float> problem({{1, 64, 0}, {kLength}, {kLength}, window, ratio, 16, 2});
  for (int64_t p = 0; p < kLength; ++p) problem.SetRow(0, p, 0.0f, static_cast<float>(p));
  for (int64_t e = 0; e < kLength / ratio; ++e) {
    problem.entries.SetRow(0, e, 0.0f, static_cast<float>(10000 + e));
  }
  problem.SetQuery(1.0f);
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.Run();
    for (int64_t position = 0; position < kLength; ++position) {
      double sum = 0.0, count = 0.0;
      for (int64_t p = 0; p <= position; ++p) {
        if (p > position - window) sum += static_cast<double>(p), count += 1.0;
      }
      for (int64_t e = 0; e < kLength / ratio; ++e) {
        if (position >= (e + 1) * ratio - 1) sum += static_cast<double>(10000 + e), count += 1.0;
      }
      INFO("position " << position);
      problem.RequireKnownRow(position, 0, sum / count, std::log(count));
    }
  }
}

TEST_CASE("a ring of pages holds a window", "[sliding_window]") {
  const int64_t block_size = GENERATE(1, 16, 64);
  const int64_t q_len = GENERATE(1, 5);
  const int64_t seq_len = GENERATE(40, 128, 129, 1000);
  CAPTURE(block_size, q_len, seq_len);
  const int64_t columns = (128 + q_len - 2 + block_size - 1) / block_size + 1;
  V4Problem<bfloat16> problem({{5, 512, 0}, {seq_len}, {q_len}, 128, 4, block_size});
  const auto reference = problem.Reference();
  const Guarded<int32_t> ring = problem.RingOf(columns);
  problem.args.keys = WindowKeys(problem.args.keys.cache, Packed(ring.data(), 1, columns),
                                 problem.args.keys.seq_lens, 128, true);
  problem.CheckEveryTarget(reference);
  problem.CheckEveryTarget();
}

TEST_CASE("pages in front of every window may be gone", "[sliding_window]") {
  V4Problem<float> problem({{2, 512, 0}, {1000}, {2}, 128, 4, 16});
  const auto reference = problem.Reference();
  for (size_t page = 0; page < (1000 - 129) / 16; ++page) problem.block_table[page] = -1;
  problem.CheckEveryTarget(reference);
}

TEST_CASE("pages of two sequences interleave in both caches", "[sliding_window]") {
  // MlaProblem deals pages in shuffled order over all sequences.
  V4Problem<bfloat16> problem({{3, 512, 0}, {333, 421}, {2, 3}, 128, 4, 1, 2});
  problem.CheckEveryTarget();
}

TEST_CASE("a long prefill is windows of its blocks", "[sliding_window][long]") {
  const int64_t ratio = GENERATE(4, 128);
  V4Problem<bfloat16> whole({{8, 512, 0}, {2500}, {300}, 128, ratio});
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    whole.options.target = target;
    whole.Run();
    whole.RequireMatchesReference();
  }
}

}  // namespace
}  // namespace lathe::test
