// SPDX-License-Identifier: Apache-2.0
// Entries against the double reference, and the same bits however tokens reach the compressor.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "compressor/compressor_problem.h"
#include "support/targets.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

struct Kind {
  int64_t ratio;
  bool overlap;
};
// The models' first; then the smallest, odd ones, and more rows than a chunk of the kernel.
constexpr Kind kKinds[] = {{4, true}, {128, false}, {1, false}, {1, true},  {2, true},
                           {3, true}, {5, false},   {17, true}, {33, false}};

CompressorCase CaseOf(const Kind& kind) {
  CompressorCase c;
  c.ratio = kind.ratio;
  c.overlap = kind.overlap;
  return c;
}

TEST_CASE("entries are the pooled, transformed rows of their tokens", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  const Kind kind = GENERATE(from_range(kKinds));
  const bool has_transform = GENERATE(true, false);
  CAPTURE(Name(target), kind.ratio, kind.overlap, has_transform);
  CompressorCase c = CaseOf(kind);
  c.seq_lens = {301, 1, 150};
  c.has_transform = has_transform;
  CompressorProblem problem(c);
  problem.options.target = target;
  problem.FeedRest();
  problem.RequireEntries();
  REQUIRE(SameBits(problem.ExpectedState(), problem.state.bytes));
}

TEST_CASE("entries of all positions up to 600 are right, token by token", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  const Kind kind = GENERATE(Kind{4, true}, Kind{128, false});
  CAPTURE(Name(target), kind.ratio);
  CompressorCase c = CaseOf(kind);
  c.head_dim = 64;
  c.seq_lens = {601};
  c.ring_pages = CeilDiv(c.window(), c.state_block_size);
  CompressorProblem problem(c);
  problem.options.target = target;
  for (int64_t position = 0; position < 601; ++position) {
    problem.Feed({1});
    if (position % 50 == 0 || position == 127) problem.RequireEntries();
  }
  problem.RequireEntries();
}

TEST_CASE("how tokens are divided into calls does not change a bit", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  const Kind kind = GENERATE(from_range(kKinds));
  CAPTURE(Name(target), kind.ratio, kind.overlap);
  CompressorCase c = CaseOf(kind);
  c.seq_lens = {301, 150};
  c.kv_type = GENERATE(DType::kFloat32, DType::kBFloat16);
  CompressorProblem at_once(c), by_token(c);
  at_once.options.target = by_token.options.target = target;
  at_once.FeedRest();
  at_once.RequireEntries();
  by_token.FeedByToken();
  REQUIRE(SameBits(at_once.cache.bytes, by_token.cache.bytes));
  REQUIRE(SameBits(at_once.state.bytes, by_token.state.bytes));
  for (const int64_t most : {3, 40, 200}) {
    CAPTURE(most);
    CompressorProblem in_chunks(c);
    in_chunks.options.target = target;
    in_chunks.FeedInChunks(static_cast<uint64_t>(most), most);
    REQUIRE(SameBits(at_once.cache.bytes, in_chunks.cache.bytes));
    REQUIRE(SameBits(at_once.state.bytes, in_chunks.state.bytes));
  }
}

TEST_CASE("a ring of states gives the bits of pages", "[compressor][long]") {
  const Target target = LATHE_GENERATE_TARGET();
  const Kind kind = GENERATE(from_range(kKinds));
  const int64_t block_size = GENERATE(1, 3, 8);
  CAPTURE(Name(target), kind.ratio, kind.overlap, block_size);
  CompressorCase c = CaseOf(kind);
  c.seq_lens = {290, 301};
  CompressorProblem paged(c);
  paged.options.target = target;
  paged.FeedRest();
  // The least ring there may be, and calls that are shorter, longer, and many times as long.
  c.state_block_size = block_size;
  c.ring_pages = CeilDiv(c.window(), block_size);
  for (const int64_t most : {1, 5, 100, 301}) {
    CAPTURE(most);
    CompressorProblem ring(c);
    ring.options.target = target;
    ring.FeedInChunks(static_cast<uint64_t>(most), most);
    REQUIRE(SameBits(paged.cache.bytes, ring.cache.bytes));
    REQUIRE(SameBits(ring.ExpectedState(), ring.state.bytes));
  }
}

