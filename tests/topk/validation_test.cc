// SPDX-License-Identifier: Apache-2.0
// What top-k refuses: the whole message for each way to break a valid call, and no byte written.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "support/sizes.h"
#include "support/topk_problem.h"

namespace lathe::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Three rows of 40 columns in pools of two, k = 8 and the newest position: 17 places. Everything that may
// be given is: bounds, lengths, values, counts, and pages of four for two sequences.
struct Problem : TopkProblem<> {
  Problem()
      : TopkProblem<>(3, 40, 8, 17),
        starts(std::vector<int32_t>{0, 1, 2}),
        ends(std::vector<int32_t>{40, 39, 38}),
        lens(std::vector<int64_t>{80, 77, 60}),
        seqs(std::vector<int32_t>{0, 1, 1}),
        table(std::vector<int32_t>(40, 3)) {
    FillNormal(1);
    args.row_starts = Packed(starts.data(), 3);
    args.row_ends = Packed(ends.data(), 3);
    args.row_lens = Packed(lens.data(), 3);
    args.row_seq = Packed(seqs.data(), 3);
    args.block_table = Packed(table.data(), 2, 20);
    args.block_size = 4;
    args.num_blocks = 5;
    options.pool_size = 2;
    options.append_newest = 1;
    workspace.resize(TopkWorkspaceFor(40, 8));
    buffer = {workspace.data(), workspace.size()};
  }

  std::vector<float> Bytes() const {
    std::vector<float> all = values.Copy();
    all.insert(all.end(), scores.begin(), scores.end());
    for (const auto* memory : {&indices, &counts, &starts, &ends, &seqs, &table}) {
      for (const int32_t x : *memory) {
        all.emplace_back();
        std::memcpy(&all.back(), &x, sizeof(x));
      }
    }
    return all;
  }

  void RemoveTable() {
    args.block_table = {};
    args.row_seq = {};
  }

  Guarded<int32_t> starts, ends;
  Guarded<int64_t> lens;
  Guarded<int32_t> seqs, table;
  std::vector<std::byte> workspace;
  Buffer buffer;
};

struct Row {
  const char* message;
  void (*break_it)(Problem& problem);
};

void RequireRefusals(std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    INFO("expected: " << row.message);
    Problem problem;
    problem.RunAndRequireReference();
    problem.indices.Poison();
    problem.counts.Poison();
    problem.values.Poison();
    row.break_it(problem);
    const std::vector<float> before = problem.Bytes();
    const Status status = SelectTopk(problem.args, problem.options, problem.buffer);
    REQUIRE(std::string(Format(status).c_str()) == row.message);
    REQUIRE_FALSE(status.ok());
    REQUIRE(SameBits(problem.Bytes(), before));
  }
}

TEST_CASE("top-k refuses wrong options", "[topk][validation]") {
  RequireRefusals({
      {"invalid argument: options.k is -1, must be at least 0",
       [](Problem& p) { p.options.k = -1; }},
      {"invalid argument: options.append_newest is -1, must be within 0 and 2147483647",
       [](Problem& p) { p.options.append_newest = -1; }},
      {"invalid argument: options.append_newest is 9223372036854775807, must be within 0 and "
       "2147483647",
       [](Problem& p) { p.options.append_newest = kMax; }},
      {"invalid argument: options.pool_size is 0, must be within 1 and 2147483647",
       [](Problem& p) { p.options.pool_size = 0; }},
      {"invalid argument: options.pool_size is 2147483648, must be within 1 and 2147483647",
       [](Problem& p) { p.options.pool_size = int64_t{1} << 31; }},
      {"invalid argument: options.index_base is 2, must be a known TopkIndexBase",
       [](Problem& p) { p.options.index_base = static_cast<TopkIndexBase>(2); }},
      {"target unavailable: options.target is 99, must be auto or a target that runs here: no such "
       "target",
       [](Problem& p) { p.options.target = static_cast<Target>(99); }},
  });
}

