// SPDX-License-Identifier: Apache-2.0
// What a latent write refuses: the whole message for each way to break a valid call, and no byte of
// the cache changed.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "support/latent_write.h"

namespace lathe::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

// Three tokens of 4 + 2 float32 columns into a bfloat16 cache of 3 pages of 4 tokens.
WriteCase ValidCase() {
  WriteCase c;
  c.c_width = 4;
  c.pe_width = 2;
  c.slots = {7, -1, 11};
  return c;
}

struct Row {
  const char* message;
  void (*break_it)(WriteProblem& problem);
};

void RequireRefused(const WriteProblem& problem, const Executor& executor,
                    const std::string& message) {
  const Status status = WriteLatentCache(problem.args, problem.options, executor);
  REQUIRE(std::string(Format(status).c_str()) == message);
  REQUIRE_FALSE(status.ok());
  REQUIRE(problem.IsUntouched());
}

void RequireRefusals(std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    INFO("expected: " << row.message);
    WriteProblem problem(ValidCase());
    problem.Run();
    problem.RequireAsExpected();
    problem.Reset();
    row.break_it(problem);
    RequireRefused(problem, {}, row.message);
  }
}

using Problem = WriteProblem;

TEST_CASE("a latent write refuses wrong sources", "[latent_cache][validation]") {
  RequireRefusals({
      {"invalid argument: kv_c.extent[1] is 0, must be at least 1",
       [](Problem& p) { p.args.kv_c = {}; }},
      {"invalid argument: kv_c.data must not be null",
       [](Problem& p) { p.args.kv_c.data = nullptr; }},
      {"invalid argument: k_pe.data must not be null",
       [](Problem& p) { p.args.k_pe.data = nullptr; }},
      {"invalid argument: kv_c.extent[0] is 2, must be at least slot_mapping.extent[0] = 3",
       [](Problem& p) { p.args.kv_c.extent[0] = 2; }},
      {"invalid argument: k_pe.extent[0] is 0, must be at least slot_mapping.extent[0] = 3",
       [](Problem& p) { p.args.k_pe.extent[0] = 0; }},
      {"invalid argument: kv_c.extent[0] is -3, must be at least 0",
       [](Problem& p) { p.args.kv_c.extent[0] = -3; }},
      {"invalid argument: kv_c.extent[1] is -4, must be at least 1",
       [](Problem& p) { p.args.kv_c.extent[1] = -4; }},
      {"invalid argument: k_pe.extent[1] is -2, must be at least 0",
       [](Problem& p) { p.args.k_pe.extent[1] = -2; }},
      {"invalid argument: kv_c.dtype is 3, must be a known DType",
       [](Problem& p) { p.args.kv_c.dtype = static_cast<DType>(3); }},
      {"invalid argument: k_pe.dtype is 255, must be a known DType",
       [](Problem& p) { p.args.k_pe.dtype = static_cast<DType>(255); }},
      {"invalid argument: kv_c.stride[0] is 3, must be at least a row's width, 4",
       [](Problem& p) { p.args.kv_c.stride[0] = 3; }},
      {"invalid argument: kv_c.stride[0] is -4, must be at least 0",
       [](Problem& p) { p.args.kv_c.stride[0] = -4; }},
      {"invalid argument: k_pe.stride[1] is 2, must be 1",
       [](Problem& p) { p.args.k_pe.stride[1] = 2; }},
      {"invalid argument: kv_c.data must be aligned to 4",
       [](Problem& p) { p.args.kv_c.data += 2; }},
      {"invalid argument: k_pe.data must be aligned to 4",
       [](Problem& p) { p.args.k_pe.data += 1; }},
      {"invalid argument: kv_c.extent[0] is 9223372036854775807, must be at most "
       "1152921504606846975",
       [](Problem& p) { p.args.kv_c.extent[0] = kMax; }},
      {"invalid argument: kv_c.extent[1] is 1099511627776, must be at most 2147483647",
       [](Problem& p) {
         p.args.kv_c.extent[1] = int64_t{1} << 40;
         p.args.kv_c.stride[0] = int64_t{1} << 40;
       }},
      {"invalid argument: k_pe.stride[0] is 9223372036854775807, must not lead beyond the address "
       "space "
       "with .extent 3",
       [](Problem& p) { p.args.k_pe.stride[0] = kMax; }},
  });
}

