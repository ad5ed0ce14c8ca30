// SPDX-License-Identifier: Apache-2.0
// Whether a decode row's results are right: the first and the last head of the last token, against the
// reference in double.
#ifndef LATHE_BENCH_DECODE_CHECK_H_
#define LATHE_BENCH_DECODE_CHECK_H_

#include <cstdint>

#include "bench/tensor.h"
#include "lathe/mla_decode.h"
#include "lathe/ref/attention_ref.h"

namespace lathe::bench {

constexpr int64_t kCheckedHeads = 2;

// What a decode call is, but for keys and what goes with them.
struct DecodeCall {
  MlaShape shape;
  MlaDecodeOptions options;
  int64_t batch = 0;
  int64_t q_len = 1;
  DType activations = DType::kBFloat16;  // of query and output
  size_t threads = 1;

  int64_t tokens() const { return batch * q_len; }
};

// Random queries, but for the checked heads of the last token: these are the same in every call, so that
// calls over the same keys have the same reference.
Tensor<3> MakeQuery(const DecodeCall& call);

// The reference for these heads. `args` as for the call itself; query, query_start_loc and results are
// not read. In double over all keys, seconds for long sequences.
ref::AttentionResult CheckedReference(const DecodeCall& call, MlaDecodeArgs args);

// Where results go, and whether they are right.
class Results {
 public:
  explicit Results(const DecodeCall& call);

  void AddTo(MlaDecodeArgs* args) const;
  // Relative to the size of the outputs, which shrink with the number of keys; a wrong page or a lost
  // key is far outside, while the tests are there for the last digits. Throws RowError.
  void Check(const ref::AttentionResult& reference) const;

  size_t bytes() const { return out_.bytes(); }

 private:
  int64_t tokens_, heads_;
  Tensor<3> out_;
  Tensor<2> lse_;
  double tolerance_;
};

}  // namespace lathe::bench

#endif  // LATHE_BENCH_DECODE_CHECK_H_
