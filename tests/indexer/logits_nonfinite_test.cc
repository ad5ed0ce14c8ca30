// SPDX-License-Identifier: Apache-2.0
// NaN and infinities stay in their rows and columns, and are not laundered there.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "indexer/indexer_problem.h"
#include "support/targets.h"

namespace lathe::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

IndexerCase SmallCase(int64_t heads, CacheFormat format) {
  IndexerCase c;
  c.format = format;
  c.heads = heads;
  c.seq_lens = {90};
  c.q_lens = {3};
  c.block_size = 16;
  return c;
}

void RequireSameElsewhere(IndexerProblem& problem, const std::vector<float>& clean, int64_t bad_row,
                          int64_t bad_key) {
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t key = 0; key < 88 + row; ++key) {
      INFO("row " << row << " key " << key);
      if (row == bad_row || key == bad_key) {
        REQUIRE(std::isnan(problem.Logit(row, key)));
      } else {
        const auto at = static_cast<size_t>(&problem.Logit(row, key) - problem.logits.data());
        REQUIRE(problem.Logit(row, key) == clean[at]);
      }
    }
  }
}

TEST_CASE("NaN of a query, a weight or a key stays in its row or column",
          "[indexer][logits][nonfinite]") {
  const int64_t heads = GENERATE(1, 3, 5, 16, 40, 64);
  const CacheFormat format = GENERATE(CacheFormat::kIndexerFp8, CacheFormat::kIndexerMxfp4,
                                      CacheFormat::kLatentFloat32, CacheFormat::kLatentBFloat16);
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target), heads, NameOf(format));
  IndexerProblem problem(SmallCase(heads, format));
  problem.options.target = target;
  problem.Run();
  const std::vector<float> clean = problem.logits.Copy();
  int64_t bad_row = -1, bad_key = -1;
  SECTION("query") {
    bad_row = 1;
    problem.SetQuery(1, heads - 1, 17, kNaN);
  }
  SECTION("weight, also of heads without a score above 0") {
    bad_row = 2;
    problem.weights[static_cast<size_t>(2 * heads)] = kNaN;
    for (int64_t column = 0; column < 128; ++column) problem.SetQuery(2, 0, column, 0.0f);
  }
  SECTION("key") {
    bad_key = 37;
    const int64_t slot = problem.SlotOf(0, bad_key);
    if (SideBytes(format) > 0) {
      std::memset(problem.pages.Side(slot), kPoison, static_cast<size_t>(SideBytes(format)));
    } else {
      std::memset(problem.pages.Record(slot) + 40, kPoison, 4);
    }
  }
  SECTION("code of a key") {
    if (format != CacheFormat::kIndexerFp8) return;
    bad_key = 1;
    problem.pages.Record(problem.SlotOf(0, bad_key))[127] = std::byte{0xFF};
  }
  problem.Run();
  RequireSameElsewhere(problem, clean, bad_row, bad_key);
}

// Heads that there are not have no part: their zeros times infinity would be NaN.
TEST_CASE("an infinite key has infinite logits", "[indexer][logits][nonfinite]") {
  const int64_t heads = GENERATE(1, 2, 3, 5, 9, 17, 33);
  const CacheFormat format = GENERATE(CacheFormat::kLatentFloat32, CacheFormat::kLatentBFloat16);
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target), heads, NameOf(format));
  IndexerProblem problem(SmallCase(heads, format));
  problem.options.target = target;
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t h = 0; h < heads; ++h) {
      problem.SetQuery(row, h, 5, h % 2 == 0 ? 1.0f : -1.0f);
      problem.weights[static_cast<size_t>(row * heads + h)] = 0.5f;
    }
  }
  const DType dtype = format == CacheFormat::kLatentFloat32 ? DType::kFloat32 : DType::kBFloat16;
  StoreElement(
      dtype, problem.pages.Record(problem.SlotOf(0, 50)) + 5 * static_cast<int64_t>(SizeOf(dtype)),
      kInf);
  problem.Run();
  for (int64_t row = 0; row < 3; ++row) REQUIRE(problem.Logit(row, 50) == kInf);
  problem.RequireMatches(problem.Reference());
}

TEST_CASE("a key that no head scores above 0 has the logit 0", "[indexer][logits][nonfinite]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  IndexerProblem problem(SmallCase(5, CacheFormat::kIndexerFp8));
  problem.options.target = target;
  for (int64_t h = 0; h < 5; ++h) {
    for (int64_t column = 0; column < 128; ++column) {
      problem.SetQuery(0, h, column, -1.0f);
      problem.pages.Record(problem.SlotOf(0, 7))[column] = std::byte{0x38};  // 1
    }
  }
  problem.Run();
  REQUIRE(problem.Logit(0, 7) == 0.0f);
}

}  // namespace
}  // namespace lathe::test
