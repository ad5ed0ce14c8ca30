// SPDX-License-Identifier: Apache-2.0
// What rows share: the machine, the threads, which rows are wanted, and how one is registered.
#ifndef LATHE_BENCH_HARNESS_H_
#define LATHE_BENCH_HARNESS_H_

#include <benchmark/benchmark.h>

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "bench/ceilings.h"
#include "bench/default_rows.h"
#include "bench/machine.h"
#include "bench/stop.h"
#include "bench/team.h"
#include "lathe/base/keys.h"
#include "lathe/base/status.h"
#include "lathe/base/target.h"

namespace lathe::bench {

// Cache formats by their names in rows, and the type of queries and outputs that goes with each.
struct NamedFormat {
  CacheFormat format;
  const char* name;
  DType activations;
};
inline constexpr NamedFormat kBFloat16Format = {CacheFormat::kLatentBFloat16, "bf16",
                                                DType::kBFloat16};
inline constexpr NamedFormat kFloat32Format = {CacheFormat::kLatentFloat32, "float32",
                                               DType::kFloat32};
inline constexpr NamedFormat kFormats[] = {
    kBFloat16Format, kFloat32Format, {CacheFormat::kLatentFloat16, "float16", DType::kFloat16}};
// Narrow codes with scales. Rows of the widths that these have; queries in bfloat16.
inline constexpr NamedFormat kQuantizedFormats[] = {
    {CacheFormat::kLatentFp8E4m3, "fp8_e4m3", DType::kBFloat16},
    {CacheFormat::kFp8DsMla, "fp8_ds_mla", DType::kBFloat16},
    {CacheFormat::kFp8Ds4, "fp8_ds4", DType::kBFloat16},
    {CacheFormat::kDs41Fp8, "ds41_fp8", DType::kBFloat16},
    {CacheFormat::kDs41Fp4, "ds41_fp4", DType::kBFloat16},
    {CacheFormat::kNvfp4DsMla, "nvfp4_ds_mla", DType::kBFloat16},
    {CacheFormat::kIndexerFp8, "indexer_fp8", DType::kBFloat16},
    {CacheFormat::kIndexerMxfp4, "indexer_mxfp4", DType::kBFloat16}};

// A row that cannot be measured: wrong results, a refused call.
struct RowError : std::exception {
  explicit RowError(std::string text) : message(std::move(text)) {}
  const char* what() const noexcept override { return message.c_str(); }
  std::string message;
};

inline void Require(const Status& status) {
  if (!status.ok()) throw RowError(Format(status).c_str());
}

class Harness {
 public:
  // filter: what --benchmark_filter says; if it is "" or ".", rows are those of DefaultRows or, with is_long, all
  // of Wants(true); else all that match.
  // compares: rows are measured against comparators. only: kAuto, or the one target.
  Harness(const std::string& filter, bool is_long, bool compares, Target only);

  const Machine& machine() const { return machine_; }
  const std::vector<TargetInfo>& targets() const { return targets_; }  // best first
  const std::vector<size_t>& thread_counts() const { return thread_counts_; }
  size_t memory_budget() const { return memory_budget_; }
  bool compares() const { return compares_; }
  size_t all_threads() const { return machine_.cores; }

  // Whether a row is to be registered: those in `by_default` always, others on demand.
  bool Wants(bool by_default) const { return everything_ || by_default; }
  // The target of rows that are shown for one target only.
  bool IsBest(const TargetInfo& target) const { return target.target == targets_[0].target; }
  // The counts that a run without a filter shows.
  bool IsOneOrAll(size_t threads) const { return threads == 1 || threads == all_threads(); }

  Team& team(size_t threads);
  ReadProbe& dram();

  // body(state) is the row; what it throws becomes the row's error, and the program's. Counter row_seconds: all that
  // the row took, with its caches, checks and comparators.
  template <class F>
  void Register(const std::string& name, F body) {
    if (!IsMeant(name)) return;
    ++num_rows_;
    benchmark::RegisterBenchmark(name.c_str(), [this, body](benchmark::State& state) {
      if (IsStopped()) return state.SkipWithError("stopped");
      const Clock::time_point start = Clock::now();
      try {
        body(state);
        state.counters["row_seconds"] = Seconds(Clock::now() - start);
      } catch (const std::exception& e) {
        failed_ = true;
        state.SkipWithError(e.what());
      }
    })->Unit(benchmark::kMillisecond);
  }
  bool failed() const { return failed_; }
  int num_rows() const { return num_rows_; }

  // The same for rows that hold `bytes` of caches, unless there is too little memory for that.
  template <class F>
  void RegisterLarge(const std::string& name, int64_t bytes, F body) {
    if (bytes > static_cast<int64_t>(memory_budget_)) {
      if (IsMeant(name)) ++skipped_for_memory_;
    } else {
      Register(name, body);
    }
  }
  // Says how many rows the filter leaves, how long they take and how many are left out.
  void ReportRows() const;

  // Machine, version, targets and ceilings, for the context of reports. A tenth of a second.
  std::vector<std::pair<std::string, std::string>> Context();

 private:
  // As Google Benchmark's filter does it, but for "-REGEX", which is taken for all rows.
  bool IsMeant(const std::string& name) const {
    if (default_rows_) return default_rows_->Has(name);
    return !filter_ || std::regex_search(name, *filter_);
  }

  bool everything_;
  bool compares_;
  bool failed_ = false;
  std::optional<std::regex> filter_;  // none: all names match
  std::optional<DefaultRows> default_rows_;
  int num_rows_ = 0;
  int skipped_for_memory_ = 0;
  Machine machine_;
  size_t memory_budget_;
  std::vector<TargetInfo> targets_;
  std::vector<size_t> thread_counts_;
  std::map<size_t, std::unique_ptr<Team>> teams_;
  std::unique_ptr<MemoryProbe> dram_;
};

void RegisterMlaDecode(Harness& harness);
void RegisterLatentWrite(Harness& harness);
void RegisterLatentGather(Harness& harness);
void RegisterIndexer(Harness& harness);
void RegisterMergeStates(Harness& harness);
void RegisterPrefill(Harness& harness);
void RegisterQueryPrep(Harness& harness);
void RegisterTopk(Harness& harness);
void RegisterCompressor(Harness& harness);
void RegisterChecks(Harness& harness);
void RegisterSparseMla(Harness& harness);
void RegisterSlidingWindow(Harness& harness);

}  // namespace lathe::bench

#endif  // LATHE_BENCH_HARNESS_H_
