// SPDX-License-Identifier: Apache-2.0
// Partial results in adversarial memory, and the merge of them against the double reference.
#ifndef LATHE_TESTS_SUPPORT_MERGE_PROBLEM_H_
#define LATHE_TESTS_SUPPORT_MERGE_PROBLEM_H_

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "lathe/merge_states.h"
#include "lathe/ref/attention_ref.h"
#include "support/memory.h"
#include "support/require_ok.h"
#include "support/tolerance.h"

namespace lathe::test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct MergeCase {
  int64_t num_tokens = 3;
  int64_t num_heads = 5;
  int64_t v_dim = 512;
  size_t num_parts = 2;
  bool is_transposed = false;  // heads outermost, as some engines keep them
  uint32_t seed = 1;
};

// T = element of the parts' out, O = of the merged one.
template <class T, class O = T>
class MergeProblem {
 public:
  explicit MergeProblem(const MergeCase& c) : c_(c), random_(c.seed) {
    const auto rows = static_cast<size_t>(c.num_tokens * c.num_heads);
    const auto elements = rows * static_cast<size_t>(c.v_dim);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < c.num_parts; ++i) {
      Guarded<T>& out_of_part = part_out.emplace_back(elements);
      for (T& x : out_of_part) x = FromFloat<T>(normal(random_));
      Guarded<float>& lse_of_part = part_lse.emplace_back(rows);
      for (float& x : lse_of_part) x = 3 * normal(random_);
    }
    sink = Guarded<float>(static_cast<size_t>(c.num_heads));
    for (float& x : sink) x = normal(random_);
    out = Guarded<O>(elements);
    lse = Guarded<float>(rows);
    for (size_t i = 0; i < c.num_parts; ++i) {
      MergePart& part = parts.emplace_back();
      part.out = Shaped(part_out[i].data());
      part.lse = ShapedLse(static_cast<const float*>(part_lse[i].data()));
    }
    args.parts = parts.data();
    args.num_parts = parts.size();
    args.out = Shaped(out.data());
    args.lse = ShapedLse(lse.data());
  }
  MergeProblem(const MergeProblem&) = delete;
  MergeProblem& operator=(const MergeProblem&) = delete;

  template <class E>
  View<E, 3> Shaped(E* data) const {
    View<E, 3> v = Packed(data, c_.num_tokens, c_.num_heads, c_.v_dim);
    if (c_.is_transposed) {
      v.stride[0] = c_.v_dim;
      v.stride[1] = c_.num_tokens * c_.v_dim;
    }
    return v;
  }
  template <class E>
  View<E, 2> ShapedLse(E* data) const {
    View<E, 2> v = Packed(data, c_.num_tokens, c_.num_heads);
    if (c_.is_transposed) {
      v.stride[0] = 1;
      v.stride[1] = c_.num_tokens;
    }
    return v;
  }
  void GiveSink() { args.attn_sink = Packed(static_cast<const float*>(sink.data()), sink.size()); }
  // The part has no keys: its lse says so, its out is garbage.
  void MakeEmpty(size_t part) {
    for (float& x : part_lse[part]) x = parts[part].lse_policy.empty;
    for (T& x : part_out[part]) x = FromFloat<T>(std::numeric_limits<float>::quiet_NaN());
  }

  void Run(const Executor& executor = {}) { RequireOk(MergeStates(args, options, executor)); }

  // The reference, in the memory order of out and lse; lse in options.lse_policy.
  ref::AttentionResult Reference() const {
    const ref::AttentionResult in_order = ref::MergeStates(args);
    ref::AttentionResult result = in_order;
    const int64_t T_ = c_.num_tokens, H = c_.num_heads, D = c_.v_dim;
    for (int64_t t = 0; t < T_; ++t) {
      for (int64_t h = 0; h < H; ++h) {
        const auto from = static_cast<size_t>(t * H + h);
        const auto to = static_cast<size_t>(c_.is_transposed ? h * T_ + t : t * H + h);
        const double l = in_order.lse[from];
        result.lse[to] = l == -ref::kInf ? static_cast<double>(options.lse_policy.empty)
                                         : l / (options.lse_policy.base2 ? std::log(2.0) : 1.0);
        for (int64_t c = 0; c < D; ++c) {
          result.out[to * static_cast<size_t>(D) + static_cast<size_t>(c)] =
              in_order.out[from * static_cast<size_t>(D) + static_cast<size_t>(c)];
        }
      }
    }
    return result;
  }
  void RequireMatches(const ref::AttentionResult& reference) const {
    const Bounds bounds{false, kDTypeOf<O>};
    RequireOut(out, reference.out, static_cast<size_t>(c_.v_dim), bounds);
    RequireLse(lse, reference.lse, bounds);
    REQUIRE((out.IsFrontIntact() && lse.IsFrontIntact()));
  }
  void RunAndRequireReference() {
    Run();
    RequireMatches(Reference());
  }

  MergeStatesArgs args;
  MergeStatesOptions options;
  std::vector<MergePart> parts;
  std::vector<Guarded<T>> part_out;
  std::vector<Guarded<float>> part_lse;
  Guarded<float> sink{0};
  Guarded<O> out{0};
  Guarded<float> lse{0};

 private:
  MergeCase c_;
  std::mt19937 random_;
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_MERGE_PROBLEM_H_
