// SPDX-License-Identifier: Apache-2.0
// What a gather refuses: the whole message for each way to break a valid call, and no byte written.
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>

#include "gather/gather_problem.h"

namespace lathe::test {
namespace {

using Problem = GatherProblem<float, int32_t>;

struct Row {
  const char* message;
  void (*break_it)(Problem& problem);
};

// Two sequences, 5 + 6 tokens in pages of 4; the second begins at position 2. 3 blocks a table row.
GatherCase ValidCase(CacheFormat format) {
  GatherCase c;
  c.format = format;
  c.gather_starts = {0, 2};
  c.gather_lens = {5, 6};
  c.table_slack = 1;
  return c;
}

void RequireRefusals(std::initializer_list<Row> rows,
                     CacheFormat format = CacheFormat::kLatentFp8E4m3) {
  for (const Row& row : rows) {
    INFO("expected: " << row.message);
    Problem problem(ValidCase(format));
    problem.Run();
    const std::vector<float> before = problem.out.Packed();
    row.break_it(problem);
    const Status status = GatherLatentCache(problem.args, problem.options);
    REQUIRE_FALSE(status.ok());
    REQUIRE(std::string(Format(status).c_str()) == row.message);
    REQUIRE(SameBits(problem.out.Packed(), before));
  }
}

TEST_CASE("a gather refuses wrong arrays", "[gather][validation]") {
  RequireRefusals({
      {"invalid argument: out.extent[1] is 0, must be within 1 and 2147483647",
       [](Problem& p) { p.args.out.extent[1] = 0; }},
      {"invalid argument: out.data must not be null",
       [](Problem& p) { p.args.out.data = nullptr; }},
      {"invalid argument: out.data must be aligned to 4", [](Problem& p) { p.args.out.data += 2; }},
      {"invalid argument: out.dtype is 9, must be a known DType",
       [](Problem& p) { p.args.out.dtype = static_cast<DType>(9); }},
      {"invalid argument: out.stride[0] is 575, must be at least a row's width, 576",
       [](Problem& p) { p.args.out.stride[0] = 575; }},
      {"invalid argument: out.stride[1] is 2, must be 1",
       [](Problem& p) { p.args.out.stride[1] = 2; }},
      {"invalid argument: gather_lens.data must not be null",
       [](Problem& p) { p.args.gather_lens.data = nullptr; }},
      {"invalid argument: gather_starts.data must not be null",
       [](Problem& p) { p.args.gather_starts.data = nullptr; }},
      {"invalid argument: gather_starts.extent[0] is 1, must be 2",
       [](Problem& p) { p.args.gather_starts.extent[0] = 1; }},
      {"invalid argument: block_table.extent[0] is 1, must be 2",
       [](Problem& p) { p.args.block_table.extent[0] = 1; }},
      {"invalid argument: out_start_loc.extent[0] is 1, must be at least gather_lens.extent[0] = 2",
       [](Problem& p) { p.args.out_start_loc.extent[0] = 1; }},
      {"invalid argument: last_n is -1, must be at least 0",
       [](Problem& p) { p.args.last_n = -1; }},
      {"invalid argument: cache must not overlap out",
       [](Problem& p) { p.args.cache.data = p.args.out.data; }},
      {"invalid argument: block_table must not overlap out",
       [](Problem& p) { p.args.block_table.data = p.args.out.data; }},
      {"invalid argument: out_start_loc must not overlap out",
       [](Problem& p) { p.args.out_start_loc.data = p.args.out.data + 16; }},
  });
}

TEST_CASE("a gather refuses wrong caches", "[gather][validation]") {
  RequireRefusals({
      {"invalid argument: cache.format is 77, must be a known CacheFormat",
       [](Problem& p) { p.args.cache.format = static_cast<CacheFormat>(77); }},
      {"invalid argument: cache.format is kFp8Ds4, must be one for the width in use; this one's is "
       "512",
       [](Problem& p) { p.args.cache.format = CacheFormat::kFp8Ds4; }},
      {"invalid argument: cache.scale is 0, must be finite and above 0",
       [](Problem& p) { p.args.cache.scale = 0.0f; }},
      {"invalid argument: cache.scale is nan, must be finite and above 0",
       [](Problem& p) { p.args.cache.scale = std::numeric_limits<float>::quiet_NaN(); }},
      {"invalid argument: cache.row_stride is 575, must be at least a record's bytes, 576",
       [](Problem& p) { p.args.cache.row_stride = 575; }},
      {"invalid argument: cache.data must not be null",
       [](Problem& p) { p.args.cache.data = nullptr; }},
  });
  RequireRefusals({{"invalid argument: cache.row_stride is 658, must be a multiple of 4",
                    [](Problem& p) { p.args.cache.row_stride = 658; }}},
                  CacheFormat::kFp8DsMla);
}

TEST_CASE("a gather refuses wrong indices", "[gather][validation]") {
  RequireRefusals({
      {"invalid argument: gather_lens[1] is -1, must be at least 0",
       [](Problem& p) { p.gather_lens[1] = -1; }},
      {"index out of range: gather_lens[1] is 11, must be at most what block_table covers from "
       "gather_starts on, 10",
       [](Problem& p) { p.gather_lens[1] = 11; }},
      {"index out of range: gather_starts[0] is -1, must be within 0 and block_table.extent[1] * "
       "cache.block_size = 12",
       [](Problem& p) { p.gather_starts[0] = -1; }},
      {"index out of range: gather_starts[1] is 13, must be within 0 and block_table.extent[1] * "
       "cache.block_size = 12",
       [](Problem& p) { p.gather_starts[1] = 13; }},
      {"index out of range: out_start_loc[0] is -1, must be at least the end of the rows before, 0",
       [](Problem& p) { p.out_start_loc[0] = -1; }},
      {"index out of range: out_start_loc[1] is 4, must be at least the end of the rows before, 5",
       [](Problem& p) { p.out_start_loc[1] = 4; }},
      {"index out of range: out_start_loc[1] is 6, must leave room in out, be at most 5",
       [](Problem& p) { p.out_start_loc[1] = 6; }},
      {"index out of range: block_table[4] is -1, must be within 0 and cache.num_blocks - 1 = 5",
       [](Problem& p) { p.block_table[4] = -1; }},
      {"index out of range: block_table[0] is 6, must be within 0 and cache.num_blocks - 1 = 5",
       [](Problem& p) { p.block_table[0] = 6; }},
  });
}

TEST_CASE("a gather refuses unknown targets and missing executors", "[gather][validation]") {
  Problem problem(ValidCase(CacheFormat::kLatentFloat32));
  Executor executor;
  executor.run = nullptr;
  REQUIRE(std::string(Format(GatherLatentCache(problem.args, {}, executor)).c_str()) ==
          "invalid argument: executor.run must not be null");
  problem.options.target = static_cast<Target>(99);
  REQUIRE_FALSE(GatherLatentCache(problem.args, problem.options).ok());
}

}  // namespace
}  // namespace lathe::test
