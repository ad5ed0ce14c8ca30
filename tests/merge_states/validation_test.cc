// SPDX-License-Identifier: Apache-2.0
// What a merge refuses: the whole message for each way to break a valid call, the part named by its
// number, and no byte of any result changed.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include "support/merge_problem.h"

namespace lathe::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Two parts of 3 rows, 2 heads, 4 columns, with a sink.
using Problem = MergeProblem<float>;

struct Row {
  const char* message;
  void (*break_it)(Problem& problem);
};

std::vector<float> Bytes(const Problem& p) {
  std::vector<float> all = p.out.Copy();
  for (const Guarded<float>* memory :
       {&p.lse, &p.sink, &p.part_out[0], &p.part_out[1], &p.part_lse[0], &p.part_lse[1]}) {
    all.insert(all.end(), memory->begin(), memory->end());
  }
  return all;
}

void RequireRefusals(std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    INFO("expected: " << row.message);
    Problem problem({3, 2, 4, 2});
    problem.GiveSink();
    const std::vector<float> poisoned = Bytes(problem);
    problem.RunAndRequireReference();
    for (Guarded<float>* result : {&problem.out, &problem.lse}) {
      std::memset(result->data(), kPoison, result->size() * sizeof(float));
    }
    row.break_it(problem);
    const Status status = MergeStates(problem.args, problem.options);
    REQUIRE(std::string(Format(status).c_str()) == row.message);
    REQUIRE_FALSE(status.ok());
    REQUIRE(SameBits(Bytes(problem), poisoned));
  }
}

TEST_CASE("a merge refuses wrong results", "[merge_states][validation]") {
  RequireRefusals({
      {"invalid argument: num_parts is 0, must be at least 1",
       [](Problem& p) { p.args.num_parts = 0; }},
      {"invalid argument: parts must not be null", [](Problem& p) { p.args.parts = nullptr; }},
      {"invalid argument: out.data must not be null",
       [](Problem& p) { p.args.out.data = nullptr; }},
      {"invalid argument: out.extent[0] is -1, must be at least 0",
       [](Problem& p) { p.args.out.extent[0] = -1; }},
      {"invalid argument: out.extent[1] is 0, must be at least 1",
       [](Problem& p) { p.args.out.extent[1] = 0; }},
      {"invalid argument: out.extent[2] is 0, must be at least 1",
       [](Problem& p) { p.args.out.extent[2] = 0; }},
      {"invalid argument: out.extent[2] is -4, must be at least 1",
       [](Problem& p) { p.args.out.extent[2] = -4; }},
      {"invalid argument: out.extent[0] is 9223372036854775807, must be at most "
       "1152921504606846975",
       [](Problem& p) { p.args.out.extent[0] = kMax; }},
      {"invalid argument: out.stride[0] is 9223372036854775807, must not lead beyond the address "
       "space "
       "with .extent 3",
       [](Problem& p) { p.args.out.stride[0] = kMax; }},
      {"invalid argument: out.dtype is 3, must be a known DType",
       [](Problem& p) { p.args.out.dtype = static_cast<DType>(3); }},
      {"invalid argument: out.stride[2] is 2, must be 1",
       [](Problem& p) { p.args.out.stride[2] = 2; }},
      {"invalid argument: out.stride[1] is 3, must be at least a row's width, 4",
       [](Problem& p) { p.args.out.stride[1] = 3; }},
      {"invalid argument: out.stride[0] is 7, must not let rows overlap",
       [](Problem& p) { p.args.out.stride[0] = 7; }},
      {"invalid argument: out.data must be aligned to 4", [](Problem& p) { p.args.out.data += 2; }},
      {"invalid argument: lse.data must not be null",
       [](Problem& p) { p.args.lse.data = nullptr; }},
      {"invalid argument: lse.extent[0] is 2, must be 3",
       [](Problem& p) { p.args.lse.extent[0] = 2; }},
      {"invalid argument: lse.extent[1] is 3, must be 2",
       [](Problem& p) { p.args.lse.extent[1] = 3; }},
      {"invalid argument: lse.stride[0] is 1, must not let elements overlap",
       [](Problem& p) { p.args.lse.stride[0] = 1; }},
      {"invalid argument: lse.stride[1] is 0, must be at least 1",
       [](Problem& p) { p.args.lse.stride[1] = 0; }},
      {"invalid argument: attn_sink.extent[0] is 1, must be 2",
       [](Problem& p) { p.args.attn_sink.extent[0] = 1; }},
      {"invalid argument: attn_sink.data must not be null",
       [](Problem& p) { p.args.attn_sink.data = nullptr; }},
      {"invalid argument: attn_sink.stride[0] is 0, must be at least 1",
       [](Problem& p) { p.args.attn_sink.stride[0] = 0; }},
      {"target unavailable: options.target is 99, must be auto or a target that runs here: no such "
       "target",
       [](Problem& p) { p.options.target = static_cast<Target>(99); }},
  });
}

