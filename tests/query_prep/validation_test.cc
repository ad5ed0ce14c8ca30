// SPDX-License-Identifier: Apache-2.0
// What query preparation refuses: the whole message for each way to break a valid call, and no byte written.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>

#include "query_prep/query_problem.h"

namespace lathe::test {
namespace {

using Problem = QueryProblem;

struct Refusal {
  const char* message;
  void (*break_it)(Problem& problem);
};

// Three tokens, two heads of 8 columns; everything that goes with rows of a type is given.
QueryCase ValidCase() {
  QueryCase c;
  c.width = 8;
  c.transform = {NormKind::kLayer, true, true, 4};
  return c;
}

std::vector<std::byte> Written(const Problem& problem) {
  std::vector<std::byte> bytes = problem.out.bytes.Copy();
  const auto append = [&bytes](const auto& array) {
    const auto* first = reinterpret_cast<const std::byte*>(array.data());
    bytes.insert(bytes.end(), first, first + array.size() * sizeof(*array.data()));
  };
  append(problem.q.bytes);
  append(problem.codes);
  append(problem.q_scales);
  append(problem.weights_out);
  return bytes;
}

void RequireRefusals(
    std::initializer_list<Refusal> refusals, void (*prepare)(Problem&) = [](Problem&) {}) {
  for (const Refusal& refusal : refusals) {
    INFO("expected: " << refusal.message);
    Problem problem(ValidCase());
    problem.GiveWeights();
    prepare(problem);
    problem.Run();
    refusal.break_it(problem);
    problem.out.bytes.Poison();
    problem.codes.Poison();
    problem.weights_out.Poison();
    const auto before = Written(problem);
    const Status status = PrepareQueries(problem.args, problem.options);
    REQUIRE(std::string(Format(status).c_str()) == refusal.message);
    REQUIRE_FALSE(status.ok());
    REQUIRE(SameBits(Written(problem), before));
  }
}

void AskForCodes(Problem& problem) { problem.AskForCodes(); }

TEST_CASE("query preparation refuses wrong queries and rows", "[query_prep][validation]") {
  RequireRefusals({
      {"invalid argument: q.extent[1] is 0, must be at least 1",
       [](Problem& p) { p.args.q.extent[1] = 0; }},
      {"invalid argument: q.extent[2] is -8, must be at least 1",
       [](Problem& p) { p.args.q.extent[2] = -8; }},
      {"invalid argument: q.extent[2] is 4097, must be at most 4096",
       [](Problem& p) { p.args.q.extent[2] = 4097; }},
      {"invalid argument: q.extent[0] is -1, must be at least 0",
       [](Problem& p) { p.args.q.extent[0] = -1; }},
      {"invalid argument: q.data must not be null", [](Problem& p) { p.args.q.data = nullptr; }},
      {"invalid argument: q.data must be aligned to 4", [](Problem& p) { p.args.q.data += 2; }},
      {"invalid argument: q.dtype is 3, must be a known DType",
       [](Problem& p) { p.args.q.dtype = static_cast<DType>(3); }},
      {"invalid argument: q.stride[2] is 2, must be 1", [](Problem& p) { p.args.q.stride[2] = 2; }},
      {"invalid argument: q.stride[0] is 7, must be at least a row's width, 8",
       [](Problem& p) { p.args.q.stride[0] = 7; }},
      {"invalid argument: q must be given with out or codes", [](Problem& p) { p.args.q = {}; }},
      {"invalid argument: out must be given, or codes, and not both",
       [](Problem& p) { p.args.out = {}; }},
      {"invalid argument: out must be given, or codes, and not both",
       [](Problem& p) { p.args.codes = Packed(p.codes.data(), 3, 2, 8); }},
      {"invalid argument: out.extent[0] is 2, must be 3",
       [](Problem& p) { p.args.out.extent[0] = 2; }},
      {"invalid argument: out.extent[2] is 7, must be 8",
       [](Problem& p) { p.args.out.extent[2] = 7; }},
      {"invalid argument: out.data must not be null",
       [](Problem& p) { p.args.out.data = nullptr; }},
      {"invalid argument: out.dtype is 9, must be a known DType",
       [](Problem& p) { p.args.out.dtype = static_cast<DType>(9); }},
      {"invalid argument: out.stride[0] is 8, must not let rows overlap",
       [](Problem& p) { p.args.out.stride[0] = 8; }},
  });
}

TEST_CASE("query preparation refuses wrong transforms", "[query_prep][validation]") {
  RequireRefusals({
      {"invalid argument: transform.norm.kind is 3, must be a known NormKind",
       [](Problem& p) { p.args.transform.norm.kind = static_cast<NormKind>(3); }},
      {"invalid argument: transform.norm.weight.extent[0] is 7, must be 8",
       [](Problem& p) { p.args.transform.norm.weight.extent[0] = 7; }},
      {"invalid argument: transform.norm.weight.data must not be null",
       [](Problem& p) { p.args.transform.norm.weight.data = nullptr; }},
      {"invalid argument: transform.norm.weight.stride[0] is 2, must be 1",
       [](Problem& p) { p.args.transform.norm.weight.stride[0] = 2; }},
      {"invalid argument: transform.norm.bias.extent[0] is 9, must be 8",
       [](Problem& p) { p.args.transform.norm.bias.extent[0] = 9; }},
      {"invalid argument: transform.norm.bias must not be given with NormKind::kRms",
       [](Problem& p) { p.args.transform.norm.kind = NormKind::kRms; }},
      {"invalid argument: transform.norm.eps is -1, must be finite and at least 0",
       [](Problem& p) { p.args.transform.norm.eps = -1.0f; }},
      {"invalid argument: transform.norm.eps is nan, must be finite and at least 0",
       [](Problem& p) { p.args.transform.norm.eps = std::numeric_limits<float>::quiet_NaN(); }},
      {"invalid argument: transform.rope.cos.data must not be null",
       [](Problem& p) { p.args.transform.rope.cos.data = nullptr; }},
      {"invalid argument: transform.rope.sin.data must be aligned to 4",
       [](Problem& p) { p.args.transform.rope.sin.data += 1; }},
      {"invalid argument: transform.rope.sin.extent[0] is 10, must be 11",
       [](Problem& p) { p.args.transform.rope.sin.extent[0] = 10; }},
      {"invalid argument: transform.rope.sin.extent[1] is 1, must be 2",
       [](Problem& p) { p.args.transform.rope.sin.extent[1] = 1; }},
      {
          "invalid argument: transform.rope.sin.extent[0] is 11, must be 0",
          [](Problem& p) { p.args.transform.rope.cos = {}; },
      },
      {"invalid argument: transform.rope.cos.extent[1] is 5, must be at most half of the row's "
       "width, 4",
       [](Problem& p) {
         Rope& rope = p.args.transform.rope;
         rope.cos.extent[1] = rope.sin.extent[1] = 5;
         rope.cos.stride[0] = rope.sin.stride[0] = 5;
       }},
      {"index out of range: positions[1] is 11, must be below the rope's cos.extent[0] = 11",
       [](Problem& p) { p.positions[1] = 11; }},
      {"index out of range: positions[2] is -1, must be at least 0",
       [](Problem& p) { p.positions[2] = -1; }},
      {"invalid argument: positions.extent[0] is 2, must be at least the number of rows, 3",
       [](Problem& p) { p.args.positions.extent[0] = 2; }},
      {"invalid argument: positions.data must not be null",
       [](Problem& p) { p.args.positions.data = nullptr; }},
      {"invalid argument: positions.extent[0] is 0, must be at least the number of rows, 3",
       [](Problem& p) { p.args.positions = {}; }},
  });
  QueryCase c;
  c.width = 12;
  Problem problem(c);
  problem.args.transform.hadamard = true;
  REQUIRE(std::string(Format(PrepareQueries(problem.args)).c_str()) ==
          "invalid argument: transform.hadamard must not be asked for unless the row's width is a "
          "power of two; it is 12");
}

TEST_CASE("query preparation refuses wrong codes", "[query_prep][validation]") {
  RequireRefusals(
      {
          {"invalid argument: codes.extent[1] is 3, must be 2",
           [](Problem& p) { p.args.codes.extent[1] = 3; }},
          {"invalid argument: codes.data must not be null",
           [](Problem& p) { p.args.codes.data = nullptr; }},
          {"invalid argument: codes.stride[2] is 2, must be 1",
           [](Problem& p) { p.args.codes.stride[2] = 2; }},
          {"invalid argument: codes.stride[1] is 4, must be at least a row's width, 8",
           [](Problem& p) { p.args.codes.stride[1] = 4; }},
          {"invalid argument: codes.stride[0] is 8, must not let rows overlap",
           [](Problem& p) { p.args.codes.stride[0] = 8; }},
          {"invalid argument: q_scales.extent[0] is 2, must be 3",
           [](Problem& p) { p.args.q_scales.extent[0] = 2; }},
          {"invalid argument: q_scales.stride[0] is 1, must not let elements overlap",
           [](Problem& p) { p.args.q_scales.stride[0] = 1; }},
      },
      AskForCodes);
}

TEST_CASE("query preparation refuses wrong weights", "[query_prep][validation]") {
  RequireRefusals({
      {"invalid argument: q_scales must not be given without codes",
       [](Problem& p) { p.args.q_scales = Packed(p.q_scales.data(), 3, 2); }},
      {"invalid argument: weights_out must be given with weights, and not without",
       [](Problem& p) { p.args.weights_out = {}; }},
      {"invalid argument: weights_out must be given with weights, and not without",
       [](Problem& p) { p.args.weights = {}; }},
      {"invalid argument: weights.extent[1] is 1, must be 2",
       [](Problem& p) { p.args.weights.extent[1] = 1; }},
      {"invalid argument: weights.data must not be null",
       [](Problem& p) { p.args.weights.data = nullptr; }},
      {"invalid argument: weights_out.extent[0] is 4, must be 3",
       [](Problem& p) { p.args.weights_out.extent[0] = 4; }},
      {"invalid argument: softmax_scale is inf, must be finite",
       [](Problem& p) { p.options.softmax_scale = std::numeric_limits<float>::infinity(); }},
      {"invalid argument: head_scale is nan, must be finite",
       [](Problem& p) { p.options.head_scale = std::numeric_limits<float>::quiet_NaN(); }},
  });
}

TEST_CASE("query preparation refuses overlap other than in place", "[query_prep][validation]") {
  RequireRefusals({
      {"invalid argument: out must not overlap another array of the call: q",
       [](Problem& p) {
         p.args.out.data = p.q.bytes.data();
         p.args.out.stride[0] = 8;
         p.args.out.stride[1] = 24;
       }},
      {"invalid argument: out must not overlap another array of the call: q",
       [](Problem& p) {
         p.args.out.data = p.q.bytes.data();
         p.args.out.dtype = DType::kBFloat16;
       }},
      {"invalid argument: out must not overlap another array of the call: weights",
       [](Problem& p) { p.args.out.data = p.weights.bytes.data(); }},
      {"invalid argument: out must not overlap another array of the call: positions",
       [](Problem& p) { p.args.out.data = reinterpret_cast<std::byte*>(p.positions.data()); }},
      {"invalid argument: out must not overlap another array of the call: transform",
       [](Problem& p) { p.args.out.data = p.tables.angles.bytes.data(); }},
      {"invalid argument: out must not overlap another array of the call: transform",
       [](Problem& p) { p.args.out.data = p.tables.bias.bytes.data() + 28; }},
      {"invalid argument: weights_out must not overlap another array of the call: weights",
       [](Problem& p) {
         p.args.weights_out =
             View<float, 2>{reinterpret_cast<float*>(p.weights.bytes.data()), {3, 2}, {1, 3}};
       }},
      {"invalid argument: weights_out must not overlap another array of the call: out",
       [](Problem& p) { p.args.weights_out.data = reinterpret_cast<float*>(p.out.bytes.data()); }},
  });
  RequireRefusals(
      {{"invalid argument: codes must not overlap another array of the call: q",
        [](Problem& p) { p.args.codes.data = reinterpret_cast<float8_e4m3fn*>(p.q.bytes.data()); }},
       {"invalid argument: q_scales must not overlap another array of the call: codes",
        [](Problem& p) { p.args.q_scales.data = reinterpret_cast<float*>(p.codes.data() + 4); }}},
      AskForCodes);
}

TEST_CASE("query preparation refuses an executor without a function", "[query_prep][validation]") {
  Problem problem(ValidCase());
  Executor executor;
  executor.run = nullptr;
  const Status status = PrepareQueries(problem.args, {}, executor);
  REQUIRE(std::string(Format(status).c_str()) == "invalid argument: executor.run must not be null");
}

}  // namespace
}  // namespace lathe::test
