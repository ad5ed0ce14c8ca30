// SPDX-License-Identifier: Apache-2.0
// The references themselves, against numbers worked out by hand: what all other tests rest on.
#include "lathe/ref/attention_ref.h"

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

namespace lathe::test {
namespace {

bool Near(double value, double expected) { return std::abs(value - expected) <= 1e-6; }

// One head of 2 value columns and no rope; key p is (a[p], b[p]), query (1, 0), scale 1: the score
// is a[p] and out[1] the weighted mean of b. Pages of 2 keys, page p/2 at place 3 - p/2.
struct Small {
  MlaShape shape{1, 2, 0};
  MlaDecodeOptions options;
  MlaDecodeArgs args;
  std::vector<float> cache, q, out;
  std::vector<int32_t> block_table{3, 2, 1, 0}, seq_lens, query_start_loc;

  Small(const std::vector<float>& a, const std::vector<float>& b, int32_t num_queries = 1)
      : cache(16, 1e30f), q(static_cast<size_t>(2 * num_queries)), out(q.size()) {
    for (size_t p = 0; p < a.size(); ++p) {
      const size_t at = static_cast<size_t>(block_table[p / 2]) * 4 + p % 2 * 2;
      cache[at] = a[p];
      cache[at + 1] = b[p];
    }
    for (size_t i = 0; i < q.size(); i += 2) q[i] = 1;
    seq_lens = {static_cast<int32_t>(a.size())};
    query_start_loc = {0, num_queries};
    options.softmax_scale = 1;
    args.q = Packed(q.data(), num_queries, 1, 2);
    args.out = Packed(out.data(), num_queries, 1, 2);
    args.query_start_loc = Packed(query_start_loc.data(), 2);
    args.keys.cache = LatentPages(static_cast<const float*>(cache.data()), 4, 2, 2);
    args.keys.block_table = Packed(block_table.data(), 1, 4);
    args.keys.seq_lens = Packed(seq_lens.data(), 1);
  }
  ref::AttentionResult Run() const { return ref::MlaDecode(shape, options, args); }
};

TEST_CASE("the reference averages values by softmax of scaled scores", "[ref]") {
  // exp(0), exp(ln 3): weights 1/4 and 3/4.
  Small problem({0, 1.0986123f}, {2, 6});
  ref::AttentionResult result = problem.Run();
  REQUIRE(Near(result.out[0], 0.75 * 1.0986123));
  REQUIRE(Near(result.out[1], 5.0));
  REQUIRE(Near(result.lse[0], 1.3862944));  // ln 4
  problem.options.softmax_scale = 2;        // weights 1/10 and 9/10
  result = problem.Run();
  REQUIRE(Near(result.out[1], 5.6));
  REQUIRE(Near(result.lse[0], 2.3025851));
  problem.q[0] = -1;  // 9/10 and 1/10
  REQUIRE(Near(problem.Run().out[1], 2.4));
}

TEST_CASE("A1: the reference takes the mean of equal scores", "[ref][A1]") {
  const ref::AttentionResult result = Small({0, 0, 0, 0, 0}, {1, 2, 3, 4, 5}).Run();
  REQUIRE(Near(result.out[1], 3.0));
  REQUIRE(Near(result.lse[0], 1.609438));
}

TEST_CASE("A17: reference queries see keys up to their own place", "[ref][A17]") {
  Small problem({0, 0, 0, 0, 0}, {1, 2, 3, 4, 5}, 3);
  ref::AttentionResult result = problem.Run();
  REQUIRE((Near(result.out[1], 2.0) && Near(result.out[3], 2.5) && Near(result.out[5], 3.0)));
  REQUIRE((Near(result.lse[0], 1.098612) && Near(result.lse[1], 1.386294)));
  REQUIRE(Near(result.lse[2], 1.609438));
  problem.options.causal = false;
  result = problem.Run();
  for (const size_t i : {1u, 3u, 5u}) REQUIRE(Near(result.out[i], 3.0));
  // More queries than keys: the first see nothing.
  problem.options.causal = true;
  problem.seq_lens[0] = 2;
  result = problem.Run();
  REQUIRE((result.out[1] == 0.0 && result.lse[0] == -ref::kInf));
  REQUIRE((Near(result.out[3], 1.0) && Near(result.out[5], 1.5)));
}

TEST_CASE("A18: a reference window counts the query's own key", "[ref][A18]") {
  Small problem({0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 5});
  problem.args.keys.window = 3;
  ref::AttentionResult result = problem.Run();
  REQUIRE((Near(result.out[1], 4.0) && Near(result.lse[0], 1.098612)));
  problem.args.keys.window = 1;
  result = problem.Run();
  REQUIRE((Near(result.out[1], 5.0) && Near(result.lse[0], 0.0)));
  problem.args.keys.window = 6;
  REQUIRE(Near(problem.Run().out[1], 2.5));
}

TEST_CASE("reference row lengths replace causality and are clamped", "[ref]") {
  Small problem({0, 0, 0, 0, 0}, {1, 2, 3, 4, 5}, 3);
  std::vector<int32_t> lens{-4, 99, 2};
  problem.args.keys.row_kv_lens = Packed(lens.data(), 3);
  ref::AttentionResult result = problem.Run();
  REQUIRE((result.out[1] == 0.0 && result.lse[0] == -ref::kInf));
  REQUIRE((Near(result.out[3], 3.0) && Near(result.out[5], 1.5)));
  problem.args.keys.window = 1;
  result = problem.Run();
  REQUIRE((Near(result.out[3], 5.0) && Near(result.out[5], 2.0)));
}

TEST_CASE("A19: a reference sink takes its share of the output only", "[ref][A19]") {
  Small problem({0, 0, 0, 0}, {1, 1, 1, 1});
  float sink = 0;
  problem.args.attn_sink = Packed(static_cast<const float*>(&sink), 1);
  const ref::AttentionResult result = problem.Run();
  REQUIRE((Near(result.out[1], 0.8) && Near(result.lse[0], 1.386294)));
  sink = -std::numeric_limits<float>::infinity();
  REQUIRE(Near(problem.Run().out[1], 1.0));
  sink = std::numeric_limits<float>::infinity();
  REQUIRE(Near(problem.Run().out[1], 0.0));
  sink = 1.3862944f;  // as much as all keys together
  REQUIRE(Near(problem.Run().out[1], 0.5));
  problem.seq_lens[0] = 0;
  REQUIRE((problem.Run().out[1] == 0.0 && problem.Run().lse[0] == -ref::kInf));
}

TEST_CASE("A3: reference lists skip holes and count repeats", "[ref][A3]") {
  Small problem({0, 0, 0, 0, 0, 0}, {10, 20, 30, 40, 50, 60});
  std::vector<int32_t> list{-1, 5, 6, 1, 1, 0};
  problem.args.keys.indices = Packed(list.data(), 1, 6);
  // Positions 5, 1, 1, 0: 6 is past the end.
  ref::AttentionResult result = problem.Run();
  REQUIRE((Near(result.out[1], (60 + 20 + 20 + 10) / 4.0) && Near(result.lse[0], 1.386294)));
  int32_t length = 4;
  problem.args.keys.topk_length = Packed(&length, 1);
  REQUIRE(Near(problem.Run().out[1], 40.0));  // 5 and 1
  length = 1;
  REQUIRE((problem.Run().out[1] == 0.0 && problem.Run().lse[0] == -ref::kInf));
  // Slots of the cache: position p lies in page 3 - p/2. 6 is position 0, 1 position 7: unwritten.
  problem.args.keys.index_space = IndexSpace::kPhysical;
  problem.args.keys.topk_length = {};
  list = {7, -1, 8, 6, 2, 2};
  result = problem.Run();
  REQUIRE((Near(result.out[1], (20 + 10 + 50 + 50) / 4.0) && Near(result.lse[0], 1.386294)));
}

TEST_CASE("a reference query in two parts is the same query", "[ref]") {
  // Scores 2 * a + 3 * rope column, with value width 1 and rope width 1.
  Small problem({0.5f, 0.25f}, {0, 0.25f});
  problem.shape = {1, 1, 1};
  const float nope = 2, pe = 3;
  problem.args.q = {};
  problem.args.q_nope = Packed(&nope, 1, 1, 1);
  problem.args.q_pe = Packed(&pe, 1, 1, 1);
  problem.args.out.extent[2] = 1;
  const double w0 = std::exp(1.0), w1 = std::exp(1.25);
  const ref::AttentionResult result = problem.Run();
  REQUIRE(result.out.size() == 1);
  REQUIRE(Near(result.out[0], (0.5 * w0 + 0.25 * w1) / (w0 + w1)));
  REQUIRE(Near(result.lse[0], std::log(w0 + w1)));
}

TEST_CASE("A23: the reference survives large scores", "[ref][A23]") {
  const ref::AttentionResult result = Small({2000, 0, -2000, 2000}, {7, 1, 1, 9}).Run();
  REQUIRE((Near(result.out[1], 8.0) && Near(result.lse[0], 2000.693147)));
}

TEST_CASE("NaN in a live key reaches the reference's row", "[ref]") {
  const ref::AttentionResult result = Small({NAN, 0}, {1, 1}).Run();
  REQUIRE((std::isnan(result.out[1]) && std::isnan(result.lse[0])));
}

struct Pair {
  float out[2][2];
  float lse[2];
  MergePart parts[2];
  float merged[2] = {};
  MergeStatesArgs args;

