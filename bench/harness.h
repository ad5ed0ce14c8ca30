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
#include "bench/machine.h"
#include "bench/measure.h"
#include "bench/selection.h"
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
// All others of cache/formats.def, by their names there: kFp8DsMla is "fp8_ds_mla", kLatentFp8E4m3 "fp8_e4m3". Rows of
// the widths that these have; queries in bfloat16.
const std::vector<NamedFormat>& RecordFormats();

// A row that cannot be measured: wrong results, a refused call.
struct RowError : std::exception {
  explicit RowError(std::string text) : message(std::move(text)) {}
  const char* what() const noexcept override { return message.c_str(); }
  std::string message;
};

inline void Require(const Status& status) {
  if (!status.ok()) throw RowError(Format(status).c_str());
}

// What a run is asked for.
struct Wish {
  std::string filter;  // what --benchmark_filter says; "" and "." are none
  Selection selection = Selection::kDefault;
  bool compares = true;         // rows are measured against comparators
  Target only = Target::kAuto;  // or the one target
  ThreadCounts threads;         // none: 1, 2, 4, ... and all cores
  int64_t calls = 0;            // of one row, under a profiler; 0: rows are timed
};

class Harness {
 public:
  // A filter alone chooses from all rows; beside kLatency, from that selection.
  explicit Harness(const Wish& wish);

  const Machine& machine() const { return machine_; }
  const std::vector<TargetInfo>& targets() const { return targets_; }  // best first
  const std::vector<size_t>& thread_counts() const { return threads_.counts; }
  // The same counts of the pool and, where the compiler has it, OpenMP.
  const std::vector<TeamSpec>& team_specs() const { return team_specs_; }
  size_t memory_budget() const { return memory_budget_; }
  bool compares() const { return wish_.compares; }
  // Rows have their own times only, nothing that they are compared with.
  bool is_brief() const { return wish_.selection == Selection::kLatency; }
  size_t all_threads() const { return threads_.most(); }

  // Whether a row is to be registered: those in `by_default` always, others on demand.
  bool Wants(bool by_default) const { return everything_ || by_default; }
  // The target of rows that are shown for one target only.
  bool IsBest(const TargetInfo& target) const { return target.target == targets_[0].target; }
  // The counts that a run without a filter shows.
  bool IsShown(size_t threads) const { return threads_.IsShown(threads); }
  bool IsShown(const TeamSpec& team) const { return !team.is_openmp && IsShown(team.threads); }

  Team& team(const TeamSpec& spec);
  Team& team(size_t threads) { return team(TeamSpec{threads}); }
  ReadProbe& dram();

  // body(state) is the row; what it throws becomes the row's error, and the program's. Counters:
  //
  //   row_seconds   all that the row took, with its caches, checks and comparators
  //   speedup       of a row with several threads: median_ms of the same row with one over its own, where this run has
  //                 measured that before
  template <class F>
  void Register(const std::string& name, F body) {
    if (!IsMeant(name)) return;
    ++num_rows_;
    auto* row =
        benchmark::RegisterBenchmark(name.c_str(), [this, name, body](benchmark::State& state) {
          if (IsStopped()) return state.SkipWithError("stopped");
          const Clock::time_point start = Clock::now();
          try {
            body(state);
            state.counters["row_seconds"] = Seconds(Clock::now() - start);
            AddSpeedup(name, state.counters);
          } catch (const CallsEnd&) {
          } catch (const std::exception& e) {
            failed_ = true;
            state.SkipWithError(e.what());
          }
        });
    row->Unit(benchmark::kMillisecond);
    if (wish_.calls > 0) row->Iterations(wish_.calls);
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
    return (!selected_rows_ || selected_rows_->Has(name)) &&
           (!filter_ || std::regex_search(name, *filter_));
  }
  void AddSpeedup(const std::string& name, benchmark::UserCounters& counters);

  Wish wish_;
  bool everything_;
  bool failed_ = false;
  std::optional<std::regex> filter_;           // none: all names match
  std::optional<SelectedRows> selected_rows_;  // none: all rows
  int num_rows_ = 0;
  int skipped_for_memory_ = 0;
  Machine machine_;
  size_t memory_budget_;
  std::vector<TargetInfo> targets_;
  ThreadCounts threads_;
  std::vector<TeamSpec> team_specs_;
  std::map<TeamSpec, std::unique_ptr<Team>> teams_;
  std::map<std::string, double> one_thread_ms_;
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
void RegisterVllmMla(Harness& harness);
void RegisterSparseMla(Harness& harness);
void RegisterSlidingWindow(Harness& harness);

}  // namespace lathe::bench

#endif  // LATHE_BENCH_HARNESS_H_
