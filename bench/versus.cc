// SPDX-License-Identifier: Apache-2.0
#include "bench/versus.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/measure.h"

namespace lathe::bench {
namespace {

constexpr double kSampleSeconds = 0.02;
constexpr double kLongSeconds = 0.1;  // of a call: fewer repetitions
constexpr int kSamples = 5;
constexpr int kLongSamples = 3;

using Call = std::function<void()>;

// Libraries' idle threads go on spinning for up to 20 ms, which nobody else should pay for.
void LetLibraryThreadsSleep(bool is_on_team, const Team& team) {
  if (is_on_team || team.size() == 1) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
}

double Sample(Team& team, bool on_team, const Call& call, double estimate) {
  team.Spin(on_team);
  const auto calls = std::max<int64_t>(1, std::llround(std::ceil(kSampleSeconds / estimate)));
  const double seconds = TimeCalls(call, calls);
  team.Spin(false);
  return seconds;
}

struct Fastest {
  std::unique_ptr<Comparator> comparator;
  double seconds = 0.0;
};

Fastest FindFastest(const Contender& contender, Team& team,
                    const std::function<void(Comparator&)>& theirs,
                    const std::function<void(Comparator&)>& check) {
  Fastest fastest;
  for (const auto& make : contender.ways) {
    std::unique_ptr<Comparator> made = make();
    if (made == nullptr) continue;
    check(*made);
    const Call call = [&] { theirs(*made); };
    double seconds = TimeCalls(call, 1);
    if (seconds < kLongSeconds) seconds = Sample(team, made->is_on_team(), call, seconds);
    LetLibraryThreadsSleep(made->is_on_team(), team);
    if (fastest.comparator == nullptr || seconds < fastest.seconds) {
      fastest = {std::move(made), seconds};
    }
  }
  return fastest;
}

}  // namespace

void TakeTurns(benchmark::State& state, Team& team, double seconds, const Call& ours,
               const Opponent& opponent) {
  std::vector<double> times, ratios;
  const int samples = opponent.seconds + seconds > kLongSeconds ? kLongSamples : kSamples;
  for (int i = 0; i < samples; ++i) {
    const double own = Sample(team, true, ours, seconds);
    times.push_back(opponent.scale *
                    Sample(team, opponent.is_on_team, opponent.run, opponent.seconds));
    ratios.push_back(times.back() / own);
    LetLibraryThreadsSleep(opponent.is_on_team, team);
  }
  state.counters["vs_" + opponent.name] = Median(ratios);
  state.counters[opponent.name + "_ms"] = Median(times) * 1e3;
}

void MeasureVersus(benchmark::State& state, const DecodeTask& task, Team& team, double seconds,
                   const std::function<void()>& ours,
                   const std::function<void(Comparator&)>& theirs,
                   const std::function<void(Comparator&)>& check) {
  std::string label;
  for (const Contender& contender : Contenders(task, team)) {
    const Fastest fastest = FindFastest(contender, team, theirs, check);
    if (fastest.comparator == nullptr) continue;
    Comparator& comparator = *fastest.comparator;
    TakeTurns(
        state, team, seconds, ours,
        {contender.name, [&] { theirs(comparator); }, fastest.seconds, comparator.is_on_team(),
         static_cast<double>(task.keys) / static_cast<double>(comparator.keys())});
    label +=
        (label.empty() ? "" : "; ") + std::string(contender.name) + ": " + comparator.Describe();
  }
  state.SetLabel(label);
}

}  // namespace lathe::bench
