// SPDX-License-Identifier: Apache-2.0
// Topk/rows:R/columns:L/k:K/target:T/threads:N
//
// The K best of each of R rows of L normally distributed scores, as ascending int32 indices.
//
//   GB/s              of scores, each counted once
//   of_read_ceiling   against a streaming read of the same scores with the same threads
//   vs_nth_element    time of std::nth_element over ours
//   vs_vqselect       time of hwy::VQSelect over ours, where Highway's contrib library is there
//
// What is compared with gets its favourite form, 64-bit keys of order and index, packed in the time that
// counts, and leaves its indices unordered. Rows are dealt to the same threads; of one row it can use
// one. The best target's rows only.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/measure.h"
#include "bench/tensor.h"
#include "lathe/ref/topk_ref.h"
#include "lathe/topk.h"
#if LATHE_BENCH_VQSELECT
#include "hwy/contrib/sort/vqsort.h"
#endif

namespace lathe::bench {
namespace {

struct Case {
  int64_t rows, columns, k;
  TargetInfo target;
  size_t threads;

  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name), "Topk/rows:%d/columns:%d/k:%d/target:%s/threads:%d",
                  static_cast<int>(rows), static_cast<int>(columns), static_cast<int>(k),
                  target.name, static_cast<int>(threads));
    return name;
  }
};

// Greater for the better score, and of equal ones for the lower index.
uint64_t OrderOf(float score, int64_t index) {
  uint32_t bits;
  std::memcpy(&bits, &score, sizeof(bits));
  bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{bits} << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(index));
}

using SelectFn = void (*)(uint64_t* keys, size_t n, size_t k);

void NthElement(uint64_t* keys, size_t n, size_t k) {
  std::nth_element(keys, keys + k, keys + n, std::greater<uint64_t>());
}
#if LATHE_BENCH_VQSELECT
void VqSelect(uint64_t* keys, size_t n, size_t k) {
  hwy::VQSelect(keys, n, k, hwy::SortDescending());
}
#endif

// Selects with `select`, row by row, on the team.
class Other {
 public:
  Other(const TopkArgs& args, int64_t k, Team& team, SelectFn select)
      : args_(args),
        k_(k),
        team_(team),
        select_(select),
        keys_(team.size()),
        indices_(static_cast<size_t>(args.logits.extent[0] * k)) {
    for (auto& keys : keys_) keys.resize(static_cast<size_t>(args.logits.extent[1]));
  }

  void Run() {
    const int64_t num_rows = args_.logits.extent[0];
    team_.Run([&](size_t ith) {
      for (auto t = static_cast<int64_t>(ith); t < num_rows;
           t += static_cast<int64_t>(team_.size())) {
        RunOne(t, keys_[ith]);
      }
    });
  }

  // Of the first row.
  void Check(const std::vector<int64_t>& expected) const {
    std::vector<int64_t> got(indices_.begin(), indices_.begin() + k_);
    std::sort(got.begin(), got.end());
    if (got != expected) throw RowError("a comparator selected other columns");
  }

 private:
  void RunOne(int64_t t, std::vector<uint64_t>& keys) {
    const float* scores = args_.logits.data + t * args_.logits.stride[0];
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = OrderOf(scores[i], static_cast<int64_t>(i));
    select_(keys.data(), keys.size(), static_cast<size_t>(k_));
    for (int64_t i = 0; i < k_; ++i) {
      indices_[static_cast<size_t>(t * k_ + i)] =
          static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(keys[static_cast<size_t>(i)]));
    }
  }

  const TopkArgs& args_;
  int64_t k_;
  Team& team_;
  SelectFn select_;
  std::vector<std::vector<uint64_t>> keys_;
  std::vector<int32_t> indices_;
};

// In samples next to samples of our own.
void Compare(benchmark::State& state, const std::string& name, Other& other,
             const std::vector<int64_t>& expected, Team& team, double seconds,
             const std::function<void()>& ours) {
  constexpr double kSampleSeconds = 0.02;
  constexpr int kSamples = 5;
  const SpinScope spin(team);
  other.Run();
  other.Check(expected);
  const std::function<void()> theirs = [&] { other.Run(); };
  const double estimate = TimeCalls(theirs, 1);
  const auto calls = [](double call) {
    return static_cast<int64_t>(std::ceil(kSampleSeconds / call));
  };
  std::vector<double> times, ratios;
  for (int i = 0; i < kSamples; ++i) {
    const double own = TimeCalls(ours, calls(seconds));
    times.push_back(TimeCalls(theirs, calls(estimate)));
    ratios.push_back(times.back() / own);
  }
  state.counters["vs_" + name] = Median(ratios);
  state.counters[name + "_ms"] = Median(times) * 1e3;
}

void RunRow(benchmark::State& state, const Case& c, Harness& harness) {
  Tensor<2> scores(DType::kFloat32, {c.rows, c.columns});
  scores.Fill(Random(9));
  std::vector<int32_t> indices(static_cast<size_t>(c.rows * c.k));
  TopkArgs args;
  args.logits = Packed(reinterpret_cast<const float*>(scores.View().data), c.rows, c.columns);
  args.indices = Packed(indices.data(), c.rows, c.k);
  TopkOptions options;
  options.k = c.k;
  options.target = c.target.target;
  Sizes sizes;
  Require(TopkSizes(options, {c.rows, c.rows, c.columns, c.threads}, &sizes));
  std::vector<std::byte> workspace(sizes.workspace_bytes);

  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  const std::function<void()> ours = [&] {
    Require(SelectTopk(args, options, {workspace.data(), workspace.size()}, executor));
  };
  ours();
  const std::vector<int64_t> expected = ref::TopkOfRow(args, options, 0).indices;
  if (!std::equal(expected.begin(), expected.end(), indices.begin())) {
    throw RowError("selected other columns than the reference");
  }
  const auto bytes = static_cast<double>(scores.bytes());
  ReadProbe read(scores.View().data, scores.bytes());
  const double seconds = Measure(
      state, team, ours,
      {{"of_read_ceiling", "read_ceiling_GB/s", bytes, [&] { return read.BytesPerSecond(team); }}});
  state.counters["GB/s"] = bytes / seconds * 1e-9;
  if (!harness.compares() || !harness.IsBest(c.target)) return;
  Other nth_element(args, c.k, team, NthElement);
  Compare(state, "nth_element", nth_element, expected, team, seconds, ours);
#if LATHE_BENCH_VQSELECT
  Other vqselect(args, c.k, team, VqSelect);
  Compare(state, "vqselect", vqselect, expected, team, seconds, ours);
#endif
}

void RegisterCase(Harness& harness, const Case& c) {
  const bool by_default = harness.IsBest(c.target) && harness.IsShown(c.threads) &&
                          (c.k == 2048 || c.columns == 131072);
  if (!harness.Wants(by_default)) return;
  const int64_t bytes = c.rows * c.columns * static_cast<int64_t>(sizeof(float));
  harness.RegisterLarge(c.Name(), bytes,
                        [c, &harness](benchmark::State& state) { RunRow(state, c, harness); });
}

}  // namespace

void RegisterTopk(Harness& harness) {
  for (const int64_t rows : {1, 64}) {
    for (const int64_t columns : {16384, 131072, 1048576}) {
      for (const int64_t k : {512, 2048}) {
        for (const TargetInfo& target : harness.targets()) {
          for (const size_t threads : harness.thread_counts()) {
            RegisterCase(harness, {rows, columns, k, target, threads});
          }
        }
      }
    }
  }
}

}  // namespace lathe::bench
