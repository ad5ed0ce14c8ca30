// SPDX-License-Identifier: Apache-2.0
// Row transforms of queries against the double reference: norms, ropes, Hadamard matrices, widths, types; what
// they undo, and what becomes of zeros, NaN and extreme numbers.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <limits>

#include "query_prep/query_problem.h"
#include "support/targets.h"

namespace lathe::test {
namespace {

constexpr int64_t kWidths[] = {1, 2, 7, 33, 64, 100, 128, 512, 576, kMaxTransformWidth};
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

void RunAndRequireReference(const QueryCase& c, Target target) {
  const TransformCase& t = c.transform;
  CAPTURE(Name(target), c.width, Name(c.q_type), Name(c.out_type), static_cast<int>(t.norm));
  CAPTURE(t.has_weight, t.has_bias, t.rope_dim, t.interleaved, t.leading, t.inverse, t.hadamard);
  CAPTURE(t.round_to_bfloat16, Name(t.type));
  QueryProblem problem(c);
  problem.options.target = target;
  problem.Run();
  problem.RequireReference();
}

TEST_CASE("a norm gives the reference's rows", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const int64_t width : kWidths) {
    for (const DType type : kDTypes) {
      for (const bool has_weight : {false, true}) {
        QueryCase c;
        c.width = width;
        c.transform.type = type;
        c.transform.has_weight = has_weight;
        c.transform.norm = NormKind::kRms;
        RunAndRequireReference(c, target);
        if (width == 1) continue;  // its variance is 0: nothing but eps
        c.transform.norm = NormKind::kLayer;
        RunAndRequireReference(c, target);
        c.transform.has_bias = true;
        RunAndRequireReference(c, target);
      }
    }
  }
}

TEST_CASE("a rope gives the reference's rows", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const int64_t width : kWidths) {
    for (const int64_t rope_dim : {int64_t{2}, int64_t{6}, int64_t{64}, width / 2 * 2}) {
      if (rope_dim > width || rope_dim == 0) continue;
      for (int flags = 0; flags < 8; ++flags) {
        QueryCase c;
        c.width = width;
        c.transform.rope_dim = rope_dim;
        c.transform.interleaved = (flags & 1) != 0;
        c.transform.leading = (flags & 2) != 0;
        c.transform.inverse = (flags & 4) != 0;
        c.transform.type = kDTypes[flags % 3];
        RunAndRequireReference(c, target);
      }
    }
  }
}

TEST_CASE("a Hadamard matrix gives the reference's rows", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (int64_t width = 1; width <= 1024; width *= 2) {
    QueryCase c;
    c.width = width;
    c.transform.hadamard = true;
    RunAndRequireReference(c, target);
  }
}

TEST_CASE("steps follow one another in their order, for all types", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const DType q_type : kDTypes) {
    for (const DType out_type : kDTypes) {
      for (const bool round : {false, true}) {
        QueryCase v32_indexer, v4_query;
        v32_indexer.transform = {NormKind::kLayer, true, true, 64, false, true};
        v32_indexer.transform.hadamard = true;
        v4_query.width = 512;
        v4_query.transform = {NormKind::kRms, false, false, 64};
        for (QueryCase c : {v32_indexer, v4_query}) {
          c.q_type = q_type;
          c.out_type = out_type;
          c.transform.round_to_bfloat16 = round;
          RunAndRequireReference(c, target);
        }
      }
    }
  }
}

TEST_CASE("without a transform rows are converted and nothing else", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const DType q_type : kDTypes) {
    for (const DType out_type : kDTypes) {
      QueryCase c;
      c.q_type = q_type;
      c.out_type = out_type;
      c.width = 100;
      QueryProblem problem(c);
      problem.options.target = target;
      problem.args.positions = {};
      problem.Run();
      for (size_t i = 0; i < problem.q.size(); ++i) {
        AnyTensor<1> expected(out_type, {1});
        expected.Set(0, problem.q.Get(i));
        REQUIRE(problem.out.Get(i) == expected.Get(0));
      }
    }
  }
}

// Row i of the matrix, entry for entry: all of them are one number but for their signs.
TEST_CASE("unit vectors become rows of the Hadamard matrix", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const int64_t width : {1, 2, 4, 8, 16, 64, 128}) {
    QueryCase c;
    c.width = c.num_tokens = width;
    c.num_heads = 1;
    c.transform.hadamard = true;
    QueryProblem problem(c);
    problem.options.target = target;
    for (size_t i = 0; i < problem.q.size(); ++i) {
      problem.q.Set(i, i / static_cast<size_t>(width) == i % static_cast<size_t>(width) ? 1 : 0);
    }
    problem.Run();
    const auto entry = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
    for (size_t i = 0; i < problem.q.size(); ++i) {
      size_t common = i / static_cast<size_t>(width) & i % static_cast<size_t>(width);
      float sign = 1.0f;
      for (; common != 0; common /= 2) sign = common % 2 == 1 ? -sign : sign;
      CAPTURE(Name(target), width, i);
      REQUIRE(problem.out.Get(i) == sign * entry);
    }
  }
}

