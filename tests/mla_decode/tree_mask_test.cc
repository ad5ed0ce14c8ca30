// SPDX-License-Identifier: Apache-2.0
// Trees of drafted tokens: masks over the keys of a sequence's own queries.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <limits>

#include "sliding_window/v4_problem.h"
#include "support/decode_call.h"
#include "support/mla_problem.h"

namespace lathe::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The parent of each query among the queries of its sequence, or -1: its parent is the token in front of them.
using Parents = std::vector<int64_t>;

Parents Chain(int64_t q_len) {
  Parents parents;
  for (int64_t i = 0; i < q_len; ++i) parents.push_back(i - 1);
  return parents;
}

// Every query hangs on any earlier one.
Parents RandomTree(int64_t q_len, uint64_t seed) {
  Random random(seed);
  Parents parents;
  for (int64_t i = 0; i < q_len; ++i) parents.push_back(random.Below(i + 1) - 1);
  return parents;
}

// Queries from the root down to i, i included.
std::vector<int64_t> PathTo(const Parents& parents, int64_t i) {
  std::vector<int64_t> path;
  for (; i >= 0; i = parents[static_cast<size_t>(i)]) path.insert(path.begin(), i);
  return path;
}

// A mask for trees of several sequences; bits past a sequence's queries are set, which must not matter.
class TreeMask {
 public:
  explicit TreeMask(const std::vector<Parents>& trees, int64_t spare_words = 0) {
    size_t num_tokens = 0, most = 0;
    for (const Parents& parents : trees) {
      num_tokens += parents.size();
      most = std::max(most, parents.size());
    }
    words_ = (most + 63) / 64 + static_cast<size_t>(spare_words);
    bits_ = Guarded<uint64_t>(num_tokens * words_);
    size_t token = 0;
    for (const Parents& parents : trees) {
      for (size_t i = 0; i < parents.size(); ++i, ++token) {
        for (size_t j = 0; j < parents.size(); ++j) Set(token, j, false);
        for (const int64_t j : PathTo(parents, static_cast<int64_t>(i))) {
          Set(token, static_cast<size_t>(j), true);
        }
      }
    }
    num_tokens_ = num_tokens;
  }

  View<const uint64_t, 2> view() const {
    return Packed(static_cast<const uint64_t*>(bits_.data()), num_tokens_, words_);
  }
  void Set(size_t token, size_t query, bool is_seen) {
    uint64_t& word = bits_[token * words_ + query / 64];
    const uint64_t bit = uint64_t{1} << query % 64;
    word = is_seen ? word | bit : word & ~bit;
  }

 private:
  size_t num_tokens_ = 0;
  size_t words_ = 0;
  Guarded<uint64_t> bits_{0};
};

template <class Problem>
MlaResult<float> ResultOf(Problem& problem, size_t num_workers = 1) {
  problem.RunOnThreads(num_workers);
  return problem.Result();
}

TEMPLATE_TEST_CASE("the mask of a chain gives the bits of causality", "[mla_decode][tree]", float,
                   float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t window = GENERATE(kNoWindow, int64_t{1}, int64_t{3}, int64_t{100});
  CAPTURE(Name(target), window);
  // Among them more queries than tokens, and more than a word of them.
  MlaProblem<TestType> problem({{5, 512, 64}, {300, 1, 3, 131, 70}, {4, 1, 7, 70, 70}, 16});
  problem.options.target = target;
  problem.args.keys.window = window;
  const MlaResult<float> causal = ResultOf(problem);
  const TreeMask mask({Chain(4), Chain(1), Chain(7), Chain(70), Chain(70)}, GENERATE(0, 1));
  problem.args.tree_mask = mask.view();
  REQUIRE(SameBits(ResultOf(problem), causal));
  REQUIRE(SameBits(ResultOf(problem, 3), causal));
}

