// SPDX-License-Identifier: Apache-2.0
// A logit's bits depend on its query row and its key alone.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "indexer/indexer_problem.h"
#include "support/targets.h"

namespace lathe::test {
namespace {

// The rows of `problem` without the gaps between them.
std::vector<float> Rows(IndexerProblem& problem, int64_t columns) {
  std::vector<float> rows;
  for (int64_t t = 0; t < problem.num_tokens(); ++t) {
    for (int64_t key = 0; key < columns; ++key) rows.push_back(problem.Logit(t, key));
  }
  return rows;
}

IndexerCase Batch(CacheFormat format, QueryType query, int64_t heads) {
  IndexerCase c;
  c.format = format;
  c.query = query;
  c.heads = heads;
  c.block_size = 16;
  c.seq_lens = {300, 3, 0, 129, 600};
  c.q_lens = {2, 1, 1, 3, 40};
  return c;
}

TEST_CASE("threads and repetition do not change a bit", "[indexer][logits][determinism]") {
  const CacheFormat format = GENERATE(CacheFormat::kIndexerFp8, CacheFormat::kLatentBFloat16);
  const int64_t heads = GENERATE(5, 64);
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target), NameOf(format), heads);
  IndexerProblem problem(Batch(format, QueryType::kBFloat16, heads));
  problem.options.target = target;
  problem.options.fill = true;
  problem.Run(1);
  const std::vector<float> once = problem.logits.Copy();
  for (const size_t threads : {1, 2, 3, 7}) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      problem.Run(threads);
      REQUIRE(SameBits(problem.logits.Copy(), once));
    }
  }
}

// A row alone, with its keys at other places of their tiles, in the company of others, paged or not.
TEST_CASE("company does not change a bit", "[indexer][logits][determinism]") {
  const CacheFormat format = GENERATE(CacheFormat::kIndexerFp8, CacheFormat::kIndexerMxfp4,
                                      CacheFormat::kLatentFloat16, CacheFormat::kLatentBFloat16);
  const QueryType query = GENERATE(QueryType::kBFloat16, QueryType::kFloat32);
  const int64_t heads = GENERATE(3, 7, 16, 29, 64);
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target), NameOf(format), static_cast<int>(query), heads);
  IndexerCase c = Batch(format, query, heads);
  c.seq_lens = {300};
  c.q_lens = {5};
  IndexerProblem problem(c);
  problem.options.target = target;
  problem.options.fill = true;
  problem.Run();
  const std::vector<float> together = Rows(problem, 300);

  IndexerInputs& in = problem.args.inputs;
  SECTION("one row a call") {
    const IndexerLogitsArgs all = problem.args;
    problem.logits.Poison();
    for (int64_t t = 0; t < 5; ++t) {
      IndexerLogitsArgs one = all;
      one.inputs.q.data += t * in.q.stride[0] * static_cast<int64_t>(SizeOf(in.q.dtype));
      one.inputs.weights.data += t * in.weights.stride[0];
      one.logits.data += t * one.logits.stride[0];
      one.inputs.q.extent[0] = one.inputs.weights.extent[0] = one.logits.extent[0] = 1;
      one.inputs.query_start_loc = {};
      const auto seq_len = static_cast<int32_t>(296 + t);
      one.inputs.keys.seq_lens = Packed(&seq_len, 1);
      REQUIRE(ComputeIndexerLogits(one, problem.options,
                                   {problem.workspace.data(), problem.workspace.size()})
                  .ok());
    }
    REQUIRE(SameBits(Rows(problem, 300), together));
  }
  SECTION("ragged, keys moved by 0 to 20 slots") {
    for (const int64_t move : {0, 1, 5, 8, 20}) {
      FormatPages keys(format, c.width, 1, 300 + move);
      for (int64_t key = 0; key < 300; ++key) {
        const int64_t from = problem.SlotOf(0, key);
        std::memcpy(keys.Record(key + move), problem.pages.Record(from),
                    static_cast<size_t>(RecordBytes(format, c.width)));
        std::memcpy(keys.Side(key + move), problem.pages.Side(from),
                    static_cast<size_t>(SideBytes(format)));
      }
      std::vector<int64_t> starts, ends;
      for (int64_t t = 0; t < 5; ++t) {
        starts.push_back(move);
        ends.push_back(296 + t + move);
      }
      IndexerLogitsArgs args = problem.args;
      args.inputs.keys.cache = keys.cache;
      args.inputs.keys.block_table = {};
      args.inputs.keys.seq_lens = args.inputs.query_start_loc = {};
      args.inputs.keys.row_starts = Packed(static_cast<const int64_t*>(starts.data()), 5);
      args.inputs.keys.row_kv_lens = Packed(static_cast<const int64_t*>(ends.data()), 5);
      std::vector<float> logits(static_cast<size_t>(5 * (300 + move)));
      args.logits = Packed(logits.data(), 5, 300 + move);
      REQUIRE(ComputeIndexerLogits(args, problem.options,
                                   {problem.workspace.data(), problem.workspace.size()})
                  .ok());
      for (size_t t = 0; t < 5; ++t) {
        const size_t width = static_cast<size_t>(300 + move);
        const std::vector<float> got(&logits[t * width + static_cast<size_t>(move)],
                                     &logits[t * width] + width);
        const std::vector<float> expected(&together[t * 300], &together[t * 300] + 300);
        REQUIRE(SameBits(got, expected));
      }
    }
  }
  SECTION("all blocks as candidates") {
    std::vector<int32_t> blocks(5 * 43);
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(42 - i % 43);
    in.candidate_blocks = Packed(static_cast<const int32_t*>(blocks.data()), 5, 43);
    in.candidate_block_size = 7;
    problem.Run(3);
    REQUIRE(SameBits(Rows(problem, 300), together));
  }
}

}  // namespace
}  // namespace lathe::test