TEST_CASE("a latent write refuses wrong slots", "[latent_cache][validation]") {
  RequireRefusals({
      {"index out of range: slot_mapping[2] is 12, must be below cache.num_blocks * "
       "cache.block_size = "
       "12",
       [](Problem& p) { p.slots64[2] = 12; }},
      {"index out of range: slot_mapping[0] is 9223372036854775807, must be below cache.num_blocks "
       "* "
       "cache.block_size = 12",
       [](Problem& p) { p.slots64[0] = kMax; }},
      {"index out of range: slot_mapping[1] is 4294967303, must be below cache.num_blocks * "
       "cache.block_size = 12",
       [](Problem& p) { p.slots64[1] = (int64_t{1} << 32) + 7; }},
      {"index out of range: slot_mapping[1] is 2147483647, must be below cache.num_blocks * "
       "cache.block_size = 12",
       [](Problem& p) {
         p.UseInt32Slots();
         p.slots32[1] = std::numeric_limits<int32_t>::max();
       }},
      {"index out of range: slot_mapping[0] is 7, must be below cache.num_blocks * "
       "cache.block_size = 0",
       [](Problem& p) { p.args.cache.num_blocks = 0; }},
      {"invalid argument: slot_mapping.data must not be null",
       [](Problem& p) { p.args.slot_mapping.data = nullptr; }},
      {"invalid argument: slot_mapping must be given: there are rows to write, and it says where",
       [](Problem& p) { p.args.slot_mapping = {}; }},
      {"invalid argument: slot_mapping.extent[0] is -1, must be at least 0",
       [](Problem& p) { p.args.slot_mapping.extent[0] = -1; }},
      {"invalid argument: slot_mapping.stride[0] is -1, must be at least 0",
       [](Problem& p) { p.args.slot_mapping.stride[0] = -1; }},
      {"invalid argument: slot_mapping.data must be aligned to 8",
       [](Problem& p) {
         p.args.slot_mapping.data = reinterpret_cast<const char*>(p.slots64.data()) - 4;
       }},
      {"invalid argument: slot_mapping.extent[0] is 9223372036854775807, must be at most "
       "576460752303423487",
       [](Problem& p) { p.args.slot_mapping.extent[0] = kMax; }},
  });
}

TEST_CASE("a latent write refuses a wrong cache", "[latent_cache][validation]") {
  RequireRefusals({
      {"invalid argument: cache.data must not be null",
       [](Problem& p) { p.args.cache.data = nullptr; }},
      {"invalid argument: cache.format is 99, must be a known CacheFormat",
       [](Problem& p) { p.args.cache.format = static_cast<CacheFormat>(99); }},
      {"invalid argument: cache.num_blocks is -1, must be at least 0",
       [](Problem& p) { p.args.cache.num_blocks = -1; }},
      {"invalid argument: cache.block_size is 0, must be at least 1",
       [](Problem& p) { p.args.cache.block_size = 0; }},
      {"invalid argument: cache.row_stride is 10, must be at least a record's bytes, 12",
       [](Problem& p) { p.args.cache.row_stride = 10; }},
      {"invalid argument: cache.block_stride is 46, must be at least a page's bytes, 48",
       [](Problem& p) { p.args.cache.block_stride = 46; }},
      {"invalid argument: cache.row_stride is 13, must be a multiple of 2",
       [](Problem& p) { p.args.cache.row_stride = 13, p.args.cache.block_stride = 52; }},
      {"invalid argument: cache.block_stride is 49, must be a multiple of 2",
       [](Problem& p) { p.args.cache.block_stride = 49; }},
      {"invalid argument: cache.data must be aligned to 2",
       [](Problem& p) { p.args.cache.data += 1; }},
      {"invalid argument: cache.block_stride is 48, must not lead beyond the address space with "
       ".num_blocks 9223372036854775807",
       [](Problem& p) { p.args.cache.num_blocks = kMax; }},
      {"invalid argument: cache.block_stride is -9223372036854775808, must be at least a page's "
       "bytes, "
       "48",
       [](Problem& p) { p.args.cache.block_stride = kMin; }},
  });
}

TEST_CASE("a latent write refuses a cache that overlaps a source", "[latent_cache][validation]") {
  RequireRefusals({
      {"invalid argument: kv_c must not overlap cache",
       [](Problem& p) { p.args.kv_c.data = p.cache.data(); }},
      {"invalid argument: k_pe must not overlap cache",
       [](Problem& p) { p.args.k_pe.data = p.cache.data() + 12 * 12 - 4; }},
      {"invalid argument: slot_mapping must not overlap cache",
       [](Problem& p) { p.args.slot_mapping.data = p.cache.data(); }},
  });
}

TEST_CASE("a latent write refuses targets and executors that cannot run",
          "[latent_cache][validation]") {
  RequireRefusals({
      {"target unavailable: options.target is 99, must be auto or a target that runs here: no such "
       "target",
       [](Problem& p) { p.options.target = static_cast<Target>(99); }},
  });
  Executor executor;
  executor.run = nullptr;
  RequireRefused(WriteProblem(ValidCase()), executor,
                 "invalid argument: executor.run must not be null");
}

TEST_CASE("an executor of no workers is the calling thread", "[latent_cache][validation]") {
  Executor executor;
  executor.num_workers = 0;
  WriteProblem problem(ValidCase());
  problem.Run(executor);
  problem.RequireAsExpected();
}

}  // namespace
}  // namespace lathe::test