// The result of one call, as the queries of the next.
void TakeOut(QueryProblem& problem) {
  for (size_t i = 0; i < problem.q.size(); ++i) problem.q.Set(i, problem.out.Get(i));
}

void RequireValues(const QueryProblem& problem, const std::vector<float>& values) {
  RequireOut(problem.out.Values(), std::vector<double>(values.begin(), values.end()),
             static_cast<size_t>(problem.the_case.width), {});
}

TEST_CASE("an inverse rope undoes a rope", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const int64_t rope_dim : {2, 34, 64, 100}) {
    for (const bool interleaved : {false, true}) {
      QueryCase c;
      c.width = 100;
      c.transform.rope_dim = rope_dim;
      c.transform.interleaved = interleaved;
      QueryProblem problem(c);
      problem.options.target = target;
      const std::vector<float> values = problem.q.Values();
      problem.Run();
      REQUIRE(problem.out.Values() != values);
      TakeOut(problem);
      problem.args.transform.rope.inverse = true;
      problem.Run();
      RequireValues(problem, values);
    }
  }
}

TEST_CASE("a Hadamard matrix undoes itself", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const int64_t width : {2, 8, 64, 128, 4096}) {
    QueryCase c;
    c.width = width;
    c.transform.hadamard = true;
    QueryProblem problem(c);
    problem.options.target = target;
    const std::vector<float> values = problem.q.Values();
    problem.Run();
    TakeOut(problem);
    problem.Run();
    RequireValues(problem, values);
  }
}

TEST_CASE("columns beside the rope keep their bits", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  const bool leading = GENERATE(false, true);
  QueryCase c;
  c.width = 100;
  c.transform.rope_dim = 66;
  c.transform.leading = leading;
  QueryProblem problem(c);
  problem.options.target = target;
  problem.q.Set(leading ? 70 : 10, kNaN);
  problem.Run();
  for (size_t i = 0; i < problem.q.size(); ++i) {
    const size_t column = i % 100;
    if (leading ? column < 66 : column >= 34) {
      REQUIRE_FALSE(std::isnan(problem.out.Get(i)));
    } else {
      REQUIRE(std::memcmp(problem.q.bytes.data() + 4 * i, problem.out.bytes.data() + 4 * i, 4) ==
              0);
    }
  }
}

TEST_CASE("rows of zeros stay zeros", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  QueryCase c;
  c.transform = {GENERATE(NormKind::kNone, NormKind::kRms, NormKind::kLayer), true, false, 64};
  c.transform.hadamard = true;
  QueryProblem problem(c);
  problem.options.target = target;
  for (size_t i = 0; i < 128; ++i) problem.q.Set(128 + i, 0.0f);
  problem.Run();
  problem.RequireReference();
  for (size_t i = 0; i < 128; ++i) REQUIRE(problem.out.Get(128 + i) == 0.0f);
}

TEST_CASE("a row of zeros without eps is 0 / 0", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  QueryCase c;
  c.transform.norm = NormKind::kRms;
  QueryProblem problem(c);
  problem.options.target = target;
  problem.args.transform.norm.eps = 0.0f;
  for (size_t i = 0; i < 128; ++i) problem.q.Set(i, 0.0f);
  problem.Run();
  problem.RequireReference();
  REQUIRE(std::isnan(problem.out.Get(0)));
}

TEST_CASE("a NaN stays in its row", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  const DType out_type = GENERATE(DType::kFloat32, DType::kFloat16, DType::kBFloat16);
  for (const bool is_pair : {false, true}) {
    QueryCase c;
    c.num_tokens = 4;
    c.out_type = out_type;
    c.transform.rope_dim = 64;
    if (!is_pair) c.transform.norm = NormKind::kRms;
    QueryProblem problem(c);
    problem.options.target = target;
    problem.Run();
    const std::vector<float> before = problem.out.Values();
    problem.q.Set(3 * 128 + 101, kNaN);
    problem.out.bytes.Poison();
    problem.Run();
    for (size_t i = 0; i < before.size(); ++i) {
      const bool is_nan = is_pair ? i == 3 * 128 + 100 || i == 3 * 128 + 101 : i / 128 == 3;
      CAPTURE(Name(target), is_pair, i);
      REQUIRE((is_nan ? std::isnan(problem.out.Get(i)) : problem.out.Get(i) == before[i]));
    }
  }
}

// Squares that float32 does not hold.
TEST_CASE("huge and tiny rows are normalised", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const float factor : {1e-30f, 1e-22f, 1e22f, 1e36f}) {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      QueryCase c;
      c.width = 100;
      c.transform.norm = kind;
      QueryProblem problem(c);
      problem.options.target = target;
      problem.args.transform.norm.eps = 0.0f;
      for (size_t i = 0; i < problem.q.size(); ++i) problem.q.Set(i, problem.q.Get(i) * factor);
      CAPTURE(Name(target), factor, static_cast<int>(kind));
      problem.Run();
      problem.RequireReference();
    }
  }
}

}  // namespace
}  // namespace lathe::test
