// SPDX-License-Identifier: Apache-2.0
// Indexer logits against the double reference: every format, any heads, widths, pages and row lengths.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "indexer/indexer_problem.h"
#include "support/targets.h"

namespace lathe::test {
namespace {

constexpr CacheFormat kPlain[] = {CacheFormat::kLatentFloat32, CacheFormat::kLatentFloat16,
                                  CacheFormat::kLatentBFloat16};

// On every target, with two workers.
void RequireRight(IndexerProblem& problem) {
  const std::vector<double> reference = problem.Reference();
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.Run(2);
    problem.RequireMatches(reference);
  }
}

TEST_CASE("logits of keys in every format", "[indexer][logits]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  const QueryType query =
      GENERATE(QueryType::kFloat32, QueryType::kFloat16, QueryType::kBFloat16, QueryType::kFp8);
  CAPTURE(row.name, static_cast<int>(query));
  IndexerCase c;
  c.format = row.format;
  c.query = query;
  c.heads = 20;
  c.width = FixedWidth(row.format) == 0 ? 128 : FixedWidth(row.format);
  c.seq_lens = {131, 7};
  IndexerProblem problem(c);
  problem.options.fill = query == QueryType::kFp8;
  RequireRight(problem);
}

TEST_CASE("logits of any number of heads and columns", "[indexer][logits]") {
  const int64_t heads = GENERATE(1, 2, 3, 4, 5, 8, 13, 16, 29, 32, 64, 100);
  const int64_t width = GENERATE(1, 64, 100, 128);
  const CacheFormat format = GENERATE(from_range(std::begin(kPlain), std::end(kPlain)));
  CAPTURE(heads, width, NameOf(format));
  IndexerCase c;
  c.format = format;
  c.heads = heads;
  c.width = width;
  c.seq_lens = {67};
  c.block_size = 16;
  IndexerProblem problem(c);
  RequireRight(problem);
}

TEST_CASE("logits over pages of any size, of several queries a sequence", "[indexer][logits]") {
  const int64_t block_size = GENERATE(1, 3, 16, 64, 200);
  const int64_t q_len = GENERATE(1, 2, 3);
  const bool fill = GENERATE(false, true);
  CAPTURE(block_size, q_len, fill);
  IndexerCase c;
  c.heads = 6;
  c.block_size = block_size;
  c.seq_lens = {0, 1, 2, 47, 48, 64, 65, 129, 300};
  c.q_lens = std::vector<int64_t>(c.seq_lens.size(), q_len);
  IndexerProblem problem(c);
  problem.options.fill = fill;
  RequireRight(problem);
}

TEST_CASE("rows of uneven numbers, and of none", "[indexer][logits]") {
  IndexerCase c;
  c.heads = 4;
  c.block_size = 16;
  c.seq_lens = {40, 90, 3, 200};
  c.q_lens = {0, 70, 5, 1};  // more than a block of rows; more rows than keys
  IndexerProblem problem(c);
  problem.options.fill = true;
  RequireRight(problem);
}

TEST_CASE("a key of compressed tokens is seen when it is complete", "[indexer][logits]") {
  const int64_t ratio = GENERATE(4, 128);
  CAPTURE(ratio);
  IndexerCase c;
  c.heads = 8;
  c.compress_ratio = ratio;
  c.seq_lens = {ratio - 1, ratio, ratio * 70 + 2};
  c.q_lens = {1, 2, 3};
  IndexerProblem problem(c);
  problem.options.fill = true;
  RequireRight(problem);
  // Query 1 of 3 is at position 70 r, its successor at 70 r + 1.
  REQUIRE(problem.Logit(1, 0) == -HUGE_VALF);
  REQUIRE(problem.Logit(2, 0) != -HUGE_VALF);
}

TEST_CASE("rows may have lengths of their own", "[indexer][logits]") {
  IndexerCase c;
  c.heads = 5;
  c.seq_lens = {100, 80};
  c.q_lens = {3, 2};
  IndexerProblem problem(c);
  const Guarded<int32_t> lengths(std::vector<int32_t>{17, 0, 1000, -4, 80});
  problem.args.inputs.keys.row_kv_lens = Packed(lengths.data(), 5);
  problem.options.fill = GENERATE(false, true);
  RequireRight(problem);
}

TEST_CASE("per-row lengths count keys, whatever a key stands for", "[indexer][logits]") {
  IndexerCase c;
  c.heads = 5;
  c.compress_ratio = 4;
  c.seq_lens = {100, 80};
  c.q_lens = {3, 2};
  IndexerProblem problem(c);
  const Guarded<int32_t> lengths(std::vector<int32_t>{17, 0, 1000, -4, 20});
  problem.args.inputs.keys.row_kv_lens = Packed(lengths.data(), 5);
  problem.options.fill = true;
  RequireRight(problem);
  REQUIRE(problem.Logit(0, 16) != -HUGE_VALF);
  REQUIRE(problem.Logit(0, 17) == -HUGE_VALF);
  REQUIRE(problem.Logit(2, 24) != -HUGE_VALF);
}

TEST_CASE("rows see a window of keys, from where they start at most", "[indexer][logits]") {
  IndexerCase c;
  c.heads = 5;
  c.block_size = 16;
  c.seq_lens = {100, 80, 3};
  c.q_lens = {3, 2, 5};
  IndexerProblem problem(c);
  const bool has_starts = GENERATE(false, true);
  const Guarded<int32_t> starts(std::vector<int32_t>{95, 0, -7, 1000, 50, 0, 1, 2, 3, 4});
  if (has_starts) problem.args.inputs.keys.row_starts = Packed(starts.data(), 10);
  problem.args.inputs.keys.window = GENERATE(int64_t{1}, int64_t{20}, kNoWindow);
  problem.options.fill = GENERATE(false, true);
  RequireRight(problem);
}

TEST_CASE("an indexer's block table may be a ring", "[indexer][logits]") {
  IndexerCase c;
  c.heads = 5;
  c.block_size = 16;
  c.seq_lens = {100, 90};
  c.q_lens = {3, 2};
  IndexerProblem problem(c);
  problem.args.inputs.keys.window = 20;
  problem.Run();
  const std::vector<float> expected = problem.logits.Copy();
  // Pages 4 to 6 of the first, 4 and 5 of the second sequence, in columns p % 3.
  const IndexView<2> table = problem.args.inputs.keys.block_table;
  Guarded<int32_t> ring(6);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t page = 4; page < 7 - b; ++page) {
      ring[static_cast<size_t>(b * 3 + page % 3)] = static_cast<int32_t>(table(b, page));
    }
  }
  problem.args.inputs.keys.block_table = Packed(ring.data(), 2, 3);
  problem.args.inputs.keys.wraps = true;
  RequireRight(problem);
  problem.options.target = Target::kAuto;
  problem.Run();
  REQUIRE(SameBits(problem.logits.Copy(), expected));
}