TEST_CASE("top-k refuses wrong scores and bounds", "[topk][validation]") {
  RequireRefusals({
      {"invalid argument: logits.data must not be null",
       [](Problem& p) { p.args.logits.data = nullptr; }},
      {"invalid argument: logits.extent[0] is -3, must be at least 0",
       [](Problem& p) { p.args.logits.extent[0] = -3; }},
      {"invalid argument: logits.extent[1] is -1, must be at least 0",
       [](Problem& p) { p.args.logits.extent[1] = -1; }},
      {"invalid argument: logits.stride[1] is 2, must be 1",
       [](Problem& p) { p.args.logits.stride[1] = 2; }},
      {"invalid argument: logits.stride[0] is 39, must be at least a row's width, 40",
       [](Problem& p) { p.args.logits.stride[0] = 39; }},
      {"invalid argument: logits.stride[0] is 9223372036854775807, must not lead beyond the "
       "address space with .extent 3",
       [](Problem& p) { p.args.logits.stride[0] = kMax; }},
      {"invalid argument: logits.data must be aligned to 4",
       [](Problem& p) {
         p.args.logits.data = reinterpret_cast<const float*>(
             reinterpret_cast<const std::byte*>(p.args.logits.data) + 2);
       }},
      {"invalid argument: logits.extent[1] is 2147483648, must be at most 2147483647",
       [](Problem& p) { p.args.logits.extent[1] = p.args.logits.stride[0] = int64_t{1} << 31; }},
      {"invalid argument: row_starts.extent[0] is 2, must be 3",
       [](Problem& p) { p.args.row_starts.extent[0] = 2; }},
      {"invalid argument: row_ends.extent[0] is 4, must be 3",
       [](Problem& p) { p.args.row_ends.extent[0] = 4; }},
      {"invalid argument: row_ends.data must not be null",
       [](Problem& p) { p.args.row_ends.data = nullptr; }},
      {"invalid argument: row_lens.stride[0] is -1, must be at least 0",
       [](Problem& p) { p.args.row_lens.stride[0] = -1; }},
      {"invalid argument: row_lens.data must be aligned to 8",
       [](Problem& p) {
         p.args.row_lens.data = reinterpret_cast<const std::byte*>(p.args.row_lens.data) + 4;
       }},
      {"index out of range: row_lens[2] is 4611686018427387904, must be at most "
       "4611686018427387903",
       [](Problem& p) { p.lens[2] = int64_t{1} << 62; }},
      {"invalid argument: row_seq.extent[0] is 2, must be 3",
       [](Problem& p) { p.args.row_seq.extent[0] = 2; }},
  });
}

TEST_CASE("top-k refuses wrong results", "[topk][validation]") {
  RequireRefusals({
      {"invalid argument: indices.extent[1] is 16, must be at least k * pool_size + append_newest "
       "= 17",
       [](Problem& p) { p.args.indices.extent[1] = 16; }},
      {"invalid argument: indices.extent[1] is 17, must be at least k * pool_size + append_newest "
       "= 9223372036854775807",
       [](Problem& p) { p.options.k = kMax; }},
      {"invalid argument: indices.extent[0] is 2, must be 3",
       [](Problem& p) { p.args.indices.extent[0] = 2; }},
      {"invalid argument: indices.data must not be null",
       [](Problem& p) { p.args.indices.data = nullptr; }},
      {"invalid argument: indices.data must be aligned to 4",
       [](Problem& p) { p.args.indices.data = static_cast<std::byte*>(p.args.indices.data) + 1; }},
      {"invalid argument: indices.stride[1] is 0, must be at least 1",
       [](Problem& p) { p.args.indices.stride[1] = 0; }},
      {"invalid argument: indices.stride[0] is 16, must not let elements overlap",
       [](Problem& p) { p.args.indices.stride[0] = 16; }},
      {"invalid argument: counts.extent[0] is 1, must be 3",
       [](Problem& p) { p.args.counts.extent[0] = 1; }},
      {"invalid argument: counts.stride[0] is 0, must be at least 1",
       [](Problem& p) { p.args.counts.stride[0] = 0; }},
      {"invalid argument: counts.data must not be null",
       [](Problem& p) { p.args.counts.data = nullptr; }},
      {"invalid argument: values.extent[1] is 16, must be 17",
       [](Problem& p) { p.args.values.extent[1] = 16; }},
      {"invalid argument: values.stride[0] is 1, must not let elements overlap",
       [](Problem& p) { p.args.values.stride[0] = 1; }},
      {"invalid argument: values.data must not be null",
       [](Problem& p) { p.args.values.data = nullptr; }},
  });
}

