// SPDX-License-Identifier: Apache-2.0
// A DeepSeek-V3.2 indexer as an implementation that shares nothing with lathe computed it
// (golden/README.md).
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "lathe/lathe.h"
#include "lathe/ref/topk_ref.h"
#include "support/memory.h"
#include "support/npy.h"
#include "support/sizes.h"
#include "support/targets.h"

namespace lathe::test {
namespace {

constexpr int64_t kHeads = 64, kWidth = 128, kTokens = 301, kTopK = 64;
constexpr double kGoldenError = 2e-6;  // of the golden tensors themselves

template <class T>
std::vector<T> Load(const char* name) {
  return ReadNpy<T>(std::string(LATHE_GOLDEN_DIR "/dsa_v32/") + name + ".npy").values;
}

struct DsaV32 {
  std::vector<int32_t> rows = Load<int32_t>("rows"), topk = Load<int32_t>("topk");
  std::vector<float> q = Load<float>("index_q"), k = Load<float>("index_k");
  std::vector<float> w = Load<float>("index_w"), logits = Load<float>("index_logits");
  int64_t num_rows() const { return static_cast<int64_t>(rows.size()); }
};

// Logits of all keys (all_keys), or of those that rows see, -inf elsewhere; pages of T.
template <class T>
std::vector<float> Compute(const DsaV32& golden, Target target, bool all_keys) {
  const int64_t num_rows = golden.num_rows();
  std::vector<T> k, q;
  for (const float x : golden.k) k.push_back(FromFloat<T>(x));
  for (const float x : golden.q) q.push_back(FromFloat<T>(x));
  std::vector<int32_t> starts(golden.rows.size(), 0), ends;
  for (const int32_t row : golden.rows) ends.push_back(all_keys ? kTokens : row + 1);
  std::vector<float> logits(golden.logits.size());

  IndexerLogitsArgs args;
  args.inputs.q = Packed(static_cast<const T*>(q.data()), num_rows, kHeads, kWidth);
  args.inputs.weights = Packed(golden.w.data(), num_rows, kHeads);
  args.inputs.keys.cache = LatentPages(static_cast<const T*>(k.data()), 1, kTokens, kWidth);
  args.inputs.keys.row_starts = Packed(static_cast<const int32_t*>(starts.data()), num_rows);
  args.inputs.keys.row_kv_lens = Packed(static_cast<const int32_t*>(ends.data()), num_rows);
  args.logits = Packed(logits.data(), num_rows, kTokens);
  IndexerLogitsOptions options;
  options.target = target;
  options.fill = true;
  const size_t bytes = WorkspaceFor(IndexerLogitsSizes, IndexerShape{kHeads, kWidth}, options,
                                    Limits{0, num_rows, 0, 1});
  std::vector<std::byte> workspace(bytes);
  REQUIRE(ComputeIndexerLogits(args, options, {workspace.data(), bytes}).ok());
  return logits;
}

// 1 - 2 <x, y> / (|x|^2 + |y|^2) of one row.
double Difference(const DsaV32& golden, const std::vector<float>& logits, int64_t row) {
  double product = 0.0, squares = 0.0;
  for (auto i = static_cast<size_t>(row * kTokens); i < static_cast<size_t>((row + 1) * kTokens);
       ++i) {
    const double x = golden.logits[i], y = logits[i];
    product += x * y;
    squares += x * x + y * y;
  }
  return 1.0 - 2.0 * product / squares;
}

TEST_CASE("float32 keys give the golden logits", "[indexer][logits][golden]") {
  const DsaV32 golden;
  REQUIRE(golden.num_rows() == 7);
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  const std::vector<float> logits = Compute<float>(golden, target, true);
  for (int64_t row = 0; row < golden.num_rows(); ++row) {
    INFO("row " << row);
    REQUIRE(Difference(golden, logits, row) <= 1e-11);
    for (int64_t key = 0; key < kTokens; ++key) {
      const auto at = static_cast<size_t>(row * kTokens + key);
      const double expected = golden.logits[at];
      REQUIRE(std::abs(logits[at] - expected) <= 1e-5 * std::abs(expected) + kGoldenError);
    }
  }
}

TEST_CASE("bfloat16 keys give the golden logits but for their rounding",
          "[indexer][logits][golden]") {
  const DsaV32 golden;
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  const std::vector<float> logits = Compute<bfloat16>(golden, target, true);
  // Queries and keys are off by 2^-9 / sqrt(3) relative, in the mean and at random.
  for (int64_t row = 0; row < golden.num_rows(); ++row) {
    REQUIRE(Difference(golden, logits, row) <= 3e-5);
  }
}

TEST_CASE("the golden keys have the highest logits", "[indexer][logits][golden]") {
  const DsaV32 golden;
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  const std::vector<float> logits = Compute<float>(golden, target, false);
  for (int64_t row = 0; row < golden.num_rows(); ++row) {
    INFO("row " << row);
    const float* of_row = &logits[static_cast<size_t>(row * kTokens)];
    const int64_t visible = golden.rows[static_cast<size_t>(row)] + 1;
    for (int64_t key = visible; key < kTokens; ++key) REQUIRE(of_row[key] == -HUGE_VALF);
    std::vector<int32_t> keys(static_cast<size_t>(visible));
    std::iota(keys.begin(), keys.end(), 0);
    std::sort(keys.begin(), keys.end(),
              [of_row](int32_t a, int32_t b) { return ref::IsSelectedFirst(of_row, a, b); });
    keys.resize(static_cast<size_t>(std::min(visible, kTopK)));
    std::set<int32_t> expected;
    for (int64_t i = 0; i < kTopK; ++i) {
      const int32_t key = golden.topk[static_cast<size_t>(row * kTopK + i)];
      if (key >= 0) expected.insert(key);
    }
    REQUIRE(std::set<int32_t>(keys.begin(), keys.end()) == expected);
  }
}

}  // namespace
}  // namespace lathe::test
