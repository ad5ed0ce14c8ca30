// SPDX-License-Identifier: Apache-2.0
#include "bench/harness.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "bench/comparators/comparator.h"

namespace lathe::bench {
namespace {

constexpr size_t kMaxMemoryBudget = size_t{8} << 30;

std::string Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}
std::string Giga(double rate) { return Rounded(rate * 1e-9); }

// These are for the reader's orientation and have no sample beside them: a few more tries.
template <class F>
double BestOfSome(const F& probe) {
  double best = 0.0;
  for (int i = 0; i < 5; ++i) best = std::max(best, probe());
  return best;
}

}  // namespace

Harness::Harness(const std::string& filter, bool is_long, bool compares, Target only)
    : everything_(!filter.empty() && filter != "."),
      compares_(compares),
      machine_(DescribeMachine()),
      memory_budget_(std::min(kMaxMemoryBudget, machine_.memory_bytes / 2)) {
  try {
    if (everything_ && filter[0] != '-') filter_.emplace(filter, std::regex::extended);
  } catch (const std::regex_error&) {
    // Google Benchmark says so when it comes to run.
  }
  for (const TargetInfo& target : Targets()) {
    if (!target.runnable) continue;
    if (only == Target::kAuto || only == target.target) targets_.push_back(target);
  }
  for (size_t n = 1; n < all_threads(); n *= 2) thread_counts_.push_back(n);
  thread_counts_.push_back(all_threads());
  if (!everything_ && !is_long && !targets_.empty()) {
    default_rows_.emplace(targets_[0].name, all_threads());
  }
}

Team& Harness::team(size_t threads) {
  std::unique_ptr<Team>& team = teams_[threads];
  if (team == nullptr) team = std::make_unique<Team>(threads);
  return *team;
}

ReadProbe& Harness::dram() {
  if (dram_ == nullptr) {
    dram_ = std::make_unique<MemoryProbe>(team(all_threads()), 4 * machine_.all_llc_bytes);
  }
  return dram_->read();
}

void Harness::ReportRows() const {
  constexpr double kSecondsOfRow = 2.5;  // measured on two cores, checks and comparators included
  std::fprintf(stderr, "%d rows, about %.0f min\n", num_rows_,
               std::ceil(num_rows_ * kSecondsOfRow / 60));
  if (skipped_for_memory_ == 0) return;
  std::fprintf(stderr, "%d rows need more than %.1f GiB and are left out\n", skipped_for_memory_,
               static_cast<double>(memory_budget_) / (1 << 30));
}

std::vector<std::pair<std::string, std::string>> Harness::Context() {
  std::vector<std::pair<std::string, std::string>> context;
  const auto add = [&](const std::string& key, const std::string& value) {
    if (!value.empty()) context.emplace_back(key, value);
  };
  add("lathe_version", LatheVersion());
  add("compiler", CompilerName());
  add("cpu", machine_.cpu);
  add("microcode", machine_.microcode);
  add("governor", machine_.governor);
  add("cores", std::to_string(machine_.cores));
  add("llc_bytes", std::to_string(machine_.llc_bytes));
  add("all_llc_bytes", std::to_string(machine_.all_llc_bytes));
  std::string names;
  for (const TargetInfo& target : targets_) {
    names += (names.empty() ? "" : " ") + std::string(target.name);
  }
  add("targets", names);
  double load = 0.0;
  if (getloadavg(&load, 1) == 1) add("load_at_start", Rounded(load));
  if (compares_) {
    for (const auto& [name, version] : DescribeContenders()) add(name, version);
  }

  for (const size_t threads : thread_counts_) {
    if (!IsOneOrAll(threads)) continue;
    Team& t = team(threads);
    const std::string suffix = "/threads:" + std::to_string(threads);
    for (const TargetInfo& target : targets_) {
      for (const NamedFormat& format : {kFloat32Format, kBFloat16Format}) {
        const FlopLoop& loop = FlopLoopOf(target, format.format == CacheFormat::kLatentBFloat16);
        const double rate = BestOfSome([&] { return FlopsPerSecond(t, loop); });
        add("flop_ceiling/format:" + std::string(format.name) + "/target:" + target.name + suffix,
            Giga(rate) + " GFLOP/s by " + loop.instruction);
      }
    }
    const double rate = BestOfSome([&] { return dram().BytesPerSecond(t); });
    add("read_ceiling" + suffix, Giga(rate) + " GB/s");
  }
  return context;
}

}  // namespace lathe::bench