TEST_CASE("top-k refuses index types that cannot hold the results", "[topk][validation]") {
  RequireRefusals({
      {"invalid argument: indices must be int64 to hold the position 2147483648",
       [](Problem& p) {
         p.RemoveTable();
         p.lens[1] = (int64_t{1} << 31) + 1;
       }},
      {"invalid argument: indices must be int64 to hold the slot 2147483651",
       [](Problem& p) { p.args.num_blocks = (int64_t{1} << 29) + 1; }},
      // So wide a list is never touched; it only has to pass for one.
      {"invalid argument: counts must be int64 to hold 4294967297",
       [](Problem& p) {
         p.options.k = int64_t{1} << 31;
         p.args.indices.extent[1] = p.args.indices.stride[0] = int64_t{1} << 33;
         p.args.values = {};
       }},
  });
}

TEST_CASE("top-k refuses a wrong block table", "[topk][validation]") {
  RequireRefusals({
      {"invalid argument: row_seq must not be given without block_table",
       [](Problem& p) { p.args.block_table = {}; }},
      {"invalid argument: block_table.extent[0] is 2, must be 3",
       [](Problem& p) { p.args.row_seq = {}; }},
      {"invalid argument: block_table.data must not be null",
       [](Problem& p) { p.args.block_table.data = nullptr; }},
      {"invalid argument: block_size is 0, must be at least 1",
       [](Problem& p) { p.args.block_size = 0; }},
      {"invalid argument: num_blocks is -1, must be at least 0",
       [](Problem& p) { p.args.num_blocks = -1; }},
      {"invalid argument: num_blocks is 9223372036854775807, must not lead beyond the address "
       "space with block_size 4",
       [](Problem& p) { p.args.num_blocks = kMax; }},
      {"index out of range: row_seq[2] is 2, must be within 0 and block_table.extent[0] - 1 = 1",
       [](Problem& p) { p.seqs[2] = 2; }},
      {"index out of range: row_seq[0] is -1, must be within 0 and block_table.extent[0] - 1 = 1",
       [](Problem& p) { p.seqs[0] = -1; }},
      {"index out of range: block_table.extent[1] is 19, must cover, with block_size, the "
       "positions of every row, 80",
       [](Problem& p) { p.args.block_table.extent[1] = 19; }},
      {"index out of range: block_table[19] is 5, must be within 0 and num_blocks - 1 = 4",
       [](Problem& p) { p.table[19] = 5; }},
      // Row 1 ends in the last page of sequence 1, which row 2 does not reach.
      {"index out of range: block_table[39] is -1, must be within 0 and num_blocks - 1 = 4",
       [](Problem& p) { p.table[39] = -1; }},
      // Of row 2 alone, before what row 1 has been checked for.
      {"index out of range: block_table[20] is 7, must be within 0 and num_blocks - 1 = 4",
       [](Problem& p) {
         p.table[20] = 7;
         p.starts[1] = 30;
         p.starts[2] = 1;
       }},
  });
}

TEST_CASE("top-k refuses overlaps", "[topk][validation]") {
  RequireRefusals({
      {"invalid argument: logits must not overlap indices",
       [](Problem& p) { p.args.indices.data = p.scores.data() + 119; }},
      {"invalid argument: logits must not overlap counts",
       [](Problem& p) { p.args.counts.data = p.scores.data(); }},
      {"invalid argument: logits must not overlap values",
       [](Problem& p) { p.args.values.data = p.scores.data(); }},
      {"invalid argument: row_starts must not overlap indices",
       [](Problem& p) { p.args.indices.data = p.starts.data() + 2; }},
      {"invalid argument: row_ends must not overlap counts",
       [](Problem& p) { p.args.counts.data = p.ends.data(); }},
      {"invalid argument: row_lens must not overlap values",
       [](Problem& p) { p.args.values.data = reinterpret_cast<float*>(p.lens.data()); }},
      {"invalid argument: row_seq must not overlap counts",
       [](Problem& p) { p.args.counts.data = p.seqs.data(); }},
      {"invalid argument: block_table must not overlap indices",
       [](Problem& p) { p.args.indices.data = p.table.data(); }},
      {"invalid argument: counts must not overlap indices",
       [](Problem& p) { p.args.counts.data = p.indices.data() + 50; }},
      {"invalid argument: values must not overlap indices",
       [](Problem& p) { p.args.values.data = reinterpret_cast<float*>(p.indices.data()); }},
      {"invalid argument: values must not overlap counts",
       [](Problem& p) { p.args.values.data = reinterpret_cast<float*>(p.counts.data()); }},
  });
}

