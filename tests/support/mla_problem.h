// SPDX-License-Identifier: Apache-2.0
// A decode step in adversarial memory: everything that must not be read is NaN or garbage, every
// buffer ends at a guard page, pages lie in shuffled order.
#ifndef LATHE_TESTS_SUPPORT_MLA_PROBLEM_H_
#define LATHE_TESTS_SUPPORT_MLA_PROBLEM_H_

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "lathe/lathe.h"
#include "lathe/ref/attention_ref.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/require_ok.h"
#include "support/targets.h"
#include "support/threads.h"
#include "support/tolerance.h"

namespace lathe::test {

// Added to every score by way of the last rope column. It keeps the lse of short rows away from 0,
// where no float32 sum of scores' terms can be within a bound relative to the result.
constexpr float kScoreShift = 8.0f;

// What varies. Fields left alone give one query row for each sequence, dense, no sink. What keys
// and queries hold depends on the seeds alone: not on page size, layout or the other sequences, and
// the first heads of many are those of few.
struct MlaCase {
  MlaShape shape{16, 512, 64};
  std::vector<int64_t> seq_lens{100};
  std::vector<int64_t> q_lens{};  // empty: 1 each
  int64_t block_size = 64;
  uint32_t seed = 1;
  float score_spread = 1.0f;               // standard deviation of queries; larger is peakier
  std::vector<uint64_t> sequence_seeds{};  // empty: made from `seed`

  // Where records lie, in elements. Interleaved pages: slot 0 of all pages, then slot 1 of all, ...
  int64_t row_gap = 0;
  int64_t page_gap = 0;
  bool interleaves_pages = false;
  int64_t spare_pages = 1;  // that belong to no sequence
  int64_t min_table_columns = 1;
};

// What a call wrote.
template <class O>
struct MlaResult {
  std::vector<O> out;
  std::vector<float> lse;
};

template <class O>
bool SameBits(const MlaResult<O>& a, const MlaResult<O>& b) {
  return SameBits(a.out, b.out) && SameBits(a.lse, b.lse);
}

// T = element of query and cache, O = element of out.
template <class T, class O = float>
class MlaProblem {
 public:
  explicit MlaProblem(const MlaCase& c) : c_(c), random_(c.seed) {
    if (c_.q_lens.empty()) c_.q_lens.assign(c_.seq_lens.size(), 1);
    for (size_t b = c_.sequence_seeds.size(); b < c_.seq_lens.size(); ++b) {
      c_.sequence_seeds.push_back(c_.seed * uint64_t{100000} + b);
    }
    std::vector<int32_t> starts{0};
    for (const int64_t q_len : c_.q_lens) {
      starts.push_back(starts.back() + static_cast<int32_t>(q_len));
    }
    num_tokens_ = starts.back();
    query_start_loc = Guarded<int32_t>(starts);
    seq_lens = Guarded<int32_t>(std::vector<int32_t>(c_.seq_lens.begin(), c_.seq_lens.end()));
    MakePages();
    FillCache();
    const auto rows = static_cast<size_t>(num_tokens_ * c_.shape.num_heads);
    q = Guarded<T>(rows * static_cast<size_t>(width()));
    options.softmax_scale = 1.0f / std::sqrt(192.0f);
    FillQueries();
    out = Guarded<O>(rows * static_cast<size_t>(c_.shape.kv_lora_rank));
    lse = Guarded<float>(rows);

    args.q = Packed(q.data(), num_tokens_, c_.shape.num_heads, width());
    args.query_start_loc = Packed(query_start_loc.data(), starts.size());
    args.keys.cache =
        LatentPages(static_cast<const T*>(cache.data()), num_blocks_, c_.block_size, width());
    args.keys.cache.row_stride = row_stride_ * static_cast<int64_t>(sizeof(T));
    args.keys.cache.block_stride = block_stride_ * static_cast<int64_t>(sizeof(T));
    args.keys.block_table = Packed(block_table.data(), c_.seq_lens.size(), table_columns_);
    args.keys.seq_lens = Packed(seq_lens.data(), c_.seq_lens.size());
    args.out = Packed(out.data(), num_tokens_, c_.shape.num_heads, c_.shape.kv_lora_rank);
    args.lse = Packed(lse.data(), num_tokens_, c_.shape.num_heads);
  }

