// SPDX-License-Identifier: Apache-2.0
// How selected columns are written: pools, newest positions, slots, values, strides, index types.
#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/strided.h"
#include "support/targets.h"
#include "support/threads.h"
#include "support/topk_problem.h"

namespace lathe::test {
namespace {

template <class Index>
std::vector<int64_t> List(const TopkProblem<Index>& problem) {
  return std::vector<int64_t>(problem.indices.begin(), problem.indices.end());
}

TEST_CASE("the newest positions are in, however bad their scores", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  // Columns 0 .. 9; the last three are NaN. Of the others, 6, 2 and 4 are best.
  TopkProblem<> problem(1, 10, 2, 5);
  problem.options.target = target;
  const float scores[10] = {0, 1, 8, 2, 7, 3, 9, kNan, kNan, kNan};
  std::copy(scores, scores + 10, problem.scores.begin());
  problem.options.append_newest = 3;
  problem.RunAndRequireReference();
  REQUIRE(List(problem) == std::vector<int64_t>{2, 6, 7, 8, 9});
  REQUIRE(problem.counts[0] == 5);
  REQUIRE(problem.values.Copy() == std::vector<float>{8, 9, kInf, kInf, kInf});

  // With four positions in all, one is left to choose.
  const Guarded<int32_t> ends(std::vector<int32_t>{4});
  problem.args.row_ends = Packed(ends.data(), 1);
  problem.RunAndRequireReference();
  REQUIRE(List(problem) == std::vector<int64_t>{0, 1, 2, 3, -1});
  REQUIRE(problem.counts[0] == 4);
}

TEST_CASE("pools of four and an unscored tail: a list of 2048 + 3", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  // Positions of the sequence modulo 4: that many are past the last complete pool.
  for (int64_t tail = 0; tail < 4; ++tail) {
    for (const size_t threads : {1u, 3u}) {
      CAPTURE(Name(target), tail, threads);
      constexpr int64_t kPools = 70000;
      TopkProblem<> problem(1, kPools, 512, 2051);
      problem.options.target = target;
      problem.FillNormal(4);
      problem.options.pool_size = 4;
      problem.options.append_newest = 3;
      const Guarded<int64_t> lens(std::vector<int64_t>{4 * kPools + tail});
      problem.args.row_lens = Packed(lens.data(), 1);
      problem.RunAndRequireReference(ThreadExecutor(threads));
      const std::vector<int64_t> list = List(problem);
      REQUIRE(problem.counts[0] == 2048 + tail);
      for (size_t i = 0; i < 2048; i += 4) {
        REQUIRE(list[i] % 4 == 0);
        for (int64_t j = 1; j < 4; ++j) REQUIRE(list[i + static_cast<size_t>(j)] == list[i] + j);
      }
      for (int64_t i = 0; i < 3; ++i) {
        REQUIRE(list[static_cast<size_t>(2048 + i)] == (i < tail ? 4 * kPools + i : -1));
      }
    }
  }
}

TEST_CASE("a pool is cut where the row's positions end", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  // Pools 0, 1, 2 of three positions; the row has seven, so that pool 2 is position 6 alone.
  TopkProblem<> problem(1, 3, 2, 7);
  problem.options.target = target;
  problem.options.pool_size = 3;
  const float scores[3] = {1, 0, 2};
  std::copy(scores, scores + 3, problem.scores.begin());
  const Guarded<int64_t> lens(std::vector<int64_t>{7});
  problem.args.row_lens = Packed(lens.data(), 1);
  problem.RunAndRequireReference();
  REQUIRE(List(problem) == std::vector<int64_t>{0, 1, 2, 6, -1, -1, -1});
  REQUIRE(problem.values.Copy() == std::vector<float>{1, 1, 1, 2, -kInf, -kInf, -kInf});
}

TEST_CASE("a causal limit in positions drops the columns past it", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  TopkProblem<> problem(1, 8, 3);
  problem.options.target = target;
  for (size_t i = 0; i < 8; ++i) problem.scores[i] = static_cast<float>(i);
  for (const int64_t length : {-5, 0, 1, 3, 5, 8}) {
    CAPTURE(length);
    const Guarded<int64_t> lens(std::vector<int64_t>{length});
    problem.args.row_lens = Packed(lens.data(), 1);
    problem.RunAndRequireReference();
    REQUIRE(problem.counts[0] == std::clamp<int64_t>(length, 0, 3));
    REQUIRE(problem.indices[0] == (length < 1 ? -1 : std::max<int64_t>(length - 3, 0)));
  }
}

TEST_CASE("bounds of any kind make empty rows, not errors", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max(), kLow = -kFar - 1;
  const std::vector<int64_t> starts = {0, -7, 3, 5, 6, 100, kFar, kLow, kLow, 2};
  const std::vector<int64_t> ends = {0, -7, 2, 5, 5, 200, kFar, kLow, kFar, kFar};
  const std::vector<int64_t> expected = {0, 0, 0, 0, 0, 0, 0, 0, 5, 3};
  TopkProblem<> problem(10, 5, 6);
  problem.options.target = target;
  problem.FillNormal(5);
  const Guarded<int64_t> guarded_starts(starts), guarded_ends(ends);
  problem.args.row_starts = Packed(guarded_starts.data(), 10);
  problem.args.row_ends = Packed(guarded_ends.data(), 10);
  for (const TopkIndexBase base : {TopkIndexBase::kColumn, TopkIndexBase::kRowStart}) {
    problem.options.index_base = base;
    problem.RunAndRequireReference();
    for (size_t t = 0; t < 10; ++t) REQUIRE(problem.counts[t] == expected[t]);
  }
}

TEST_CASE("slots: the block table of the row's sequence", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  TopkProblem<> problem(2, 10, 3);
  problem.options.target = target;
  for (size_t i = 0; i < 20; ++i) problem.scores[i] = i % 10 == 1 || i % 10 == 4 || i % 10 == 9;
  // Pages of three; row 0 is sequence 1, row 1 sequence 0.
  const Guarded<int64_t> table(std::vector<int64_t>{10, 11, 12, 13, 7, 0, 5, 2});
  const Guarded<int32_t> seqs(std::vector<int32_t>{1, 0});
  problem.args.block_table = Packed(table.data(), 2, 4);
  problem.args.row_seq = Packed(seqs.data(), 2);
  problem.args.block_size = 3;
  problem.args.num_blocks = 14;
  problem.RunAndRequireReference();
  REQUIRE(List(problem) == std::vector<int64_t>{22, 1, 6, 31, 34, 39});
}

TEST_CASE("block ids out of range make holes where they are allowed", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  TopkProblem<> problem(1, 8, 8);
  problem.options.target = target;
  problem.FillNormal(8);
  const Guarded<int32_t> table(std::vector<int32_t>{3, -1, 4, 0});
  problem.args.block_table = Packed(table.data(), 1, 4);
  problem.args.block_size = 2;
  problem.args.num_blocks = 4;
  problem.options.allow_holes = true;
  problem.RunAndRequireReference();
  REQUIRE(List(problem) == std::vector<int64_t>{6, 7, -1, -1, -1, -1, 0, 1});
  REQUIRE(problem.counts[0] == 8);
}

TEST_CASE("block ids past a row's positions are not read", "[topk]") {
  TopkProblem<> problem(2, 6, 4);
  problem.FillNormal(9);
  // Pages of four: row 0 needs two and row 1, the last of the table, one. The rest is garbage.
  const Guarded<int32_t> table(std::vector<int32_t>{1, 0, -5, 1, 1 << 30});
  const Guarded<int32_t> ends(std::vector<int32_t>{6, 4});
  problem.args.block_table = View<const int32_t, 2>{table.data(), {2, 2}, {3, 1}};
  problem.args.row_ends = Packed(ends.data(), 2);
  problem.args.block_size = 4;
  problem.args.num_blocks = 2;
  problem.RunAndRequireReference();
}

TEMPLATE_TEST_CASE("any strides, and nothing between the elements is written", "[topk]", int32_t,
                   int64_t) {
  const Target target = LATHE_GENERATE_TARGET();
  for (const int64_t n : {50, 70000}) {
    CAPTURE(Name(target), n);
    TopkProblem<> packed(3, n, 40, 45);
    packed.options.target = target;
    packed.FillNormal(3);
    packed.Run();
    Strided<float, 2> scores({3, n}, {n + 9, 1}, packed.scores);
    // Lists lie side by side, place by place.
    Strided<TestType, 2> indices({3, 45}, {2, 7});
    Strided<float, 2> values({3, 45}, {100, 2});
    Strided<TestType, 1> counts({3}, {5});
    TopkProblem<> problem(3, n, 40);
    problem.options.target = target;
    problem.args.logits = scores.view();
    problem.args.indices = indices.view();
    problem.args.values = values.view();
    problem.args.counts = counts.view();
    problem.RunAndRequireReference(ThreadExecutor(2));
    REQUIRE(indices.AreGapsIntact());
    REQUIRE(values.AreGapsIntact());
    REQUIRE(counts.AreGapsIntact());
    const std::vector<TestType> got = indices.Packed();
    REQUIRE(std::equal(got.begin(), got.end(), packed.indices.begin(), packed.indices.end()));
    REQUIRE(SameBits(values.Packed(), packed.values.Copy()));
  }
}

TEST_CASE("positions and slots past 2^31", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  TopkProblem<int64_t> problem(1, 4, 2, 1 << 21);
  problem.options.target = target;
  problem.options.pool_size = 1 << 20;
  problem.args.values = {};
  for (size_t i = 0; i < 4; ++i) problem.scores[i] = static_cast<float>(i);
  const Guarded<int64_t> table(std::vector<int64_t>{0, 9000, 70000, int64_t{1} << 33});
  problem.args.block_table = Packed(table.data(), 1, 4);
  problem.args.block_size = 1 << 20;
  problem.args.num_blocks = (int64_t{1} << 33) + 1;
  problem.RunAndRequireReference();
  REQUIRE(problem.indices[0] == int64_t{70000} << 20);
  REQUIRE(problem.indices[(1 << 21) - 1] == (int64_t{1} << 53) + (1 << 20) - 1);
}

TEST_CASE("counts and values may be left out", "[topk]") {
  TopkProblem<> problem(2, 100, 10);
  problem.FillNormal(2);
  problem.Run();
  const std::vector<int32_t> expected = problem.indices.Copy();
  problem.args.counts = {};
  problem.args.values = {};
  problem.Run();
  REQUIRE(SameBits(problem.indices.Copy(), expected));
}

TEST_CASE("no rows and no columns", "[topk]") {
  for (const int64_t k : {0, 4}) {
    TopkProblem<> no_rows(0, 100, k);
    no_rows.Run();
    TopkProblem<> no_columns(3, 0, k);
    no_columns.RunAndRequireReference();
  }
}

// Everything at once, against the reference.
TEMPLATE_TEST_CASE("random lists of every kind", "[topk]", int32_t, int64_t) {
  const Target target = LATHE_GENERATE_TARGET();
  Random random(sizeof(TestType));
  for (int round = 0; round < 300; ++round) {
    const int64_t rows = 1 + random.Below(4);
    const int64_t columns = round % 10 == 0 ? 50000 + random.Below(50000) : random.Below(700);
    const int64_t k = random.Below(round % 3 == 0 ? 600 : 40), pool = 1 + random.Below(5);
    const int64_t append = random.Below(2) * random.Below(12);
    TopkProblem<TestType> problem(rows, columns, k, k * pool + append + random.Below(3));
    problem.options.target = target;
    problem.options.pool_size = pool;
    problem.options.append_newest = append;
    problem.options.index_base =
        random.Below(2) == 0 ? TopkIndexBase::kColumn : TopkIndexBase::kRowStart;
    const bool has_ties = random.Below(2) == 0;
    for (float& x : problem.scores) {
      x = has_ties ? static_cast<float>(random.Below(20)) : random.Normal();
      if (random.Below(50) == 0) x = kNan;
    }
    const auto n = static_cast<size_t>(rows);
    std::vector<TestType> starts(n), ends(n), lens(n), seqs(n);
    for (size_t t = 0; t < n; ++t) {
      starts[t] = static_cast<TestType>(random.Below(columns / 2 + 2) - 1);
      ends[t] = static_cast<TestType>(random.Below(columns + 10) - 1);
      lens[t] = static_cast<TestType>(random.Below((columns + 2) * pool) - 2);
      seqs[t] = static_cast<TestType>(random.Below(2));
    }
    const Guarded<TestType> guarded_starts(starts), guarded_ends(ends), guarded_lens(lens),
        guarded_seqs(seqs);
    if (random.Below(2) == 0) problem.args.row_starts = Packed(guarded_starts.data(), rows);
    if (random.Below(2) == 0) problem.args.row_ends = Packed(guarded_ends.data(), rows);
    if (random.Below(2) == 0) problem.args.row_lens = Packed(guarded_lens.data(), rows);
    const int64_t block_size = 1 + random.Below(70);
    const int64_t pages = (columns + 2) * pool / block_size + 1;
    std::vector<TestType> table(static_cast<size_t>(2 * pages));
    for (TestType& block : table) block = static_cast<TestType>(random.Below(1000));
    const Guarded<TestType> guarded_table(table);
    if (random.Below(2) == 0) {
      problem.args.block_table = Packed(guarded_table.data(), 2, pages);
      problem.args.row_seq = Packed(guarded_seqs.data(), rows);
      problem.args.block_size = block_size;
      problem.args.num_blocks = 1000;
    }
    const auto threads = static_cast<size_t>(1 + random.Below(7));
    CAPTURE(Name(target), round, rows, columns, k, pool, append, threads, block_size);
    problem.RunAndRequireReference(ThreadExecutor(threads));
  }
}

}  // namespace
}  // namespace lathe::test
