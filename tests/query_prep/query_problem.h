// SPDX-License-Identifier: Apache-2.0
// Queries in adversarial memory, and their preparation against the double reference.
#ifndef LATHE_TESTS_QUERY_PREP_QUERY_PROBLEM_H_
#define LATHE_TESTS_QUERY_PREP_QUERY_PROBLEM_H_

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "lathe/query_prep.h"
#include "lathe/ref/row_transform_ref.h"
#include "support/require_ok.h"
#include "support/row_transform.h"
#include "support/tolerance.h"

namespace lathe::test {

struct QueryCase {
  TransformCase transform = {};
  int64_t width = 128;
  int64_t num_tokens = 3;
  int64_t num_heads = 2;
  DType q_type = DType::kFloat32;
  DType out_type = DType::kFloat32;
};

class QueryProblem {
 public:
  explicit QueryProblem(const QueryCase& c)
      : the_case(c),
        tables(c.transform, c.width),
        q(c.q_type, {c.num_tokens, c.num_heads, c.width}),
        out(c.out_type, {c.num_tokens, c.num_heads, c.width}),
        codes(static_cast<size_t>(c.num_tokens * c.num_heads * c.width)),
        q_scales(static_cast<size_t>(c.num_tokens * c.num_heads)),
        weights(c.q_type, {c.num_tokens, c.num_heads}),
        weights_out(q_scales.size()),
        positions(static_cast<size_t>(c.num_tokens)) {
    Random random(3);
    for (size_t i = 0; i < q.size(); ++i) q.Set(i, 2.0f * random.Normal());
    for (size_t i = 0; i < weights.size(); ++i) weights.Set(i, random.Normal());
    for (size_t t = 0; t < positions.size(); ++t) {
      positions[t] = (kNumPositions - 1 + static_cast<int64_t>(t) * 4) % kNumPositions;
    }
    args.q = q.in();
    args.transform = tables.transform;
    args.positions = Packed(static_cast<const int64_t*>(positions.data()), positions.size());
    args.out = out.out();
  }

  int64_t num_rows() const { return the_case.num_tokens * the_case.num_heads; }

  void AskForCodes(bool with_scales = true) {
    args.out = {};
    args.codes = Packed(codes.data(), the_case.num_tokens, the_case.num_heads, the_case.width);
    if (with_scales) {
      args.q_scales = Packed(q_scales.data(), the_case.num_tokens, the_case.num_heads);
    }
  }
  void GiveWeights() {
    args.weights = weights.in();
    args.weights_out = Packed(weights_out.data(), the_case.num_tokens, the_case.num_heads);
  }

  void Run(const Executor& executor = {}) {
    RequireOk(PrepareQueries(args, options, executor));
    RequireIntact(out.bytes.IsFrontIntact() && codes.IsFrontIntact() && q_scales.IsFrontIntact() &&
                  weights_out.IsFrontIntact());
  }

  std::vector<double> Reference() const {
    std::vector<double> rows;
    for (int64_t r = 0; r < num_rows(); ++r) {
      const int64_t token = r / the_case.num_heads, head = r % the_case.num_heads;
      std::vector<double> row;
      for (int64_t c = 0; c < the_case.width; ++c) {
        row.push_back(ref::At(args.q, token, head, c));
      }
      row = ref::TransformRow(args.transform, positions[static_cast<size_t>(token)], row);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
  }
  void RequireReference() const {
    const bool is_rounded = the_case.transform.round_to_bfloat16;
    RequireOut(out.Values(), Reference(), static_cast<size_t>(the_case.width),
               {false, is_rounded ? DType::kBFloat16 : the_case.out_type});
  }

  QueryCase the_case;
  TransformTables tables;
  AnyTensor<3> q, out;
  Guarded<float8_e4m3fn> codes;
  Guarded<float> q_scales;
  AnyTensor<2> weights;
  Guarded<float> weights_out;
  Guarded<int64_t> positions;
  QueryPrepArgs args;
  QueryPrepOptions options;
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_QUERY_PREP_QUERY_PROBLEM_H_
