// SPDX-License-Identifier: Apache-2.0
#include "bench/default_rows.h"

#include <algorithm>

namespace lathe::bench {
namespace {

// BEST is the best target, ALL all threads. A row takes about 2.5 s, so 140 are the six minutes that a default run may
// take on two cores; `./dev bench --all` has three times as many.
constexpr const char* kRows[] = {
    // Models: the heads of V2-Lite, GLM-4.7-Flash, Kimi-K2 and V3 over caches in memory.
    "MlaDecode/heads:(16|20|64|128)/keys:(32768|131072)/batch:1/format:bf16/target:BEST/"
    "threads:(1|ALL)/cache:cold",
    "SparseMla/heads:128/.*/target:BEST/threads:(1|ALL)/cache:cold",
    "V4Decode/.*/target:BEST/threads:(1|ALL)",
    "IndexerTopk/k:(512|1024|2048)/rows:1/keys:65536/.*format:indexer_fp8/target:BEST/"
    "threads:(1|ALL)",
    // The kernel against the arithmetic ceiling, and batches.
    "MlaDecode/heads:(8|16|20|64|128)/keys:4096/batch:1/format:bf16/target:BEST/threads:1/"
    "cache:warm",
    "MlaDecode/heads:(16|128)/keys:4096/batch:32/format:bf16/target:BEST/threads:ALL/cache:cold",
    "MlaDecode/heads:(16|128)/keys:4096/batch:1/format:float32/target:BEST/threads:1/cache:warm",
    // Quantised caches; other targets.
    "MlaDecode/heads:(16|128)/keys:32768/batch:1/format:(fp8|nvfp4|ds41).*/target:BEST/threads:ALL/"
    "cache:cold.*",
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

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
  return text;
}

}  // namespace

DefaultRows::DefaultRows(const std::string& best, size_t all_threads) {
  for (const char* row : kRows) {
    const std::string text =
        Replaced(Replaced(row, "BEST", best), "ALL", std::to_string(all_threads));
    rows_.emplace_back(text, std::regex::extended);
  }
}

bool DefaultRows::Has(const std::string& name) const {
  return std::any_of(rows_.begin(), rows_.end(),
                     [&](const std::regex& row) { return std::regex_match(name, row); });
}

}  // namespace lathe::bench
