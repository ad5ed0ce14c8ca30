// SPDX-License-Identifier: Apache-2.0
// Same bits: a row's result does not depend on the rest of the batch, on threads, or on earlier
// calls.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/mla_problem.h"

namespace lathe::test {
namespace {

// out and lse of the rows [begin, end).
template <class T>
MlaResult<float> RowsOf(const MlaProblem<T>& problem, int64_t begin, int64_t end) {
  const int64_t out_row = problem.num_heads() * problem.v_dim();
  const float* out = problem.out.begin();
  const float* lse = problem.lse.begin();
  return {{out + begin * out_row, out + end * out_row},
          {lse + begin * problem.num_heads(), lse + end * problem.num_heads()}};
}

// Sequences of other lengths, among them empty ones, with one given sequence at `position`.
MlaCase BatchWith(int64_t seq_len, int64_t q_len, size_t batch, size_t position) {
  MlaCase c{{3, 512, 64}, {}, {}, 16};
  for (size_t b = 0; b < batch; ++b) {
    const bool is_it = b == position;
    c.seq_lens.push_back(is_it ? seq_len : static_cast<int64_t>(b * 37 % 101));
    c.q_lens.push_back(is_it ? q_len : static_cast<int64_t>(b % 3));
    c.sequence_seeds.push_back(is_it ? 4242 : b);
  }
  return c;
}

TEMPLATE_TEST_CASE("a sequence gives the same bits in any company", "[mla_decode][A15]", float,
                   bfloat16) {
  constexpr int64_t kLen = 4097;
  const int64_t q_len = GENERATE(1, 2);
  std::vector<MlaResult<float>> alone;
  const auto for_each_setting = [&](MlaProblem<TestType>& problem, const auto& f) {
    size_t at = 0;
    for (const Target target : RunnableTargets()) {
      problem.options.target = target;
      INFO("target " << Name(target));
      f(at++);
    }
  };
  MlaProblem<TestType> single(BatchWith(kLen, q_len, 1, 0));
  for_each_setting(single, [&](size_t) {
    single.Run();
    alone.push_back(single.Result());
  });
  for (const size_t batch : {2, 8, 64}) {
    // All positions of the small batches, every ninth of the large one.
    for (size_t position = 0; position < batch; position += batch == 64 ? 9 : 1) {
      INFO("batch " << batch << " position " << position);
      MlaProblem<TestType> problem(BatchWith(kLen, q_len, batch, position));
      for_each_setting(problem, [&](size_t at) {
        problem.RunOnThreads(1 + (at + position) % 4);
        const int64_t row = problem.query_start_loc[position];
        REQUIRE(SameBits(RowsOf(problem, row, row + q_len), alone[at]));
      });
    }
  }
}

TEMPLATE_TEST_CASE("any number of workers gives the same bits", "[mla_decode]", float, float16,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<TestType> problem({{20, 512, 64}, {1500, 0, 129, 64, 1, 700}, {1, 1, 7, 2, 1, 3}, 16});
  const Guarded<float> sinks(std::vector<float>(20, 7.0f));
  problem.args.attn_sink = Packed(sinks.data(), 20);
  problem.args.keys.window = GENERATE(kNoWindow, int64_t{600});
  problem.options.target = target;
  problem.Run();
  const MlaResult<float> serial = problem.Result();
  for (const size_t num_workers : {2, 3, 5, 16}) {
    CAPTURE(num_workers);
    problem.RunOnThreads(num_workers);
    REQUIRE(SameBits(problem.Result(), serial));
  }
}

TEST_CASE("a plan for more or fewer workers than the pool has gives the same bits",
          "[mla_decode]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<bfloat16> problem({{20, 512, 64}, {1500, 0, 129, 64, 1}, {1, 1, 7, 2, 1}});
  problem.options.target = target;
  problem.Run();
  const MlaResult<float> serial = problem.Result();
  problem.Run(5);
  REQUIRE(SameBits(problem.Result(), serial));
  problem.Run(5, ThreadExecutor(2));
  REQUIRE(SameBits(problem.Result(), serial));
  problem.Run(2, ThreadExecutor(5));
  REQUIRE(SameBits(problem.Result(), serial));
}

TEST_CASE("a thousand workers give the same bits", "[mla_decode]") {
  // Small rows: every worker has scratch of its own.
  MlaProblem<bfloat16> problem({{2, 64, 16}, {5000, 0, 129, 64}, {1, 1, 7, 2}});
  problem.options.target = LATHE_GENERATE_TARGET();
  problem.Run();
  const MlaResult<float> serial = problem.Result();
  problem.Run(1000);
  REQUIRE(SameBits(problem.Result(), serial));
  problem.RunOnThreads(1000);
  REQUIRE(SameBits(problem.Result(), serial));
}

TEST_CASE("repeated calls give the same bits, whatever the workspace holds", "[mla_decode]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<bfloat16> problem({{20, 512, 64}, {3000, 0, 129}, {1, 1, 7}});
  problem.options.target = target;
  std::vector<MlaResult<float>> results;
  const Status status = problem.TryPlanned(3, [&](const MlaDecodePlan& plan, Buffer workspace) {
    for (const int filler : {0x00, 0xFF, 0x7F, -1}) {
      // -1: what the call before has left.
      if (filler >= 0) std::memset(workspace.data, filler, workspace.bytes);
      problem.out.Poison();
      problem.lse.Poison();
      const Status s = RunMlaDecode(plan, problem.args, workspace, ThreadExecutor(3));
      if (!s.ok()) return s;
      results.push_back(problem.Result());
    }
    return OkStatus();
  });
  REQUIRE(status.ok());
  for (const MlaResult<float>& result : results) REQUIRE(SameBits(result, results[0]));
  problem.RequireMatchesReference();
}

TEST_CASE("workspace and plan memory of any alignment give the same bits", "[mla_decode]") {
  const Target target = LATHE_GENERATE_TARGET();
  const size_t offset = GENERATE(1, 4, 63);
  CAPTURE(Name(target), offset);
  MlaProblem<bfloat16> problem({{20, 512, 64}, {700, 129}});
  problem.options.target = target;
  problem.Run(2);
  const MlaResult<float> expected = problem.Result();
  Sizes sizes;
  REQUIRE(MlaDecodeSizes(problem.the_case().shape, problem.options, problem.TightLimits(2), &sizes)
              .ok());
  // Buffers of exactly that size which end at a guard page less `offset` bytes of slack.
  Guarded<std::byte> plan_memory(sizes.plan_bytes + offset);
  Guarded<std::byte> workspace(sizes.workspace_bytes + offset);
  const MlaDecodePlan* plan = nullptr;
  REQUIRE(PlanMlaDecode(problem.the_case().shape, problem.options, problem.args, 2,
                        {plan_memory.data(), sizes.plan_bytes}, &plan)
              .ok());
  REQUIRE(RunMlaDecode(*plan, problem.args, {workspace.data(), sizes.workspace_bytes},
                       ThreadExecutor(2))
              .ok());
  REQUIRE(SameBits(problem.Result(), expected));
  const Guarded<std::byte> poison(offset);
  REQUIRE(std::memcmp(plan_memory.data() + sizes.plan_bytes, poison.data(), offset) == 0);
  REQUIRE(std::memcmp(workspace.data() + sizes.workspace_bytes, poison.data(), offset) == 0);
}

TEMPLATE_TEST_CASE("page size and layout do not change bits", "[mla_decode]", float, float16,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaCase c{{16, 512, 64}, {300, 64}, {2, 1}};
  const auto result_of = [target](const MlaCase& layout) {
    MlaProblem<TestType> problem(layout);
    problem.options.target = target;
    problem.Run();
    return problem.Result();
  };
  const MlaResult<float> expected = result_of(c);
  for (const int64_t block_size : {1, 16, 61}) {
    c.block_size = block_size;
    c.row_gap = block_size;
    REQUIRE(SameBits(result_of(c), expected));
  }
  c.interleaves_pages = true;
  REQUIRE(SameBits(result_of(c), expected));
}

}  // namespace
}  // namespace lathe::test
