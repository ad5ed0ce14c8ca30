// SPDX-License-Identifier: Apache-2.0
// What logits refuse: the whole message for each way to break a valid call, and no cell written.
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>

#include "indexer/indexer_problem.h"

namespace lathe::test {
namespace {

using Problem = IndexerProblem;
using Inputs = IndexerInputs;

struct Row {
  const char* message;
  void (*break_it)(Problem& p);
};

// Two sequences of 9 and 5 tokens with 2 and 1 rows, pages of 4 keys; or 3 rows with bounds of their own over 9 slots.
IndexerCase ValidCase(bool has_bounds) {
  IndexerCase c;
  c.format = CacheFormat::kLatentFp8E4m3;
  c.heads = 3;
  c.width = 8;
  c.block_size = 4;
  c.seq_lens = {9, 5};
  c.q_lens = {2, 1};
  if (has_bounds) {
    c.seq_lens = {9};
    c.q_lens = {};
    c.ranges = {{0, 4}, {2, 9}, {5, 5}};
  }
  return c;
}

void RequireRefusals(std::initializer_list<Row> rows, bool has_bounds = false,
                     QueryType query = QueryType::kBFloat16) {
  for (const Row& row : rows) {
    INFO("expected: " << row.message);
    IndexerCase c = ValidCase(has_bounds);
    c.query = query;
    Problem problem(c);
    problem.Run();
    problem.logits.Poison();
    const std::vector<float> before = problem.logits.Copy();
    row.break_it(problem);
    problem.options.fill = true;
    const Status status = ComputeIndexerLogits(
        problem.args, problem.options, {problem.workspace.data(), problem.workspace.size()});
    REQUIRE_FALSE(status.ok());
    REQUIRE(std::string(Format(status).c_str()) == row.message);
    REQUIRE(SameBits(problem.logits.Copy(), before));
  }
}

TEST_CASE("logits refuse wrong queries", "[indexer][logits][validation]") {
  RequireRefusals({
      {"invalid argument: inputs.weights.extent[1] is 0, must be at least 1",
       [](Problem& p) {
         p.args.inputs.weights.extent[1] = 0;
         p.args.inputs.q.extent[1] = 0;
       }},
      {"invalid argument: inputs.weights.stride[1] is 0, must be at least 1",
       [](Problem& p) { p.args.inputs.weights.stride[1] = 0; }},
      {"invalid argument: inputs.weights.data must not be null",
       [](Problem& p) { p.args.inputs.weights.data = nullptr; }},
      {"invalid argument: inputs.q.extent[0] is 2, must be 3",
       [](Problem& p) { p.args.inputs.q.extent[0] = 2; }},
      {"invalid argument: inputs.q.extent[1] is 4, must be 3",
       [](Problem& p) { p.args.inputs.q.extent[1] = 4; }},
      {"invalid argument: inputs.q.extent[2] is 0, must be at least 1",
       [](Problem& p) { p.args.inputs.q.extent[2] = 0; }},
      {"invalid argument: inputs.q.extent[2] is 2147483647, must be at most, for as many heads, "
       "715827882",
       [](Problem& p) { p.args.inputs.q.extent[2] = 2147483647; }},
      {"invalid argument: inputs.q.stride[2] is 2, must be 1",
       [](Problem& p) { p.args.inputs.q.stride[2] = 2; }},
      {"invalid argument: inputs.q.data must not be null",
       [](Problem& p) { p.args.inputs.q.data = nullptr; }},
      {"invalid argument: inputs.q must not be given beside inputs.q_fp8",
       [](Problem& p) { p.args.inputs.q_fp8.extent[2] = 8; }},
  });
  RequireRefusals(
      {
          {"invalid argument: inputs.q_fp8.extent[1] is 2, must be 3",
           [](Problem& p) { p.args.inputs.q_fp8.extent[1] = 2; }},
          {"invalid argument: inputs.q_fp8.stride[2] is 2, must be 1",
           [](Problem& p) { p.args.inputs.q_fp8.stride[2] = 2; }},
          {"invalid argument: inputs.q_fp8.stride[0] is 7, must be at least a row's width, 8",
           [](Problem& p) { p.args.inputs.q_fp8.stride[0] = 7; }},
          {"invalid argument: inputs.q_fp8.stride[1] is -8, must be at least 0",
           [](Problem& p) { p.args.inputs.q_fp8.stride[1] = -8; }},
          {"invalid argument: inputs.q_fp8.data must not be null",
           [](Problem& p) { p.args.inputs.q_fp8.data = nullptr; }},
      },
      false, QueryType::kFp8);
}

TEST_CASE("logits refuse wrong caches and outputs", "[indexer][logits][validation]") {
  RequireRefusals({
      {"invalid argument: inputs.keys.cache.format is 77, must be a known CacheFormat",
       [](Problem& p) { p.args.inputs.keys.cache.format = static_cast<CacheFormat>(77); }},
      {"invalid argument: inputs.keys.cache.format is kIndexerFp8, must be one for the width in "
       "use; this one's is 128",
       [](Problem& p) { p.args.inputs.keys.cache.format = CacheFormat::kIndexerFp8; }},
      {"invalid argument: inputs.keys.cache.scale is 0, must be finite and above 0",
       [](Problem& p) { p.args.inputs.keys.cache.scale = 0.0f; }},
      {"invalid argument: inputs.keys.cache.row_stride is 7, must be at least a record's bytes, 8",
       [](Problem& p) { p.args.inputs.keys.cache.row_stride = 7; }},
      {"invalid argument: inputs.keys.cache.data must not be null",
       [](Problem& p) { p.args.inputs.keys.cache.data = nullptr; }},
      {"invalid argument: logits.extent[0] is 2, must be 3",
       [](Problem& p) { p.args.logits.extent[0] = 2; }},
      {"invalid argument: logits.extent[1] is 8, must be at least the end of the longest row, 9",
       [](Problem& p) { p.args.logits.extent[1] = 8; }},
      {"invalid argument: logits.stride[1] is 2, must be 1",
       [](Problem& p) { p.args.logits.stride[1] = 2; }},
      {"invalid argument: logits.stride[0] is 13, must be at least a row's width, 14",
       [](Problem& p) { p.args.logits.stride[0] = 13; }},
      {"invalid argument: logits.data must not be null",
       [](Problem& p) { p.args.logits.data = nullptr; }},
      {"invalid argument: inputs.weights must not overlap logits",
       [](Problem& p) { p.args.inputs.weights.data = p.args.logits.data; }},
      {"invalid argument: inputs.keys.cache must not overlap logits",
       [](Problem& p) {
         p.args.inputs.keys.cache.data = reinterpret_cast<const std::byte*>(p.args.logits.data);
       }},
  });
}

TEST_CASE("logits refuse wrong pages and lengths", "[indexer][logits][validation]") {
  RequireRefusals({
      {"invalid argument: inputs.keys.seq_lens[1] is -1, must be at least 0",
       [](Problem& p) { p.seq_lens[1] = -1; }},
      {"index out of range: inputs.keys.seq_lens[0] is 17, must give at most as many keys as "
       "block_table covers, 16",
       [](Problem& p) { p.seq_lens[0] = 17; }},
      {"invalid argument: inputs.keys.seq_lens.extent[0] is 1, must be 2",
       [](Problem& p) { p.args.inputs.keys.seq_lens.extent[0] = 1; }},
      {"invalid argument: inputs.keys.block_table.data must not be null",
       [](Problem& p) { p.args.inputs.keys.block_table.data = nullptr; }},
      {"index out of range: inputs.keys.block_table[5] is 6, must be within 0 and "
       "inputs.keys.cache.num_blocks - 1 = 5",
       [](Problem& p) { p.block_table[5] = 6; }},
      {"index out of range: inputs.keys.block_table[2] is -1, must be within 0 and "
       "inputs.keys.cache.num_blocks - 1 = 5",
       [](Problem& p) { p.block_table[2] = -1; }},
      {"invalid argument: inputs.query_start_loc.extent[0] is 0, must be at least 1",
       [](Problem& p) { p.args.inputs.query_start_loc.extent[0] = 0; }},
      {"invalid argument: inputs.query_start_loc[0] is 1, must be 0",
       [](Problem& p) { p.query_start_loc[0] = 1; }},
      {"invalid argument: inputs.query_start_loc[1] is -1, must be at least the entry before it, 0",
       [](Problem& p) { p.query_start_loc[1] = -1; }},
      {"invalid argument: inputs.query_start_loc[2] is 4, must be the number of query rows, 3",
       [](Problem& p) { p.query_start_loc[2] = 4; }},
      {"invalid argument: inputs.keys.row_kv_lens.extent[0] is 2, must be 3",
       [](Problem& p) { p.args.inputs.keys.row_kv_lens = p.args.inputs.keys.seq_lens; }},
      {"invalid argument: inputs.keys.compress_ratio is 0, must be at least 1",
       [](Problem& p) { p.args.inputs.keys.compress_ratio = 0; }},
      {"invalid argument: inputs.candidate_blocks.extent[0] is 2, must be 3",
       [](Problem& p) { p.args.inputs.candidate_blocks = p.args.inputs.keys.block_table; }},
      {"invalid argument: inputs.candidate_block_size is 0, must be at least 1",
       [](Problem& p) {
         p.args.inputs.candidate_blocks = p.args.inputs.keys.block_table;
         p.args.inputs.candidate_blocks.extent[0] = 3;
         p.args.inputs.candidate_blocks.stride[0] = 0;
       }},
      {"invalid argument: inputs.candidate_block_size is 4, must be, without "
       "inputs.candidate_blocks, 0",
       [](Problem& p) { p.args.inputs.candidate_block_size = 4; }},
  });
}

TEST_CASE("logits refuse wrong bounds of rows, rings and lists", "[indexer][logits][validation]") {
  RequireRefusals({
      {"invalid argument: inputs.keys.row_starts.extent[0] is 2, must be 3",
       [](Problem& p) { p.args.inputs.keys.row_starts = p.args.inputs.keys.seq_lens; }},
      {"invalid argument: inputs.keys.window is 0, must be at least 1",
       [](Problem& p) { p.args.inputs.keys.window = 0; }},
      {"index out of range: inputs.keys.seq_lens[0] is 9, must leave its rows' keys in at most as "
       "many pages as a "
       "ring has, 1",
       [](Problem& p) {
         p.args.inputs.keys.wraps = true;
         p.args.inputs.keys.block_table.extent[1] = 1;
       }},
      {"invalid argument: inputs.keys.indices must not be given",
       [](Problem& p) {
         p.args.inputs.keys.indices = p.args.inputs.keys.block_table;
         p.args.inputs.keys.indices.extent[0] = 3;
         p.args.inputs.keys.indices.stride[0] = 0;
       }},
      {"invalid argument: inputs.keys.row_starts must not overlap logits",
       [](Problem& p) {
         const auto* cells = reinterpret_cast<const int32_t*>(p.args.logits.data);
         p.args.inputs.keys.row_starts = Packed(cells, 3);
       }},
  });
}

TEST_CASE("logits refuse what does not go without a block table", "[indexer][logits][validation]") {
  RequireRefusals(
      {
          {"invalid argument: logits.extent[1] is 8, must be at least the end of the longest row, "
           "9",
           [](Problem& p) { p.args.logits.extent[1] = 8; }},
          {"invalid argument: inputs.keys.seq_lens.extent[0] is 3, must be 1",
           [](Problem& p) { p.args.inputs.keys.seq_lens = p.args.inputs.keys.row_starts; }},
          {"index out of range: inputs.keys.seq_lens[0] is 17, must give at most as many keys as "
           "the "
           "cache has slots, 16",
           [](Problem& p) {
             static constexpr int32_t kLength = 17;
             p.args.inputs.keys.seq_lens = Packed(&kLength, 1);
           }},
          {"invalid argument: inputs.keys.compress_ratio is 4, must be, without seq_lens, 1",
           [](Problem& p) { p.args.inputs.keys.compress_ratio = 4; }},
          {"invalid argument: inputs.keys.wraps must be false without a block_table",
           [](Problem& p) { p.args.inputs.keys.wraps = true; }},
          {"invalid argument: inputs.keys.block_table must be given where there are several "
           "sequences",
           [](Problem& p) {
             static constexpr int32_t kStarts[3] = {0, 1, 3};
             p.args.inputs.query_start_loc = Packed(kStarts, 3);
           }},
      },
      true);
}

TEST_CASE("logits refuse wrong options, workspaces and executors",
          "[indexer][logits][validation]") {
  Problem problem(ValidCase(false));
  problem.Run();
  const auto message = [&problem](Buffer workspace, const Executor& executor = {}) {
    return std::string(
        Format(ComputeIndexerLogits(problem.args, problem.options, workspace, executor)).c_str());
  };
  const Buffer whole{problem.workspace.data(), problem.workspace.size()};
  REQUIRE(message(whole) == "ok");
  const std::string needed = std::to_string(whole.bytes);
  REQUIRE(message({whole.data, whole.bytes - 1}) == "buffer too small: workspace.bytes is " +
                                                        std::to_string(whole.bytes - 1) +
                                                        ", must be at least " + needed);
  REQUIRE(message({}) == "buffer too small: workspace.bytes is 0, must be at least " + needed);
  Executor executor;
  executor.run = nullptr;
  REQUIRE(message(whole, executor) == "invalid argument: executor.run must not be null");
  problem.options.precision = static_cast<Precision>(7);
  REQUIRE(message(whole) == "invalid argument: options.precision is 7, must be a known Precision");
  problem.options.precision = Precision::kAuto;
  problem.options.target = static_cast<Target>(99);
  REQUIRE(message(whole).find("options.target is 99") != std::string::npos);
  problem.options.target = Target::kAuto;
  problem.block_table[2] = 6;
  problem.options.check_indices = false;
  problem.seq_lens[0] = 8;  // block_table[2] is not reached
  REQUIRE(message(whole) == "ok");
}

TEST_CASE("sizes of logits' workspaces", "[indexer][logits][validation]") {
  Sizes sizes;
  const size_t& bytes = sizes.workspace_bytes;
  const auto message = [&sizes](int64_t heads, int64_t width, int64_t tokens, size_t workers) {
    return std::string(
        Format(IndexerLogitsSizes({heads, width}, {}, {0, tokens, 0, workers}, &sizes)).c_str());
  };
  REQUIRE(message(0, 128, 1, 1) == "invalid argument: shape.num_heads is 0, must be at least 1");
  REQUIRE(message(64, 0, 1, 1) == "invalid argument: shape.head_dim is 0, must be at least 1");
  REQUIRE(message(64, 128, 0, 1) ==
          "invalid argument: limits.max_num_tokens is 0, must be at least 1");
  REQUIRE(message(64, 128, 1, 0) ==
          "invalid argument: limits.num_workers is 0, must be at least 1");
  REQUIRE(message(65536, 65536, 1, 1) ==
          "invalid argument: shape.head_dim is 65536, must be at most, for as many heads, 32767");
  REQUIRE(bytes == 0);
  REQUIRE(message(64, 128, 1, 1) == "ok");
  const size_t one = bytes;
  REQUIRE(message(64, 128, 1, 16) == "ok");
  REQUIRE(bytes == 16 * one);
  REQUIRE(message(64, 128, 4096, 1) == "ok");
  REQUIRE(bytes > one);
  REQUIRE(bytes < (3u << 20));
  REQUIRE(sizes.plan_bytes == 0);
  REQUIRE(std::string(Format(IndexerLogitsSizes({1, 1}, {}, {0, 1, 0, 1}, nullptr)).c_str()) ==
          "invalid argument: sizes must not be null");
}

// More workers than the workspace has room for: as many as fit.
TEST_CASE("a small workspace serves many workers", "[indexer][logits]") {
  IndexerCase c;
  c.seq_lens = {3000};
  IndexerProblem problem(c);
  problem.Run(1);
  const std::vector<float> expected = problem.logits.Copy();
  problem.logits.Poison();
  const Status status =
      ComputeIndexerLogits(problem.args, problem.options,
                           {problem.workspace.data(), problem.workspace.size()}, ThreadExecutor(5));
  REQUIRE(status.ok());
  REQUIRE(SameBits(problem.logits.Copy(), expected));
}

TEST_CASE("no rows, no work", "[indexer][logits]") {
  IndexerLogitsArgs args;
  args.inputs.q = Packed(static_cast<const float*>(nullptr), 0, 4, 64);
  args.inputs.weights = Packed(static_cast<const float*>(nullptr), 0, 4);
  args.inputs.keys.cache = {nullptr, CacheFormat::kLatentFloat32, 0, 16, 4096, 256};
  // Rows that are not there may be of any length.
  args.logits = {nullptr, {0, INT64_MAX}, {INT64_MAX, 1}};
  const Status status = ComputeIndexerLogits(args, {}, {});
  INFO(Format(status).c_str());
  REQUIRE(status.ok());
  const int64_t starts[] = {0, 0};
  args.inputs.query_start_loc = Packed(starts, 2);
  REQUIRE(ref::IndexerLogits(args.inputs, INT64_MAX).empty());
}

}  // namespace
}  // namespace lathe::test
