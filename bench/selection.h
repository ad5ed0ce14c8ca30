// SPDX-License-Identifier: Apache-2.0
// The rows of a run that names none: what a reader of the summary needs, in a few minutes.
#ifndef LATHE_BENCH_SELECTION_H_
#define LATHE_BENCH_SELECTION_H_

#include <cstddef>
#include <regex>
#include <string>
#include <vector>

namespace lathe::bench {

enum class Selection {
  kDefault,  // some of every operation
  kLong,     // three times as many: all that rows themselves offer where no filter asks
  kLatency,  // one token against the number of threads
};

// "default"
const char* Name(Selection selection);

// Thread counts of a run, ascending.
struct ThreadCounts {
  std::vector<size_t> counts;
  bool are_chosen = false;  // by the user: then rows of every selection have all of them

  size_t most() const { return counts.back(); }
  // Whether rows that a selection shows with few counts have this one.
  bool IsShown(size_t threads) const { return are_chosen || threads == 1 || threads == most(); }
};

// All rows that a list of regular expressions names; kLong has no list.
class SelectedRows {
 public:
  // best: the name of the target that the machine takes.
  SelectedRows(Selection selection, const std::string& best, const ThreadCounts& threads);
  bool Has(const std::string& name) const;

 private:
  std::vector<std::regex> rows_;
};

}  // namespace lathe::bench

#endif  // LATHE_BENCH_SELECTION_H_
