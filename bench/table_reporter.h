// SPDX-License-Identifier: Apache-2.0
// One short line a row, while it is measured; all counters are in the JSON.
#ifndef LATHE_BENCH_TABLE_REPORTER_H_
#define LATHE_BENCH_TABLE_REPORTER_H_

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

namespace lathe::bench {

// "[n/total]", the values of the name's fields, and the counters that rows of this operation have. The fields'
// names and the counters' titles stand above, whenever the operation is another one. No line is longer than
// kMaxColumns.
class TableReporter : public benchmark::ConsoleReporter {
 public:
  static constexpr size_t kMaxColumns = 120;

  explicit TableReporter(int total) : ConsoleReporter(OO_None), total_(total) {}
  // Says what the columns mean. The program has said more about the machine than the base class would,
  // and has clocks of its own, which do not suffer from a debug build of Google Benchmark.
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

 private:
  void PrintRow(const Run& run);

  int total_;
  int row_ = 0;
  std::string shape_;            // the operation and the names of its fields, as last printed
  std::vector<size_t> columns_;  // of kColumns, as last printed
};

// The JSON of the rows that were measured: those after a stop were not.
class RowsReporter : public benchmark::JSONReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override;
};

}  // namespace lathe::bench

#endif  // LATHE_BENCH_TABLE_REPORTER_H_