TEMPLATE_TEST_CASE("trees equal the reference", "[mla_decode][tree]", float, float16, bfloat16) {
  const int64_t window = GENERATE(kNoWindow, int64_t{2}, int64_t{20});
  const int64_t num_heads = GENERATE(1, 5, 40);
  CAPTURE(window, num_heads);
  MlaProblem<TestType> problem({{num_heads, 128, 64}, {300, 8, 0, 140, 6}, {9, 8, 0, 65, 10}, 16});
  const TreeMask mask(
      {RandomTree(9, 1), RandomTree(8, 2), {}, RandomTree(65, 3), RandomTree(10, 4)});
  problem.args.tree_mask = mask.view();
  problem.args.keys.window = window;
  problem.CheckEveryTarget();
}

TEST_CASE("bits may be set in any way", "[mla_decode][tree]") {
  // Rows that see no query, others' keys, all of them; strides that share and skip words.
  MlaProblem<float> problem({{3, 64, 16}, {100, 4}, {4, 4}});
  const Guarded<uint64_t> words(std::vector<uint64_t>{0, 99, 0xE, 99, 0xF, 99, 0x5, 99});
  problem.args.tree_mask.data = words.data();
  problem.args.tree_mask.extent[0] = 8;
  problem.args.tree_mask.extent[1] = 1;
  problem.args.tree_mask.stride[0] = 2;
  SECTION("a row that sees nothing is empty") {
    problem.args.tree_mask.extent[0] = 4;
    problem.args.query_start_loc.extent[0] = 2;
    problem.args.keys.seq_lens.extent[0] = problem.args.keys.block_table.extent[0] = 1;
    problem.args.q.extent[0] = problem.args.out.extent[0] = problem.args.lse.extent[0] = 4;
    problem.args.keys.seq_lens = Packed(problem.seq_lens.data() + 1, 1);
    problem.args.keys.block_table.data =
        problem.block_table.data() + problem.args.keys.block_table.stride[0];
    problem.out = Guarded<float>(4 * 3 * 64);
    problem.lse = Guarded<float>(4 * 3);
    problem.args.out = Packed(problem.out.data(), 4, 3, 64);
    problem.args.lse = Packed(problem.lse.data(), 4, 3);
    problem.CheckEveryTarget();
    for (size_t i = 0; i < 3; ++i) REQUIRE(problem.lse[i] == -ref::kInf);
  }
  SECTION("words shared by rows") {
    problem.args.tree_mask.extent[0] = 8;
    problem.args.tree_mask.stride[0] = 0;
    problem.args.tree_mask.data = words.data() + 2;
    problem.CheckEveryTarget();
  }
}

// Each root-to-leaf path alone, its keys moved together behind the context.
TEMPLATE_TEST_CASE("a path of a tree equals the path alone", "[mla_decode][tree]", float,
                   bfloat16) {
  constexpr int64_t kContext = 150, kQueries = 12, kHeads = 4;
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t window = GENERATE(kNoWindow, int64_t{5});
  CAPTURE(Name(target), window);
  const Parents parents = RandomTree(kQueries, 7);
  const TreeMask mask({parents});
  MlaProblem<TestType> tree({{kHeads, 512, 64}, {kContext + kQueries}, {kQueries}});
  tree.options.target = target;
  tree.args.keys.window = window;
  tree.args.tree_mask = mask.view();
  tree.Run();
  for (int64_t leaf = 0; leaf < kQueries; ++leaf) {
    if (std::count(parents.begin(), parents.end(), leaf) > 0) continue;
    const std::vector<int64_t> path = PathTo(parents, leaf);
    const auto length = static_cast<int64_t>(path.size());
    MlaProblem<TestType> alone({{kHeads, 512, 64}, {kContext + length}, {length}});
    alone.options.target = target;
    alone.args.keys.window = window;
    const auto width = static_cast<size_t>(alone.width());
    for (int64_t position = 0; position < kContext + length; ++position) {
      const int64_t from = position < kContext
                               ? position
                               : kContext + path[static_cast<size_t>(position - kContext)];
      std::memcpy(alone.Row(0, position), tree.Row(0, from), width * sizeof(TestType));
    }
    for (size_t i = 0; i < path.size(); ++i) {
      std::memcpy(alone.Query(static_cast<int64_t>(i), 0), tree.Query(path[i], 0),
                  width * kHeads * sizeof(TestType));
    }
    const ref::AttentionResult causal = alone.Reference();
    // The tree's rows of this path, within the bounds of the causal reference.
    std::vector<float> out, lse;
    for (const int64_t i : path) {
      const auto row = static_cast<size_t>(i * kHeads);
      out.insert(out.end(), tree.out.begin() + row * 512, tree.out.begin() + (row + kHeads) * 512);
      lse.insert(lse.end(), tree.lse.begin() + row, tree.lse.begin() + (row + kHeads));
    }
    RequireOut(out, causal.out, 512, tree.bounds());
    RequireLse(lse, causal.lse, tree.bounds());
  }
}

