// SPDX-License-Identifier: Apache-2.0
// What prefill promises beyond right numbers: the same bits in any company, containment of NaN, nothing read that
// no row sees, the bits of decode over the same rows.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "prefill/prefill_problem.h"

namespace lathe::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEMPLATE_TEST_CASE("a sequence has the same bits alone and in company", "[prefill]", float,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  PrefillProblem<TestType> alone({{2, 0, 192, 128}, {150}, {333}});
  PrefillProblem<TestType> together({{2, 0, 192, 128}, {1, 150, 70}, {20, 333, 1000}});
  alone.options.target = together.options.target = target;
  alone.Run();
  together.Run(3);
  const MlaResult<float> a = alone.Result(), b = together.Result();
  REQUIRE(std::memcmp(a.out.data(), b.out.data() + 2 * 128, a.out.size() * sizeof(float)) == 0);
  REQUIRE(std::memcmp(a.lse.data(), b.lse.data() + 2, a.lse.size() * sizeof(float)) == 0);
}

TEST_CASE("parts of a parallel region of any threads give the bits of one call", "[prefill]") {
  PrefillProblem<bfloat16> problem({{2, 0, 192, 128}, {40, 3}, {900, 3}});
  problem.options.target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(problem.options.target));
  problem.Run();
  const MlaResult<float> whole = problem.Result();
  const size_t num_workers = GENERATE(1, 2, 5);
  for (const size_t nth : {size_t{1}, size_t{2}, num_workers, 3 * num_workers}) {
    CAPTURE(num_workers, nth);
    problem.RunPlanned(num_workers, [&](const PrefillPlan& plan, Buffer workspace) {
      Barrier barrier(nth);
      std::vector<Status> status(2 * nth);
      OnThreads(nth, [&](size_t ith) {
        status[2 * ith] = RunPrefillPart(plan, problem.args, workspace, ith, nth);
        barrier.Wait();
        status[2 * ith + 1] = RunPrefillMerge(plan, problem.args, workspace, ith, nth);
      });
      for (const Status& s : status) RequireOk(s);
    });
    REQUIRE(SameBits(problem.Result(), whole));
    problem.RunPlanned(num_workers, [&](const PrefillPlan& plan, Buffer workspace) {
      RequireOk(RunPrefill(plan, problem.args, workspace, ThreadExecutor(nth)));
    });
    REQUIRE(SameBits(problem.Result(), whole));
  }
}

TEMPLATE_TEST_CASE("keys and values that no row sees may be anything", "[prefill]", float,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t v_dim = GENERATE(64, 72);
  CAPTURE(Name(target), v_dim);
  PrefillProblem<TestType> problem({{2, 0, 64, v_dim}, {140}, {700}});
  problem.options.target = target;
  problem.options.window = 200;
  problem.Run();
  const MlaResult<float> clean = problem.Result();
  // The first query stands at 560 and sees 361 .. 560.
  for (int64_t j = 0; j < 361; ++j) {
    for (int64_t h = 0; h < 2; ++h) {
      std::fill_n(problem.Key(j, h), 64, FromFloat<TestType>(kNan));
      std::fill_n(problem.Value(j, h), v_dim, FromFloat<TestType>(kNan));
    }
  }
  problem.Run(2);
  REQUIRE(SameBits(problem.Result(), clean));
}

struct Poison {
  float value;
  bool is_in_value;
};

TEMPLATE_TEST_CASE("a bad key reaches the rows that see it, and no others", "[prefill][long]",
                   float, float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const auto [value, is_in_value] =
      GENERATE(Poison{kNan, false}, Poison{kNan, true}, Poison{kInf, true}, Poison{-kInf, true});
  const int64_t v_dim = GENERATE(64, 72);
  CAPTURE(Name(target), value, is_in_value, v_dim);
  // Queries 60 and later of 140 see key 260 of 340, in the second block or at the end of the first.
  PrefillProblem<TestType> problem({{4, 2, 64, v_dim}, {140, 3}, {340, 3}});
  problem.options.target = target;
  problem.Run();
  const MlaResult<float> clean = problem.Result();
  TestType* row = is_in_value ? problem.Value(260, 1) : problem.Key(260, 1);
  row[5] = FromFloat<TestType>(value);
  const ref::AttentionResult reference = problem.Reference();
  problem.Run(2);
  problem.RequireMatches(reference);
  const MlaResult<float> result = problem.Result();
  const auto width = static_cast<size_t>(v_dim);
  for (int64_t t = 0; t < 143; ++t) {
    for (int64_t h = 0; h < 4; ++h) {
      const auto at = static_cast<size_t>(t * 4 + h);
      const bool sees = t >= 60 && t < 140 && h >= 2;
      REQUIRE((std::memcmp(&result.out[at * width], &clean.out[at * width],
                           width * sizeof(float)) == 0) != sees);
    }
  }
}