TEST_CASE("ragged rows over one array of keys", "[indexer][logits][ragged]") {
  const CacheFormat format =
      GENERATE(CacheFormat::kIndexerFp8, CacheFormat::kIndexerMxfp4, CacheFormat::kLatentBFloat16);
  const int64_t block_size = GENERATE(1, 64, 1000);
  CAPTURE(NameOf(format), block_size);
  IndexerCase c;
  c.format = format;
  c.heads = 9;
  c.block_size = block_size;
  c.seq_lens = {400};
  c.ranges = {{0, 0}, {0, 1},     {0, 2},     {100, 163}, {100, 164},
              {7, 7}, {100, 165}, {399, 400}, {0, 400}};
  for (int64_t i = 0; i < 70; ++i) c.ranges.push_back({200, 201 + i});
  IndexerProblem problem(c);
  problem.options.fill = GENERATE(false, true);
  RequireRight(problem);
}

TEST_CASE("only candidate blocks of keys are scored", "[indexer][logits][candidates]") {
  const int64_t size = GENERATE(1, 8, 50, 128);
  CAPTURE(size);
  IndexerCase c;
  c.heads = 16;
  c.block_size = 16;
  c.seq_lens = {300, 40};
  c.q_lens = {2, 1};
  IndexerProblem problem(c);
  const Guarded<int32_t> blocks(std::vector<int32_t>{4, 0, -1, 2, 4, 2147483647,  // one twice
                                                     -1, -1, -1, -1, -1, -1,      // none
                                                     0, 1, 2, 3, 4, 5});
  problem.args.inputs.candidate_blocks = Packed(blocks.data(), 3, 6);
  problem.args.inputs.candidate_block_size = size;
  problem.options.fill = GENERATE(false, true);
  RequireRight(problem);
}