TEMPLATE_TEST_CASE("keys that a mask hides do not leak, whatever they hold", "[mla_decode][tree]",
                   float, float16, bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const MlaShape shape = GENERATE(MlaShape{5, 512, 64}, MlaShape{5, 100, 7});
  CAPTURE(Name(target), shape.kv_lora_rank);
  MlaProblem<TestType> problem({shape, {140, 30}, {9, 2}});
  // 0 - 1 - 2, 0 - 3 - 4 and six roots more.
  const Parents parents{-1, 0, 1, 0, 3, -1, -1, 5, -1};
  const TreeMask mask({parents, Chain(2)});
  problem.args.tree_mask = mask.view();
  problem.options.target = target;
  problem.Run();
  const MlaResult<float> clean = problem.Result();
  const int64_t bad = GENERATE(0, 1, 3, 8);
  CAPTURE(bad);
  problem.Row(0, 131 + bad)[GENERATE(0, 3)] = FromFloat<TestType>(kNan);
  const ref::AttentionResult reference = problem.Reference();
  problem.RunOnThreads(2);
  problem.RequireMatches(reference);
  const auto row_floats = static_cast<size_t>(shape.kv_lora_rank * 5);
  for (int64_t i = 0; i < 11; ++i) {
    const std::vector<int64_t> path = i < 9 ? PathTo(parents, i) : std::vector<int64_t>{};
    const bool sees = std::count(path.begin(), path.end(), bad) > 0;
    const size_t at = static_cast<size_t>(i) * row_floats;
    REQUIRE((std::memcmp(&problem.out[at], &clean.out[at], row_floats * sizeof(float)) == 0) !=
            sees);
    REQUIRE(std::isnan(problem.lse[static_cast<size_t>(i) * 5]) == sees);
  }
}

TEST_CASE("lists are filtered by the mask, and key counts replace it", "[mla_decode][tree]") {
  MlaProblem<bfloat16> problem({{5, 512, 64}, {60}, {6}});
  const TreeMask mask({RandomTree(6, 5)});
  problem.args.tree_mask = mask.view();
  SECTION("logical lists") {
    Guarded<int32_t> indices(size_t{6 * 20});
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int32_t>(i * 7 % 64) - 1;
    problem.args.keys.indices = Packed(static_cast<const int32_t*>(indices.data()), 6, 20);
    problem.CheckEveryTarget();
  }
  SECTION("key counts") {
    const Guarded<int32_t> counts(std::vector<int32_t>{60, 0, 58, 55, 1, 60});
    problem.args.keys.row_kv_lens = Packed(counts.data(), 6);
    problem.CheckEveryTarget();
    const MlaResult<float> masked = problem.Result();
    problem.args.tree_mask = {};
    problem.Run();
    REQUIRE(SameBits(problem.Result(), masked));
  }
}