TEST_CASE("top-k refuses a workspace that is too small", "[topk][validation]") {
  Problem problem;
  const size_t bytes = TopkWorkspaceFor(40, 8);
  problem.indices.Poison();
  const std::vector<float> before = problem.Bytes();
  for (const Buffer& buffer :
       {Buffer{problem.workspace.data(), bytes - 1}, Buffer{nullptr, bytes}}) {
    const Status status = SelectTopk(problem.args, problem.options, buffer);
    REQUIRE(std::string(Format(status).c_str()) ==
            "buffer too small: workspace.bytes is " +
                std::to_string(buffer.data == nullptr ? 0 : bytes - 1) + ", must be at least " +
                std::to_string(bytes));
    REQUIRE(SameBits(problem.Bytes(), before));
  }
}

TEST_CASE("top-k refuses an executor without a function", "[topk][validation]") {
  Problem problem;
  Executor executor;
  executor.run = nullptr;
  const Status status = SelectTopk(problem.args, problem.options, problem.buffer, executor);
  REQUIRE(std::string(Format(status).c_str()) == "invalid argument: executor.run must not be null");
}

TEST_CASE("a workspace serves every smaller call, and absurd ones have no size",
          "[topk][validation]") {
  REQUIRE(TopkWorkspaceFor(100, 100, 8) == 0);
  REQUIRE(TopkWorkspaceFor(100000, 0, 8) == 0);
  REQUIRE(TopkWorkspaceFor(INT32_MAX, kMax, 65536) == 0);
  REQUIRE(TopkWorkspaceFor(INT32_MAX, INT32_MAX - 1, 65536) > size_t{1} << 48);
  const auto message = [](int64_t k, const Limits& limits, bool wants_sizes = true) {
    TopkOptions options;
    options.k = k;
    Sizes sizes;
    return std::string(Format(TopkSizes(options, limits, wants_sizes ? &sizes : nullptr)).c_str());
  };
  REQUIRE(message(-1, {0, 0, 1, 1}) == "invalid argument: options.k is -1, must be at least 0");
  REQUIRE(message(1, {0, 0, -1, 1}) ==
          "invalid argument: limits.max_num_keys is -1, must be at least 0");
  REQUIRE(
      message(1, {0, 0, kMax, 1}) ==
      "invalid argument: limits.max_num_keys is 9223372036854775807, must be at most 2147483647");
  REQUIRE(message(1, {0, 0, 1, 0}) ==
          "invalid argument: limits.num_workers is 0, must be at least 1");
  REQUIRE(message(1, {0, 0, 1, std::numeric_limits<size_t>::max()}) ==
          "invalid argument: limits.num_workers is 9223372036854775807, must be at most 65536");
  REQUIRE(message(1, {0, 0, 1, 1}, false) == "invalid argument: sizes must not be null");
  size_t before = 0;
  for (const int64_t columns : {2000, 20000, 200000, 2000000}) {
    for (const size_t workers : {1u, 2u, 64u}) {
      const size_t bytes = TopkWorkspaceFor(columns, 1500, workers);
      REQUIRE(bytes >= before);
      REQUIRE(bytes >= TopkWorkspaceFor(columns - 400, 1500, workers));
      REQUIRE(bytes >= TopkWorkspaceFor(columns, 1400, workers));
      before = workers == 64 ? 0 : bytes;
    }
  }
}

}  // namespace
}  // namespace lathe::test
