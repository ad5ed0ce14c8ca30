// SPDX-License-Identifier: Apache-2.0
#include "bench/harness.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>

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

bool IsNone(const std::string& filter) { return filter.empty() || filter == "."; }

// "kFp8DsMla" -> "fp8_ds_mla", "kLatentFp8E4m3" -> "fp8_e4m3".
std::string RowName(const std::string& enumerator) {
  std::string name;
  for (const char c : enumerator.substr(1)) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isupper(letter) && !name.empty()) name += '_';
    name += static_cast<char>(std::tolower(letter));
  }
  const std::string latent = "latent_";
  return name.compare(0, latent.size(), latent) == 0 ? name.substr(latent.size()) : name;
}

}  // namespace

const std::vector<NamedFormat>& RecordFormats() {
  static constexpr CacheFormat kAll[] = {
#define LATHE_FORMAT(enumerator, number, ...) CacheFormat::enumerator,
#include "lathe/cache/formats.def"
#undef LATHE_FORMAT
  };
  static std::deque<std::string> names;  // stay where they are
  static const std::vector<NamedFormat> kRecordFormats = [] {
    std::vector<NamedFormat> formats;
    for (const CacheFormat format : kAll) {
      const auto is_format = [&](const NamedFormat& f) { return f.format == format; };
      if (std::any_of(std::begin(kFormats), std::end(kFormats), is_format)) continue;
      names.push_back(RowName(Name(format)));
      formats.push_back({format, names.back().c_str(), DType::kBFloat16});
    }
    return formats;
  }();
  return kRecordFormats;
}

Harness::Harness(const Wish& wish)
    : wish_(wish),
      everything_(!IsNone(wish.filter) || wish.selection == Selection::kLatency),
      machine_(DescribeMachine()),
      memory_budget_(std::min(kMaxMemoryBudget, machine_.memory_bytes / 2)),
      threads_(wish.threads) {
  if (is_brief()) wish_.compares = false;
  try {
    if (!IsNone(wish.filter) && wish.filter[0] != '-') {
      filter_.emplace(wish.filter, std::regex::extended);
    }
  } catch (const std::regex_error&) {
    // Google Benchmark says so when it comes to run.
  }
  for (const TargetInfo& target : Targets()) {
    if (!target.runnable || (is_brief() && !targets_.empty())) continue;
    if (wish.only == Target::kAuto || wish.only == target.target) targets_.push_back(target);
  }
  if (threads_.counts.empty()) {
    for (size_t n = 1; n < machine_.cores; n *= 2) threads_.counts.push_back(n);
    threads_.counts.push_back(machine_.cores);
  }
  for (const bool is_openmp : {false, true}) {
    if (is_openmp && !kHasOpenMp) continue;
    for (const size_t threads : threads_.counts) team_specs_.push_back({threads, is_openmp});
  }
  const bool is_list = is_brief() || (!everything_ && wish.selection == Selection::kDefault);
  if (is_list && !targets_.empty()) {
    selected_rows_.emplace(wish.selection, targets_[0].name, threads_);
  }
}

void Harness::AddSpeedup(const std::string& name, benchmark::UserCounters& counters) {
  const size_t begin = name.find("/threads:");
  const auto median = counters.find("median_ms");
  if (begin == std::string::npos || median == counters.end()) return;
  const size_t end = std::min(name.find('/', begin + 1), name.size());
  const std::string others = name.substr(0, begin) + name.substr(end);
  if (name.substr(begin, end - begin) == "/threads:1") {
    one_thread_ms_[others] = median->second;
  } else if (const auto one = one_thread_ms_.find(others); one != one_thread_ms_.end()) {
    counters["speedup"] = one->second / median->second;
  }
}

Team& Harness::team(const TeamSpec& spec) {
  std::unique_ptr<Team>& team = teams_[spec];
  if (team == nullptr) team = std::make_unique<Team>(spec);
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
  add("selection", everything_ && !is_brief() ? "filter" : Name(wish_.selection));
  add("llc_bytes", std::to_string(machine_.llc_bytes));
  add("all_llc_bytes", std::to_string(machine_.all_llc_bytes));
  std::string names;
  for (const TargetInfo& target : targets_) {
    names += (names.empty() ? "" : " ") + std::string(target.name);
  }
  add("targets", names);
  double load = 0.0;
  if (getloadavg(&load, 1) == 1) add("load_at_start", Rounded(load));
  if (compares()) {
    for (const auto& [name, version] : DescribeContenders()) add(name, version);
  }

  for (const size_t threads : thread_counts()) {
    if (!is_brief() && !IsShown(threads)) continue;
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
