// SPDX-License-Identifier: Apache-2.0
// A prefill in adversarial memory: gaps between rows are NaN, every buffer ends at a guard page.
#ifndef LATHE_TESTS_PREFILL_PREFILL_PROBLEM_H_
#define LATHE_TESTS_PREFILL_PREFILL_PROBLEM_H_

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lathe/lathe.h"
#include "lathe/ref/attention_ref.h"
#include "support/memory.h"
#include "support/mla_problem.h"
#include "support/random.h"
#include "support/require_ok.h"
#include "support/targets.h"
#include "support/threads.h"
#include "support/tolerance.h"

namespace lathe::test {

// Elements between the end of a row and the next head's, and after the last head of a token.
struct RowGaps {
  int64_t after_row = 0;
  int64_t after_token = 0;
};

struct PrefillCase {
  PrefillShape shape{2, 0, 192, 128};
  std::vector<int64_t> q_lens{5};
  std::vector<int64_t> kv_lens{5};
  RowGaps gaps{};
  bool is_one_tensor = false;  // k and v side by side, as one up-projection writes them
  uint32_t seed = 1;
};

// T = element of q, k and v, O = of out.
template <class T, class O = float>
class PrefillProblem {
 public:
  explicit PrefillProblem(const PrefillCase& c) : c_(c) {
    query_start_loc = Starts(c_.q_lens);
    kv_start_loc = Starts(c_.kv_lens);
    const int64_t rows = query_start_loc[c_.q_lens.size()];
    const int64_t keys = kv_start_loc[c_.kv_lens.size()];
    const int64_t heads = c_.shape.num_heads, kv_heads = c_.shape.kv_heads();
    const int64_t qk_dim = c_.shape.qk_head_dim, v_dim = c_.shape.v_head_dim;
    options.softmax_scale = 1.0f / std::sqrt(static_cast<float>(qk_dim));

    args.q = Make(q, rows, heads, qk_dim);
    args.query_start_loc = Packed(query_start_loc.data(), query_start_loc.size());
    args.kv_start_loc = Packed(kv_start_loc.data(), kv_start_loc.size());
    if (c_.is_one_tensor) {
      View<T, 3> k_view = Make(k, keys, kv_heads, qk_dim + v_dim), v_view = k_view;
      k_view.extent[2] = qk_dim;
      v_view.extent[2] = v_dim;
      v_view.data += qk_dim;
      args.k = k_view;
      args.v = v_view;
    } else {
      args.k = Make(k, keys, kv_heads, qk_dim);
      args.v = Make(v, keys, kv_heads, v_dim);
    }
    args.out = Make(out, rows, heads, v_dim);
    lse = Guarded<float>(static_cast<size_t>(rows * heads));
    args.lse = Packed(lse.data(), rows, heads);
    Fill();
  }

  int64_t num_rows() const { return args.q.extent[0]; }
  int64_t num_heads() const { return c_.shape.num_heads; }
  T* Query(int64_t token, int64_t head) { return RowOf<T>(args.q, token, head); }
  T* Key(int64_t key, int64_t head) { return RowOf<T>(args.k, key, head); }
  T* Value(int64_t key, int64_t head) { return RowOf<T>(args.v, key, head); }

  // Limits that this call just reaches.
  Limits TightLimits(size_t num_workers) const {
    const auto longest = [](const std::vector<int64_t>& lens) {
      return lens.empty() ? int64_t{1}
                          : std::max<int64_t>(1, *std::max_element(lens.begin(), lens.end()));
    };
    Limits limits;
    limits.max_num_seqs = std::max<int64_t>(1, static_cast<int64_t>(c_.q_lens.size()));
    limits.max_num_tokens = std::max<int64_t>(1, num_rows());
    limits.max_num_keys = longest(c_.kv_lens);
    limits.num_workers = num_workers;
    return limits;
  }

  // Plans for `num_workers` workers in exactly the memory that Sizes asks for, at guard pages, and calls
  // run(plan, workspace).
  template <class RunFn>
  void RunPlanned(size_t num_workers, const RunFn& run) {
    out.Poison();
    lse.Poison();
    Sizes sizes;
    RequireOk(PrefillSizes(c_.shape, options, TightLimits(num_workers), &sizes));
    plan_memory_.Resize(sizes.plan_bytes);
    const PrefillPlan* plan = nullptr;
    RequireOk(PlanPrefill(c_.shape, options, args, num_workers,
                          {plan_memory_.data(), plan_memory_.size()}, &plan));
    // On any thread, so what fails alone is asserted (require_ok.h).
    const bool fits = PlanWorkspaceBytes(*plan) <= sizes.workspace_bytes;
    const bool has_target = options.target == Target::kAuto || PlanTarget(*plan) == options.target;
    if (!fits || !has_target) REQUIRE((fits && has_target));
    workspace_.Resize(PlanWorkspaceBytes(*plan));
    run(*plan, Buffer{workspace_.data(), workspace_.size()});
  }
  void Run(size_t num_workers = 1) {
    RunPlanned(num_workers, [&](const PrefillPlan& plan, Buffer workspace) {
      RequireOk(RunPrefill(plan, args, workspace,
                           num_workers == 1 ? Executor{} : ThreadExecutor(num_workers)));
    });
  }

