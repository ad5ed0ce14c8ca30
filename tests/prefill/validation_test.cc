// SPDX-License-Identifier: Apache-2.0
// Every refusal of prefill: the whole message, and nothing written.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>
#include <string>

#include "lathe/lathe.h"
#include "support/memory.h"

namespace lathe::test {
namespace {

// Two sequences of 1 and 2 queries over 3 and 2 keys; 4 heads on 2 key heads; widths 6 and 4.
struct PrefillCall {
  PrefillShape shape{4, 2, 6, 4};
  PrefillOptions options;
  PrefillArgs args;
  size_t num_workers = 2;
  Guarded<float> q{3 * 4 * 6}, k{5 * 2 * 6}, v{5 * 2 * 4}, sink{4}, out{3 * 4 * 4}, lse{3 * 4};
  Guarded<int32_t> query_start_loc{std::vector<int32_t>{0, 1, 3}};
  Guarded<int32_t> kv_start_loc{std::vector<int32_t>{0, 3, 5}};
  Guarded<std::byte> plan_memory{1 << 14}, workspace{1 << 19};
  Buffer plan_buffer{plan_memory.data(), plan_memory.size()};
  Buffer workspace_buffer{workspace.data(), workspace.size()};
  const PrefillPlan* plan = nullptr;

  PrefillCall() {
    for (Guarded<float>* tensor : {&q, &k, &v, &sink}) {
      for (float& x : *tensor) x = 0.5f;
    }
    options.softmax_scale = 0.5f;
    args.q = Packed(q.data(), 3, 4, 6);
    args.query_start_loc = Packed(query_start_loc.data(), 3);
    args.k = Packed(k.data(), 5, 2, 6);
    args.v = Packed(v.data(), 5, 2, 4);
    args.kv_start_loc = Packed(kv_start_loc.data(), 3);
    args.attn_sink = Packed(static_cast<const float*>(sink.data()), 4);
    args.out = Packed(out.data(), 3, 4, 4);
    args.lse = Packed(lse.data(), 3, 4);
  }
  PrefillCall(const PrefillCall&) = delete;
  PrefillCall& operator=(const PrefillCall&) = delete;

  Status Plan() { return PlanPrefill(shape, options, args, num_workers, plan_buffer, &plan); }

  // All memory that a call may write, or must not.
  std::vector<std::byte> Snapshot() const {
    std::vector<std::byte> bytes;
    const auto add = [&bytes](const auto&... arrays) {
      const auto append = [&bytes](const auto& array) {
        const auto* first = reinterpret_cast<const std::byte*>(array.data());
        bytes.insert(bytes.end(), first, first + array.size() * sizeof(*array.data()));
      };
      (append(arrays), ...);
    };
    add(q, k, v, sink, out, lse, query_start_loc, kv_start_loc, plan_memory, workspace);
    return bytes;
  }
};

struct Refusal {
  const char* message;
  std::function<void(PrefillCall&)> break_it;
};

void RequireMessage(const Status& status, const std::string& message) {
  REQUIRE(std::string(Format(status).c_str()) == message);
}

void RequirePlanRefuses(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    INFO("expected: " << refusal.message);
    PrefillCall call;
    refusal.break_it(call);
    const auto before = call.Snapshot();
    RequireMessage(call.Plan(), refusal.message);
    REQUIRE(call.plan == nullptr);
    REQUIRE(SameBits(call.Snapshot(), before));
  }
}

void RequireRunRefuses(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    INFO("expected: " << refusal.message);
    PrefillCall call;
    RequireMessage(call.Plan(), "ok");
    refusal.break_it(call);
    const auto before = call.Snapshot();
    RequireMessage(RunPrefill(*call.plan, call.args, call.workspace_buffer), refusal.message);
    RequireMessage(RunPrefillPart(*call.plan, call.args, call.workspace_buffer, 0, 2),
                   refusal.message);
    RequireMessage(RunPrefillMerge(*call.plan, call.args, call.workspace_buffer, 1, 2),
                   refusal.message);
    REQUIRE(SameBits(call.Snapshot(), before));
  }
}

