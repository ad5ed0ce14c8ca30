// SPDX-License-Identifier: Apache-2.0
// Decode through C: the bits of the C++ call for every kind of key set, and its refusals.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "capi/mirror.h"
#include "support/decode_call.h"
#include "support/targets.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

// What varies between the calls.
struct Variant {
  const char* name;
  void (*prepare)(DecodeCall& call);
};

const Variant kVariants[] = {
    {"dense, sink", [](DecodeCall&) {}},
    {"query in parts", [](DecodeCall& call) { call.GiveQueryInParts(); }},
    {"not causal, no lse, no check",
     [](DecodeCall& call) {
       call.options.causal = call.options.check_indices = false;
       call.args.lse = {};
     }},
    {"lse of base 2, empty +inf",
     [](DecodeCall& call) {
       call.options.lse_policy = {true, std::numeric_limits<float>::infinity()};
       call.seq_lens[0] = 0;
     }},
    {"row lengths", [](DecodeCall& call) { call.GiveRowLengths(); }},
    {"soft cap", [](DecodeCall& call) { call.options.soft_cap = 0.25f; }},
    {"window", [](DecodeCall& call) { call.args.keys.window = 2; }},
    {"window in a ring",
     [](DecodeCall& call) {
       call.args.keys.window = 2;
       call.args.keys.wraps = true;
       call.args.keys.block_table.extent[1] = 2;  // too few for all pages
     }},
    {"compressed", [](DecodeCall& call) { call.args.keys.compress_ratio = 2; }},
    {"list", [](DecodeCall& call) { call.GiveList(); }},
    {"list of slots",
     [](DecodeCall& call) {
       call.GiveList();
       call.args.keys.index_space = IndexSpace::kPhysical;
     }},
    {"two key sets, rope at positions",
     [](DecodeCall& call) {
       call.GiveExtra();
       call.GiveRope();
       call.GivePositions();
       call.args.out_rope.interleaved = false;
       call.args.out_rope.leading = true;
       call.args.out_rope.inverse = true;
     }},
    {"tree of drafted tokens",
     [](DecodeCall& call) {
       call.GiveTree();
       call.tree[2] = 2;  // siblings, which causality would let see one another
     }},
    {"float32 products", [](DecodeCall& call) { call.options.precision = Precision::kFloat32; }},
};

// Values that tell rows, heads and columns apart.
void Fill(DecodeCall& call) {
  float x = 0.1f;
  for (Guarded<float>* tensor : {&call.q, &call.q_nope, &call.q_pe, &call.cache, &call.sink,
                                 &call.extra_cache, &call.angles}) {
    for (float& to : *tensor) {
      to = x;
      x = x > 1.0f ? x - 1.93f : x + 0.37f;
    }
  }
}

std::vector<float> Outputs(const DecodeCall& call) {
  std::vector<float> outputs = call.out.Copy();
  outputs.insert(outputs.end(), call.lse.begin(), call.lse.end());
  return outputs;
}

TEST_CASE("decode through C gives the bits of C++", "[capi]") {
  const Target target = LATHE_GENERATE_TARGET();
  const Variant& variant = GENERATE(from_range(kVariants));
  CAPTURE(Name(target), variant.name);
  DecodeCall call;
  Fill(call);
  call.options.target = target;
  variant.prepare(call);
  const Status planned = call.Plan();
  INFO(Format(planned).c_str());
  REQUIRE(planned.ok());
  REQUIRE(call.Run().ok());
  const std::vector<float> expected = Outputs(call);

  const CDecode c(call.shape, call.options, call.args);
  const lathe_buffer memory{call.plan_buffer.data, call.plan_buffer.bytes};
  const lathe_buffer workspace{call.workspace_buffer.data, call.workspace_buffer.bytes};
  const lathe_mla_decode_plan* plan = nullptr;
  RequireOk([&](lathe_message* m) {
    return lathe_plan_mla_decode(&c.shape, &c.options, &c.args, 2, memory, &plan, m);
  });
  REQUIRE(lathe_mla_decode_plan_target(plan) == static_cast<int32_t>(target));
  REQUIRE(lathe_mla_decode_plan_workspace_bytes(plan) == PlanWorkspaceBytes(*call.plan));

  const auto poison = [&] {
    call.out.Poison();
    call.lse.Poison();
  };
  poison();
  RequireOk(
      [&](lathe_message* m) { return lathe_run_mla_decode(plan, &c.args, workspace, nullptr, m); });
  REQUIRE(SameBits(Outputs(call), expected));

  poison();
  const lathe_executor threads = Mirror(ThreadExecutor(2));
  RequireOk([&](lathe_message* m) {
    return lathe_run_mla_decode(plan, &c.args, workspace, &threads, m);
  });
  REQUIRE(SameBits(Outputs(call), expected));

  poison();
  for (const auto run : {lathe_run_mla_decode_part, lathe_run_mla_decode_merge}) {
    for (size_t ith = 0; ith < 2; ++ith) {
      // Once, since a merge uses up what the parts have left.
      REQUIRE(run(plan, &c.args, workspace, ith, 2, nullptr) == LATHE_STATUS_OK);
    }
  }
  REQUIRE(SameBits(Outputs(call), expected));
}