TEST_CASE("the number of workers does not change a bit", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  const Kind kind = GENERATE(from_range(kKinds));
  CAPTURE(Name(target), kind.ratio, kind.overlap);
  CompressorCase c = CaseOf(kind);
  c.head_dim = 260;
  c.seq_lens = {259, 130};
  c.format = CacheFormat::kLatentBFloat16;
  CompressorProblem alone(c);
  alone.options.target = target;
  alone.Feed({127, 2});
  alone.FeedRest();
  for (const size_t threads : {1, 2, 3, 7}) {
    CAPTURE(threads);
    CompressorProblem problem(c);
    problem.options.target = target;
    problem.Feed({127, 2}, ThreadExecutor(threads));
    problem.Feed({1, 0}, ThreadExecutor(threads));  // one entry at most, for all workers
    problem.FeedRest(ThreadExecutor(threads));
    REQUIRE(SameBits(alone.cache.bytes, problem.cache.bytes));
    REQUIRE(SameBits(alone.state.bytes, problem.state.bytes));
  }
}

TEST_CASE("a call asks for threads at most twice", "[compressor]") {
  const Kind kind = GENERATE(from_range(kKinds));
  using Counts = std::vector<int64_t>;
  const Counts counts = GENERATE(Counts{128, 0}, Counts{1, 1}, Counts{259, 130});
  CAPTURE(kind.ratio, kind.overlap, counts[0]);
  CompressorCase c = CaseOf(kind);
  c.head_dim = 512;
  c.seq_lens = {259, 130};
  CompressorProblem problem(c);
  int times = 0;
  auto pool = [&times](size_t num_tasks, const auto& body) {
    ++times;
    for (size_t task = 0; task < num_tasks; ++task) body(task);
  };
  problem.Feed(counts, CallableExecutor(pool, 16));
  REQUIRE(times <= 2);
  if (counts[1] == 130) REQUIRE(times == 2);
}

TEST_CASE("kv and scores of any type and stride", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  CompressorCase c = CaseOf(GENERATE(Kind{4, true}, Kind{33, false}));
  c.kv_type = GENERATE(from_range(kDTypes));
  c.score_type = GENERATE(from_range(kDTypes));
  c.head_dim = GENERATE(1, 7, 64, 130);
  c.has_transform = false;
  c.row_gap = 5;
  CAPTURE(Name(target), c.ratio, static_cast<int>(c.kv_type), static_cast<int>(c.score_type));
  CompressorProblem problem(c);
  problem.options.target = target;
  problem.FeedInChunks(1, 9);
  problem.RequireEntries();
  REQUIRE(SameBits(problem.ExpectedState(), problem.state.bytes));
}

TEST_CASE("a slot mapping takes entries where a block table does, or nowhere", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  CompressorCase c;
  CompressorProblem by_table(c);
  by_table.options.target = target;
  by_table.FeedInChunks(1, 9);
  c.uses_slots = true;
  CompressorProblem by_slot(c);
  by_slot.options.target = target;
  by_slot.FeedInChunks(1, 9);
  REQUIRE(SameBits(by_table.cache.bytes, by_slot.cache.bytes));

  CompressorProblem unwritten(c);
  unwritten.options.target = target;
  unwritten.break_call = [](CompressorArgs& args) {
    static const int64_t kNowhere = -1;
    args.slot_mapping.data = &kNowhere;
    args.slot_mapping.stride[0] = 0;
  };
  unwritten.FeedInChunks(1, 9);
  for (const std::byte b : unwritten.cache.bytes) REQUIRE(b == static_cast<std::byte>(kPoison));
  REQUIRE(SameBits(unwritten.state.bytes, by_table.state.bytes));
}

TEST_CASE("without query_start_loc every token is a sequence", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  CompressorCase c;
  c.seq_lens = {21, 21, 21};
  CompressorProblem ragged(c), plain(c);
  ragged.options.target = plain.options.target = target;
  plain.break_call = [](CompressorArgs& args) { args.query_start_loc = {}; };
  ragged.FeedByToken();
  plain.FeedByToken();
  REQUIRE(SameBits(ragged.cache.bytes, plain.cache.bytes));
  REQUIRE(SameBits(ragged.state.bytes, plain.state.bytes));
}

TEST_CASE("only rows that are asked for are saved, and suffice", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  const Kind kind = GENERATE(from_range(kKinds));
  CAPTURE(Name(target), kind.ratio, kind.overlap);
  CompressorCase c = CaseOf(kind);
  c.seq_lens = {301, 200};
  CompressorProblem all(c), few(c);
  all.options.target = few.options.target = target;
  all.FeedRest();
  few.options.state_tokens = c.window();
  few.Feed({211, 150});
  std::vector<std::byte> saved(few.state.bytes.size(), static_cast<std::byte>(kPoison));
  for (int64_t i = 0; i < c.window(); ++i) {
    few.SaveRow(0, 210 - i, saved);
    if (i < 150) few.SaveRow(1, 149 - i, saved);
  }
  REQUIRE(SameBits(saved, few.state.bytes));
  few.FeedRest();
  REQUIRE(SameBits(all.cache.bytes, few.cache.bytes));
}