TEST_CASE("rows without candidates see nothing", "[indexer][logits][candidates]") {
  IndexerCase c;
  c.seq_lens = {30, 5};
  IndexerProblem problem(c);
  problem.args.inputs.candidate_blocks = Packed(static_cast<const int32_t*>(nullptr), 2, 0);
  problem.args.inputs.candidate_block_size = 8;
  problem.options.fill = true;
  RequireRight(problem);
}

TEST_CASE("any layout of inputs", "[indexer][logits]") {
  IndexerCase c;
  c.heads = 7;
  c.width = 64;
  c.format = CacheFormat::kLatentFloat32;
  c.query = QueryType::kFloat32;
  c.seq_lens = {30, 31};
  IndexerProblem problem(c);
  const std::vector<double> reference = problem.Reference();
  // Heads outermost, rows apart.
  Guarded<float> q(static_cast<size_t>(6 * 2 * 70 + 70 + 64)), w(static_cast<size_t>(13 + 3));
  const auto* packed = reinterpret_cast<const float*>(problem.q.data());
  for (size_t t = 0; t < 2; ++t) {
    for (size_t h = 0; h < 7; ++h) {
      std::copy_n(packed + (t * 7 + h) * 64, 64, q.data() + h * 140 + t * 70);
      w[h * 2 + t] = problem.weights[t * 7 + h];
    }
  }
  IndexerInputs& in = problem.args.inputs;
  in.q.data = reinterpret_cast<const std::byte*>(q.data());
  in.q.stride[0] = 70;
  in.q.stride[1] = 140;
  in.weights.data = w.data();
  in.weights.stride[0] = 1;
  in.weights.stride[1] = 2;
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.Run();
    problem.RequireMatches(reference);
  }
}

TEST_CASE("precision chooses the products", "[indexer][logits]") {
  const CacheFormat format = GENERATE(CacheFormat::kIndexerFp8, CacheFormat::kLatentBFloat16);
  const Precision precision = GENERATE(Precision::kBFloat16, Precision::kFloat32);
  CAPTURE(NameOf(format), static_cast<int>(precision));
  IndexerCase c;
  c.format = format;
  c.query = QueryType::kFloat32;
  c.seq_lens = {500};
  IndexerProblem problem(c);
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  problem.options.target = target;
  problem.Run();
  const std::vector<float> automatic = problem.logits.Copy();
  problem.options.precision = precision;
  problem.Run();
  const bool rounds = precision == Precision::kBFloat16 && HasNativeBf16(target);
  REQUIRE(SameBits(automatic, problem.logits.Copy()) == !rounds);
  if (!rounds) return problem.RequireMatches(problem.Reference());
  // Queries rounded once.
  for (int64_t h = 0; h < c.heads; ++h) {
    for (int64_t column = 0; column < c.width; ++column) {
      float x;
      std::memcpy(&x, problem.q.data() + (h * c.width + column) * 4, 4);
      problem.SetQuery(0, h, column, ToFloat(FromFloat<bfloat16>(x)));
    }
  }
  problem.RequireMatches(problem.Reference());
}

}  // namespace
}  // namespace lathe::test
