// SPDX-License-Identifier: Apache-2.0
// What becomes of transformed rows: codes, scales, folded weights; in place, strides, workers.
#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <limits>

#include "query_prep/query_problem.h"
#include "support/strided.h"
#include "support/targets.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

// Queries of an indexer: rope, Hadamard matrix, outliers.
QueryCase IndexerCase() {
  QueryCase c;
  c.num_tokens = 5;
  c.num_heads = 7;
  c.transform.rope_dim = 64;
  c.transform.leading = true;
  return c;
}

float ScaleOf(const float* row, int64_t width, bool power_of_two) {
  float amax = 0.0f;
  for (int64_t i = 0; i < width; ++i) amax = std::max(amax, std::abs(row[i]));  // drops NaN
  const float scale = std::max(amax, 1e-4f) / 448.0f;
  return power_of_two ? std::exp2(std::ceil(std::log2(scale))) : scale;
}

TEST_CASE("codes are those of the transformed rows", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  const bool power_of_two = GENERATE(false, true);
  for (const int64_t width : {1, 7, 64, 100, 128, 512}) {
    for (const DType type : kDTypes) {
      QueryCase c = IndexerCase();
      c.width = width;
      c.q_type = type;
      c.transform.rope_dim = std::min<int64_t>(64, width / 2 * 2);
      c.transform.hadamard = width == 128;
      QueryProblem problem(c);
      problem.options.target = target;
      problem.options.power_of_two_scales = power_of_two;
      for (size_t i = 0; i < static_cast<size_t>(width); ++i) problem.q.Set(i, 0.0f);
      problem.q.Set(static_cast<size_t>(width), 1000.0f);
      problem.q.Set(static_cast<size_t>(2 * width), std::numeric_limits<float>::quiet_NaN());
      problem.Run();
      const std::vector<float> rows = problem.out.Values();
      problem.AskForCodes();
      problem.Run();
      for (size_t i = 0; i < rows.size(); ++i) {
        const size_t r = i / static_cast<size_t>(width);
        const float scale = ScaleOf(&rows[r * static_cast<size_t>(width)], width, power_of_two);
        CAPTURE(Name(target), width, Name(type), power_of_two, i, rows[i], scale);
        REQUIRE(problem.q_scales[r] == scale);
        REQUIRE(problem.codes[i].bits == FromFloat<float8_e4m3fn>(rows[i] / scale).bits);
      }
      const std::vector<float8_e4m3fn> codes = problem.codes.Copy();
      problem.codes.Poison();
      problem.args.q_scales = {};
      problem.Run();
      REQUIRE(SameBits(problem.codes.Copy(), codes));
    }
  }
}

TEST_CASE("scales are folded into head weights in their order", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const DType type : kDTypes) {
    QueryCase c = IndexerCase();
    c.q_type = type;
    QueryProblem problem(c);
    problem.options = {target, true, 0.08838835f, 0.3779645f};
    const auto require_folded = [&](const auto& scale_at) {
      for (size_t i = 0; i < problem.weights_out.size(); ++i) {
        float folded = problem.weights.Get(i) * scale_at(i);
        folded *= problem.options.softmax_scale;
        folded *= problem.options.head_scale;
        REQUIRE(problem.weights_out[i] == folded);
      }
      problem.weights_out.Poison();
    };
    problem.GiveWeights();
    problem.Run();  // with rows
    require_folded([](size_t) { return 1.0f; });
    problem.args.q = {};
    problem.args.out = {};
    problem.Run();  // nothing else
    require_folded([](size_t) { return 1.0f; });
    problem.args.q = problem.q.in();
    problem.AskForCodes();
    problem.Run();
    require_folded([&](size_t i) { return problem.q_scales[i]; });
  }
}

TEST_CASE("weights are folded in place", "[query_prep]") {
  QueryProblem problem(IndexerCase());
  problem.options.softmax_scale = 0.3f;
  problem.AskForCodes();
  problem.GiveWeights();
  problem.Run();
  problem.args.weights = problem.args.weights_out;
  std::copy_n(reinterpret_cast<const float*>(problem.weights.bytes.data()),
              problem.weights_out.size(), problem.weights_out.data());
  std::vector<float> expected;
  for (size_t i = 0; i < problem.weights_out.size(); ++i) {
    expected.push_back(problem.weights_out[i] * problem.q_scales[i] * 0.3f);
  }
  problem.Run();
  REQUIRE(SameBits(problem.weights_out.Copy(), expected));
}

TEST_CASE("rows are prepared in place", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const DType type : kDTypes) {
    QueryCase c;
    c.q_type = c.out_type = type;
    c.width = 100;
    c.transform = {NormKind::kRms, true, false, 64};
    QueryProblem problem(c);
    problem.options.target = target;
    problem.Run();
    problem.args.out = problem.q.out();
    problem.Run();
    REQUIRE(SameBits(problem.q.bytes.Copy(), problem.out.bytes.Copy()));
  }
}