TEMPLATE_TEST_CASE("a query of NaN stays alone", "[prefill]", float, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  PrefillProblem<TestType> problem({{4, 1, 64, 64}, {33}, {65}});
  problem.options.target = target;
  problem.Run();
  const MlaResult<float> clean = problem.Result();
  std::fill_n(problem.Query(7, 2), 64, FromFloat<TestType>(kNan));
  problem.Run();
  const MlaResult<float> result = problem.Result();
  for (size_t row = 0; row < 33 * 4; ++row) {
    if (row == 7 * 4 + 2) {
      REQUIRE(std::isnan(result.lse[row]));
      REQUIRE(std::isnan(result.out[row * 64]));
    } else {
      REQUIRE(std::memcmp(&result.out[row * 64], &clean.out[row * 64], 64 * sizeof(float)) == 0);
    }
  }
}

// Where the heads of decode fill whole registers, as rows of prefill do whatever the heads.
TEMPLATE_TEST_CASE("over the rows of a latent cache prefill gives the bits of absorbed decode",
                   "[prefill]", float, float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<TestType> decode({{32, 512, 64}, {300}, {17}, 300});
  decode.options.target = target;
  decode.Run(2);
  PrefillProblem<TestType> prefill({{32, 1, 576, 512}, {17}, {300}});
  prefill.options.target = target;
  prefill.options.softmax_scale = decode.options.softmax_scale;
  prefill.args.q = decode.args.q;
  View<const TestType, 3> rows =
      Packed(static_cast<const TestType*>(decode.Row(0, 0)), 300, 1, 576);
  prefill.args.k = rows;
  rows.extent[2] = 512;
  prefill.args.v = rows;
  prefill.Run(3);
  REQUIRE(SameBits(prefill.Result(), decode.Result()));
}

TEST_CASE("chunks of keys merge into the whole", "[prefill]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  PrefillProblem<bfloat16> problem({{2, 0, 192, 128}, {50}, {350}});
  problem.options.target = target;
  const ref::AttentionResult reference = problem.Reference();
  // Context 0 .. 199 and 200 .. 299 without causality, the queries' own 50 with it.
  const In<3> k = problem.args.k, v = problem.args.v;
  const int64_t bounds[] = {0, 200, 300, 350};
  std::vector<MlaResult<float>> parts;
  for (size_t i = 0; i < 3; ++i) {
    const auto piece = [&](const In<3>& whole) {
      In<3> tensor = whole;
      tensor.data += bounds[i] * whole.stride[0] * 2;
      tensor.extent[0] = bounds[i + 1] - bounds[i];
      return tensor;
    };
    problem.args.k = piece(k);
    problem.args.v = piece(v);
    problem.kv_start_loc[1] = static_cast<int32_t>(problem.args.k.extent[0]);
    problem.options.causal = i == 2;
    problem.Run(2);
    parts.push_back(problem.Result());
  }
  std::vector<MergePart> merge_parts(3);
  for (size_t i = 0; i < 3; ++i) {
    merge_parts[i].out = Packed(static_cast<const float*>(parts[i].out.data()), 50, 2, 128);
    merge_parts[i].lse = Packed(static_cast<const float*>(parts[i].lse.data()), 50, 2);
  }
  MergeStatesArgs merge;
  merge.parts = merge_parts.data();
  merge.num_parts = 3;
  merge.out = problem.args.out;
  merge.lse = problem.args.lse;
  RequireOk(MergeStates(merge, {target}));
  problem.RequireMatches(reference);
}

}  // namespace
}  // namespace lathe::test
