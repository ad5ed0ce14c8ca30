// SPDX-License-Identifier: Apache-2.0
// An indexer's query rows and keys in adversarial memory: buffers end at unmapped pages, what no row may
// read is NaN or -1, and logits start as canaries.
#ifndef LATHE_TESTS_INDEXER_INDEXER_PROBLEM_H_
#define LATHE_TESTS_INDEXER_INDEXER_PROBLEM_H_

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "formats/format_pages.h"
#include "lathe/indexer_logits.h"
#include "lathe/latent_cache.h"
#include "lathe/ref/indexer_ref.h"
#include "support/latent_write.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/threads.h"

namespace lathe::test {

enum class QueryType { kFloat32, kFloat16, kBFloat16, kFp8 };

struct Slots {
  int64_t begin, end;
};

struct IndexerCase {
  CacheFormat format = CacheFormat::kIndexerFp8;
  int64_t heads = 64;
  int64_t width = 128;
  std::vector<int64_t> seq_lens = {100};  // tokens; ragged: one, the slots
  std::vector<int64_t> q_lens = {};       // query rows of each; empty: one each
  int64_t block_size = 64;
  QueryType query = QueryType::kBFloat16;
  int64_t compress_ratio = 1;
  // [begin, end) of each row, then it is ragged.
  std::vector<Slots> ranges = {};
};

class IndexerProblem {
 public:
  explicit IndexerProblem(const IndexerCase& c, uint64_t seed = 1)
      : case_(c),
        num_tokens_(CountTokens(c)),
        pages(c.format, c.width, CountPages(c) + 1, c.block_size, 64, 0.5f),
        q(static_cast<size_t>(num_tokens_ * c.heads * c.width) * QueryBytes(c.query)),
        weights(static_cast<size_t>(num_tokens_ * c.heads)),
        block_table(IsRagged() ? 0 : c.seq_lens.size() * static_cast<size_t>(TableWidth())),
        seq_lens(IsRagged() ? 0 : c.seq_lens.size()),
        query_start_loc(c.q_lens.empty() ? 0 : c.q_lens.size() + 1),
        row_starts(c.ranges.size()),
        row_ends(c.ranges.size()),
        columns_(MostKeys() + 5),
        logits(static_cast<size_t>((num_tokens_ - 1) * LogitsStride() + columns_)),
        random_(seed) {
    FillQueries();
    FillIndices();
    FillKeys();
    IndexerInputs& in = args.inputs;
    in.weights = Packed(static_cast<const float*>(weights.data()), num_tokens_, c.heads);
    in.keys.cache = pages.cache;
    in.keys.compress_ratio = c.compress_ratio;
    args.logits = {logits.data(), {num_tokens_, columns_}, {LogitsStride(), 1}};
  }

