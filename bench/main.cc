// SPDX-License-Identifier: Apache-2.0
// lathe_bench [--all | --latency] [--perf=N] [--benchmark_filter=REGEX] [Google Benchmark's other options]
//
// Without a filter (or with ".") it measures the default selection of selection.cc, with --all a larger one: the best
// target at every number of heads and keys, the other targets at two sizes; with --latency one token on 1, 2, 4, ...
// and all cores, with nothing that rows are compared with. A filter chooses from all rows (or of --latency's); ".*"
// would take days. --perf=N calls the one row that the filter leaves N times, after a check of its result and without
// any clock, for a profiler around this program. Ctrl-C ends the run after the row that is being measured. Rows are named
//
//   MlaDecode/heads:H/keys:S/batch:B/format:F/target:T/threads:N/cache:warm|cold[/q_len:Q][/dims:D-Dv]
//       [/precision:bf16][/executor:openmp]
//   SparseMla/heads:H/keys:K/context:L/batch:B/format:F/target:T/threads:N/cache:warm|cold[/precision:bf16]
//       [/executor:openmp]
//   V4Decode/model:flash|pro/layer:window|ratio4|ratio128/context:L/batch:B/format:F/target:T/threads:N[/executor:openmp]
//   VllmMla/batch:B/heads:H/keys:S/format:F/target:T/threads:N
//   LatentWrite/tokens:N/from:F/to:G/target:T/threads:N
//   LatentGather/tokens:N/from:F/to:G/target:T/threads:N
//   IndexerLogits/rows:R/keys:S/heads:H/format:F/target:T/threads:N[/executor:openmp]
//   IndexerTopk/k:K/rows:R/keys:S/heads:H/format:F/target:T/threads:N[/executor:openmp]
//   MergeStates/parts:P/tokens:T/heads:H/format:F/target:T/threads:N
//   Prefill/way:W/tokens:T/context:C/heads:H/format:F/target:T/threads:N
//   QueryPrep/kind:K/tokens:T/target:T/threads:N
//   Topk/rows:R/columns:L/k:K/target:T/threads:N
//   Compressor/kind:K/seqs:B/tokens:N/from:F/target:T/threads:N
//   Checks/call:plan|run/heads:H/keys:S/batch:B/target:T/threads:N
//
// LATHE_TARGET=NAME in the environment keeps one target, LATHE_BENCH_THREADS=1,4,16 chooses the numbers of threads of
// every row and selection. LATHE_BENCH_COMPARATORS=0 leaves out what
// decode is compared with (rows of the best target are); ONEDNN_MAX_CPU_ISA and OPENBLAS_CORETYPE
// choose the libraries' kernels, e.g. to compare AVX2 with AVX2. A row whose result is wrong is an
// error, and so is the exit status.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/harness.h"
#include "bench/measure.h"
#include "bench/selection.h"
#include "bench/stop.h"
#include "bench/table_reporter.h"
#include "lathe/base/target.h"

namespace lathe::bench {
namespace {

constexpr int kStoppedStatus = 130;  // as shells have it for an interrupted program

// The value of --name=value, or "".
std::string FlagValue(int argc, char** argv, const std::string& name) {
  const std::string prefix = "--" + name + "=";
  std::string value;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.compare(0, prefix.size(), prefix) == 0) value = argument.substr(prefix.size());
  }
  return value;
}

// kAuto when the environment does not say. False, with a message, when it asks for what cannot run.
bool TargetFromEnvironment(Target* target) {
  const char* wanted = std::getenv("LATHE_TARGET");
  *target = Target::kAuto;
  if (wanted == nullptr || *wanted == '\0') return true;
  for (const TargetInfo& info : Targets()) {
    if (std::string(wanted) != info.name) continue;
    *target = info.target;
    if (!info.runnable) std::fprintf(stderr, "LATHE_TARGET=%s: %s\n", wanted, info.reason);
    return info.runnable;
  }
  std::fprintf(stderr, "LATHE_TARGET=%s is no target; there are:", wanted);
  for (const TargetInfo& info : Targets()) std::fprintf(stderr, " %s", info.name);
  std::fprintf(stderr, "\n");
  return false;
}

// LATHE_BENCH_THREADS, "1,4,16". False, with a message, when it is no list of counts that this machine has.
bool ThreadsFromEnvironment(size_t cores, ThreadCounts* threads) {
  const char* wanted = std::getenv("LATHE_BENCH_THREADS");
  if (wanted == nullptr || *wanted == '\0') return true;
  threads->are_chosen = true;
  for (const char* at = wanted;; ++at) {
    char* end = nullptr;
    const unsigned long count =
        std::isdigit(static_cast<unsigned char>(*at)) != 0 ? std::strtoul(at, &end, 10) : 0;
    if (count == 0 || count > cores || (*end != ',' && *end != '\0')) {
      std::fprintf(stderr, "LATHE_BENCH_THREADS=%s: expected numbers from 1 to %zu, by commas\n",
                   wanted, cores);
      return false;
    }
    threads->counts.push_back(count);
    at = end;
    if (*at == '\0') break;
  }
  std::sort(threads->counts.begin(), threads->counts.end());
  threads->counts.erase(std::unique(threads->counts.begin(), threads->counts.end()),
                        threads->counts.end());
  return true;
}

