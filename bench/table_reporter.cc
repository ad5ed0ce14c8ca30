// SPDX-License-Identifier: Apache-2.0
#include "bench/table_reporter.h"

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <string>

namespace lathe::bench {
namespace {

// Fractions are shown as per cent.
struct Column {
  const char* title;
  const char* counter;
  const char* format;
  double factor;
};
constexpr Column kColumns[] = {
    {"ms", "median_ms", "%.3f", 1.0},
    {"+-%", "mad_percent", "%.1f", 1.0},
    {"GFLOP/s", "GFLOP/s", "%.1f", 1.0},
    {"GB/s", "GB/s", "%.2f", 1.0},
    {"%flop", "of_flop_ceiling", "%.1f", 100.0},
    {"%read", "of_read_ceiling", "%.1f", 100.0},
    {"%memcpy", "of_memcpy", "%.1f", 100.0},
    {"%decode", "of_decode", "%.2f", 100.0},
    {"dense", "vs_dense", "x%.2f", 1.0},
    {"onednn", "vs_onednn", "x%.2f", 1.0},
    {"openblas", "vs_openblas", "x%.2f", 1.0},
    {"scalar", "vs_scalar", "x%.1f", 1.0},
    {"nth_el.", "vs_nth_element", "x%.1f", 1.0},
    {"vqselect", "vs_vqselect", "x%.1f", 1.0},
};
constexpr int kColumnWidth = 9;

std::string PadLeft(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string Cell(const Column& column, const benchmark::UserCounters& counters) {
  const auto found = counters.find(column.counter);
  if (found == counters.end()) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), column.format, found->second.value * column.factor);
  return text;
}

}  // namespace

bool TableReporter::ReportContext(const Context& context) {
  name_field_width_ = context.name_field_width;
  return true;
}

void TableReporter::PrintHeader(const Run&) {
  std::ostream& out = GetOutputStream();
  out << std::string(name_field_width_, ' ');
  for (const Column& column : kColumns) out << PadLeft(column.title, kColumnWidth);
  out << std::endl;
}

void TableReporter::PrintRunData(const Run& run) {
  // Errors have no counters; the base class knows how to print them.
  if (run.counters.empty()) return ConsoleReporter::PrintRunData(run);
  std::ostream& out = GetOutputStream();
  std::string name = run.benchmark_name();
  name.resize(std::max(name.size(), name_field_width_), ' ');
  out << name;
  for (const Column& column : kColumns) out << PadLeft(Cell(column, run.counters), kColumnWidth);
  out << std::endl;
}

}  // namespace lathe::bench
