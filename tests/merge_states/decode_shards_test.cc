// SPDX-License-Identifier: Apache-2.0
// Context parallelism: a decode whose keys are shared out, merged by lse, is the whole decode.
#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/merge_problem.h"
#include "support/mla_problem.h"

namespace lathe::test {
namespace {

constexpr MlaShape kShape{3, 64, 16};
constexpr size_t kRows = 4 * 3;  // query tokens * heads

// Two sequences of 70 and 131 keys with 1 and 3 query rows.
MlaCase TheCase() {
  MlaCase c;
  c.shape = kShape;
  c.seq_lens = {70, 131};
  c.q_lens = {1, 3};
  c.block_size = 16;
  return c;
}

// out and lse of shards, in float32 and in either log base.
struct Shards {
  std::vector<Guarded<float>> out, lse;
  std::vector<MergePart> parts;

  // Runs `problem` as it stands and keeps the result.
  template <class T>
  void Add(MlaProblem<T>& problem) {
    Guarded<float>& out_of_part = out.emplace_back(kRows * 64);
    Guarded<float>& lse_of_part = lse.emplace_back(kRows);
    problem.args.out = Packed(out_of_part.data(), 4, 3, 64);
    problem.args.lse = Packed(lse_of_part.data(), 4, 3);
    problem.Run();
    MergePart& part = parts.emplace_back();
    part.out = Packed(static_cast<const float*>(out_of_part.data()), 4, 3, 64);
    part.lse = Packed(static_cast<const float*>(lse_of_part.data()), 4, 3);
    part.lse_policy = problem.options.lse_policy;
  }
};

// Merges and compares with the reference of the whole decode, sink included.
template <class T>
void RequireMergesToWhole(MlaProblem<T>& whole, const Shards& shards, View<const float, 1> sink) {
  Guarded<float> out(kRows * 64), lse(kRows);
  MergeStatesArgs args;
  args.parts = shards.parts.data();
  args.num_parts = shards.parts.size();
  args.attn_sink = sink;
  args.out = Packed(out.data(), 4, 3, 64);
  args.lse = Packed(lse.data(), 4, 3);
  REQUIRE(MergeStates(args).ok());
  whole.args.attn_sink = sink;
  const ref::AttentionResult reference = ref::MlaDecode(kShape, whole.options, whole.args);
  RequireOut(out, reference.out, 64, whole.bounds());
  RequireLse(lse, reference.lse, whole.bounds());
}

TEMPLATE_TEST_CASE("shards by index lists merge to the whole", "[merge_states]", float, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const int32_t num_shards = GENERATE(1, 2, 3, 8);
  const bool with_sink = GENERATE(false, true);
  CAPTURE(Name(target), num_shards, with_sink);
  const Guarded<float> sink(std::vector<float>{0.5f, -2.0f, 4.0f});
  const View<const float, 1> view = Packed(sink.data(), 3);

  MlaProblem<TestType> whole(TheCase());
  Shards shards;
  for (int32_t shard = 0; shard < num_shards; ++shard) {
    MlaProblem<TestType> part(TheCase());
    part.options.target = target;
    part.options.lse_policy.base2 = shard % 2 == 1;
    if (shard % 3 == 2) part.options.lse_policy.empty = kInfinity;
    // Keys dealt round robin; causality still applies to positions.
    Guarded<int32_t> indices(4 * 131);
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto position = static_cast<int32_t>(i % 131);
      indices[i] = position % num_shards == shard ? position : -1;
    }
    part.args.keys.indices = Packed(indices.data(), 4, 131);
    shards.Add(part);
  }
  whole.options.target = target;
  RequireMergesToWhole(whole, shards, with_sink ? view : View<const float, 1>{});
}

TEMPLATE_TEST_CASE("contiguous shards of per-row lengths merge to the whole", "[merge_states]",
                   float, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<TestType> whole(TheCase());
  whole.options.target = target;
  Shards shards;
  // Shard s holds pages 3s, 3s+1, 3s+2 of each sequence: positions [48s, 48s + 48).
  for (int64_t first = 0; first < 131; first += 48) {
    MlaProblem<TestType> part(TheCase());
    part.options.target = target;
    std::vector<int32_t> held, visible;
    const int64_t seen[] = {70, 129, 130, 131};  // by each of the four query rows
    for (const int64_t len : {70, 131}) {
      held.push_back(static_cast<int32_t>(std::clamp<int64_t>(len - first, 0, 48)));
    }
    for (const int64_t count : seen) {
      visible.push_back(static_cast<int32_t>(count - first));  // below 0 or too many: clamped
    }
    const Guarded<int32_t> seq_lens(held), row_kv_lens(visible);
    const IndexView<2> table = part.args.keys.block_table;
    View<const int32_t, 2> pages{static_cast<const int32_t*>(table.data) + first / 16,
                                 {2, table.extent[1] - first / 16},
                                 {table.stride[0], 1}};
    part.args.keys.block_table = pages;
    part.args.keys.seq_lens = Packed(seq_lens.data(), 2);
    part.args.keys.row_kv_lens = Packed(row_kv_lens.data(), 4);
    shards.Add(part);
  }
  REQUIRE(shards.parts.size() == 3);
  REQUIRE(shards.lse[2][0] == -kInfinity);  // of sequence 0, the last shard holds nothing
  RequireMergesToWhole(whole, shards, {});
}

}  // namespace
}  // namespace lathe::test