  // Rows of out one after another, whatever their strides.
  MlaResult<O> Result() const {
    MlaResult<O> result{{}, lse.Copy()};
    for (int64_t t = 0; t < num_rows(); ++t) {
      for (int64_t h = 0; h < num_heads(); ++h) {
        const O* row = RowOf<O>(args.out, t, h);
        result.out.insert(result.out.end(), row, row + c_.shape.v_head_dim);
      }
    }
    return result;
  }
  ref::AttentionResult Reference() const { return ref::Prefill(c_.shape, options, args); }

  Bounds bounds() const {
    const bool is_bf16 =
        args.k.dtype == DType::kBFloat16 &&
        (options.precision == Precision::kBFloat16 ||
         (options.precision == Precision::kAuto && args.q.dtype == DType::kBFloat16));
    return {is_bf16 && HasNativeBf16(options.target), kDTypeOf<O>};
  }
  void RequireMatches(const ref::AttentionResult& reference) const {
    RequireOut(Result().out, reference.out, static_cast<size_t>(c_.shape.v_head_dim), bounds());
    RequireLse(lse, reference.lse, bounds());
    REQUIRE((out.IsFrontIntact() && lse.IsFrontIntact()));
  }
  // Within the bounds on every target, and the same bits from any number of workers.
  void CheckEveryTarget() {
    const ref::AttentionResult reference = Reference();
    for (const Target target : RunnableTargets()) {
      INFO("target " << Name(target));
      options.target = target;
      Run();
      RequireMatches(reference);
      const MlaResult<O> serial = Result();
      for (const size_t num_workers : {size_t{2}, size_t{5}}) {
        INFO("workers " << num_workers);
        Run(num_workers);
        REQUIRE(SameBits(Result(), serial));
      }
    }
  }

  Guarded<T> q{0}, k{0}, v{0};
  Guarded<int32_t> query_start_loc{0}, kv_start_loc{0};
  Guarded<O> out{0};
  Guarded<float> lse{0};
  PrefillArgs args;
  PrefillOptions options;

 private:
  static Guarded<int32_t> Starts(const std::vector<int64_t>& lens) {
    std::vector<int32_t> starts{0};
    for (const int64_t len : lens) starts.push_back(starts.back() + static_cast<int32_t>(len));
    return starts;
  }

  template <class E>
  View<E, 3> Make(Guarded<E>& memory, int64_t rows, int64_t heads, int64_t width) const {
    View<E, 3> view;
    view.extent[0] = rows;
    view.extent[1] = heads;
    view.extent[2] = width;
    view.stride[2] = 1;
    view.stride[1] = width + c_.gaps.after_row;
    view.stride[0] = heads * view.stride[1] + c_.gaps.after_token;
    const int64_t last = (rows - 1) * view.stride[0] + (heads - 1) * view.stride[1];
    memory = Guarded<E>(rows == 0 ? 0 : static_cast<size_t>(last + width));
    view.data = memory.data();
    return view;
  }

  template <class E, class AnyTensor>
  static E* RowOf(const AnyTensor& tensor, int64_t row, int64_t head) {
    return const_cast<E*>(reinterpret_cast<const E*>(tensor.data)) + row * tensor.stride[0] +
           head * tensor.stride[1];
  }

  // The last column adds kScoreShift to every score (mla_problem.h). What a sequence holds depends on its own number
  // of keys and queries alone.
  void Fill() {
    const auto fill = [](Random& random, T* row, int64_t width) {
      for (int64_t i = 0; i < width; ++i) row[i] = FromFloat<T>(random.Normal());
    };
    const int64_t qk_dim = c_.shape.qk_head_dim;
    for (size_t b = 0; b < c_.q_lens.size(); ++b) {
      Random random(c_.seed, static_cast<uint64_t>(c_.q_lens[b] * 100003 + c_.kv_lens[b]));
      for (int64_t i = query_start_loc[b]; i < query_start_loc[b + 1]; ++i) {
        for (int64_t h = 0; h < num_heads(); ++h) {
          fill(random, Query(i, h), qk_dim);
          if (qk_dim > 1) {
            Query(i, h)[qk_dim - 1] = FromFloat<T>(kScoreShift / options.softmax_scale);
          }
        }
      }
      for (int64_t j = kv_start_loc[b]; j < kv_start_loc[b + 1]; ++j) {
        for (int64_t h = 0; h < c_.shape.kv_heads(); ++h) {
          fill(random, Key(j, h), qk_dim);
          fill(random, Value(j, h), c_.shape.v_head_dim);
          if (qk_dim > 1) Key(j, h)[qk_dim - 1] = FromFloat<T>(1.0f);
        }
      }
    }
  }

  PrefillCase c_;
  Guarded<std::byte> plan_memory_{0}, workspace_{0};
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_PREFILL_PREFILL_PROBLEM_H_