// Takes a flag out of the arguments, as Google Benchmark takes its own.
bool Take(const std::string& flag, int* argc, char** argv) {
  char** end = std::remove(argv + 1, argv + *argc, flag);
  const bool is_there = end != argv + *argc;
  *argc = static_cast<int>(end - argv);
  return is_there;
}

// --perf=N, taken in the same way; 0 without. False, with a message, if N is no number of calls.
bool TakeCalls(int* argc, char** argv, int64_t* calls) {
  const std::string value = FlagValue(*argc, argv, "perf");
  *calls = std::strtoll(value.c_str(), nullptr, 10);
  const bool is_there = Take("--perf=" + value, argc, argv);
  if (is_there && *calls < 1)
    std::fprintf(stderr, "--perf=%s: expected a number of calls\n", value.c_str());
  return !is_there || *calls >= 1;
}

void WarnOfLoad(size_t cores) {
  double load = 0.0;
  if (getloadavg(&load, 1) != 1 || load < 0.3 * static_cast<double>(cores)) return;
  std::fprintf(stderr, "WARNING: this machine is busy: a load of %.1f on %zu cores\n", load, cores);
}

int Main(int argc, char** argv) {
  Wish wish;
  if (Take("--all", &argc, argv)) wish.selection = Selection::kLong;
  if (Take("--latency", &argc, argv)) wish.selection = Selection::kLatency;
  if (!TakeCalls(&argc, argv, &wish.calls) || !TargetFromEnvironment(&wish.only) ||
      !ThreadsFromEnvironment(DescribeMachine().cores, &wish.threads)) {
    return EXIT_FAILURE;
  }
  wish.filter = FlagValue(argc, argv, "benchmark_filter");
  // A row of so many iterations has another name for Google Benchmark's filter; the harness has its own.
  if (wish.calls > 0) Take("--benchmark_filter=" + wish.filter, &argc, argv);
  const bool has_own_format = !FlagValue(argc, argv, "benchmark_format").empty();
  const std::string out_format = FlagValue(argc, argv, "benchmark_out_format");
  const bool writes_json = !FlagValue(argc, argv, "benchmark_out").empty() &&
                           (out_format.empty() || out_format == "json");
  const bool is_list = std::any_of(argv + 1, argv + argc, [](const char* argument) {
    return std::string(argument).compare(0, 22, "--benchmark_list_tests") == 0;
  });
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;

  const char* comparators = std::getenv("LATHE_BENCH_COMPARATORS");
  wish.compares = comparators == nullptr || std::string(comparators) != "0";
  Harness harness(wish);
  RegisterMlaDecode(harness);
  RegisterLatentWrite(harness);
  RegisterLatentGather(harness);
  RegisterIndexer(harness);
  RegisterMergeStates(harness);
  RegisterPrefill(harness);
  RegisterQueryPrep(harness);
  RegisterTopk(harness);
  RegisterCompressor(harness);
  RegisterSparseMla(harness);
  RegisterSlidingWindow(harness);
  RegisterVllmMla(harness);
  RegisterChecks(harness);

  if (wish.calls > 0) {
    if (harness.num_rows() != 1) {
      std::fprintf(
          stderr,
          "--perf wants a filter that leaves one row, not %d; see them by --benchmark_list_tests\n",
          harness.num_rows());
      return EXIT_FAILURE;
    }
    OnlyCall();
  }
  const bool is_timed = !is_list && wish.calls == 0;
  if (is_timed) {
    harness.ReportRows();
    WarnOfLoad(harness.machine().cores);
    for (const auto& [key, value] : harness.Context()) {
      benchmark::AddCustomContext(key, value);
      // Those of the start; the summary shows the ones that percents are of.
      if (key.find("_ceiling") != std::string::npos) continue;
      std::fprintf(stderr, "%s: %s\n", key.c_str(), value.c_str());
    }
    StopOnSignals();
  }
  TableReporter table(harness.num_rows());
  RowsReporter rows;
  const size_t matched = benchmark::RunSpecifiedBenchmarks(
      has_own_format || !is_timed ? nullptr : &table, writes_json && is_timed ? &rows : nullptr);
  benchmark::Shutdown();
  if (IsStopped()) return kStoppedStatus;
  return matched > 0 && !harness.failed() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace lathe::bench

int main(int argc, char** argv) { return lathe::bench::Main(argc, argv); }
