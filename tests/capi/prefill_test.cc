// SPDX-License-Identifier: Apache-2.0
// Prefill through C: the bits of the C++ call, its sizes and its refusals.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "capi/mirror.h"
#include "prefill/prefill_problem.h"

namespace lathe::test {
namespace {

using Problem = PrefillProblem<bfloat16>;

// Shared key heads, more keys than queries, an empty sequence.
PrefillCase Case() { return {{4, 2, 64, 32}, {5, 0, 20}, {40, 3, 20}}; }

// What varies between the calls.
struct Variant {
  const char* name;
  void (*prepare)(Problem& problem, const Guarded<float>& sink);
};
const Variant kVariants[] = {
    {"causal", [](Problem&, const Guarded<float>&) {}},
    {"not causal, no lse",
     [](Problem& problem, const Guarded<float>&) {
       problem.options.causal = false;
       problem.args.lse = {};
     }},
    {"window", [](Problem& problem, const Guarded<float>&) { problem.options.window = 3; }},
    {"sink", [](Problem& problem,
                const Guarded<float>& sink) { problem.args.attn_sink = Packed(sink.data(), 4); }},
    {"soft cap", [](Problem& problem, const Guarded<float>&) { problem.options.soft_cap = 0.5f; }},
    {"lse of base 2",
     [](Problem& problem, const Guarded<float>&) { problem.options.lse_policy.base2 = true; }},
    {"float32 products",
     [](Problem& problem, const Guarded<float>&) {
       problem.options.precision = Precision::kFloat32;
     }},
};

TEST_CASE("prefill through C gives the bits of C++", "[capi]") {
  const Target target = LATHE_GENERATE_TARGET();
  const Variant& variant = GENERATE(from_range(kVariants));
  CAPTURE(Name(target), variant.name);
  const Guarded<float> sink(std::vector<float>{7.0f, 8.0f, 9.0f, 10.0f});
  Problem problem(Case());
  problem.options.target = target;
  variant.prepare(problem, sink);
  problem.Run();
  const MlaResult<float> expected = problem.Result();

  const CPrefill c(Case().shape, problem.options, problem.args);
  problem.RunPlanned(2, [&](const PrefillPlan& cpp_plan, Buffer workspace_buffer) {
    // The plan as C makes it, from the same arguments.
    std::vector<std::byte> memory(1 << 16);
    const lathe_prefill_plan* plan = nullptr;
    RequireOk([&](lathe_message* m) {
      return lathe_plan_prefill(&c.shape, &c.options, &c.args, 2, {memory.data(), memory.size()},
                                &plan, m);
    });
    REQUIRE(lathe_prefill_plan_target(plan) == static_cast<int32_t>(target));
    REQUIRE(lathe_prefill_plan_workspace_bytes(plan) == PlanWorkspaceBytes(cpp_plan));
    const lathe_buffer workspace{workspace_buffer.data, workspace_buffer.bytes};
    const lathe_executor threads = Mirror(ThreadExecutor(2));
    const auto require_same = [&] {
      REQUIRE(SameBits(problem.Result(), expected));
      problem.out.Poison();
      problem.lse.Poison();
    };
    for (const lathe_executor* executor : {static_cast<const lathe_executor*>(nullptr), &threads}) {
      RequireOk([&](lathe_message* m) {
        return lathe_run_prefill(plan, &c.args, workspace, executor, m);
      });
      require_same();
    }
    for (const auto run : {lathe_run_prefill_part, lathe_run_prefill_merge}) {
      for (size_t ith = 0; ith < 2; ++ith) {
        // Once, since a merge uses up what the parts have left.
        REQUIRE(run(plan, &c.args, workspace, ith, 2, nullptr) == LATHE_STATUS_OK);
      }
    }
    require_same();
  });
}

TEST_CASE("sizes of a prefill through C are those of C++", "[capi]") {
  Problem problem(Case());
  const CPrefill c(Case().shape, problem.options, problem.args);
  auto limits = Sized<lathe_limits>();
  limits.max_num_seqs = 3;
  limits.max_num_tokens = 999;
  limits.max_num_keys = 7777;
  limits.num_workers = 3;
  Sizes expected;
  REQUIRE(PrefillSizes(Case().shape, problem.options, {3, 999, 7777, 3}, &expected).ok());
  auto sizes = Sized<lathe_sizes>();
  const auto call = [&](lathe_message* m) {
    return lathe_prefill_sizes(&c.shape, &c.options, &limits, &sizes, m);
  };
  RequireOk(call);
  REQUIRE(sizes.plan_bytes == expected.plan_bytes);
  REQUIRE(sizes.workspace_bytes == expected.workspace_bytes);

  limits.max_num_tokens = 0;
  sizes = Sized<lathe_sizes>();
  RequireInvalid(call, "limits.max_num_tokens is 0, must be at least 1");
  REQUIRE(sizes.plan_bytes == 0);
}

// A valid call of C, to be broken.
struct Call {
  Call() : c(Case().shape, problem.options, problem.args) {}
  int32_t Plan(lathe_message* message) {
    return lathe_plan_prefill(&c.shape, &c.options, &c.args, 2, {memory.data(), memory.size()},
                              &plan, message);
  }
  Problem problem{Case()};
  CPrefill c;
  std::vector<std::byte> memory = std::vector<std::byte>(1 << 16);
  const lathe_prefill_plan* plan = nullptr;
};

TEST_CASE("planning a prefill through C refuses", "[capi]") {
  const auto refused = [](const std::string& text, void (*break_it)(Call&)) {
    INFO("expected: " << text);
    Call call;
    break_it(call);
    RequireInvalid([&](lathe_message* m) { return call.Plan(m); }, text);
    REQUIRE(call.plan == nullptr);
  };
  refused("shape.struct_size is 0, must be the struct's size",
          [](Call& call) { call.c.shape.struct_size = 0; });
  refused("shape.num_kv_heads is 3, must divide shape.num_heads = 4",
          [](Call& call) { call.c.shape.num_kv_heads = 3; });
  refused("shape.qk_head_dim is 0, must be at least 1",
          [](Call& call) { call.c.shape.qk_head_dim = 0; });
  refused("shape.v_head_dim is 0, must be at least 1",
          [](Call& call) { call.c.shape.v_head_dim = 0; });
  refused("options.softmax_scale is 0, must be finite and above 0 (it has no default)",
          [](Call& call) { call.c.options.softmax_scale = 0.0f; });
  refused("options.window is -1, must be at least 1",
          [](Call& call) { call.c.options.window = -1; });
  refused("options.precision is 300, must be one of its enum",
          [](Call& call) { call.c.options.precision = 300; });
  refused("options.target is -1, must be one of its enum",
          [](Call& call) { call.c.options.target = -1; });
  refused("args.struct_size is 7, must be the struct's size",
          [](Call& call) { call.c.args.struct_size = 7; });
  refused("k.rank is 2, must be 3", [](Call& call) { call.c.args.k.rank = 2; });
  refused("kv_start_loc.dtype is 0, must be int32 or int64 here",
          [](Call& call) { call.c.args.kv_start_loc.dtype = LATHE_DTYPE_FLOAT32; });
  refused("v.extent[0] is 1, must be 63", [](Call& call) { call.c.args.v.extent[0] = 1; });

  Call call;
  const lathe_buffer memory{call.memory.data(), call.memory.size()};
  const CPrefill& c = call.c;
  const auto plan = [&](const lathe_prefill_shape* shape, const lathe_prefill_options* options,
                        const lathe_prefill_args* args, const lathe_prefill_plan** to) {
    return [=](lathe_message* m) {
      return lathe_plan_prefill(shape, options, args, 1, memory, to, m);
    };
  };
  RequireInvalid(plan(nullptr, &c.options, &c.args, &call.plan), "shape must be given");
  RequireInvalid(plan(&c.shape, nullptr, &c.args, &call.plan),
                 "options.softmax_scale is 0, must be finite and above 0 (it has no default)");
  RequireInvalid(plan(&c.shape, &c.options, nullptr, &call.plan), "args must be given");
  RequireInvalid(plan(&c.shape, &c.options, &c.args, nullptr), "plan must be given");
}

TEST_CASE("fields past an older prefill struct's size are not given", "[capi]") {
  Call call;
  call.c.options.struct_size = offsetof(lathe_prefill_options, no_causal);
  call.c.options.window = -1;  // each of these would be refused
  call.c.options.precision = call.c.options.target = 300;
  call.c.args.struct_size = offsetof(lathe_prefill_args, lse);
  call.c.args.lse.rank = 1;
  RequireOk([&](lathe_message* m) { return call.Plan(m); });
  call.c.shape.struct_size = offsetof(lathe_prefill_shape, v_head_dim);
  RequireInvalid([&](lathe_message* m) { return call.Plan(m); },
                 "shape.v_head_dim is 0, must be at least 1");
}

TEST_CASE("running a prefill through C passes on what C++ refuses, and writes nothing", "[capi]") {
  Call call;
  RequireOk([&](lathe_message* m) { return call.Plan(m); });
  std::vector<std::byte> memory(lathe_prefill_plan_workspace_bytes(call.plan));
  const lathe_buffer workspace{memory.data(), memory.size()};
  const auto run = [&](lathe_message* m) {
    return lathe_run_prefill(call.plan, &call.c.args, workspace, nullptr, m);
  };
  RequireOk(run);
  const MlaResult<float> before = call.problem.Result();
  call.problem.query_start_loc[1] = 6;
  RequireMessage(run, LATHE_STATUS_STALE_PLAN,
                 "stale plan: plan must be made for these starts of sequences");
  call.problem.query_start_loc[1] = 5;
  RequireInvalid(
      [&](lathe_message* m) {
        return lathe_run_prefill_part(call.plan, &call.c.args, workspace, 0, 0, m);
      },
      "nth is 0, must be at least 1");
  RequireInvalid(
      [&](lathe_message* m) {
        return lathe_run_prefill_merge(call.plan, &call.c.args, workspace, 2, 2, m);
      },
      "ith is 2, must be below nth = 2");
  RequireInvalid(
      [&](lathe_message* m) {
        return lathe_run_prefill(nullptr, &call.c.args, workspace, nullptr, m);
      },
      "plan must be given");
  RequireMessage(
      [&](lathe_message* m) {
        return lathe_run_prefill(call.plan, &call.c.args, {memory.data(), memory.size() - 1},
                                 nullptr, m);
      },
      LATHE_STATUS_BUFFER_TOO_SMALL,
      "buffer too small: workspace.bytes is " + std::to_string(memory.size() - 1) +
          ", must be at least " + std::to_string(memory.size()));
  REQUIRE(SameBits(call.problem.Result(), before));
}

}  // namespace
}  // namespace lathe::test