TEST_CASE("the call that the refusals start from is right", "[prefill]") {
  PrefillCall call;
  RequireMessage(call.Plan(), "ok");
  RequireMessage(RunPrefill(*call.plan, call.args, call.workspace_buffer), "ok");
  // Every score is 0.5 * 6 * 0.25; the queries see 3, 1 and 2 keys; the sink is not part of lse.
  const double keys_seen[] = {3, 1, 2};
  for (size_t i = 0; i < call.lse.size(); ++i) {
    REQUIRE(std::abs(call.lse[i] - (0.75 + std::log(keys_seen[i / 4]))) < 1e-5);
  }
}

TEST_CASE("prefill sizes refuse", "[prefill]") {
  const auto refuse = [](const char* message, const std::function<void(PrefillCall&, Limits&)>& f) {
    INFO("expected: " << message);
    PrefillCall call;
    Limits limits{2, 3, 3, 2};
    f(call, limits);
    Sizes sizes;
    RequireMessage(PrefillSizes(call.shape, call.options, limits, &sizes), message);
    REQUIRE(sizes.plan_bytes == 0);
  };
  refuse("invalid argument: shape.num_heads is 0, must be at least 1",
         [](PrefillCall& c, Limits&) { c.shape.num_heads = 0; });
  refuse("invalid argument: shape.num_kv_heads is -1, must be at least 0",
         [](PrefillCall& c, Limits&) { c.shape.num_kv_heads = -1; });
  refuse("invalid argument: shape.num_kv_heads is 3, must divide shape.num_heads = 4",
         [](PrefillCall& c, Limits&) { c.shape.num_kv_heads = 3; });
  refuse("invalid argument: shape.qk_head_dim is 0, must be at least 1",
         [](PrefillCall& c, Limits&) { c.shape.qk_head_dim = 0; });
  refuse("invalid argument: shape.v_head_dim is 0, must be at least 1",
         [](PrefillCall& c, Limits&) { c.shape.v_head_dim = 0; });
  refuse("invalid argument: options.window is 0, must be at least 1",
         [](PrefillCall& c, Limits&) { c.options.window = 0; });
  refuse(
      "target unavailable: options.target is 99, must be auto or a target that runs here: no such "
      "target",
      [](PrefillCall& c, Limits&) { c.options.target = Target{99}; });
  refuse("invalid argument: limits.max_num_tokens is 0, must be at least 1",
         [](PrefillCall&, Limits& l) { l.max_num_tokens = 0; });
  const PrefillCall call;
  RequireMessage(PrefillSizes(call.shape, call.options, {2, 3, 3, 2}, nullptr),
                 "invalid argument: sizes must not be null");
}

