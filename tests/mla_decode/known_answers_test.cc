// SPDX-License-Identifier: Apache-2.0
// Small inputs whose right answer is known, dense keys: the cases of CASES.md by their numbers.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "support/mla_problem.h"

namespace lathe::test {
namespace {

#define LATHE_CASE(name, tags) \
  TEMPLATE_TEST_CASE(name, "[mla_decode]" tags, float, float16, bfloat16)

// Overwrites the rows of the last page that no sequence has.
template <class T>
void FillTail(MlaProblem<T>& problem, float filler) {
  const int64_t block_size = problem.the_case().block_size;
  const int64_t len = problem.seq_lens[0];
  const int64_t page = problem.Slot(0, len - 1) / block_size;
  for (int64_t slot = (len - 1) % block_size + 1; slot < block_size; ++slot) {
    T* row = problem.SlotRow(page * block_size + slot);
    for (int64_t c = 0; c < problem.width(); ++c) row[c] = FromFloat<T>(filler);
  }
}

LATHE_CASE("rows past the length stay out", "[A1]") {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t block_size = GENERATE(1, 4, 16, 64);
  const int64_t len = GENERATE(1, 5, 63, 64, 65);
  const float filler =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  CAPTURE(Name(target), block_size, len, filler);
  MlaProblem<TestType> problem({{4, 512, 64}, {len}, {}, block_size});
  problem.options.target = target;
  problem.SetQuery(1.0f);
  for (int64_t i = 0; i < len; ++i) problem.SetRow(0, i, 0.0f, static_cast<float>(i + 1));
  FillTail(problem, filler);
  problem.Run();
  const auto n = static_cast<double>(len);
  for (int64_t h = 0; h < 4; ++h) problem.RequireKnownRow(0, h, (n + 1) / 2, std::log(n));
}

LATHE_CASE("empty rows in a live batch are zero, and change nothing", "[A2]") {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t columns = GENERATE(1, 4096);
  CAPTURE(Name(target), columns);
  MlaCase c{{3, 512, 64}, {5, 5, 5, 5, 5, 0, 0, 0}};
  c.min_table_columns = columns;
  MlaProblem<TestType> problem(c);
  c.seq_lens.resize(5);
  MlaProblem<TestType> live(c);
  for (auto* p : {&problem, &live}) {
    p->options.target = target;
    p->RunOnThreads(2);
  }
  for (int64_t token = 5; token < 8; ++token) {
    for (int64_t h = 0; h < 3; ++h) problem.RequireEmptyRow(token, h);
  }
  MlaResult<float> first = problem.Result();
  first.out.resize(live.out.size());
  first.lse.resize(live.lse.size());
  REQUIRE(SameBits(first, live.Result()));
}

LATHE_CASE("the scale is the caller's", "[A9]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<TestType> problem({{2, 512, 64}, {1}});
  problem.options.target = target;
  problem.SetQuery(16.0f);
  problem.SetRow(0, 0, 16.0f, 1.0f);
  problem.options.softmax_scale = 0.0721688f;
  problem.Run();
  problem.RequireKnownRow(0, 1, 1.0, 18.4752);
  problem.options.softmax_scale = 0.0416667f;
  problem.Run();
  problem.RequireKnownRow(0, 1, 1.0, 10.66668);
}

LATHE_CASE("padding of a partial tile does not enter the sum", "[A11]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  std::vector<int64_t> seq_lens(130);
  std::iota(seq_lens.begin(), seq_lens.end(), 1);
  MlaProblem<TestType> problem({{1, 512, 64}, seq_lens, {}, 16});
  problem.options.target = target;
  problem.SetQuery(1.0f);
  for (int64_t n = 1; n <= 130; ++n) {
    for (int64_t i = 0; i < n; ++i) problem.SetRow(n - 1, i, -50.0f, 1.0f);
  }
  problem.Run();
  for (int64_t n = 1; n <= 130; ++n) {
    problem.RequireKnownRow(n - 1, 0, 1.0, -50.0 + std::log(static_cast<double>(n)));
  }
}

LATHE_CASE("query rows of one sequence are causal from the bottom right", "[A17]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  // One sequence with three rows; then two with one and three.
  for (const std::vector<int64_t>& q_lens : {std::vector<int64_t>{3}, {1, 3}}) {
    MlaCase c{{2, 512, 64}, std::vector<int64_t>(q_lens.size(), 5), q_lens};
    c.spare_pages = 0;
    MlaProblem<TestType> problem(c);
    problem.options.target = target;
    problem.SetQuery(1.0f);
    for (size_t b = 0; b < q_lens.size(); ++b) {
      for (int i = 0; i < 5; ++i) {
        problem.SetRow(static_cast<int64_t>(b), i, 0.0f, static_cast<float>(i + 1));
      }
    }
    problem.Run();
    const int64_t first = problem.num_tokens() - 3;
    if (first == 1) problem.RequireKnownRow(0, 0, 3.0, 1.609438);
    for (int64_t h = 0; h < 2; ++h) {
      problem.RequireKnownRow(first + 0, h, 2.0, 1.098612);
      problem.RequireKnownRow(first + 1, h, 2.5, 1.386294);
      problem.RequireKnownRow(first + 2, h, 3.0, 1.609438);
    }
  }
}

LATHE_CASE("the sink counts once, however the keys are shared", "[A19]") {
  const Target target = LATHE_GENERATE_TARGET();
  const size_t num_workers = GENERATE(1, 4);
  CAPTURE(Name(target), num_workers);
  const Guarded<float> sink(std::vector<float>(3, 0.0f));

  SECTION("a thousand keys") {
    MlaProblem<TestType> problem({{3, 512, 64}, {1000}});
    problem.options.target = target;
    problem.SetQuery(1.0f);
    for (int64_t i = 0; i < 1000; ++i) problem.SetRow(0, i, 0.0f, 1.0f);
    problem.args.attn_sink = Packed(sink.data(), 3);
    problem.RunOnThreads(num_workers);
    for (int64_t h = 0; h < 3; ++h) problem.RequireKnownRow(0, h, 0.999001, 6.907755);
  }
  SECTION("four keys, first and last leaves empty by masked entries") {
    const int64_t num_leaves = GENERATE(1, 2, 3, 4, 16);
    CAPTURE(num_leaves);
    MlaProblem<TestType> problem({{3, 512, 64}, {4}});
    problem.options.target = target;
    problem.SetQuery(1.0f);
    for (int64_t i = 0; i < 4; ++i) problem.SetRow(0, i, 0.0f, 1.0f);
    problem.args.attn_sink = Packed(sink.data(), 3);
    std::vector<int32_t> list(static_cast<size_t>(num_leaves * 128), -1);
    const auto middle = list.begin() + num_leaves / 2 * 128;
    std::iota(middle, middle + 4, 0);
    const Guarded<int32_t> indices(list);
    problem.args.keys.indices = Packed(indices.data(), 1, list.size());
    problem.RunOnThreads(num_workers);
    for (int64_t h = 0; h < 3; ++h) problem.RequireKnownRow(0, h, 0.8, 1.386294);
  }
  SECTION("four keys, the rest outside the window of a row") {
    const int64_t num_leaves = GENERATE(1, 2, 3, 4, 16);
    CAPTURE(num_leaves);
    // Row 0 sees only the first four keys of many, row 1 only the last four.
    const int64_t len = num_leaves * 128 + 4;
    MlaProblem<TestType> problem({{3, 512, 64}, {len}, {2}});
    problem.options.target = target;
    problem.SetQuery(1.0f);
    for (int64_t i = 0; i < len; ++i) problem.SetRow(0, i, 0.0f, 1.0f);
    problem.args.attn_sink = Packed(sink.data(), 3);
    problem.args.keys.window = 4;
    const Guarded<int32_t> counts(std::vector<int32_t>{4, static_cast<int32_t>(len)});
    problem.args.keys.row_kv_lens = Packed(counts.data(), 2);
    problem.RunOnThreads(num_workers);
    for (int64_t token = 0; token < 2; ++token) {
      for (int64_t h = 0; h < 3; ++h) problem.RequireKnownRow(token, h, 0.8, 1.386294);
    }
  }
}

LATHE_CASE("the running maximum carries over leaves", "[A23]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));

  SECTION("one big key among many") {
    const int64_t at = GENERATE(0, 63, 64, 65, 128, 299);
    CAPTURE(at);
    MlaProblem<TestType> problem({{2, 512, 64}, {300}});
    problem.options.target = target;
    problem.SetQuery(1.0f);
    for (int64_t i = 0; i < 300; ++i) problem.SetRow(0, i, 0.0f, 1.0f);
    problem.SetRow(0, at, 100.0f, 7.0f);
    problem.Run();
    for (int64_t h = 0; h < 2; ++h) problem.RequireKnownRow(0, h, 7.0, 100.0);
  }
  SECTION("rising scores") {
    MlaProblem<TestType> problem({{2, 512, 64}, {257}});
    problem.options.target = target;
    problem.SetQuery(1.0f);
    for (int i = 0; i <= 256; ++i) {
      problem.SetRow(0, i, static_cast<float>(i) / 4, static_cast<float>(i));
    }
    problem.Run();
    for (int64_t h = 0; h < 2; ++h) problem.RequireKnownRow(0, h, 252.4792, 65.5087);
  }
}

}  // namespace
}  // namespace lathe::test
