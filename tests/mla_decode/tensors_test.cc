// SPDX-License-Identifier: Apache-2.0
// Query, out and lse: strides, types, q_nope and q_pe apart.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/mla_problem.h"
#include "support/strided.h"

namespace lathe::test {
namespace {

template <class To, class From>
std::vector<To> ConvertAll(const From& values) {
  std::vector<To> converted;
  for (const auto x : values) converted.push_back(FromFloat<To>(ToFloat(x)));
  return converted;
}

// Token and head strides of a tensor [T = 6, H = 5, width].
struct StrideCase {
  const char* name;
  int64_t token, head;
};

TEMPLATE_TEST_CASE("queries and outputs may be strided", "[mla_decode][A22]", float, float16,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const StrideCase strides = GENERATE(StrideCase{"slice of a wider buffer", 6144, 577},
                                      StrideCase{"transposed", 600, 6 * 600},
                                      StrideCase{"transposed, odd", 577, 6 * 577 + 3});
  CAPTURE(Name(target), strides.name);
  MlaProblem<TestType> problem({{5, 512, 64}, {200, 5, 64}, {2, 1, 3}});
  problem.options.target = target;
  problem.Run();
  const MlaResult<float> packed = problem.Result();

  Strided<TestType, 3> q({6, 5, 576}, {strides.token, strides.head, 1}, problem.q);
  Strided<float, 3> out({6, 5, 512}, {strides.token, strides.head, 1});
  const bool transposed = strides.head > strides.token;
  Strided<float, 2> lse({6, 5}, {transposed ? 2 : 11, transposed ? 13 : 2});
  problem.args.q = q.view();
  problem.args.out = out.view();
  problem.args.lse = lse.view();
  REQUIRE(problem.TryRun(3, ThreadExecutor(3)).ok());
  REQUIRE(SameBits(out.Packed(), packed.out));
  REQUIRE(SameBits(lse.Packed(), packed.lse));
  REQUIRE(out.AreGapsIntact());
  REQUIRE(lse.AreGapsIntact());
}

TEST_CASE("lse is optional", "[mla_decode]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<bfloat16> problem({{5, 512, 64}, {200, 0}});
  problem.options.target = target;
  problem.Run();
  const std::vector<float> out = problem.out.Copy();
  problem.args.lse = {};
  problem.Run();
  REQUIRE(SameBits(problem.out.Copy(), out));
}

// The parts of `problem`'s query, each of a type of its own, further apart than they need be.
template <class Nope, class Pe, class Problem>
struct SplitQuery {
  SplitQuery(Problem& problem, int64_t gap)
      : nope(Dims(problem, problem.v_dim()), Strides(problem, problem.v_dim(), gap),
             ConvertAll<Nope>(Columns(problem, 0, problem.v_dim()))),
        pe(Dims(problem, Rope(problem)), Strides(problem, Rope(problem), gap),
           ConvertAll<Pe>(Columns(problem, problem.v_dim(), problem.width()))) {
    problem.args.q = {};
    problem.args.q_nope = nope.view();
    problem.args.q_pe = pe.view();
  }
  using Array = std::array<int64_t, 3>;
  static int64_t Rope(const Problem& p) { return p.width() - p.v_dim(); }
  static Array Dims(const Problem& p, int64_t width) {
    return {p.num_tokens(), p.num_heads(), width};
  }
  static Array Strides(const Problem& p, int64_t width, int64_t gap) {
    return {p.num_heads() * (width + gap) + gap, width + gap, 1};
  }
  static auto Columns(const Problem& p, int64_t begin, int64_t end) {
    std::vector<float> values;
    for (size_t i = 0; i < p.q.size(); ++i) {
      const int64_t c = static_cast<int64_t>(i) % p.width();
      if (c >= begin && c < end) values.push_back(ToFloat(p.q[i]));
    }
    return values;
  }
  Strided<Nope, 3> nope;
  Strided<Pe, 3> pe;
};

TEMPLATE_TEST_CASE("q_nope and q_pe apart give the bits of q whole", "[mla_decode]", float, float16,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t gap = GENERATE(0, 3);
  CAPTURE(Name(target), gap);
  const MlaShape shape = GENERATE(MlaShape{5, 512, 64}, MlaShape{5, 100, 7});
  MlaProblem<TestType> problem({shape, {200, 5}, {2, 1}});
  problem.options.target = target;
  problem.Run();
  const MlaResult<float> whole = problem.Result();
  const SplitQuery<TestType, TestType, MlaProblem<TestType>> split(problem, gap);
  problem.Run();
  REQUIRE(SameBits(problem.Result(), whole));
}

TEST_CASE("q_nope alone is the query of rows without rope", "[mla_decode]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<bfloat16> problem({{5, 512, 0}, {200, 5}, {2, 1}});
  problem.options.target = target;
  problem.Run();
  const MlaResult<float> whole = problem.Result();
  problem.args.q_nope = problem.args.q;
  problem.args.q = {};
  problem.Run();
  REQUIRE(SameBits(problem.Result(), whole));
}

TEMPLATE_TEST_CASE("parts of the query may differ in type", "[mla_decode]", float, float16,
                   bfloat16) {
  MlaProblem<TestType> problem({{7, 512, 64}, {200, 5, 64}, {2, 1, 3}});
  using Problem = MlaProblem<TestType>;
  SECTION("bfloat16 and float") {
    const SplitQuery<bfloat16, float, Problem> split(problem, 1);
    problem.CheckEveryTarget();
  }
  SECTION("float and bfloat16") {
    const SplitQuery<float, bfloat16, Problem> split(problem, 1);
    problem.CheckEveryTarget();
  }
  SECTION("float16 and bfloat16") {
    const SplitQuery<float16, bfloat16, Problem> split(problem, 1);
    problem.CheckEveryTarget();
  }
}

TEMPLATE_TEST_CASE("query and cache may differ in type", "[mla_decode]", float, float16, bfloat16) {
  MlaProblem<TestType> problem({{7, 512, 64}, {200, 5, 64}, {2, 1, 3}});
  const auto check = [&](const auto& q) {
    problem.args.q = Packed(q.data(), problem.num_tokens(), 7, 576);
    problem.CheckEveryTarget();
  };
  SECTION("float") { check(Guarded<float>(ConvertAll<float>(problem.q))); }
  SECTION("float16") { check(Guarded<float16>(ConvertAll<float16>(problem.q))); }
  SECTION("bfloat16") { check(Guarded<bfloat16>(ConvertAll<bfloat16>(problem.q))); }
}

TEMPLATE_TEST_CASE("out may be of 16 bits", "[mla_decode]", float16, bfloat16) {
  MlaCase c{{5, 512, 64}, {200, 0, 64}, {2, 1, 3}};
  MlaProblem<float, TestType>(c).CheckEveryTarget();
  MlaProblem<bfloat16, TestType>(c).CheckEveryTarget();
  c.shape = {5, 100, 7};
  MlaProblem<float16, TestType>(c).CheckEveryTarget();
}

TEMPLATE_TEST_CASE("out of 16 bits is the float32 result, rounded", "[mla_decode]", float16,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  const MlaCase c{{5, 512, 64}, {200, 0, 64}, {2, 1, 3}};
  MlaProblem<bfloat16> exact(c);
  MlaProblem<bfloat16, TestType> rounded(c);
  exact.options.target = rounded.options.target = target;
  exact.Run();
  rounded.Run();
  REQUIRE(SameBits(rounded.out.Copy(), ConvertAll<TestType>(exact.out)));
  REQUIRE(SameBits(rounded.lse, exact.lse));
}

}  // namespace
}  // namespace lathe::test