  const IndexerCase& the_case() const { return case_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t columns() const { return columns_; }
  bool IsRagged() const { return !case_.ranges.empty(); }
  int64_t SlotOf(int64_t b, int64_t key) const {
    const int64_t page = key / case_.block_size, at = key % case_.block_size;
    return (IsRagged() ? page : args.inputs.keys.block_table(b, page)) * case_.block_size + at;
  }
  float& Logit(int64_t row, int64_t key) {
    return logits[static_cast<size_t>(row * LogitsStride() + key)];
  }
  void SetQuery(int64_t row, int64_t head, int64_t column, float x) {
    const auto at = static_cast<size_t>((row * case_.heads + head) * case_.width + column);
    std::byte* to = q.data() + at * QueryBytes(case_.query);
    switch (case_.query) {
      case QueryType::kFloat32:
        return StoreElement(DType::kFloat32, to, x);
      case QueryType::kFloat16:
        return StoreElement(DType::kFloat16, to, x);
      case QueryType::kBFloat16:
        return StoreElement(DType::kBFloat16, to, x);
      case QueryType::kFp8:
        *to = std::byte{FromFloat<float8_e4m3fn>(x).bits};
    }
  }

  Status TryRun(size_t num_workers = 1) {
    Sizes sizes;
    const Status sized = IndexerLogitsSizes({case_.heads, case_.width}, options,
                                            {0, num_tokens_, 0, num_workers}, &sizes);
    if (!sized.ok()) return sized;
    const size_t bytes = sizes.workspace_bytes;
    workspace = Guarded<std::byte>(bytes);
    return ComputeIndexerLogits(args, options, {workspace.data(), bytes},
                                num_workers == 1 ? Executor{} : ThreadExecutor(num_workers));
  }
  void Run(size_t num_workers = 1) {
    logits.Poison();
    const Status status = TryRun(num_workers);
    INFO(Format(status).c_str());
    REQUIRE(status.ok());
    REQUIRE(logits.IsFrontIntact());
    REQUIRE(workspace.IsFrontIntact());
  }

  std::vector<double> Reference() const { return ref::IndexerLogits(args.inputs, columns_); }

  // Logits within the bound, cells without logits untouched or -inf, gaps between rows untouched.
  void RequireMatches(const std::vector<double>& reference) {
    const Guarded<float> canary(1);
    const auto is_canary = [&canary](const float& x) {
      return std::memcmp(&x, canary.data(), sizeof(float)) == 0;
    };
    for (int64_t row = 0; row < num_tokens_; ++row) {
      INFO("row " << row);
      double product = 0.0, squares = 0.0, largest = 0.0;
      int64_t wrong_cells = 0, wrong_nans = 0;
      for (int64_t key = 0; key < columns_; ++key) {
        const double expected = reference[static_cast<size_t>(row * columns_ + key)];
        const float& got = Logit(row, key);
        if (expected == -ref::kInf) {
          wrong_cells += options.fill ? !(got == -HUGE_VALF) : !is_canary(got);
          continue;
        }
        if (is_canary(got)) ++wrong_cells;
        wrong_nans += std::isnan(expected) != std::isnan(got);
        if (!std::isfinite(expected) || !std::isfinite(got)) {
          if (!std::isnan(expected)) wrong_nans += static_cast<double>(got) != expected;
          continue;
        }
        product += expected * static_cast<double>(got);
        squares += expected * expected + static_cast<double>(got) * static_cast<double>(got);
        largest = std::max(largest, std::abs(expected));
      }
      REQUIRE(wrong_cells == 0);
      REQUIRE(wrong_nans == 0);
      if (squares > 0.0) REQUIRE(1.0 - 2.0 * product / squares <= 5e-6);
      if (options.precision == Precision::kBFloat16) continue;
      // Nothing is rounded but the sums.
      for (int64_t key = 0; key < columns_; ++key) {
        const double expected = reference[static_cast<size_t>(row * columns_ + key)];
        if (!std::isfinite(expected)) continue;
        const double error = std::abs(static_cast<double>(Logit(row, key)) - expected);
        if (!(error <= 1e-5 * largest)) {
          INFO("key " << key << ": " << Logit(row, key) << " instead of " << expected);
          REQUIRE(error <= 1e-5 * largest);
        }
      }
    }
    for (int64_t row = 0; row + 1 < num_tokens_; ++row) {
      for (int64_t gap = columns_; gap < LogitsStride(); ++gap) {
        REQUIRE(is_canary(Logit(row, gap)));
      }
    }
  }

  IndexerLogitsArgs args;
  IndexerLogitsOptions options;

 private:
  static int64_t CountTokens(const IndexerCase& c) {
    if (!c.ranges.empty()) return static_cast<int64_t>(c.ranges.size());
    if (c.q_lens.empty()) return static_cast<int64_t>(c.seq_lens.size());
    int64_t sum = 0;
    for (const int64_t n : c.q_lens) sum += n;
    return sum;
  }
  int64_t KeysOf(size_t b) const { return case_.seq_lens[b] / case_.compress_ratio; }
  static int64_t PagesFor(int64_t keys, int64_t block_size) {
    return (keys + block_size - 1) / block_size;
  }
  static int64_t CountPages(const IndexerCase& c) {
    int64_t sum = 0;
    for (const int64_t tokens : c.seq_lens)
      sum += PagesFor(tokens / c.compress_ratio, c.block_size);
    return sum;
  }
  int64_t MostKeys() const {
    int64_t most = 0;
    for (size_t b = 0; b < case_.seq_lens.size(); ++b) most = std::max(most, KeysOf(b));
    return most;
  }
  int64_t TableWidth() const { return PagesFor(MostKeys(), case_.block_size) + 1; }
  int64_t LogitsStride() const { return columns_ + 3; }
  static size_t QueryBytes(QueryType type) {
    return type == QueryType::kFloat32 ? 4 : type == QueryType::kFp8 ? 1 : 2;
  }

  void FillQueries() {
    const int64_t extents[3] = {num_tokens_, case_.heads, case_.width};
    for (int64_t t = 0; t < num_tokens_; ++t) {
      for (int64_t h = 0; h < case_.heads; ++h) {
        weights[static_cast<size_t>(t * case_.heads + h)] = random_.Normal();
        for (int64_t c = 0; c < case_.width; ++c) SetQuery(t, h, c, random_.Normal());
      }
    }
    if (case_.query == QueryType::kFp8) {
      args.inputs.q_fp8 = Packed(reinterpret_cast<const float8_e4m3fn*>(q.data()), extents[0],
                                 extents[1], extents[2]);
      return;
    }
    In<3>& view = args.inputs.q;
    view.data = q.data();
    view.dtype = case_.query == QueryType::kFloat32   ? DType::kFloat32
                 : case_.query == QueryType::kFloat16 ? DType::kFloat16
                                                      : DType::kBFloat16;
    for (size_t i = 0; i < 3; ++i) view.extent[i] = extents[i];
    view.stride[2] = 1;
    view.stride[1] = extents[2];
    view.stride[0] = extents[1] * extents[2];
  }

  void FillIndices() {
    IndexerInputs& in = args.inputs;
    for (size_t t = 0; t < case_.ranges.size(); ++t) {
      row_starts[t] = case_.ranges[t].begin;
      row_ends[t] = case_.ranges[t].end;
    }
    if (IsRagged()) {
      in.keys.row_starts = Packed(row_starts.data(), row_starts.size());
      in.keys.row_kv_lens = Packed(row_ends.data(), row_ends.size());
      return;
    }
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < pages.cache.num_blocks; ++i) ids.push_back(static_cast<int32_t>(i));
    random_.Shuffle(ids);
    size_t next = 0;
    for (size_t b = 0; b < case_.seq_lens.size(); ++b) {
      seq_lens[b] = static_cast<int32_t>(case_.seq_lens[b]);
      for (int64_t page = 0; page < PagesFor(KeysOf(b), case_.block_size); ++page) {
        block_table[b * static_cast<size_t>(TableWidth()) + static_cast<size_t>(page)] =
            ids[next++];
      }
    }
    if (!case_.q_lens.empty()) {
      query_start_loc[0] = 0;
      for (size_t b = 0; b < case_.q_lens.size(); ++b) {
        query_start_loc[b + 1] = query_start_loc[b] + case_.q_lens[b];
      }
      in.query_start_loc = Packed(query_start_loc.data(), query_start_loc.size());
    }
    in.keys.seq_lens = Packed(seq_lens.data(), seq_lens.size());
    in.keys.block_table = Packed(block_table.data(), seq_lens.size(), TableWidth());
  }