TEST_CASE("planning a prefill refuses", "[prefill]") {
  RequirePlanRefuses({
      {"invalid argument: num_workers is 0, must be at least 1",
       [](PrefillCall& c) { c.num_workers = 0; }},
      {"invalid argument: shape.num_kv_heads is 3, must divide shape.num_heads = 4",
       [](PrefillCall& c) { c.shape.num_kv_heads = 3; }},
      {"invalid argument: options.softmax_scale is 0, must be finite and above 0 (it has no "
       "default)",
       [](PrefillCall& c) { c.options.softmax_scale = 0.0f; }},
      {"invalid argument: options.soft_cap is -2, must be finite and at least 0 (0: none)",
       [](PrefillCall& c) { c.options.soft_cap = -2.0f; }},
      {"invalid argument: options.precision is 9, must be a known Precision",
       [](PrefillCall& c) { c.options.precision = Precision{9}; }},
      {"invalid argument: options.window is -1, must be at least 1",
       [](PrefillCall& c) { c.options.window = -1; }},
      {"invalid argument: query_start_loc.extent[0] is 0, must be at least 1",
       [](PrefillCall& c) { c.args.query_start_loc = {}; }},
      {"invalid argument: kv_start_loc.extent[0] is 0, must be at least 1",
       [](PrefillCall& c) { c.args.kv_start_loc = {}; }},
      {"invalid argument: kv_start_loc.extent[0] is 2, must be 3",
       [](PrefillCall& c) { c.args.kv_start_loc.extent[0] = 2; }},
      {"invalid argument: out.extent[1] is 3, must be 4",
       [](PrefillCall& c) { c.args.out.extent[1] = 3; }},
      {"invalid argument: lse.extent[0] is 2, must be 3",
       [](PrefillCall& c) { c.args.lse.extent[0] = 2; }},
      {"invalid argument: q.extent[0] is 2, must be 3",
       [](PrefillCall& c) { c.args.q.extent[0] = 2; }},
      {"invalid argument: q.extent[2] is 5, must be 6",
       [](PrefillCall& c) { c.args.q.extent[2] = 5; }},
      {"invalid argument: q.stride[2] is 2, must be 1",
       [](PrefillCall& c) { c.args.q.stride[2] = 2; }},
      {"invalid argument: q.dtype is 7, must be a known DType",
       [](PrefillCall& c) { c.args.q.dtype = DType{7}; }},
      {"invalid argument: k.extent[1] is 4, must be 2",
       [](PrefillCall& c) { c.args.k.extent[1] = 4; }},
      {"invalid argument: k.stride[0] is 5, must be at least a row's width, 6",
       [](PrefillCall& c) { c.args.k.stride[0] = 5; }},
      {"invalid argument: v.extent[0] is 4, must be 5",
       [](PrefillCall& c) { c.args.v.extent[0] = 4; }},
      {"invalid argument: v.extent[2] is 6, must be 4",
       [](PrefillCall& c) { c.args.v.extent[2] = 6; }},
      {"invalid argument: v.dtype is bfloat16, must be that of k, float32",
       [](PrefillCall& c) { c.args.v.dtype = DType::kBFloat16; }},
      {"invalid argument: attn_sink.extent[0] is 2, must be 4",
       [](PrefillCall& c) { c.args.attn_sink.extent[0] = 2; }},
      {"invalid argument: query_start_loc[0] is 1, must be 0",
       [](PrefillCall& c) { c.query_start_loc[0] = 1; }},
      {"invalid argument: query_start_loc[2] is 3, must be at least the entry before it, 4",
       [](PrefillCall& c) { c.query_start_loc[1] = 4; }},
      {"invalid argument: query_start_loc[2] is 2, must be the number of query rows, 3",
       [](PrefillCall& c) { c.query_start_loc[2] = 2; }},
      {"invalid argument: kv_start_loc[0] is -1, must be 0",
       [](PrefillCall& c) { c.kv_start_loc[0] = -1; }},
      {"invalid argument: kv_start_loc[2] is 5, must be at least the entry before it, 6",
       [](PrefillCall& c) { c.kv_start_loc[1] = 6; }},
      {"invalid argument: kv_start_loc[2] is 4, must be the number of key rows, 5",
       [](PrefillCall& c) { c.kv_start_loc[2] = 4; }},
      {"target unavailable: options.target is 99, must be auto or a target that runs here: no such "
       "target",
       [](PrefillCall& c) { c.options.target = Target{99}; }},
  });
  PrefillCall call;
  RequireMessage(PlanPrefill(call.shape, call.options, call.args, 1, call.plan_buffer, nullptr),
                 "invalid argument: plan must not be null");
}

TEST_CASE("prefill says how much memory it lacks", "[prefill]") {
  PrefillCall call;
  const Buffer plan_buffer = call.plan_buffer, workspace = call.workspace_buffer;
  call.plan_buffer = {};
  const Status needs_plan = call.Plan();
  const auto plan_bytes = static_cast<size_t>(needs_plan.bound);
  RequireMessage(needs_plan, "buffer too small: plan_memory.bytes is 0, must be at least " +
                                 std::to_string(plan_bytes));
  call.plan_buffer = {plan_buffer.data, plan_bytes - 1};
  RequireMessage(call.Plan(), "buffer too small: plan_memory.bytes is " +
                                  std::to_string(plan_bytes - 1) + ", must be at least " +
                                  std::to_string(plan_bytes));
  call.plan_buffer = {plan_buffer.data, plan_bytes};
  RequireMessage(call.Plan(), "ok");
  const size_t needed = PlanWorkspaceBytes(*call.plan);
  const auto require_lacks = [&](Buffer given, size_t bytes) {
    const std::string message = "buffer too small: workspace.bytes is " + std::to_string(bytes) +
                                ", must be at least " + std::to_string(needed);
    const auto before = call.Snapshot();
    RequireMessage(RunPrefill(*call.plan, call.args, given), message);
    RequireMessage(RunPrefillPart(*call.plan, call.args, given, 0, 2), message);
    RequireMessage(RunPrefillMerge(*call.plan, call.args, given, 1, 2), message);
    REQUIRE(SameBits(call.Snapshot(), before));
  };
  require_lacks({}, 0);
  require_lacks({workspace.data, needed - 1}, needed - 1);
  RequireMessage(RunPrefill(*call.plan, call.args, {workspace.data, needed}), "ok");
}

