// SPDX-License-Identifier: Apache-2.0
// Two key sets under one softmax: formats, page sizes, sinks, rotated outputs, against the reference.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "sliding_window/v4_problem.h"

namespace lathe::test {
namespace {

constexpr CacheFormat kV4Formats[] = {CacheFormat::kFp8Ds4,        CacheFormat::kLatentBFloat16,
                                      CacheFormat::kLatentFloat32, CacheFormat::kLatentFp8E4m3,
                                      CacheFormat::kDs41Fp8,       CacheFormat::kDs41Fp4};

TEST_CASE("a window and entries of any two formats share a softmax", "[sliding_window]") {
  const auto window_format = GENERATE(from_range(kV4Formats));
  const auto entry_format = GENERATE(from_range(kV4Formats));
  CAPTURE(NameOf(window_format), NameOf(entry_format));
  V4Problem<bfloat16> problem({{5, 512, 0}, {700, 3, 0, 129}, {1, 1, 1, 2}});
  problem.Move(window_format, entry_format, 0.0137f, 0.0171f);
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("entries of any ratio stand beside any window", "[sliding_window]", float,
                   float16, bfloat16) {
  const int64_t window = GENERATE(1, 3, 128, 200);
  const int64_t ratio = GENERATE(1, 3, 4, 128);
  CAPTURE(window, ratio);
  V4Problem<TestType> problem({{3, 512, 0}, {900, 127, 128, 1}, {3, 1, 2, 1}, window, ratio});
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("rows of any width see two caches", "[sliding_window]", float, bfloat16) {
  const MlaShape shape = GENERATE(MlaShape{2, 512, 64}, MlaShape{17, 64, 8}, MlaShape{3, 100, 0},
                                  MlaShape{1, 1024, 64}, MlaShape{130, 64, 0});
  const int64_t block_size = GENERATE(1, 16);
  CAPTURE(shape.num_heads, shape.kv_lora_rank, shape.qk_rope_head_dim, block_size);
  V4Problem<TestType> problem({shape, {300, 7}, {2, 1}, 40, 4, block_size, 3});
  problem.CheckEveryTarget();
}

TEST_CASE("a window stands beside a list of entries", "[sliding_window]") {
  const int64_t k = GENERATE(0, 1, 64, 513);
  const bool has_lengths = GENERATE(false, true);
  CAPTURE(k, has_lengths);
  V4Problem<bfloat16> problem({{16, 512, 0}, {3000}, {3}, 128, 4});
  problem.Move(CacheFormat::kFp8Ds4, CacheFormat::kFp8Ds4);
  problem.PickEntries(k);
  const Guarded<int32_t> lengths(
      std::vector<int32_t>{0, static_cast<int32_t>(k / 2), static_cast<int32_t>(k)});
  if (has_lengths) problem.args.extra_keys.topk_length = Packed(lengths.data(), 3);
  problem.CheckEveryTarget();
}

TEST_CASE("the first set may be the list, or both may be", "[sliding_window][sparse_mla]") {
  V4Problem<float> problem({{4, 512, 0}, {500}, {2}, kNoWindow, 1});
  problem.PickEntries(70);
  const Guarded<int32_t> first(std::vector<int32_t>{5, -1, 499, 498, 0, 1, 2, 3, 500, 4, 7, 7});
  problem.args.keys.indices = Packed(first.data(), 2, 6);
  if (GENERATE(false, true)) {
    problem.args.extra_keys.indices = {};
    problem.args.extra_keys.window = 100;
  }
  problem.CheckEveryTarget();
}

TEST_CASE("slots of two caches are a key set each", "[sparse_mla]") {
  V4Problem<bfloat16> problem({{7, 512, 0}, {200}, {1}, kNoWindow, 1});
  Guarded<int64_t> slots(40), extra(9);
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i] = problem.Slot(0, static_cast<int64_t>(i) * 5);
  }
  for (size_t i = 0; i < extra.size(); ++i) {
    extra[i] = problem.entries.Slot(0, static_cast<int64_t>(i) * 7);
  }
  slots[3] = -1;
  extra[0] = int64_t{1} << 40;
  problem.args.keys = ListedSlots(problem.args.keys.cache,
                                  Packed(static_cast<const int64_t*>(slots.data()), 1, 40));
  problem.args.extra_keys = ListedSlots(problem.entries.args.keys.cache,
                                        Packed(static_cast<const int64_t*>(extra.data()), 1, 9));
  problem.CheckEveryTarget();
}

TEST_CASE("A19: a sink counts once over both caches, however they are shared",
          "[sliding_window][A19]") {
  const int64_t ratio = GENERATE(4, 128);
  CAPTURE(ratio);
  V4Problem<bfloat16> problem({{4, 512, 0}, {1000, 2}, {1, 1}, 128, ratio});
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Guarded<float> sinks(std::vector<float>{0.0f, 5.0f, -kInf, kInf});
  problem.args.attn_sink = Packed(sinks.data(), 4);
  problem.CheckEveryTarget();
}

TEMPLATE_TEST_CASE("outputs are rotated back at their query's position", "[sliding_window]", float,
                   bfloat16) {
  const bool leading = GENERATE(false, true);
  const bool interleaved = GENERATE(false, true);
  CAPTURE(leading, interleaved);
  V4Problem<TestType, TestType> problem({{9, 512, 0}, {1500, 70, 0, 1}, {1, 3, 1, 2}});
  Angles angles(1500, 64);
  angles.rope.leading = leading;
  angles.rope.interleaved = interleaved;
  problem.args.out_rope = angles.rope;
  problem.CheckEveryTarget();
}

TEST_CASE("positions of queries may be given", "[sliding_window]") {
  V4Problem<float> problem({{2, 512, 0}, {50, 20}, {2, 1}});
  const Angles angles(1000, 64);
  const Guarded<int64_t> positions(std::vector<int64_t>{999, 0, 512});
  problem.args.out_rope = angles.rope;
  problem.args.positions = Packed(static_cast<const int64_t*>(positions.data()), 3);
  problem.CheckEveryTarget();
}

TEST_CASE("every entry in order gives the bits of all entries", "[sliding_window]") {
  V4Problem<bfloat16> problem({{16, 512, 0}, {2000}, {1}, 128, 4});
  Guarded<int32_t> all(500);
  std::iota(all.begin(), all.end(), 0);
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    problem.options.target = target;
    problem.args.extra_keys.indices = {};
    problem.Run();
    const auto from_range = problem.Result();
    problem.args.extra_keys.indices = Packed(static_cast<const int32_t*>(all.data()), 1, 500);
    problem.Run();
    REQUIRE(SameBits(problem.Result(), from_range));
  }
}

TEST_CASE("a sequence's bits do not depend on its company", "[sliding_window][A15]") {
  V4Problem<bfloat16> alone({{16, 512, 0}, {3000}, {2}, 128, 128});
  V4Problem<bfloat16> company({{16, 512, 0}, {3000, 70, 5000, 0}, {2, 1, 4, 1}, 128, 128});
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    alone.options.target = company.options.target = target;
    alone.Run();
    company.RunOnThreads(3);
    const size_t out = alone.out.size(), lse = alone.lse.size();
    REQUIRE(std::memcmp(alone.out.data(), company.out.data(), out * sizeof(float)) == 0);
    REQUIRE(std::memcmp(alone.lse.data(), company.lse.data(), lse * sizeof(float)) == 0);
  }
}

TEST_CASE("a NaN entry stays with the rows that see it", "[sliding_window]") {
  V4Problem<bfloat16> problem({{4, 512, 0}, {643}, {4}, 128, 4});
  // Entry 159 is complete at position 639, the first row's; 160 at 643, which no row has reached.
  for (int64_t c = 0; c < 512; ++c) {
    problem.entries.Row(0, 159)[c] = FromFloat<bfloat16>(std::numeric_limits<float>::quiet_NaN());
  }
  problem.args.keys.seq_lens = Packed(problem.seq_lens.data(), 1);
  problem.seq_lens[0] = 642;  // rows at positions 638 .. 641
  problem.CheckEveryTarget();
}

}  // namespace
}  // namespace lathe::test