TEST_CASE("tokens may be taken back as far as the state reaches", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  CompressorCase c;
  c.seq_lens = {60};
  c.state_block_size = 1;
  constexpr int64_t kBack = 3;
  c.ring_pages = c.window() + kBack;
  CompressorProblem straight(c), speculating(c);
  straight.options.target = speculating.options.target = target;
  straight.FeedRest();
  while (speculating.done[0] < 56) {
    // A guess of four tokens, of which only the first was right.
    const int64_t next = speculating.done[0];
    std::vector<std::byte> right = speculating.kv;
    for (int64_t i = 1; i <= kBack; ++i) speculating.SetKv(0, next + i, 3, 1e3f);
    speculating.Feed({1 + kBack});
    speculating.kv = right;
    speculating.done[0] = next + 1;
  }
  speculating.FeedRest();
  REQUIRE(SameBits(straight.cache.bytes, speculating.cache.bytes));
}

TEST_CASE("NaN stays in its entries and columns", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  const Kind kind = GENERATE(Kind{4, true}, Kind{33, false});
  const bool is_in_score = GENERATE(false, true), has_transform = GENERATE(false, true);
  CAPTURE(Name(target), kind.ratio, is_in_score, has_transform);
  CompressorCase c = CaseOf(kind);
  c.seq_lens = {100, 100};
  c.has_transform = has_transform;
  CompressorProblem clean(c), dirty(c);
  clean.options.target = dirty.options.target = target;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // Column 5 of the first series, which the next entry takes if there is overlap, else this one.
  constexpr int64_t kPosition = 41, kColumn = 5;
  is_in_score ? dirty.SetScore(1, kPosition, kColumn, nan)
              : dirty.SetKv(1, kPosition, kColumn, nan);
  clean.FeedInChunks(1, 20);
  dirty.FeedInChunks(1, 20);
  for (int64_t seq = 0; seq < 2; ++seq) {
    for (int64_t e = 0; e < 100 / c.ratio; ++e) {
      CAPTURE(seq, e);
      const std::vector<double> before = clean.Entry(seq, e), after = dirty.Entry(seq, e);
      const bool is_hit = seq == 1 && e == kPosition / c.ratio + (c.overlap ? 1 : 0);
      for (size_t i = 0; i < before.size(); ++i) {
        if (is_hit && (has_transform || i == kColumn)) {
          REQUIRE(std::isnan(after[i]));
        } else {
          REQUIRE(after[i] == before[i]);
        }
      }
    }
  }
}

TEST_CASE("scores of -inf have no weight, and a column of them is 0", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  const Kind kind = GENERATE(Kind{4, true}, Kind{33, false});
  CAPTURE(Name(target), kind.ratio);
  CompressorCase c = CaseOf(kind);
  c.has_transform = false;
  c.seq_lens = {2 * kind.ratio};
  CompressorProblem problem(c);
  problem.options.target = target;
  const float inf = std::numeric_limits<float>::infinity();
  const int64_t series = c.overlap ? c.head_dim : 0;
  for (int64_t p = 0; p < 2 * kind.ratio; ++p) {
    problem.SetScore(0, p, 3, -inf);
    problem.SetScore(0, p, series + 3, -inf);
    if (p < 2 * kind.ratio - 1) {
      problem.SetScore(0, p, 4, -inf);
      problem.SetScore(0, p, series + 4, -inf);
    }
  }
  problem.FeedInChunks(1, 5);
  problem.RequireEntries();
  REQUIRE(problem.Entry(0, 1)[3] == 0.0);
  const auto last = LoadElement(DType::kFloat32, problem.Element(problem.kv, DType::kFloat32, 0,
                                                                 2 * kind.ratio - 1, series + 4));
  REQUIRE(problem.Entry(0, 1)[4] == static_cast<double>(last));
}

TEST_CASE("large scores do not overflow", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  CompressorCase c;
  c.has_transform = false;
  CompressorProblem problem(c);
  problem.options.target = target;
  for (int64_t p = 0; p < 41; ++p) {
    for (int64_t i = 0; i < c.width(); ++i) {
      // One of any eight rows is far above all others; sums with ape are too coarse for more.
      problem.SetScore(0, p, i, static_cast<float>((3 * p + i) % 8) * 1e4f - 4e4f);
    }
  }
  problem.FeedInChunks(1, 5);
  problem.RequireEntries();
}

TEST_CASE("nothing to do is done well", "[compressor]") {
  CompressorProblem problem(CompressorCase{});
  problem.Feed({0, 0});
  for (const std::byte b : problem.state.bytes) REQUIRE(b == static_cast<std::byte>(kPoison));
  problem.break_call = [](CompressorArgs& args) { args.block_table = {}; };
  problem.Feed({0, 0});
}

}  // namespace
}  // namespace lathe::test