TEST_CASE("a prefill of more work than a machine does in a day is refused", "[prefill]") {
  RequirePlanRefuses(
      {{"invalid argument: kv_start_loc[2] is 4398046511104, must keep the sum of query rows * "
        "keys at most 17592186044416",
        [](PrefillCall& c) {
          c.args.k.extent[0] = c.args.v.extent[0] = int64_t{1} << 42;
          c.args.k.data = c.args.v.data = nullptr;
          static const int64_t starts[] = {0, 3, int64_t{1} << 42};
          c.args.kv_start_loc = Packed(starts, 3);
        }}});
}

TEST_CASE("running a prefill refuses", "[prefill]") {
  RequireRunRefuses({
      {"stale plan: out.extent[0] is 2, must be what the plan was made for, 3",
       [](PrefillCall& c) {
         c.args.out.extent[0] = c.args.q.extent[0] = 2;
         c.args.lse.extent[0] = 2;
       }},
      {"stale plan: query_start_loc.extent[0] is 2, must be what the plan was made for, 3",
       [](PrefillCall& c) { c.args.query_start_loc.extent[0] = 2; }},
      {"invalid argument: q.data must not be null",
       [](PrefillCall& c) { c.args.q.data = nullptr; }},
      {"invalid argument: k.data must not be null",
       [](PrefillCall& c) { c.args.k.data = nullptr; }},
      {"invalid argument: v.data must not be null",
       [](PrefillCall& c) { c.args.v.data = nullptr; }},
      {"invalid argument: v.data must be aligned to 4", [](PrefillCall& c) { c.args.v.data += 1; }},
      {"invalid argument: out.data must not be null",
       [](PrefillCall& c) { c.args.out.data = nullptr; }},
      {"invalid argument: lse.data must not be null",
       [](PrefillCall& c) { c.args.lse.data = nullptr; }},
      {"stale plan: q.dtype is bfloat16, must be what the plan was made for, float32",
       [](PrefillCall& c) { c.args.q.dtype = DType::kBFloat16; }},
      {"stale plan: k.dtype is float16, must be what the plan was made for, float32",
       [](PrefillCall& c) { c.args.k.dtype = c.args.v.dtype = DType::kFloat16; }},
      {"stale plan: plan must be made for these starts of sequences",
       [](PrefillCall& c) { c.query_start_loc[1] = 2; }},
      {"stale plan: plan must be made for these starts of sequences",
       [](PrefillCall& c) { c.kv_start_loc[1] = 2; }},
      {"invalid argument: q must not overlap out",
       [](PrefillCall& c) { c.args.q.data = c.args.out.data; }},
      {"invalid argument: k must not overlap out",
       [](PrefillCall& c) { c.args.k.data = c.args.out.data; }},
      {"invalid argument: v must not overlap lse",
       [](PrefillCall& c) { c.args.v.data = reinterpret_cast<std::byte*>(c.args.lse.data); }},
      {"invalid argument: lse must not overlap out",
       [](PrefillCall& c) { c.args.lse.data = reinterpret_cast<float*>(c.args.out.data); }},
  });
  PrefillCall call;
  RequireMessage(call.Plan(), "ok");
  RequireMessage(RunPrefillPart(*call.plan, call.args, call.workspace_buffer, 0, 0),
                 "invalid argument: nth is 0, must be at least 1");
  RequireMessage(RunPrefillMerge(*call.plan, call.args, call.workspace_buffer, 2, 2),
                 "invalid argument: ith is 2, must be below nth = 2");
  Executor no_pool;
  no_pool.run = nullptr;
  RequireMessage(RunPrefill(*call.plan, call.args, call.workspace_buffer, no_pool),
                 "invalid argument: executor.run must not be null");
}

}  // namespace
}  // namespace lathe::test