  int64_t width() const { return c_.shape.head_dim(); }
  int64_t num_heads() const { return c_.shape.num_heads; }
  int64_t v_dim() const { return c_.shape.kv_lora_rank; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_blocks() const { return num_blocks_; }
  const MlaCase& the_case() const { return c_; }
  float Normal() { return random_.Normal(); }

  // The slot of a position: block * block_size + offset.
  int64_t Slot(int64_t seq, int64_t position) const {
    const auto page = static_cast<size_t>(seq * table_columns_ + position / c_.block_size);
    return block_table[page] * c_.block_size + position % c_.block_size;
  }
  T* SlotRow(int64_t slot) {
    return cache.data() + slot / c_.block_size * block_stride_ + slot % c_.block_size * row_stride_;
  }
  // The cache row of a position, to write known keys into.
  T* Row(int64_t seq, int64_t position) { return SlotRow(Slot(seq, position)); }
  T* Query(int64_t token, int64_t head) {
    return q.data() + (token * num_heads() + head) * width();
  }

  // Row(a, b) of CASES.md: a in column 0, b in column 1, 0 elsewhere.
  void SetSlot(int64_t slot, float a, float b) {
    T* row = SlotRow(slot);
    for (int64_t i = 0; i < width(); ++i) row[i] = FromFloat<T>(0.0f);
    row[0] = FromFloat<T>(a);
    row[1] = FromFloat<T>(b);
  }
  void SetRow(int64_t seq, int64_t position, float a, float b) {
    SetSlot(Slot(seq, position), a, b);
  }
  // Q(s) of CASES.md for every query row; scale 1.
  void SetQuery(float s) {
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = FromFloat<T>(i % static_cast<size_t>(width()) == 0 ? s : 0.0f);
    }
    options.softmax_scale = 1.0f;
  }

  // Limits that this call just reaches.
  Limits TightLimits(size_t num_workers) const {
    Limits limits;
    limits.max_num_tokens = std::max<int64_t>(1, args.out.extent[0]);
    limits.max_num_seqs = std::max<int64_t>(
        1, args.query_start_loc.empty() ? args.out.extent[0] : args.query_start_loc.extent[0] - 1);
    limits.max_num_keys = 1;
    for (const int32_t len : seq_lens)
      limits.max_num_keys = std::max<int64_t>(limits.max_num_keys, len);
    if (args.keys.has_indices()) {
      limits.max_num_keys = std::max(limits.max_num_keys, args.keys.indices.extent[1]);
    }
    if (args.extra_keys.has_indices()) {
      limits.max_num_keys += args.extra_keys.indices.extent[1];
    } else if (args.extra_keys.is_given()) {
      limits.max_num_keys += limits.max_num_keys / args.extra_keys.compress_ratio;
    }
    limits.num_workers = num_workers;
    return limits;
  }

  // Plans for `num_workers` workers in exactly the memory that Sizes asks for, at guard pages, and
  // calls run(plan, workspace).
  template <class RunFn>
  Status TryPlanned(size_t num_workers, const RunFn& run) {
    Sizes sizes;
    if (const Status s = MlaDecodeSizes(c_.shape, options, TightLimits(num_workers), &sizes);
        !s.ok()) {
      return s;
    }
    plan_memory_.Resize(sizes.plan_bytes);
    const MlaDecodePlan* plan = nullptr;
    if (const Status s = PlanMlaDecode(c_.shape, options, args, num_workers,
                                       {plan_memory_.data(), plan_memory_.size()}, &plan);
        !s.ok()) {
      return s;
    }
    // Told by status, for callers on threads: assertions are for one thread at a time.
    const auto workspace_bytes = static_cast<int64_t>(PlanWorkspaceBytes(*plan));
    if (workspace_bytes > static_cast<int64_t>(sizes.workspace_bytes)) {
      return Invalid("workspace_bytes")
          .Is(workspace_bytes)
          .Must("be at most", static_cast<int64_t>(sizes.workspace_bytes));
    }
    if (options.target != Target::kAuto && PlanTarget(*plan) != options.target) {
      return Invalid("target").Must("be the one that was asked for");
    }
    workspace_.Resize(PlanWorkspaceBytes(*plan));
    return run(*plan, Buffer{workspace_.data(), workspace_.size()});
  }
  Status TryRun(size_t num_workers = 1, const Executor& executor = {}) {
    return TryPlanned(num_workers, [&](const MlaDecodePlan& plan, Buffer workspace) {
      return RunMlaDecode(plan, args, workspace, executor);
    });
  }
  // Into poisoned outputs.
  void Run(size_t num_workers = 1, const Executor& executor = {}) {
    out.Poison();
    lse.Poison();
    RequireOk(TryRun(num_workers, executor));
  }
  void RunOnThreads(size_t num_workers) { Run(num_workers, ThreadExecutor(num_workers)); }

  MlaResult<O> Result() const { return {out.Copy(), lse.Copy()}; }
  ref::AttentionResult Reference() const { return ref::MlaDecode(c_.shape, options, args); }

  Bounds bounds() const { return {HasBf16Products(options, args), kDTypeOf<O>}; }
  void RequireMatches(const ref::AttentionResult& reference) const {
    RequireOut(out, reference.out, static_cast<size_t>(v_dim()), bounds());
    if (!args.lse.empty()) RequireLse(lse, reference.lse, bounds());
    REQUIRE(out.IsFrontIntact());
    REQUIRE(lse.IsFrontIntact());
  }
  void RequireMatchesReference() const { RequireMatches(Reference()); }

  // The specification of a decode, in short: within the bounds on every target; and on each target,
  // any number of workers gives the same bits.
  void CheckEveryTarget(const ref::AttentionResult& reference) {
    for (const Target target : RunnableTargets()) {
      INFO("target " << Name(target));
      options.target = target;
      Run();
      RequireMatches(reference);
      const MlaResult<O> serial = Result();
      for (const size_t num_workers : {size_t{2}, size_t{5}}) {
        INFO("workers " << num_workers);
        RunOnThreads(num_workers);
        REQUIRE(SameBits(Result(), serial));
      }
    }
  }
  void CheckEveryTarget() { CheckEveryTarget(Reference()); }

