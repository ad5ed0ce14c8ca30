// SPDX-License-Identifier: Apache-2.0
// Offsets past 2^31 and 2^32 elements, in address space without memory: of pages found by index lists and by an
// indexer, and of rows of queries, scores and lists that lie far apart. Writing, dense decode and gathering
// have theirs in latent_cache/, mla_decode/ and gather/.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "lathe/lathe.h"
#include "support/memory.h"
#include "support/require_ok.h"
#include "support/run_decode.h"
#include "support/sizes.h"
#include "support/targets.h"

namespace lathe::test {
namespace {

constexpr int64_t kWidth = 576, kRank = 512, kBlockSize = 64;
constexpr int64_t kPageElements = kWidth * kBlockSize;
// The last pages below 2^31 and 2^32 elements, and those after them.
constexpr int64_t kFarPages[] = {58253, 58254, 116508, 116509};
constexpr int64_t kNumBlocks = 116510;
// Rows further apart than 2^32 bytes, and, two of them, than 2^32 elements.
constexpr int64_t kRowStride = (int64_t{1} << 31) + 64;

TEST_CASE("A5: index lists reach pages past 2^31 and 2^32 elements",
          "[reliability][mla_decode][A5]") {
  const Target target = LATHE_GENERATE_TARGET();
  const bool is_physical = GENERATE(true, false);
  CAPTURE(Name(target), is_physical);
  SparseMemory memory(static_cast<size_t>(kNumBlocks * kPageElements) * sizeof(bfloat16));
  auto* cache = reinterpret_cast<bfloat16*>(memory.data());
  std::vector<int64_t> slots;
  std::vector<int32_t> table;
  double sum = 0;
  for (size_t i = 0; i < 4; ++i) {
    const int64_t slot = kFarPages[i] * kBlockSize + 63 - static_cast<int64_t>(i);
    cache[slot * kWidth + 1] = FromFloat<bfloat16>(static_cast<float>(i + 1));
    sum += static_cast<double>(i + 1);
    slots.push_back(is_physical ? slot : static_cast<int64_t>(i) * kBlockSize + slot % kBlockSize);
    table.push_back(static_cast<int32_t>(kFarPages[i]));
  }
  const std::vector<float> q(kWidth, 0.0f);
  std::vector<float> out(kRank);
  float lse = 0;
  const int32_t seq_lens[] = {4 * kBlockSize};
  MlaShape shape;
  shape.num_heads = 1;
  MlaDecodeOptions options;
  options.softmax_scale = 1.0f;
  options.target = target;
  MlaDecodeArgs args;
  args.q = Packed(q.data(), 1, 1, kWidth);
  args.keys.cache =
      LatentPages(static_cast<const bfloat16*>(cache), kNumBlocks, kBlockSize, kWidth);
  args.keys.block_table = Packed(static_cast<const int32_t*>(table.data()), 1, 4);
  args.keys.seq_lens = Packed(seq_lens, 1);
  args.keys.indices = Packed(static_cast<const int64_t*>(slots.data()), 1, 4);
  args.keys.index_space = is_physical ? IndexSpace::kPhysical : IndexSpace::kLogical;
  args.out = Packed(out.data(), 1, 1, kRank);
  args.lse = Packed(&lse, 1, 1);
  RunDecode(shape, options, args);
  REQUIRE(static_cast<double>(out[1]) == sum / 4);
}

TEST_CASE("A5: rows of queries and results past 2^31 and 2^32 elements",
          "[reliability][mla_decode][A5]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  constexpr int64_t kRows = 3, kDim = 64;
  SparseMemory q_memory(static_cast<size_t>(kRows * kRowStride) * sizeof(float));
  SparseMemory out_memory(static_cast<size_t>(kRows * kRowStride) * sizeof(float));
  auto* q = reinterpret_cast<float*>(q_memory.data());
  auto* out = reinterpret_cast<float*>(out_memory.data());
  // Two keys; row t takes log(t + 1) more of the second one.
  std::vector<float> cache(2 * kDim, 0.0f);
  cache[kDim] = 1.0f;
  cache[kDim + 1] = 1.0f;
  const float logs[kRows] = {0.0f, 0.6931472f, 1.0986123f};
  for (int64_t t = 0; t < kRows; ++t) q[t * kRowStride] = logs[t];
  const int32_t table[kRows] = {}, seq_lens[kRows] = {2, 2, 2};
  MlaShape shape{1, kDim, 0};
  MlaDecodeOptions options;
  options.softmax_scale = 1.0f;
  options.target = target;
  MlaDecodeArgs args;
  args.q = View<const float, 3>{q, {kRows, 1, kDim}, {kRowStride, kDim, 1}};
  args.keys.cache = LatentPages(static_cast<const float*>(cache.data()), 1, 2, kDim);
  args.keys.block_table = Packed(table, kRows, 1);
  args.keys.seq_lens = Packed(seq_lens, kRows);
  args.out = View<float, 3>{out, {kRows, 1, kDim}, {kRowStride, kDim, 1}};
  RunDecode(shape, options, args);
  for (int64_t t = 0; t < kRows; ++t) {
    const double expected = static_cast<double>(t + 1) / static_cast<double>(t + 2);
    CAPTURE(t);
    REQUIRE(std::abs(static_cast<double>(out[t * kRowStride + 1]) - expected) < 1e-5);
  }
}

TEST_CASE("A5: an indexer's keys and logits past 2^31 and 2^32 elements",
          "[reliability][indexer][A5]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  constexpr int64_t kRows = 3, kKeys = 4, kDim = 128;
  constexpr int64_t kPage = kBlockSize * kDim, kBlocks = (int64_t{1} << 32) / kPage + 2;
  constexpr int64_t kPages[kKeys] = {kBlocks / 2 - 2, kBlocks / 2, kBlocks - 3, kBlocks - 1};
  SparseMemory memory(static_cast<size_t>(kBlocks * kPage) * sizeof(bfloat16));
  SparseMemory logits_memory(static_cast<size_t>(kRows * kRowStride) * sizeof(float));
  auto* cache = reinterpret_cast<bfloat16*>(memory.data());
  auto* logits = reinterpret_cast<float*>(logits_memory.data());
  for (int64_t s = 0; s < kKeys; ++s) {
    for (int64_t t = 0; t < kBlockSize; ++t) {
      cache[kPages[s] * kPage + t * kDim] = FromFloat<bfloat16>(static_cast<float>(s + 1));
    }
  }
  std::vector<int32_t> tables;
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t s = 0; s < kKeys; ++s) tables.push_back(static_cast<int32_t>(kPages[s]));
  }
  std::vector<float> q(kRows * kDim, 0.0f);
  for (int64_t t = 0; t < kRows; ++t) q[static_cast<size_t>(t * kDim)] = static_cast<float>(t + 1);
  const float weights[kRows] = {1, 1, 1};
  const int32_t seq_lens[kRows] = {256, 256, 256};
  IndexerLogitsArgs args;
  args.inputs.q = Packed(static_cast<const float*>(q.data()), kRows, 1, kDim);
  args.inputs.weights = Packed(weights, kRows, 1);
  args.inputs.keys.cache =
      LatentPages(static_cast<const bfloat16*>(cache), kBlocks, kBlockSize, kDim);
  args.inputs.keys.block_table = Packed(static_cast<const int32_t*>(tables.data()), kRows, kKeys);
  args.inputs.keys.seq_lens = Packed(seq_lens, kRows);
  args.logits = {logits, {kRows, 256}, {kRowStride, 1}};
  IndexerLogitsOptions options;
  options.target = target;
  const size_t bytes =
      WorkspaceFor(IndexerLogitsSizes, IndexerShape{1, kDim}, options, Limits{0, kRows, 0, 1});
  std::vector<std::byte> workspace(bytes);
  RequireOk(ComputeIndexerLogits(args, options, {workspace.data(), bytes}));
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t s = 0; s < 256; ++s) {
      const auto expected = static_cast<float>((t + 1) * (s / kBlockSize + 1));
      if (logits[t * kRowStride + s] != expected) REQUIRE(logits[t * kRowStride + s] == expected);
    }
  }
}

