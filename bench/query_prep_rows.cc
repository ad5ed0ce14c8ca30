// SPDX-License-Identifier: Apache-2.0
// QueryPrep/kind:K/tokens:T/target:T/threads:N
//
// T tokens of 64 heads in bfloat16.
//   kind  indexer_fp8  128 columns: rope of the last 64, fp8 codes, scales folded into head weights
//         hadamard_fp8 the same of the first 64, then the Hadamard matrix
//         v4_query     512 columns: RMSNorm without a weight, rope of the last 64, to bfloat16
//
//   GB/s, of_memcpy   copy_bound.h
//   tokens/s
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/copy_bound.h"
#include "bench/harness.h"
#include "bench/tensor.h"
#include "lathe/query_prep.h"
#include "lathe/ref/row_transform_ref.h"

namespace lathe::bench {
namespace {

constexpr int64_t kHeads = 64;
constexpr int64_t kPositions = 4096;
constexpr int64_t kNumPairs = 32;

struct Kind {
  const char* name;
  int64_t width;
  bool is_codes;
  NormKind norm;
  bool hadamard;
};
constexpr Kind kKinds[] = {{"indexer_fp8", 128, true, NormKind::kNone, false},
                           {"hadamard_fp8", 128, true, NormKind::kNone, true},
                           {"v4_query", 512, false, NormKind::kRms, false}};

struct Case {
  Kind kind;
  int64_t tokens;
  TargetInfo target;
  size_t threads;

  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name), "QueryPrep/kind:%s/tokens:%d/target:%s/threads:%d", kind.name,
                  static_cast<int>(tokens), target.name, static_cast<int>(threads));
    return name;
  }
};

struct Tensors {
  explicit Tensors(const Case& c)
      : q(DType::kBFloat16, {c.tokens, kHeads, c.kind.width}),
        out(DType::kBFloat16, {c.tokens, kHeads, c.kind.width}),
        angles(DType::kFloat32, {kPositions, 2 * kNumPairs}),
        weights(DType::kBFloat16, {c.tokens, kHeads}),
        codes(static_cast<size_t>(q.size())),
        weights_out(static_cast<size_t>(weights.size())) {
    q.Fill(Random(5));
    weights.Fill(Random(6));
    for (int64_t p = 0; p < kPositions; ++p) {
      for (int64_t i = 0; i < kNumPairs; ++i) {
        const double angle = static_cast<double>(p) * std::pow(1e4, -static_cast<double>(i) / 32);
        angles.Set(p * 2 * kNumPairs + i, static_cast<float>(std::cos(angle)));
        angles.Set(p * 2 * kNumPairs + kNumPairs + i, static_cast<float>(std::sin(angle)));
      }
    }
    Random random(7);
    for (int64_t t = 0; t < c.tokens; ++t) positions.push_back(random.Below(kPositions));

    args.q = Input(q.View());
    args.transform.norm.kind = c.kind.norm;
    args.transform.hadamard = c.kind.hadamard;
    args.transform.rope.leading = c.kind.hadamard;
    args.transform.rope.cos = Columns(angles.View(), 0, kNumPairs);
    args.transform.rope.sin = Columns(angles.View(), kNumPairs, 2 * kNumPairs);
    args.positions = Packed(static_cast<const int64_t*>(positions.data()), positions.size());
    if (c.kind.is_codes) {
      args.codes = Packed(codes.data(), c.tokens, kHeads, c.kind.width);
      args.weights = Input(weights.View());
      args.weights_out = Packed(weights_out.data(), c.tokens, kHeads);
    } else {
      args.out = out.View();
    }
  }

  double MovedBytes() const {
    if (args.codes.empty()) return static_cast<double>(q.bytes() + out.bytes());
    return static_cast<double>(q.bytes() + codes.size() + weights.bytes() +
                               weights_out.size() * sizeof(float));
  }

  Tensor<3> q, out;
  Tensor<2> angles, weights;
  std::vector<float8_e4m3fn> codes;
  std::vector<float> weights_out;
  std::vector<int64_t> positions;
  QueryPrepArgs args;
};

// The last row; the tests are there for the bits.
void Check(const QueryPrepArgs& args) {
  const int64_t token = args.q.extent[0] - 1, head = kHeads - 1;
  std::vector<double> row;
  for (int64_t c = 0; c < args.q.extent[2]; ++c) row.push_back(ref::At(args.q, token, head, c));
  row = ref::TransformRow(args.transform, args.positions(token), row);
  double amax = 0.0;
  for (const double x : row) amax = std::max(amax, std::abs(x));
  const double scale = std::max(amax, 1e-4) / 448;
  for (size_t c = 0; c < row.size(); ++c) {
    double got;
    if (args.codes.empty()) {
      got = ref::At(Input(args.out), token, head, static_cast<int64_t>(c));
    } else {
      const float8_e4m3fn* codes =
          args.codes.data + token * args.codes.stride[0] + head * args.codes.stride[1];
      got = scale * static_cast<double>(ToFloat(codes[c]));
    }
    if (!(std::abs(got - row[c]) <= std::abs(row[c]) / 15 + amax / 1000)) {
      throw RowError("column " + std::to_string(c) + " is " + std::to_string(got) +
                     ", the reference " + std::to_string(row[c]));
    }
  }
}

void RunRow(benchmark::State& state, const Case& c, Harness& harness) {
  const Tensors tensors(c);
  QueryPrepOptions options;
  options.target = c.target.target;
  Team& team = harness.team(c.threads);
  const Executor executor = team.executor();
  Require(PrepareQueries(tensors.args, options, executor));
  Check(tensors.args);
  const double seconds = MeasureCopyBound(
      state, team, [&] { Require(PrepareQueries(tensors.args, options, executor)); },
      tensors.MovedBytes());
  state.counters["tokens/s"] = static_cast<double>(c.tokens) / seconds;
}

}  // namespace

void RegisterQueryPrep(Harness& harness) {
  for (const Kind& kind : kKinds) {
    for (const int64_t tokens : {1, 64}) {
      for (const TargetInfo& target : harness.targets()) {
        for (const size_t threads : harness.thread_counts()) {
          const Case c{kind, tokens, target, threads};
          if (!harness.Wants(harness.IsBest(target) && harness.IsShown(threads))) continue;
          harness.Register(c.Name(),
                           [c, &harness](benchmark::State& state) { RunRow(state, c, harness); });
        }
      }
    }
  }
}

}  // namespace lathe::bench
