// SPDX-License-Identifier: Apache-2.0
// NaN and infinities in live data reach exactly the rows that see them; what no row sees reaches
// none.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "support/mla_problem.h"

namespace lathe::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

bool SameRow(const ref::AttentionResult& a, const ref::AttentionResult& b, size_t row,
             size_t v_dim) {
  return std::memcmp(&a.lse[row], &b.lse[row], sizeof(double)) == 0 &&
         std::memcmp(&a.out[row * v_dim], &b.out[row * v_dim], v_dim * sizeof(double)) == 0;
}

// On every target: rows whose reference does not change by the poison keep their bits, the others
// have NaN and infinities where the reference has them. `poison` writes into the problem.
template <class T, class PoisonFn>
void CheckContainment(MlaProblem<T>& problem, const PoisonFn& poison) {
  const auto v_dim = static_cast<size_t>(problem.v_dim());
  const ref::AttentionResult clean_reference = problem.Reference();
  std::vector<MlaResult<float>> clean;
  for (const Target target : RunnableTargets()) {
    problem.options.target = target;
    problem.Run();
    clean.push_back(problem.Result());
  }
  poison();
  const ref::AttentionResult reference = problem.Reference();
  std::vector<size_t> untouched;
  for (size_t row = 0; row < reference.lse.size(); ++row) {
    if (SameRow(reference, clean_reference, row, v_dim)) untouched.push_back(row);
  }
  REQUIRE(untouched.size() < reference.lse.size());
  size_t at = 0;
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    const MlaResult<float>& before = clean[at++];
    problem.options.target = target;
    problem.RunOnThreads(1 + at % 3);
    problem.RequireMatches(reference);
    for (const size_t row : untouched) {
      INFO("row " << row);
      REQUIRE(std::memcmp(&problem.out[row * v_dim], &before.out[row * v_dim],
                          v_dim * sizeof(float)) == 0);
      REQUIRE(std::memcmp(&problem.lse[row], &before.lse[row], sizeof(float)) == 0);
    }
  }
}

TEMPLATE_TEST_CASE("queries of NaN do not leak into their neighbours", "[mla_decode][A25]", float,
                   float16, bfloat16) {
  const int64_t len = GENERATE(33, 65);
  CAPTURE(len);
  SECTION("other heads") {
    MlaProblem<TestType> problem({{16, 512, 64}, {len}});
    CheckContainment(problem, [&] {
      std::fill(problem.Query(0, 1), problem.q.end(), FromFloat<TestType>(kNan));
    });
  }
  SECTION("every other head, and one column of it") {
    MlaProblem<TestType> problem({{20, 512, 64}, {len}});
    CheckContainment(problem, [&] {
      for (int64_t h = 0; h < 20; h += 2) problem.Query(0, h)[h * 28] = FromFloat<TestType>(kNan);
    });
  }
  SECTION("another sequence") {
    MlaProblem<TestType> problem({{16, 512, 64}, {len, len}});
    CheckContainment(problem, [&] {
      std::fill(problem.Query(1, 0), problem.q.end(), FromFloat<TestType>(kNan));
    });
  }
  SECTION("another query row of the same sequence") {
    MlaProblem<TestType> problem({{16, 512, 64}, {len}, {3}});
    CheckContainment(problem, [&] {
      std::fill(problem.Query(1, 0), problem.Query(2, 0), FromFloat<TestType>(kNan));
    });
  }
}

// A number in one column of the cache row of a position.
struct Poison {
  float value;
  int64_t column;
};

struct Causal {
  int64_t len, num_heads, behind;  // the bad key is at len - behind
};