TEST_CASE("strided queries are prepared and gaps keep their bytes", "[query_prep]") {
  const bool heads_first = GENERATE(false, true);
  QueryCase c;
  c.width = 7;
  c.transform = {NormKind::kLayer, true, true, 4, false};
  QueryProblem problem(c);
  problem.Run();
  const std::vector<float> expected = problem.out.Values();
  problem.AskForCodes();
  problem.GiveWeights();
  problem.Run();

  const int64_t t = heads_first ? 9 : 31, h = heads_first ? 40 : 10;
  Strided<float, 3> q({3, 2, 7}, {t, h, 1}, problem.q.Values()), out({3, 2, 7}, {t + 2, h + 3, 1});
  Strided<float8_e4m3fn, 3> codes({3, 2, 7}, {t + 1, h + 5, 1});
  Strided<float, 2> q_scales({3, 2}, {5, 2}), weights_out({3, 2}, {1, 4});
  Strided<float, 2> weights({3, 2}, {6, 1}, problem.weights.Values());
  Strided<int64_t, 1> positions({3}, {4}, problem.positions);
  problem.args.q = View<const float, 3>(q.view());
  problem.args.weights = View<const float, 2>(weights.view());
  problem.args.positions = positions.view();
  problem.args.weights_out = weights_out.view();
  problem.args.codes = codes.view();
  problem.args.q_scales = q_scales.view();
  problem.Run();
  REQUIRE(SameBits(codes.Packed(), problem.codes.Copy()));
  REQUIRE(SameBits(q_scales.Packed(), problem.q_scales.Copy()));
  REQUIRE(SameBits(weights_out.Packed(), problem.weights_out.Copy()));
  problem.args.codes = {};
  problem.args.q_scales = {};
  problem.args.out = out.view();
  problem.Run();
  REQUIRE(SameBits(out.Packed(), expected));
  REQUIRE((out.AreGapsIntact() && codes.AreGapsIntact() && q_scales.AreGapsIntact() &&
           weights_out.AreGapsIntact()));
}

// Every row alone gives the bits that it has among others, with any number of workers.
TEST_CASE("bits of a row depend on nothing else", "[query_prep]") {
  const Target target = LATHE_GENERATE_TARGET();
  QueryCase c = IndexerCase();
  c.num_tokens = 64;
  c.num_heads = 9;
  c.transform.norm = NormKind::kLayer;
  c.transform.hadamard = true;
  QueryProblem problem(c);
  problem.options.target = target;
  problem.AskForCodes();
  problem.GiveWeights();
  problem.Run();
  const std::vector<float8_e4m3fn> codes = problem.codes.Copy();
  const std::vector<float> weights_out = problem.weights_out.Copy();
  for (const size_t workers : {2, 3, 7}) {
    problem.codes.Poison();
    problem.weights_out.Poison();
    problem.Run(ThreadExecutor(workers));
    REQUIRE(SameBits(problem.codes.Copy(), codes));
    REQUIRE(SameBits(problem.weights_out.Copy(), weights_out));
  }
  problem.codes.Poison();
  problem.weights_out.Poison();
  const QueryPrepArgs all = problem.args;
  for (int64_t row = 0; row < problem.num_rows(); ++row) {
    QueryPrepArgs& one = problem.args;
    one = all;
    one.q.extent[0] = one.q.extent[1] = one.codes.extent[0] = one.codes.extent[1] = 1;
    one.q_scales = {};
    one.q.data += row * c.width * 4;
    one.codes.data += row * c.width;
    one.weights.data += row * 4;
    one.weights_out.data += row;
    for (int64_t* extent : {one.weights.extent, one.weights_out.extent}) extent[0] = extent[1] = 1;
    one.positions = Packed(static_cast<const int64_t*>(&problem.positions[row / c.num_heads]), 1);
    problem.Run();
  }
  REQUIRE(SameBits(problem.codes.Copy(), codes));
  REQUIRE(SameBits(problem.weights_out.Copy(), weights_out));
}

TEST_CASE("no tokens need no data", "[query_prep]") {
  QueryPrepArgs args;
  REQUIRE(PrepareQueries(args).ok());
  args.q.extent[1] = args.out.extent[1] = 8;
  args.q.extent[2] = args.out.extent[2] = 128;
  REQUIRE(PrepareQueries(args).ok());
  // Nor columns: found by a fuzzer, as a division by their number.
  const float q = 0.0f;
  args.q = Packed(&q, 0, 8, 0);
  REQUIRE(PrepareQueries(args).ok());
}

}  // namespace
}  // namespace lathe::test