TEST_CASE("options that leave float32 calls as they are arrive, too", "[capi]") {
  DecodeCall call;
  const lathe_buffer memory{call.plan_buffer.data, call.plan_buffer.bytes};
  const lathe_mla_decode_plan* plan = nullptr;
  const auto code_of_plan = [&] {
    const CDecode c(call.shape, call.options, call.args);
    return lathe_plan_mla_decode(&c.shape, &c.options, &c.args, 1, memory, &plan, nullptr);
  };
  call.options.precision = static_cast<Precision>(77);
  REQUIRE(code_of_plan() == LATHE_STATUS_INVALID_ARGUMENT);
  call.options.precision = Precision::kBFloat16;
  REQUIRE(code_of_plan() == LATHE_STATUS_OK);
  call.block_table[0] = 99;
  REQUIRE(code_of_plan() == LATHE_STATUS_INDEX_OUT_OF_RANGE);
  call.options.check_indices = false;
  REQUIRE(code_of_plan() == LATHE_STATUS_OK);
}

TEST_CASE("sizes through C are those of C++", "[capi]") {
  const DecodeCall call;
  const CDecode c(call.shape, call.options, call.args);
  auto limits = Sized<lathe_limits>();
  limits.max_num_seqs = 5;
  limits.max_num_tokens = 9;
  limits.max_num_keys = 777;
  Sizes expected;
  const auto require_same = [&] {
    auto sizes = Sized<lathe_sizes>();
    RequireOk([&](lathe_message* m) {
      return lathe_mla_decode_sizes(&c.shape, &c.options, &limits, &sizes, m);
    });
    REQUIRE(sizes.plan_bytes == expected.plan_bytes);
    REQUIRE(sizes.workspace_bytes == expected.workspace_bytes);
  };
  REQUIRE(MlaDecodeSizes(call.shape, call.options, {5, 9, 777, 1}, &expected).ok());
  require_same();
  limits.num_workers = 3;
  REQUIRE(MlaDecodeSizes(call.shape, call.options, {5, 9, 777, 3}, &expected).ok());
  require_same();

  limits.max_num_keys = 0;
  const std::string refusal =
      Format(MlaDecodeSizes(call.shape, call.options, {5, 9, 0, 3}, &expected)).c_str();
  auto sizes = Sized<lathe_sizes>();
  RequireMessage(
      [&](lathe_message* m) {
        return lathe_mla_decode_sizes(&c.shape, &c.options, &limits, &sizes, m);
      },
      LATHE_STATUS_INVALID_ARGUMENT, refusal);
  REQUIRE(sizes.plan_bytes == 0);
}

TEST_CASE("decode passes on what C++ refuses, and writes nothing", "[capi]") {
  DecodeCall call;
  REQUIRE(call.Plan().ok());
  const auto* plan = reinterpret_cast<const lathe_mla_decode_plan*>(call.plan);
  call.seq_lens[1] = 4;
  const CDecode c(call.shape, call.options, call.args);
  const lathe_buffer workspace{call.workspace_buffer.data, call.workspace_buffer.bytes};
  const Status status = call.Run();
  REQUIRE(status.code == StatusCode::kStalePlan);
  const auto before = call.Snapshot();
  RequireMessage(
      [&](lathe_message* m) { return lathe_run_mla_decode(plan, &c.args, workspace, nullptr, m); },
      LATHE_STATUS_STALE_PLAN, Format(status).c_str());
  REQUIRE(SameBits(call.Snapshot(), before));

  call.seq_lens[1] = 500;
  const Status refused = call.Plan();
  const lathe_mla_decode_plan* none = nullptr;
  RequireMessage(
      [&](lathe_message* m) {
        return lathe_plan_mla_decode(&c.shape, &c.options, &c.args, 2,
                                     {call.plan_buffer.data, call.plan_buffer.bytes}, &none, m);
      },
      LATHE_STATUS_INDEX_OUT_OF_RANGE, Format(refused).c_str());
  REQUIRE(none == nullptr);
}

}  // namespace
}  // namespace lathe::test
