// SPDX-License-Identifier: Apache-2.0
// A decode step in adversarial memory: everything that must not be read is NaN or garbage, every buffer
// ends at a guard page, pages lie in shuffled order.
#ifndef LATHE_TESTS_SUPPORT_MLA_PROBLEM_H_
#define LATHE_TESTS_SUPPORT_MLA_PROBLEM_H_

#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include "lathe/lathe.h"
#include "lathe/ref/attention_ref.h"
#include "support/memory.h"
#include "support/targets.h"
#include "support/tolerance.h"

namespace lathe::test {

// What varies. Fields left alone give one query row for each sequence, dense, no sink.
struct MlaCase {
  MlaShape shape{16, 512, 64};
  std::vector<int64_t> seq_lens{100};
  std::vector<int64_t> q_lens{};  // empty: 1 each
  int64_t block_size = 64;
  uint32_t seed = 1;
  float score_spread = 1.0f;  // standard deviation of queries; larger is peakier
};

// T = element of query and cache, O = element of out.
template <class T, class O = float>
class MlaProblem {
 public:
  explicit MlaProblem(const MlaCase& c) : c_(c), random_(c.seed) {
    if (c_.q_lens.empty()) c_.q_lens.assign(c_.seq_lens.size(), 1);
    std::vector<int32_t> starts{0};
    for (const int64_t q_len : c_.q_lens) starts.push_back(starts.back() + static_cast<int32_t>(q_len));
    num_tokens_ = starts.back();
    query_start_loc = Guarded<int32_t>(starts);
    seq_lens = Guarded<int32_t>(std::vector<int32_t>(c_.seq_lens.begin(), c_.seq_lens.end()));
    FillCache();
    const auto rows = static_cast<size_t>(num_tokens_ * c_.shape.num_heads);
    q = Guarded<T>(rows * static_cast<size_t>(width()));
    for (T& x : q) x = FromFloat<T>(Normal() * c_.score_spread);
    out = Guarded<O>(rows * static_cast<size_t>(c_.shape.kv_lora_rank));
    lse = Guarded<float>(rows);
    options.softmax_scale = 1.0f / std::sqrt(192.0f);

    args.q = Packed(q.data(), num_tokens_, c_.shape.num_heads, width());
    args.query_start_loc = Packed(query_start_loc.data(), starts.size());
    args.keys.cache = LatentPages(static_cast<const T*>(cache.data()), num_blocks_, c_.block_size, width());
    args.keys.block_table = Packed(block_table.data(), c_.seq_lens.size(), table_columns_);
    args.keys.seq_lens = Packed(seq_lens.data(), c_.seq_lens.size());
    args.out = Packed(out.data(), num_tokens_, c_.shape.num_heads, c_.shape.kv_lora_rank);
    args.lse = Packed(lse.data(), num_tokens_, c_.shape.num_heads);
  }

  int64_t width() const { return c_.shape.head_dim(); }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_blocks() const { return num_blocks_; }
  const MlaCase& the_case() const { return c_; }
  float Normal() { return normal_(random_); }

  // The cache row of a position, to write known keys into.
  T* Row(int64_t seq, int64_t position) {
    const auto page = static_cast<size_t>(seq * table_columns_ + position / c_.block_size);
    return cache.data() +
           (block_table[page] * c_.block_size + position % c_.block_size) * width();
  }
  // Row(a, b) of CASES.md: a in column 0, b in column 1, 0 elsewhere.
  void SetRow(int64_t seq, int64_t position, float a, float b) {
    T* row = Row(seq, position);
    for (int64_t i = 0; i < width(); ++i) row[i] = FromFloat<T>(0.0f);
    row[0] = FromFloat<T>(a);
    row[1] = FromFloat<T>(b);
  }
  // Q(s) of CASES.md for every query row; scale 1.
  void SetQuery(float s) {
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = FromFloat<T>(i % static_cast<size_t>(width()) == 0 ? s : 0.0f);
    }
    options.softmax_scale = 1.0f;
  }

