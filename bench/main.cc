// SPDX-License-Identifier: Apache-2.0
// lathe_bench [--all] [--benchmark_filter=REGEX] [Google Benchmark's other options]
//
// Without a filter (or with ".") it measures the selection of default_rows.cc, with --all a larger one: the best
// target at every number of heads and keys, the other targets at two sizes. A filter chooses from all rows; ".*"
// would take days. Ctrl-C ends the run after the row that is being measured. Rows are named
//
//   MlaDecode/heads:H/keys:S/batch:B/format:F/target:T/threads:N/cache:warm|cold[/q_len:Q][/dims:D-Dv]
//   SparseMla/heads:H/keys:K/context:L/batch:B/format:F/target:T/threads:N/cache:warm|cold[/precision:bf16]
//   V4Decode/model:flash|pro/layer:window|ratio4|ratio128/context:L/batch:B/format:F/target:T/threads:N
//   LatentWrite/tokens:N/from:F/to:G/target:T/threads:N
//   LatentGather/tokens:N/from:F/to:G/target:T/threads:N
//   IndexerLogits/rows:R/keys:S/heads:H/format:F/target:T/threads:N
//   IndexerTopk/k:K/rows:R/keys:S/heads:H/format:F/target:T/threads:N
//   MergeStates/parts:P/tokens:T/heads:H/format:F/target:T/threads:N
//   Prefill/way:W/tokens:T/context:C/heads:H/format:F/target:T/threads:N
//   QueryPrep/kind:K/tokens:T/target:T/threads:N
//   Topk/rows:R/columns:L/k:K/target:T/threads:N
//   Compressor/kind:K/seqs:B/tokens:N/from:F/target:T/threads:N
//   Checks/call:plan|run/heads:H/keys:S/batch:B/target:T/threads:N
//
// LATHE_TARGET=NAME in the environment keeps one target. LATHE_BENCH_COMPARATORS=0 leaves out what
// decode is compared with (rows of the best target are); ONEDNN_MAX_CPU_ISA and OPENBLAS_CORETYPE
// choose the libraries' kernels, e.g. to compare AVX2 with AVX2. A row whose result is wrong is an
// error, and so is the exit status.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/harness.h"
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

// Takes --all out of the arguments, as Google Benchmark takes its own.
bool TakeAll(int* argc, char** argv) {
  char** end = std::remove_if(argv + 1, argv + *argc, [](const char* argument) {
    return std::string(argument) == "--all";
  });
  const bool is_there = end != argv + *argc;
  *argc = static_cast<int>(end - argv);
  return is_there;
}

void WarnOfLoad(size_t cores) {
  double load = 0.0;
  if (getloadavg(&load, 1) != 1 || load < 0.3 * static_cast<double>(cores)) return;
  std::fprintf(stderr, "WARNING: this machine is busy: a load of %.1f on %zu cores\n", load, cores);
}

int Main(int argc, char** argv) {
  const bool is_long = TakeAll(&argc, argv);
  Target only;
  if (!TargetFromEnvironment(&only)) return EXIT_FAILURE;
  const std::string filter = FlagValue(argc, argv, "benchmark_filter");
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
  const bool compares = comparators == nullptr || std::string(comparators) != "0";
  Harness harness(filter, is_long, compares, only);
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
  RegisterChecks(harness);

  if (!is_list) {
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
      has_own_format || is_list ? nullptr : &table, writes_json && !is_list ? &rows : nullptr);
  benchmark::Shutdown();
  if (IsStopped()) return kStoppedStatus;
  return matched > 0 && !harness.failed() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace lathe::bench

int main(int argc, char** argv) { return lathe::bench::Main(argc, argv); }