TEMPLATE_TEST_CASE("V4 windows and entries follow the path", "[mla_decode][tree]", float,
                   bfloat16) {
  const int64_t ratio = GENERATE(1, 4, 128);
  const int64_t window = GENERATE(4, 128);
  CAPTURE(ratio, window);
  V4Problem<TestType> problem({{3, 512, 0}, {100, 290, 6}, {6, 9, 6}, window, ratio});
  const Angles angles(300, 64);
  problem.args.out_rope = angles.rope;
  SECTION("trees") {
    const TreeMask mask({RandomTree(6, 1), RandomTree(9, 2), RandomTree(6, 3)});
    problem.args.tree_mask = mask.view();
    problem.CheckEveryTarget();
  }
  SECTION("entries of a list") {
    problem.PickEntries(7);
    const TreeMask mask({RandomTree(6, 1), RandomTree(9, 2), RandomTree(6, 3)});
    problem.args.tree_mask = mask.view();
    problem.CheckEveryTarget();
  }
  SECTION("counts of entries take the place of the path's") {
    Random random(9);
    Guarded<int32_t> counts(size_t{21});
    for (int32_t& count : counts) count = static_cast<int32_t>(random.Below(290 / ratio + 3));
    problem.args.extra_keys.row_kv_lens = Packed(static_cast<const int32_t*>(counts.data()), 21);
    const TreeMask mask({RandomTree(6, 1), RandomTree(9, 2), RandomTree(6, 3)});
    problem.args.tree_mask = mask.view();
    problem.CheckEveryTarget();
  }
  SECTION("a chain gives the bits of causality") {
    const Target target = LATHE_GENERATE_TARGET();
    problem.options.target = target;
    const MlaResult<float> causal = ResultOf(problem);
    const TreeMask mask({Chain(6), Chain(9), Chain(6)});
    problem.args.tree_mask = mask.view();
    REQUIRE(SameBits(ResultOf(problem, 2), causal));
  }
}

TEST_CASE("the window of a tree may lie in a ring", "[mla_decode][tree]") {
  const int64_t block_size = GENERATE(1, 16, 64);
  const int64_t seq_len = GENERATE(40, 129, 1000);
  constexpr int64_t kQueries = 9;
  CAPTURE(block_size, seq_len);
  // As many pages as for a chain: no path is shorter than that of its first token.
  const int64_t columns = (128 + kQueries - 2 + block_size - 1) / block_size + 1;
  V4Problem<bfloat16> problem({{5, 512, 0}, {seq_len}, {kQueries}, 128, 4, block_size});
  const TreeMask mask({RandomTree(kQueries, 11)});
  problem.args.tree_mask = mask.view();
  const auto reference = problem.Reference();
  const Guarded<int32_t> ring = problem.RingOf(columns);
  problem.args.keys = WindowKeys(problem.args.keys.cache, Packed(ring.data(), 1, columns),
                                 problem.args.keys.seq_lens, 128, true);
  problem.CheckEveryTarget(reference);
}

void GiveMask(DecodeCall& call) { call.GiveTree(); }

TEST_CASE("a plan refuses masks that do not fit", "[mla_decode][tree][validation]") {
  RequirePlanRefuses({
      {"invalid argument: tree_mask.extent[0] is 2, must be 3",
       [](DecodeCall& c) { c.args.tree_mask.extent[0] = 2; }, GiveMask},
      {"invalid argument: tree_mask.extent[1] is 0, must be at least a word for each 64 queries of "
       "a "
       "sequence, 1",
       [](DecodeCall& c) { c.args.tree_mask.extent[1] = 0; }, GiveMask},
      {"invalid argument: tree_mask.stride[0] is -1, must be at least 0",
       [](DecodeCall& c) { c.args.tree_mask.stride[0] = -1; }, GiveMask},
      {"invalid argument: tree_mask.data must not be null",
       [](DecodeCall& c) { c.args.tree_mask.data = nullptr; }, GiveMask},
      {"invalid argument: tree_mask.data must be aligned to 8",
       [](DecodeCall& c) { c.args.tree_mask.data = Shifted(c.args.tree_mask.data, 4); }, GiveMask},
      {"invalid argument: tree_mask must not be given where options.causal is false",
       [](DecodeCall& c) { c.options.causal = false; }, GiveMask},
  });
}

TEST_CASE("a run refuses another mask than the plan's", "[mla_decode][tree][validation]") {
  RequireRunRefuses({
      {"stale plan: plan must be made for these lengths, positions, windows, masks, page and list "
       "sizes",
       [](DecodeCall& c) { c.tree[2] = 2; }, GiveMask},
      {"stale plan: plan must be made for these lengths, positions, windows, masks, page and list "
       "sizes",
       [](DecodeCall& c) { c.args.tree_mask = {}; }, GiveMask},
      {"invalid argument: tree_mask must not overlap out",
       [](DecodeCall& c) {
         c.args.tree_mask.data = reinterpret_cast<const uint64_t*>(c.out.data());
       },
       GiveMask},
  });
}

}  // namespace
}  // namespace lathe::test