  void FillKeys() {
    std::vector<float> keys;
    std::vector<int64_t> slots;
    for (size_t b = 0; b < case_.seq_lens.size(); ++b) {
      for (int64_t key = 0; key < KeysOf(b); ++key) {
        slots.push_back(SlotOf(static_cast<int64_t>(b), key));
        for (int64_t c = 0; c < case_.width; ++c) keys.push_back(random_.Normal());
      }
    }
    LatentWriteArgs write;
    write.kv_c = Packed(static_cast<const float*>(keys.data()), slots.size(), case_.width);
    write.slot_mapping = Packed(slots.data(), slots.size());
    write.cache = pages.cache;
    const Status status = WriteLatentCache(write);
    INFO(Format(status).c_str());
    REQUIRE(status.ok());
  }

  IndexerCase case_;
  int64_t num_tokens_;

 public:
  FormatPages pages;
  Guarded<std::byte> q;
  Guarded<float> weights;
  Guarded<int32_t> block_table, seq_lens;
  Guarded<int64_t> query_start_loc;
  Guarded<int64_t> row_starts, row_ends;

 private:
  int64_t columns_;

 public:
  Guarded<float> logits;
  Guarded<std::byte> workspace{0};

 private:
  Random random_;
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_INDEXER_INDEXER_PROBLEM_H_