  Pair(float lse0, float lse1) : out{{0, 4}, {1, 8}}, lse{lse0, lse1} {
    for (size_t i = 0; i < 2; ++i) {
      parts[i].out = Packed(static_cast<const float*>(out[i]), 1, 1, 2);
      parts[i].lse = Packed(static_cast<const float*>(&lse[i]), 1, 1);
    }
    args.parts = parts;
    args.num_parts = 2;
    args.out = Packed(merged, 1, 1, 2);
  }
};

TEST_CASE("A8: the reference merge weighs parts by exp(lse)", "[ref][A8]") {
  Pair pair(0.69314718f, 2.0794415f);  // 2 and 8 keys
  ref::AttentionResult result = ref::MergeStates(pair.args);
  REQUIRE((Near(result.out[0], 0.8) && Near(result.out[1], 7.2)));
  REQUIRE(Near(result.lse[0], 2.302585));
  pair.lse[1] = 3;  // of 2: the same 8 keys
  pair.parts[1].lse_policy.base2 = true;
  result = ref::MergeStates(pair.args);
  REQUIRE((Near(result.out[0], 0.8) && Near(result.lse[0], 2.302585)));
  const float sink = 2.302585f;  // as much as both together
  pair.args.attn_sink = Packed(&sink, 1);
  result = ref::MergeStates(pair.args);
  REQUIRE((Near(result.out[1], 3.6) && Near(result.lse[0], 2.302585)));
}

TEST_CASE("A7: the reference merge leaves empty parts out", "[ref][A7]") {
  Pair pair(1.5f, -std::numeric_limits<float>::infinity());
  pair.out[1][0] = NAN;
  ref::AttentionResult result = ref::MergeStates(pair.args);
  REQUIRE((result.out[0] == 0.0 && Near(result.out[1], 4.0) && Near(result.lse[0], 1.5)));
  pair.lse[1] = std::numeric_limits<float>::infinity();
  pair.parts[1].lse_policy.empty = pair.lse[1];
  result = ref::MergeStates(pair.args);
  REQUIRE((result.out[0] == 0.0 && Near(result.out[1], 4.0) && Near(result.lse[0], 1.5)));
  pair.lse[0] = -std::numeric_limits<float>::infinity();
  result = ref::MergeStates(pair.args);
  REQUIRE((result.out[0] == 0.0 && result.out[1] == 0.0 && result.lse[0] == -ref::kInf));
}

TEST_CASE("the reference reads rows of every type and any stride", "[ref]") {
  const float16 halves[] = {FromFloat<float16>(0.5f), FromFloat<float16>(1.5f)};
  const bfloat16 brains[] = {FromFloat<bfloat16>(2.0f), FromFloat<bfloat16>(-3.0f)};
  const float floats[] = {0, 1, 2, 3, 4, 5, 6, 7};
  REQUIRE(ref::At(In<3>(Packed(halves, 1, 1, 2)), 0, 0, 1) == 1.5);
  REQUIRE(ref::At(In<3>(Packed(brains, 1, 2, 1)), 0, 1, 0) == -3.0);
  REQUIRE(ref::At(In<3>(View<const float, 3>{floats, {2, 2, 2}, {1, 4, 2}}), 1, 1, 1) == 7.0);
  REQUIRE(ref::At(In<3>(View<const float, 3>{floats, {2, 2, 2}, {1, 4, 2}}), 1, 0, 1) == 3.0);
}

}  // namespace
}  // namespace lathe::test
