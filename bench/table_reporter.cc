// SPDX-License-Identifier: Apache-2.0
#include "bench/table_reporter.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <ostream>
#include <string>

#include "bench/stop.h"

namespace lathe::bench {
namespace {

// Fractions are shown as per cent.
struct Column {
  const char* title;
  const char* counter;
  const char* format;
  double factor;
  size_t width;
};
constexpr Column kColumns[] = {
    {"ms", "median_ms", "%.3f", 1.0, 10},           {"+-%", "mad_percent", "%.1f", 1.0, 5},
    {"GFLOP/s", "GFLOP/s", "%.1f", 1.0, 8},         {"GB/s", "GB/s", "%.2f", 1.0, 7},
    {"%flop", "of_flop_ceiling", "%.1f", 100.0, 6}, {"%read", "of_read_ceiling", "%.1f", 100.0, 6},
    {"speedup", "speedup", "x%.2f", 1.0, 8},        {"%memcpy", "of_memcpy", "%.1f", 100.0, 8},
    {"%decode", "of_decode", "%.2f", 100.0, 8},     {"copy", "vs_copy", "x%.2f", 1.0, 7},
    {"dense", "vs_dense", "x%.2f", 1.0, 7},         {"onednn", "vs_onednn", "x%.2f", 1.0, 7},
    {"openblas", "vs_openblas", "x%.2f", 1.0, 9},   {"scalar", "vs_scalar", "x%.1f", 1.0, 7},
    {"nth_el.", "vs_nth_element", "x%.1f", 1.0, 8}, {"vqselect", "vs_vqselect", "x%.1f", 1.0, 9},
};
constexpr const char* kExtraFields[] = {"q_len", "dims", "precision", "executor"};
constexpr char kLegend[] =
    "ms: median time of a call; +-%: median deviation of its samples from that. GFLOP/s, GB/s: "
    "products,\n"
    "bytes of keys (or read and written) a second. %flop, %read: of what this machine can multiply "
    "and\n"
    "read, measured around each sample; speedup: over one thread; %memcpy: of copying as many "
    "bytes;\n"
    "%decode: of the time of a decode. copy, dense, onednn, openblas, scalar, nth_el., vqselect: "
    "how many\n"
    "times as long the same takes by those. [n/m]: row n of m. Ctrl-C ends the run and keeps what "
    "is done.\n";

std::string PadLeft(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

bool HasCounter(const benchmark::BenchmarkReporter::Run& run, const Column& column) {
  return run.counters.find(column.counter) != run.counters.end();
}

std::string Cell(const Column& column, const benchmark::UserCounters& counters) {
  const auto found = counters.find(column.counter);
  if (found == counters.end()) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), column.format, found->second.value * column.factor);
  return text;
}

// "Topk/rows:1/k:512" -> "Topk rows/k" (keys) and "1/512" (values). Fields that only some rows have keep their
// names among the values, so that these rows stand under the titles of the others.
void Split(const std::string& name, std::string* keys, std::string* values) {
  size_t begin = std::min(name.find('/'), name.size());
  *keys = name.substr(0, begin);
  values->clear();
  for (char separator = ' '; begin < name.size(); separator = '/') {
    const size_t end = std::min(name.find('/', begin + 1), name.size());
    const std::string field = name.substr(begin + 1, end - begin - 1);
    const size_t colon = field.find(':');
    const bool is_extra =
        std::any_of(std::begin(kExtraFields), std::end(kExtraFields),
                    [&](const char* extra) { return field.compare(0, colon, extra) == 0; });
    if (!is_extra) *keys += separator + field.substr(0, colon);
    if (separator == '/') *values += '/';
    *values += colon == std::string::npos || is_extra ? field : field.substr(colon + 1);
    begin = end;
  }
}

// A row that was not measured because of a stop; rows that failed have been counted as failures.
bool IsLeftOut(const std::vector<benchmark::BenchmarkReporter::Run>& runs) {
  return IsStopped() && !runs.empty() && runs[0].counters.empty();
}

}  // namespace

bool TableReporter::ReportContext(const Context&) {
  GetOutputStream() << kLegend << std::flush;
  return true;
}

void TableReporter::ReportRuns(const std::vector<Run>& runs) {
  if (IsLeftOut(runs)) return;
  for (const Run& run : runs) {
    if (run.run_type == Run::RT_Iteration && run.repetition_index == 0) ++row_;
    // Errors have no counters; the base class knows how to print them.
    if (run.counters.empty()) {
      ConsoleReporter::PrintRunData(run);
    } else {
      PrintRow(run);
    }
  }
}

void TableReporter::PrintRow(const Run& run) {
  std::ostream& out = GetOutputStream();
  std::string shape, values;
  Split(run.benchmark_name(), &shape, &values);
  const bool has_new_column =
      std::any_of(std::begin(kColumns), std::end(kColumns), [&](const Column& column) {
        const auto index = static_cast<size_t>(&column - kColumns);
        return HasCounter(run, column) &&
               std::find(columns_.begin(), columns_.end(), index) == columns_.end();
      });
  const bool is_other = shape != shape_;
  if (is_other) columns_.clear();
  if (is_other || has_new_column) {
    for (size_t i = 0; i < std::size(kColumns); ++i) {
      if (HasCounter(run, kColumns[i])) columns_.push_back(i);
    }
    std::sort(columns_.begin(), columns_.end());
    columns_.erase(std::unique(columns_.begin(), columns_.end()), columns_.end());
    shape_ = shape;
  }

  std::string titles, cells;
  for (const size_t i : columns_) {
    titles += PadLeft(kColumns[i].title, kColumns[i].width);
    cells += PadLeft(Cell(kColumns[i], run.counters), kColumns[i].width);
  }
  const std::string total = std::to_string(total_);
  const std::string progress =
      "[" + PadLeft(std::to_string(row_), total.size()) + "/" + total + "] ";
  const size_t room = kMaxColumns - cells.size();
  if (is_other || has_new_column) {
    out << '\n' << shape_;
    const size_t used = shape_.size();
    if (used > room) out << '\n';
    out << PadLeft(titles, used > room ? kMaxColumns : kMaxColumns - used) << '\n';
  }
  const std::string name = progress + values;
  out << name;
  if (name.size() > room) out << '\n';
  out << PadLeft(cells, name.size() > room ? kMaxColumns : kMaxColumns - name.size()) << std::endl;
}

void RowsReporter::ReportRuns(const std::vector<Run>& runs) {
  if (IsLeftOut(runs)) return;
  JSONReporter::ReportRuns(runs);
  GetOutputStream().flush();
}

}  // namespace lathe::bench
