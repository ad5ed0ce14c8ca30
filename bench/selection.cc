// SPDX-License-Identifier: Apache-2.0
#include "bench/selection.h"

#include <algorithm>

namespace lathe::bench {
namespace {

// BEST is the best target, ALL the most threads, EACH any number. A row takes about 2.5 s, so 140 are the six minutes that
// a default run may take on two cores; `./dev bench --all` has three times as many.
constexpr const char* kDefaultRows[] = {
    // Models: the heads of V2-Lite, GLM-4.7-Flash, Kimi-K2 and V3 over caches in memory.
    "MlaDecode/heads:(16|20|64|128)/keys:(32768|131072)/batch:1/format:bf16/target:BEST/"
    "threads:(1|ALL)/cache:cold",
    "SparseMla/heads:128/.*/target:BEST/threads:(1|ALL)/cache:cold",
    "V4Decode/.*/target:BEST/threads:(1|ALL)",
    "IndexerTopk/k:(512|1024|2048)/rows:1/keys:65536/.*format:indexer_fp8/target:BEST/"
    "threads:(1|ALL)",
    // One token in the latencies' other rows, and vLLM's shapes.
    "MlaDecode/heads:(16|128)/keys:(4096|16384)/batch:1/format:bf16/target:BEST/threads:(1|ALL)/"
    "cache:cold",
    "SparseMla/heads:16/keys:2048/.*/target:BEST/threads:(1|ALL)/cache:cold",
    "IndexerTopk/k:2048/rows:1/keys:131072/.*format:indexer_fp8/target:BEST/threads:(1|ALL)",
    "VllmMla/.*/target:BEST/threads:ALL",
    // The kernel against the arithmetic ceiling, and batches.
    "MlaDecode/heads:(8|16|20|64|128)/keys:4096/batch:1/format:bf16/target:BEST/threads:1/"
    "cache:warm",
    "MlaDecode/heads:(16|128)/keys:4096/batch:32/format:bf16/target:BEST/threads:ALL/cache:cold",
    "MlaDecode/heads:(16|128)/keys:4096/batch:1/format:float32/target:BEST/threads:1/cache:warm",
    // Quantised caches; other targets.
    "MlaDecode/heads:(16|128)/keys:32768/batch:1/format:(fp8_e4m3|fp8_ds.*|nvfp4.*|ds41.*)/"
    "target:BEST/threads:ALL/cache:cold.*",
    "MlaDecode/heads:16/keys:4096/batch:1/format:bf16/target:.*/threads:1/cache:warm",
    // The other operations.
    "LatentWrite/tokens:8192/from:bf16/to:.*/target:BEST/threads:1",
    "LatentWrite/tokens:32/from:bf16/to:bf16/target:BEST/threads:1",
    "LatentGather/.*/from:(bf16|fp8_ds_mla|fp8_ds4|nvfp4_ds_mla)/to:bf16/target:BEST/threads:1",
    "MergeStates/.*/target:BEST/threads:1", "Prefill/.*/target:BEST/threads:(1|ALL)",
    "QueryPrep/kind:.*/tokens:64/target:BEST/threads:1",
    "IndexerLogits/.*/keys:65536/.*format:indexer_fp8/target:BEST/threads:(1|ALL)",
    "Topk/.*/columns:131072/k:2048/target:BEST/threads:(1|ALL)",
    "Compressor/kind:.*/tokens:1/from:bf16/target:BEST/threads:1",
    "Checks/call:.*/heads:16/.*/target:BEST/threads:1"};

// One token: DeepSeek-V3 (128 heads, or 16 of them by tensor parallelism, which is V2-Lite, too), V3.2 behind its indexer,
// V4-Flash and V4-Pro. 85 rows on 16 cores, for which there are four minutes.
constexpr const char* kLatencyRows[] = {
    "MlaDecode/heads:(16|128)/keys:(4096|16384)/batch:1/format:bf16/target:BEST/threads:EACH/"
    "cache:cold",
    "SparseMla/heads:(16|128)/keys:2048/context:65536/batch:1/format:(bf16|fp8_ds_mla)/target:BEST/"
    "threads:EACH/cache:cold",
    "V4Decode/model:flash/layer:window/context:65536/batch:1/format:fp8_ds4/target:BEST/"
    "threads:EACH",
    "V4Decode/model:(flash|pro)/layer:ratio4/context:1048576/batch:1/format:fp8_ds4/target:BEST/"
    "threads:EACH",
    "IndexerTopk/k:2048/rows:1/keys:131072/heads:64/format:indexer_fp8/target:BEST/threads:EACH",
    // OpenMP's team beside the pool.
    "MlaDecode/heads:(16|128)/keys:4096/batch:1/format:bf16/target:BEST/threads:EACH/cache:cold/"
    "executor:openmp",
    "SparseMla/heads:128/keys:2048/context:65536/batch:1/format:fp8_ds_mla/target:BEST/"
    "threads:EACH/cache:cold/executor:openmp",
    "V4Decode/model:flash/layer:ratio4/context:1048576/batch:1/format:fp8_ds4/target:BEST/"
    "threads:EACH/executor:openmp",
    "IndexerTopk/k:2048/rows:1/keys:131072/heads:64/format:indexer_fp8/target:BEST/threads:EACH/"
    "executor:openmp"};

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
  return text;
}

// The threads of a row in a list, as a regular expression.
std::string WithThreads(const std::string& row, const ThreadCounts& threads) {
  if (threads.are_chosen) {
    static const std::regex kField("threads:([0-9A-Z]+|[(][^)]*[)])");
    return std::regex_replace(row, kField, "threads:[0-9]+");
  }
  return Replaced(Replaced(row, "ALL", std::to_string(threads.most())), "EACH", "[0-9]+");
}

}  // namespace

const char* Name(Selection selection) {
  switch (selection) {
    case Selection::kDefault:
      return "default";
    case Selection::kLong:
      return "long";
    case Selection::kLatency:
      return "latency";
  }
  return "unknown";
}

SelectedRows::SelectedRows(Selection selection, const std::string& best,
                           const ThreadCounts& threads) {
  const auto add = [&](const char* row) {
    rows_.emplace_back(WithThreads(Replaced(row, "BEST", best), threads), std::regex::extended);
  };
  if (selection == Selection::kDefault) {
    for (const char* row : kDefaultRows) add(row);
  } else if (selection == Selection::kLatency) {
    for (const char* row : kLatencyRows) add(row);
  }
}

bool SelectedRows::Has(const std::string& name) const {
  return std::any_of(rows_.begin(), rows_.end(),
                     [&](const std::regex& row) { return std::regex_match(name, row); });
}

}  // namespace lathe::bench