  // A right answer of CASES.md, for keys Row(a, b): the mean of b, and lse.
  void RequireKnownRow(int64_t token, int64_t head, double mean, double log_sum) const {
    const auto row = static_cast<size_t>(token * num_heads() + head);
    const auto first = row * static_cast<size_t>(v_dim());
    INFO("token " << token << " head " << head << ": out[1] " << ToFloat(out[first + 1]) << " lse "
                  << lse[row]);
    REQUIRE(Matches(ToFloat(out[first + 1]), mean, KnownOutTolerance(bounds(), mean)));
    REQUIRE(Matches(lse[row], log_sum, KnownLseTolerance(bounds(), log_sum)));
    for (size_t c = 2; c < static_cast<size_t>(v_dim()); ++c) {
      if (ToFloat(out[first + c]) != 0.0f) REQUIRE(ToFloat(out[first + c]) == 0.0f);
    }
  }
  void RequireEmptyRow(int64_t token, int64_t head) const {
    RequireKnownRow(token, head, 0.0, -ref::kInf);
    REQUIRE(ToFloat(out[static_cast<size_t>((token * num_heads() + head) * v_dim())]) == 0.0f);
  }

  Guarded<T> q{0}, cache{0};
  Guarded<int32_t> block_table{0}, seq_lens{0}, query_start_loc{0};
  Guarded<O> out{0};
  Guarded<float> lse{0};
  MlaDecodeArgs args;
  MlaDecodeOptions options;

 private:
  bool HasShift() const { return c_.shape.qk_rope_head_dim > 0; }
  int64_t PagesOf(int64_t len) const { return (len + c_.block_size - 1) / c_.block_size; }

  // Pages dealt in shuffled order; table entries past the last used one are garbage.
  void MakePages() {
    table_columns_ = c_.min_table_columns;
    num_blocks_ = c_.spare_pages;
    for (const int64_t len : c_.seq_lens) {
      num_blocks_ += PagesOf(len);
      table_columns_ = std::max(table_columns_, PagesOf(len));
    }
    std::vector<int32_t> order(static_cast<size_t>(num_blocks_));
    std::iota(order.begin(), order.end(), 0);
    random_.Shuffle(order);
    block_table = Guarded<int32_t>(c_.seq_lens.size() * static_cast<size_t>(table_columns_));
    for (int32_t& entry : block_table) entry = 0x7FFFFFF0;
    auto next = order.begin();
    for (size_t b = 0; b < c_.seq_lens.size(); ++b) {
      const auto pages = static_cast<ptrdiff_t>(PagesOf(c_.seq_lens[b]));
      std::copy(next, next + pages, block_table.begin() + static_cast<int64_t>(b) * table_columns_);
      next += pages;
    }
  }

  // Everything but the rows that a length covers stays NaN.
  void FillCache() {
    const int64_t record = width() + c_.row_gap;
    row_stride_ = c_.interleaves_pages ? num_blocks_ * record + c_.page_gap : record;
    block_stride_ = c_.interleaves_pages ? record : c_.block_size * record + c_.page_gap;
    cache = Guarded<T>(num_blocks_ == 0
                           ? 0
                           : static_cast<size_t>((num_blocks_ - 1) * block_stride_ +
                                                 (c_.block_size - 1) * row_stride_ + width()));
    for (size_t b = 0; b < c_.seq_lens.size(); ++b) {
      for (int64_t i = 0; i < c_.seq_lens[b]; ++i) {
        Random random(c_.sequence_seeds[b], static_cast<uint64_t>(i));
        T* row = Row(static_cast<int64_t>(b), i);
        for (int64_t c = 0; c < width(); ++c) row[c] = FromFloat<T>(random.Normal());
        if (HasShift()) row[width() - 1] = FromFloat<T>(1.0f);
      }
    }
  }

  void FillQueries() {
    T* to = q.data();
    for (size_t b = 0; b < c_.seq_lens.size(); ++b) {
      for (int64_t i = 0; i < c_.q_lens[b]; ++i) {
        Random random(c_.sequence_seeds[b], ~static_cast<uint64_t>(i));
        for (int64_t head = 0; head < num_heads(); ++head, to += width()) {
          for (int64_t c = 0; c < width(); ++c) {
            to[c] = FromFloat<T>(random.Normal() * c_.score_spread);
          }
          if (HasShift()) to[width() - 1] = FromFloat<T>(kScoreShift / options.softmax_scale);
        }
      }
    }
  }

  MlaCase c_;
  Random random_;
  Guarded<std::byte> plan_memory_{0}, workspace_{0};
  int64_t num_tokens_ = 0;
  int64_t num_blocks_ = 0;
  int64_t table_columns_ = 0;
  int64_t row_stride_ = 0;    // elements
  int64_t block_stride_ = 0;  // elements
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_MLA_PROBLEM_H_