  // Plans and runs on `num_workers` workers with exactly the memory that Sizes asks for, at guard pages.
  Status TryRun(size_t num_workers = 1, const Executor& executor = {}) {
    MlaDecodeLimits limits;
    limits.max_num_seqs = std::max<int64_t>(1, args.query_start_loc.empty()
                                                   ? num_tokens_
                                                   : args.query_start_loc.extent[0] - 1);
    limits.max_num_tokens = std::max<int64_t>(1, args.out.extent[0]);
    limits.max_seq_len = 1;
    for (const int32_t len : seq_lens) limits.max_seq_len = std::max<int64_t>(limits.max_seq_len, len);
    if (args.keys.has_indices()) {
      limits.max_seq_len = std::max(limits.max_seq_len, args.keys.indices.extent[1]);
    }
    limits.num_workers = num_workers;
    Sizes sizes;
    if (const Status s = MlaDecodeSizes(c_.shape, options, limits, &sizes); !s.ok()) return s;
    Guarded<std::byte> plan_memory(sizes.plan_bytes);
    const MlaDecodePlan* plan = nullptr;
    if (const Status s = PlanMlaDecode(c_.shape, options, args, num_workers,
                                       {plan_memory.data(), plan_memory.size()}, &plan);
        !s.ok()) {
      return s;
    }
    REQUIRE(PlanWorkspaceBytes(*plan) <= sizes.workspace_bytes);
    Guarded<std::byte> workspace(PlanWorkspaceBytes(*plan));
    return RunMlaDecode(*plan, args, {workspace.data(), workspace.size()}, executor);
  }
  void Run(size_t num_workers = 1, const Executor& executor = {}) {
    const Status status = TryRun(num_workers, executor);
    INFO(Format(status).c_str());
    REQUIRE(status.ok());
  }

  // bf16 products are expected exactly where SEMANTICS says they are used.
  Bounds bounds() const {
    const bool bf16_data = args.keys.cache.format == CacheFormat::kLatentBFloat16;
    const Target target = options.target == Target::kAuto ? BestTarget() : options.target;
    const bool wants = options.precision == Precision::kBFloat16 ||
                       (options.precision == Precision::kAuto && kDTypeOf<T> == DType::kBFloat16);
    return {bf16_data && wants && HasNativeBf16(target), kDTypeOf<O>};
  }
  void RequireMatchesReference() const {
    const ref::AttentionResult reference = ref::MlaDecode(c_.shape, options, args);
    RequireOut(out, reference.out, static_cast<size_t>(c_.shape.kv_lora_rank), bounds());
    if (!args.lse.empty()) RequireLse(lse, reference.lse, bounds());
    REQUIRE(out.IsFrontIntact());
    REQUIRE(lse.IsFrontIntact());
  }

  Guarded<T> q{0}, cache{0};
  Guarded<int32_t> block_table{0}, seq_lens{0}, query_start_loc{0};
  Guarded<O> out{0};
  Guarded<float> lse{0};
  MlaDecodeArgs args;
  MlaDecodeOptions options;

 private:
  // Shuffled pages with one unused page; rows past a length stay NaN, table entries past the last used
  // one are garbage.
  void FillCache() {
    const auto pages_of = [&](int64_t len) { return (len + c_.block_size - 1) / c_.block_size; };
    int64_t used = 0;
    for (const int64_t len : c_.seq_lens) {
      used += pages_of(len);
      table_columns_ = std::max(table_columns_, pages_of(len));
    }
    table_columns_ = std::max<int64_t>(table_columns_, 1);
    num_blocks_ = used + 1;
    std::vector<int32_t> order(static_cast<size_t>(num_blocks_));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    cache = Guarded<T>(static_cast<size_t>(num_blocks_ * c_.block_size * width()));
    block_table = Guarded<int32_t>(c_.seq_lens.size() * static_cast<size_t>(table_columns_));
    for (int32_t& entry : block_table) entry = 0x7FFFFFF0;
    size_t next = 0;
    for (size_t b = 0; b < c_.seq_lens.size(); ++b) {
      for (int64_t p = 0; p < pages_of(c_.seq_lens[b]); ++p) {
        block_table[b * static_cast<size_t>(table_columns_) + static_cast<size_t>(p)] = order[next++];
      }
      for (int64_t i = 0; i < c_.seq_lens[b]; ++i) {
        T* row = Row(static_cast<int64_t>(b), i);
        for (int64_t c = 0; c < width(); ++c) row[c] = FromFloat<T>(Normal());
      }
    }
  }

  MlaCase c_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_{0.0f, 1.0f};
  int64_t num_tokens_ = 0;
  int64_t num_blocks_ = 0;
  int64_t table_columns_ = 0;
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_MLA_PROBLEM_H_
