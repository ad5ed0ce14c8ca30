// SPDX-License-Identifier: Apache-2.0
// One short line a row, while it is measured; all counters are in the JSON.
#ifndef LATHE_BENCH_TABLE_REPORTER_H_
#define LATHE_BENCH_TABLE_REPORTER_H_

#include <benchmark/benchmark.h>

namespace lathe::bench {

class TableReporter : public benchmark::ConsoleReporter {
 public:
  TableReporter() : ConsoleReporter(OO_None) {}
  // Prints nothing: the program has said more about the machine, and has clocks of its own, which
  // do not suffer from a debug build of Google Benchmark.
  bool ReportContext(const Context& context) override;

 protected:
  void PrintHeader(const Run& run) override;
  void PrintRunData(const Run& run) override;
};

}  // namespace lathe::bench

#endif  // LATHE_BENCH_TABLE_REPORTER_H_
