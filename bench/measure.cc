// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lathe::bench {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

double TimeCalls(const std::function<void()>& call, int64_t calls) {
  const Clock::time_point start = Clock::now();
  for (int64_t i = 0; i < calls; ++i) call();
  return Seconds(Clock::now() - start) / static_cast<double>(calls);
}

namespace {

constexpr double kSampleSeconds = 0.05;
constexpr double kRowSeconds = 0.8;
constexpr int64_t kMinSamples = 5;
constexpr int64_t kMaxSamples = 15;

bool only_calls = false;

// Seconds of a call, after at least one that warmed up caches, pages and clocks.
double Estimate(const std::function<void()>& call) {
  double spent = 0.0, seconds = 0.0;
  for (int64_t calls = 1; spent < kSampleSeconds; calls *= 2) {
    seconds = TimeCalls(call, calls);
    spent += seconds * static_cast<double>(calls);
  }
  return seconds;
}

std::vector<double> ProbeAll(const std::vector<Ceiling>& ceilings) {
  std::vector<double> rates;
  rates.reserve(ceilings.size());
  for (const Ceiling& c : ceilings) rates.push_back(c.probe());
  return rates;
}

// Ceiling `c` around sample `i`: the best of the two probes before and the two after it. Both of
// the nearest may have been interrupted; much farther away the clock may be another.
double BestNear(const std::vector<std::vector<double>>& rates, size_t c, size_t i) {
  double best = 0.0;
  for (size_t p = i == 0 ? 0 : i - 1; p < std::min(i + 3, rates.size()); ++p) {
    best = std::max(best, rates[p][c]);
  }
  return best;
}

}  // namespace

void OnlyCall() { only_calls = true; }

double Measure(benchmark::State& state, Team& team, const std::function<void()>& call,
               const std::vector<Ceiling>& ceilings) {
  const SpinScope spin(team);
  if (only_calls) {
    for ([[maybe_unused]] const auto& iteration : state) call();
    throw CallsEnd();
  }
  const double estimate = Estimate(call);
  const auto calls =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(kSampleSeconds / estimate)));
  const double sample_seconds = estimate * static_cast<double>(calls);
  const int64_t batch =
      std::clamp(static_cast<int64_t>(kRowSeconds / sample_seconds), kMinSamples, kMaxSamples);

  std::vector<double> seconds;                                 // of a call, by sample
  std::vector<std::vector<double>> rates{ProbeAll(ceilings)};  // before each sample, after the last
  while (state.KeepRunningBatch(batch * calls)) {
    for (int64_t i = 0; i < batch; ++i) {
      seconds.push_back(TimeCalls(call, calls));
      state.PauseTiming();
      rates.push_back(ProbeAll(ceilings));
      state.ResumeTiming();
    }
  }

  const double median = Median(seconds);
  std::vector<double> deviations;
  deviations.reserve(seconds.size());
  for (const double s : seconds) deviations.push_back(std::fabs(s - median));
  state.counters["median_ms"] = median * 1e3;
  state.counters["min_ms"] = *std::min_element(seconds.begin(), seconds.end()) * 1e3;
  state.counters["mad_percent"] = Median(deviations) / median * 100;
  state.counters["samples"] = static_cast<double>(seconds.size());
  std::vector<double> of_limit(seconds.size(), 0.0);
  for (size_t c = 0; c < ceilings.size(); ++c) {
    double best = 0.0;
    std::vector<double> fractions;
    for (size_t i = 0; i < seconds.size(); ++i) {
      const double near = BestNear(rates, c, i);
      best = std::max(best, near);
      fractions.push_back(ceilings[c].work / seconds[i] / near);
      of_limit[i] = std::max(of_limit[i], fractions[i]);
    }
    state.counters[ceilings[c].counter] = Median(fractions);
    if (!ceilings[c].rate_counter.empty()) state.counters[ceilings[c].rate_counter] = best * 1e-9;
  }
  if (ceilings.size() > 1) state.counters["of_limit"] = Median(of_limit);
  return median;
}

}  // namespace lathe::bench
