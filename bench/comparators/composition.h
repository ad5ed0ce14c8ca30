// SPDX-License-Identifier: Apache-2.0
// Attention composed of a library's matrix products with a softmax between them, chunk by chunk
// (the online softmax of FlashAttention, arXiv 2205.14135): what a user writes who has a good GEMM.
#ifndef LATHE_BENCH_COMPARATORS_COMPOSITION_H_
#define LATHE_BENCH_COMPARATORS_COMPOSITION_H_

#include <memory>
#include <string>
#include <vector>

#include "bench/comparators/comparator.h"
#include "bench/comparators/gemms.h"
#include "bench/huge_buffer.h"

namespace lathe::bench {

// One way to compose. A chunk of one page is multiplied where it lies; a longer one is first
// gathered, unless its pages follow each other, and is to stay in the second-level cache between
// the products.
struct CompositionPlan {
  int64_t chunk;  // keys, divides the task's
  DType type;     // of the products; the cache's rows are widened where it is another
  // true: the row's threads share sequences, and parts of them where there are fewer sequences than
  // threads, each with single-threaded products. false: the products use the library's own threads.
  bool is_on_team;
};

class Composition : public Comparator {
 public:
  // Null where the library has no such products.
  static std::unique_ptr<Comparator> Make(const DecodeTask& task, Team& team, MakeGemms make_gemms,
                                          const CompositionPlan& plan);

  void Run(const MlaDecodeArgs& args) override;
  int64_t keys() const override { return task_.keys; }
  bool is_on_team() const override { return plan_.is_on_team; }
  std::string Describe() const override;

 private:
  struct Worker {
    std::unique_ptr<Gemms> gemms;
    HugeBuffer memory;
    std::byte *q, *keys, *weights;
    float* scores;
  };
  // Sums over some chunks of a sequence, by row: values weighted by exp(score - max), and the
  // weights.
  struct Sums {
    HugeBuffer values;
    std::vector<float> max, weight;
  };

  Composition(const DecodeTask& task, Team& team, const CompositionPlan& plan);
  bool MakeWorkers(MakeGemms make_gemms);
  void OnWorkers(const std::function<void(size_t)>& f);
  void Attend(const MlaDecodeArgs& args, Worker& worker, int64_t sequence, int64_t split,
              Sums& sums) const;
  const std::byte* Queries(const MlaDecodeArgs& args, Worker& worker, int64_t sequence) const;
  const std::byte* Keys(const KeySet& keys, Worker& worker, int64_t sequence, int64_t chunk) const;
  void Softmax(Worker& worker, int64_t chunk, Sums& sums) const;
  void Merge(const MlaDecodeArgs& args, int64_t sequence, int64_t row);
  void Write(const MlaDecodeArgs& args, int64_t sequence, int64_t row, Sums& sums) const;

  DecodeTask task_;
  Team& team_;
  CompositionPlan plan_;
  int64_t num_splits_;  // of each sequence
  std::vector<Worker> workers_;
  std::vector<Sums> sums_;  // of each worker; where sequences are split, of each of their parts
};

}  // namespace lathe::bench

#endif  // LATHE_BENCH_COMPARATORS_COMPOSITION_H_
