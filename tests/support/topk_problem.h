// SPDX-License-Identifier: Apache-2.0
// Rows of scores in adversarial memory, and their top-k against sorting.
#ifndef LATHE_TESTS_SUPPORT_TOPK_PROBLEM_H_
#define LATHE_TESTS_SUPPORT_TOPK_PROBLEM_H_

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>
#include <vector>

#include "lathe/ref/topk_ref.h"
#include "lathe/topk.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/require_ok.h"
#include "support/sizes.h"

namespace lathe::test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// `scores` [rows, columns], and lists that are `width` wide (default: as wide as k needs).
template <class Index = int32_t>
class TopkProblem {
 public:
  TopkProblem(int64_t rows, int64_t columns, int64_t k, int64_t width = -1)
      : scores(static_cast<size_t>(rows * columns)),
        indices(static_cast<size_t>(rows * (width < 0 ? k : width))),
        counts(static_cast<size_t>(rows)),
        values(indices.size()) {
    if (width < 0) width = k;
    args.logits = Packed(static_cast<const float*>(scores.data()), rows, columns);
    args.indices = Packed(indices.data(), rows, width);
    args.counts = Packed(counts.data(), rows);
    args.values = Packed(values.data(), rows, width);
    options.k = k;
  }
  TopkProblem(const TopkProblem&) = delete;
  TopkProblem& operator=(const TopkProblem&) = delete;

  void FillNormal(uint64_t seed) {
    Random random(seed);
    for (float& x : scores) x = random.Normal();
  }

  Status TryRun(const Executor& executor = {}) {
    // To the byte, and at a start that nothing is aligned to.
    Guarded<std::byte> workspace(
        TopkWorkspaceFor(args.logits.extent[1], options.k, executor.num_workers));
    const Status status = SelectTopk(args, options, {workspace.data(), workspace.size()}, executor);
    RequireIntact(workspace.IsFrontIntact());
    return status;
  }

  void Run(const Executor& executor = {}) {
    indices.Poison();
    counts.Poison();
    values.Poison();
    RequireOk(TryRun(executor));
    RequireIntact(indices.IsFrontIntact() && counts.IsFrontIntact() && values.IsFrontIntact());
  }

  // Every place of every list, every count, and values to the bit.
  void RequireReference() const {
    for (int64_t t = 0; t < args.indices.extent[0]; ++t) {
      CAPTURE(t);
      const ref::TopkRowResult expected = ref::TopkOfRow(args, options, t);
      const auto num_places = static_cast<int64_t>(expected.indices.size());
      if (!args.counts.empty()) REQUIRE(IndexView<1>(args.counts)(t) == num_places);
      std::vector<int64_t> got, wanted = expected.indices;
      std::vector<float> got_values, wanted_values = expected.values;
      wanted.resize(static_cast<size_t>(args.indices.extent[1]), -1);
      wanted_values.resize(wanted.size(), -kInf);
      for (int64_t i = 0; i < args.indices.extent[1]; ++i) {
        got.push_back(IndexView<2>(args.indices)(t, i));
        if (args.values.empty()) continue;
        got_values.push_back(
            args.values.data[t * args.values.stride[0] + i * args.values.stride[1]]);
      }
      // One comparison where they agree: lists are long.
      if (got != wanted) REQUIRE(got == wanted);
      if (!args.values.empty()) REQUIRE(SameBits(got_values, wanted_values));
    }
  }

  void RunAndRequireReference(const Executor& executor = {}) {
    Run(executor);
    RequireReference();
  }

  Guarded<float> scores;
  Guarded<Index> indices;
  Guarded<Index> counts;
  Guarded<float> values;
  TopkArgs args;
  TopkOptions options;
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_TOPK_PROBLEM_H_
