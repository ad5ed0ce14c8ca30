// SPDX-License-Identifier: Apache-2.0
// Who runs the work: adapters, parts inside a parallel region, callers side by side, silly thread
// counts.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <thread>

#include "support/mla_problem.h"

namespace lathe::test {
namespace {

MlaCase UnevenBatch() { return {{20, 512, 64}, {2000, 0, 129, 64, 1}, {1, 1, 7, 2, 1}, 16}; }

// A problem that is cut into partial results, and its bits.
struct Expected {
  Expected() : problem(UnevenBatch()) {
    problem.Run();
    result = problem.Result();
  }
  void Check(size_t num_workers, const Executor& executor) {
    problem.Run(num_workers, executor);
    REQUIRE(SameBits(problem.Result(), result));
  }
  MlaProblem<bfloat16> problem;
  MlaResult<float> result;
};

TEST_CASE("every kind of executor gives the same bits", "[mla_decode]") {
  Expected expected;
  constexpr size_t kWorkers = 3;

  SECTION("serial") { expected.Check(kWorkers, SerialExecutor()); }
  SECTION("a callable, last task first") {
    auto backwards = [](size_t num_tasks, const auto& body) {
      for (size_t task = num_tasks; task-- > 0;) body(task);
    };
    expected.Check(kWorkers, CallableExecutor(backwards, kWorkers));
  }
  SECTION("a thread for each task") {
    ThreadPerTask pool;
    expected.Check(kWorkers, CallableExecutor(pool, kWorkers));
  }
  SECTION("ranges") {
    auto ranges = [](int64_t begin, int64_t end, const auto& body) {
      const int64_t middle = (begin + end) / 2;
      std::thread upper([&] { body(middle, end); });
      body(begin, middle);
      upper.join();
    };
    expected.Check(kWorkers, RangeExecutor(ranges, kWorkers));
  }
  SECTION("one body on every thread") {
    auto region = [](const auto& body) { OnThreads(2, [&](size_t i) { body(i, 2); }); };
    expected.Check(kWorkers, IthNthExecutor(region, kWorkers));
  }
}

TEST_CASE("parts on the threads of a region, merged after its barrier", "[mla_decode]") {
  const size_t num_workers = GENERATE(1, 2, 3, 5, 16);
  const Target target = LATHE_GENERATE_TARGET();
  MlaProblem<bfloat16> problem(UnevenBatch());
  problem.options.target = target;
  problem.Run();
  const MlaResult<float> expected = problem.Result();
  // The threads of the region may be fewer or more than the plan's, and others merge than took parts.
  for (const size_t nth : {size_t{1}, size_t{2}, num_workers, 3 * num_workers}) {
    CAPTURE(Name(target), num_workers, nth);
    problem.out.Poison();
    problem.lse.Poison();
    std::vector<Status> statuses(nth + 1 + nth, Invalid("not called"));
    const Status status =
        problem.TryPlanned(num_workers, [&](const MlaDecodePlan& plan, Buffer workspace) {
          OnThreads(nth, [&](size_t ith) {
            statuses[ith] = RunMlaDecodePart(plan, problem.args, workspace, ith, nth);
          });
          OnThreads(nth + 1, [&](size_t ith) {
            statuses[nth + ith] = RunMlaDecodeMerge(plan, problem.args, workspace, ith, nth + 1);
          });
          return OkStatus();
        });
    REQUIRE(status.ok());
    for (const Status& s : statuses) REQUIRE(s.ok());
    REQUIRE(SameBits(problem.Result(), expected));
    problem.Run(num_workers, ThreadExecutor(nth));
    REQUIRE(SameBits(problem.Result(), expected));
  }
}

TEST_CASE("layers share a plan, side by side", "[mla_decode][A27]") {
  // Two layers: other queries and caches of the same lengths, own workspaces, one plan.
  MlaCase c = UnevenBatch();
  MlaProblem<bfloat16> first(c);
  c.seed = 2;
  MlaProblem<bfloat16> second(c);
  MlaProblem<bfloat16>* layers[] = {&first, &second};
  MlaResult<float> expected[2];
  for (size_t i = 0; i < 2; ++i) {
    layers[i]->Run(2);
    expected[i] = layers[i]->Result();
    layers[i]->out.Poison();
  }
  const Status status = first.TryPlanned(2, [&](const MlaDecodePlan& plan, Buffer) {
    Status statuses[2];
    OnThreads(2, [&](size_t i) {
      Guarded<std::byte> workspace(PlanWorkspaceBytes(plan));
      for (int round = 0; round < 10 && statuses[i].ok(); ++round) {
        statuses[i] = RunMlaDecode(plan, layers[i]->args, {workspace.data(), workspace.size()},
                                   ThreadExecutor(2));
      }
    });
    return statuses[0].ok() ? statuses[1] : statuses[0];
  });
  REQUIRE(status.ok());
  for (size_t i = 0; i < 2; ++i) REQUIRE(SameBits(layers[i]->Result(), expected[i]));
}

TEST_CASE("any number of threads for the tiniest work", "[mla_decode][A27]") {
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t num_workers = GENERATE_COPY(size_t{1}, size_t{2}, cores, 4 * cores, size_t{1000});
  const size_t num_tasks = GENERATE(1, 3);
  CAPTURE(num_workers, num_tasks);
  MlaProblem<bfloat16> problem({{1, 512, 64}, std::vector<int64_t>(num_tasks, 1)});
  problem.Run();
  const MlaResult<float> expected = problem.Result();
  problem.RunOnThreads(num_workers);
  REQUIRE(SameBits(problem.Result(), expected));
}

TEST_CASE("calls from inside an outer parallel region", "[mla_decode][A27]") {
  constexpr size_t kCallers = 4;
  std::vector<MlaProblem<bfloat16>> problems;
  for (size_t i = 0; i < kCallers; ++i) problems.emplace_back(UnevenBatch());
  problems[0].Run();
  const MlaResult<float> expected = problems[0].Result();
  std::vector<Status> statuses(kCallers, Invalid("not called"));
  OnThreads(kCallers, [&](size_t i) { statuses[i] = problems[i].TryRun(3, ThreadExecutor(3)); });
  for (size_t i = 0; i < kCallers; ++i) {
    REQUIRE(statuses[i].ok());
    REQUIRE(SameBits(problems[i].Result(), expected));
  }
}

// Without this no number of threads could make it faster; how much faster they do is for benchmarks to say.
TEST_CASE("one long sequence has even work for every thread, also of one head",
          "[mla_decode][A28]") {
  const int64_t heads = GENERATE(1, 16);
  const size_t num_workers = GENERATE(1, 16, 32);
  CAPTURE(heads, num_workers);
  MlaProblem<bfloat16> problem({{heads, 512, 64}, {32768}});
  // A part that has a task writes into the workspace.
  size_t num_busy = 0;
  const Status status =
      problem.TryPlanned(num_workers, [&](const MlaDecodePlan& plan, Buffer workspace) {
        const Guarded<std::byte> empty(workspace.bytes);
        for (size_t ith = 0; ith < num_workers; ++ith) {
          std::memcpy(workspace.data, empty.data(), empty.size());
          const Status part = RunMlaDecodePart(plan, problem.args, workspace, ith, num_workers);
          if (!part.ok()) return part;
          num_busy += std::memcmp(workspace.data, empty.data(), empty.size()) != 0 ? 1 : 0;
        }
        return OkStatus();
      });
  REQUIRE(status.ok());
  REQUIRE(num_busy == num_workers);
}

}  // namespace
}  // namespace lathe::test
