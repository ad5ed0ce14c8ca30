// SPDX-License-Identifier: Apache-2.0
// The rows of a run that is asked for nothing in particular: what a reader of the summary needs, in a few minutes.
#ifndef LATHE_BENCH_DEFAULT_ROWS_H_
#define LATHE_BENCH_DEFAULT_ROWS_H_

#include <cstddef>
#include <regex>
#include <string>
#include <vector>

namespace lathe::bench {

class DefaultRows {
 public:
  // best: the name of the target that the machine takes; all_threads: as many as it has.
  DefaultRows(const std::string& best, size_t all_threads);
  bool Has(const std::string& name) const;

 private:
  std::vector<std::regex> rows_;
};

}  // namespace lathe::bench

#endif  // LATHE_BENCH_DEFAULT_ROWS_H_