TEST_CASE("a merge refuses a wrong part by its number", "[merge_states][validation]") {
  RequireRefusals({
      {"invalid argument: parts[0].out.data must not be null",
       [](Problem& p) { p.parts[0].out.data = nullptr; }},
      {"invalid argument: parts[1].out.data must not be null",
       [](Problem& p) { p.parts[1].out.data = nullptr; }},
      {"invalid argument: parts[1].lse.data must not be null",
       [](Problem& p) { p.parts[1].lse.data = nullptr; }},
      {"invalid argument: parts[1].out.extent[0] is 0, must be 3",
       [](Problem& p) { p.parts[1] = {}; }},
      {"invalid argument: parts[1].out.extent[0] is 2, must be 3",
       [](Problem& p) { p.parts[1].out.extent[0] = 2; }},
      {"invalid argument: parts[0].out.extent[1] is 1, must be 2",
       [](Problem& p) { p.parts[0].out.extent[1] = 1; }},
      {"invalid argument: parts[1].out.extent[2] is 3, must be 4",
       [](Problem& p) { p.parts[1].out.extent[2] = 3; }},
      {"invalid argument: parts[1].out.extent[2] is -4, must be 4",
       [](Problem& p) { p.parts[1].out.extent[2] = -4; }},
      {"invalid argument: parts[1].out.dtype is 9, must be a known DType",
       [](Problem& p) { p.parts[1].out.dtype = static_cast<DType>(9); }},
      {"invalid argument: parts[1].out.stride[1] is 3, must be at least a row's width, 4",
       [](Problem& p) { p.parts[1].out.stride[1] = 3; }},
      {"invalid argument: parts[1].out.stride[0] is 9223372036854775807, must not lead beyond the "
       "address space with .extent 3",
       [](Problem& p) { p.parts[1].out.stride[0] = kMax; }},
      {"invalid argument: parts[1].out.data must be aligned to 4",
       [](Problem& p) { p.parts[1].out.data += 1; }},
      {"invalid argument: parts[0].lse.extent[0] is 4, must be 3",
       [](Problem& p) { p.parts[0].lse.extent[0] = 4; }},
      {"invalid argument: parts[0].lse.extent[1] is 0, must be 2",
       [](Problem& p) { p.parts[0].lse.extent[1] = 0; }},
      {"invalid argument: parts[0].lse.stride[1] is -1, must be at least 0",
       [](Problem& p) { p.parts[0].lse.stride[1] = -1; }},
  });
}

TEST_CASE("a merge refuses every overlap but in place", "[merge_states][validation]") {
  RequireRefusals({
      {"invalid argument: lse must not overlap out",
       [](Problem& p) { p.args.lse.data = p.out.data(); }},
      {"invalid argument: attn_sink must not overlap out or lse",
       [](Problem& p) { p.args.attn_sink.data = p.out.data() + 22; }},
      {"invalid argument: attn_sink must not overlap out or lse",
       [](Problem& p) { p.args.attn_sink.data = p.lse.data(); }},
      // Shifted by a row, or of other strides or another type: not the very array.
      {"invalid argument: parts[1].out must be the very array of out, or not overlap it",
       [](Problem& p) {
         p.args.out.extent[0] = 2;
         for (MergePart& part : p.parts) part.out.extent[0] = part.lse.extent[0] = 2;
         p.args.lse.extent[0] = 2;
         p.args.out.data = reinterpret_cast<std::byte*>(p.part_out[1].data() + 8);
       }},
      {"invalid argument: parts[0].out must be the very array of out, or not overlap it",
       [](Problem& p) {
         p.args.out = View<float, 3>{p.part_out[0].data(), {3, 2, 4}, {4, 12, 1}};
       }},
      {"invalid argument: parts[1].out must be the very array of out, or not overlap it",
       [](Problem& p) {
         p.args.out.data = reinterpret_cast<std::byte*>(p.part_out[1].data());
         p.args.out.dtype = DType::kBFloat16;
       }},
      {"invalid argument: parts[0].lse must be the very array of lse, or not overlap it",
       [](Problem& p) {
         p.args.lse = View<float, 2>{p.part_lse[0].data(), {3, 2}, {1, 3}};
       }},
      {"invalid argument: parts[1].lse must not overlap out",
       [](Problem& p) { p.parts[1].lse.data = p.out.data(); }},
      {"invalid argument: parts[1].out must not overlap lse",
       [](Problem& p) { p.args.lse.data = p.part_out[1].data(); }},
  });
}

TEST_CASE("a merge refuses an executor without a function", "[merge_states][validation]") {
  Problem problem({3, 2, 4, 2});
  Executor executor;
  executor.run = nullptr;
  const Status status = MergeStates(problem.args, problem.options, executor);
  REQUIRE(std::string(Format(status).c_str()) == "invalid argument: executor.run must not be null");
}

}  // namespace
}  // namespace lathe::test