TEST_CASE("A5: rows of scores and lists past 2^31 and 2^32 elements", "[reliability][topk][A5]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  constexpr int64_t kRows = 3, kColumns = 300, kBest = 7;
  SparseMemory scores_memory(static_cast<size_t>(kRows * kRowStride) * sizeof(float));
  SparseMemory lists_memory(static_cast<size_t>(kRows * kRowStride) * sizeof(int32_t));
  auto* scores = reinterpret_cast<float*>(scores_memory.data());
  auto* lists = reinterpret_cast<int32_t*>(lists_memory.data());
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t i = 0; i < kBest; ++i) scores[t * kRowStride + 40 * i + t] = 1.0f;
  }
  TopkArgs args;
  args.logits = {scores, {kRows, kColumns}, {kRowStride, 1}};
  args.indices = View<int32_t, 2>{lists, {kRows, kBest}, {kRowStride, 1}};
  TopkOptions options;
  options.k = kBest;
  options.target = target;
  const size_t bytes = TopkWorkspaceFor(kColumns, kBest);
  std::vector<std::byte> workspace(bytes);
  RequireOk(SelectTopk(args, options, {workspace.data(), bytes}));
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t i = 0; i < kBest; ++i) {
      CAPTURE(t, i);
      REQUIRE(lists[t * kRowStride + i] == 40 * i + t);
    }
  }
}

}  // namespace
}  // namespace lathe::test
