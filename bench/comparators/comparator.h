// SPDX-License-Identifier: Apache-2.0
// What a user would otherwise decode with, measured beside lathe on the same data.
#ifndef LATHE_BENCH_COMPARATORS_COMPARATOR_H_
#define LATHE_BENCH_COMPARATORS_COMPARATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/team.h"
#include "lathe/mla_decode.h"

namespace lathe::bench {

// One decode step: `batch` sequences of `keys` keys and `q_len` queries each, causal. Query and
// output are of the cache's type and dense.
struct DecodeTask {
  MlaShape shape;
  float softmax_scale;
  int64_t batch, q_len, keys;
  DType type;

  int64_t rows() const { return q_len * shape.num_heads; }  // of each sequence
  // Keys that row `row` of a sequence sees.
  int64_t Visible(int64_t row) const { return keys - q_len + row / shape.num_heads + 1; }
};

class Comparator {
 public:
  virtual ~Comparator() = default;
  // Writes args.out and args.lse, as RunMlaDecode does. All it reads of args.keys are pages and
  // block table: there are `keys` keys.
  virtual void Run(const MlaDecodeArgs& args) = 0;
  // Keys of each sequence it works on; less than the task's where the whole would take minutes.
  virtual int64_t keys() const = 0;
  // Whether it runs on the row's team (or on one thread); otherwise on threads of a library's own.
  virtual bool is_on_team() const { return true; }
  virtual std::string Describe() const = 0;
};

// Ways to use one library, of which the fastest counts. Made one at a time; null where the library
// cannot do it on this machine.
struct Contender {
  const char* name;  // of its counters: "vs_<name>", "<name>_ms"
  std::vector<std::function<std::unique_ptr<Comparator>()>> ways;
};

// All that this program was built with. `team` outlives them.
std::vector<Contender> Contenders(const DecodeTask& task, Team& team);

// Names and versions, for reports.
std::vector<std::pair<std::string, std::string>> DescribeContenders();

std::unique_ptr<Comparator> MakeScalarDecode(const DecodeTask& task, Team& team);

}  // namespace lathe::bench

#endif  // LATHE_BENCH_COMPARATORS_COMPARATOR_H_