TEMPLATE_TEST_CASE("a bad key reaches the rows that see it, and no others", "[mla_decode][long]",
                   float, float16, bfloat16) {
  const Poison poison =
      GENERATE(Poison{kNan, 0}, Poison{kNan, 511}, Poison{kNan, 512}, Poison{kNan, 575},
               Poison{kInf, 37}, Poison{-kInf, 300}, Poison{kInf, 540});
  CAPTURE(poison.value, poison.column);
  const auto write = [&](auto& problem, int64_t seq, int64_t position) {
    problem.Row(seq, position)[poison.column] = FromFloat<TestType>(poison.value);
  };
  SECTION("causal rows") {
    // Keys in the first tile, on both sides of a tile's end, in blocks of more than 128 rows.
    const auto [len, num_heads, behind] =
        GENERATE(Causal{4, 3, 1}, Causal{130, 16, 2}, Causal{130, 40, 3}, Causal{300, 5, 3});
    MlaProblem<TestType> problem({{num_heads, 512, 64}, {len, 5}, {4, 1}});
    const int64_t position = len - behind;
    CheckContainment(problem, [&] { write(problem, 0, position); });
  }
  SECTION("two bad keys, seen by different rows") {
    MlaProblem<TestType> problem({{16, 512, 64}, {131}, {4}});
    CheckContainment(problem, [&] {
      write(problem, 0, 130);
      write(problem, 0, 128);
    });
  }
  SECTION("windows") {
    // Left by the second row's window, not by the first's; and the last key.
    const int64_t position = GENERATE(300 - 4 + 1 - 100, 300 - 4 + 1 - 99, 299);
    CAPTURE(position);
    MlaProblem<TestType> problem({{16, 512, 64}, {300}, {4}, 16});
    problem.args.keys.window = 100;
    CheckContainment(problem, [&] { write(problem, 0, position); });
  }
  SECTION("per-row key counts") {
    MlaProblem<TestType> problem({{16, 512, 64}, {300}, {5}});
    const Guarded<int32_t> counts(std::vector<int32_t>{10, 128, 129, 0, 300});
    problem.args.keys.row_kv_lens = Packed(counts.data(), 5);
    CheckContainment(problem, [&] { write(problem, 0, 128); });
  }
  SECTION("index lists") {
    MlaProblem<TestType> problem({{16, 512, 64}, {300}, {2}});
    Guarded<int32_t> indices(std::vector<int32_t>{250, 3, 77, -1, 250, 3, 78, 200});
    problem.args.keys.indices = Packed(indices.data(), 2, 4);
    CheckContainment(problem, [&] { write(problem, 0, 77); });
  }
  SECTION("several leaves") {
    MlaProblem<TestType> problem({{16, 512, 64}, {400, 300}, {2, 1}});
    CheckContainment(problem, [&] { write(problem, 0, 399); });
  }
  SECTION("rows that are decoded before use") {
    MlaProblem<TestType> problem({{16, 510, 66}, {131}, {4}});
    CheckContainment(problem, [&] { write(problem, 0, 129); });
  }
}

TEMPLATE_TEST_CASE("a sequence of bad keys alone", "[mla_decode]", float, float16, bfloat16) {
  const float value = GENERATE(kNan, kInf, -kInf);
  CAPTURE(value);
  MlaProblem<TestType> problem({{5, 512, 64}, {200, 200, 1}});
  CheckContainment(problem, [&] {
    for (int64_t i = 0; i < 200; ++i) problem.Row(0, i)[i] = FromFloat<TestType>(value);
    problem.Row(2, 0)[3] = FromFloat<TestType>(value);
  });
}

TEMPLATE_TEST_CASE("keys with a score of -inf carry no weight", "[mla_decode]", float, float16,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<TestType> problem({{4, 512, 64}, {300}});
  problem.options.target = target;
  problem.SetQuery(1.0f);
  for (int64_t h = 0; h < 4; ++h) problem.Query(0, h)[570] = FromFloat<TestType>(1.0f);
  for (int64_t i = 0; i < 300; ++i) problem.SetRow(0, i, 2.0f, 7.0f);
  // A whole tile of them, in front, and single ones.
  for (int64_t i = 0; i < 300; i += i < 128 ? 1 : 3) {
    problem.SetRow(0, i, 2.0f, 1000.0f);
    problem.Row(0, i)[570] = FromFloat<TestType>(-kInf);
  }
  const ref::AttentionResult reference = problem.Reference();
  problem.RunOnThreads(2);
  for (int64_t h = 0; h < 4; ++h) {
    problem.RequireKnownRow(0, h, 7.0, reference.lse[static_cast<size_t>(h)]);
  }
}

TEST_CASE("a NaN sink makes its head NaN", "[mla_decode]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<bfloat16> problem({{3, 512, 64}, {100}});
  problem.options.target = target;
  const Guarded<float> sinks(std::vector<float>{0.0f, kNan, 1.0f});
  problem.args.attn_sink = Packed(sinks.data(), 3);
  problem.Run();
  problem.RequireMatchesReference();
  REQUIRE(std::isnan(problem.out[512]));
}

}  // namespace
}  // namespace lathe::test
