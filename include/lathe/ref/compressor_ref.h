// SPDX-License-Identifier: Apache-2.0
// The compressor in double precision, written from the formula: whole sequences, no state.
#ifndef LATHE_REF_COMPRESSOR_REF_H_
#define LATHE_REF_COMPRESSOR_REF_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lathe/compressor.h"
#include "lathe/ref/elements.h"
#include "lathe/ref/row_transform_ref.h"

namespace lathe::ref {

// Statistics of each column: maximum score m, sum exp(s - m), sum exp(s - m) * kv.
struct PooledStats {
  std::vector<double> max, sum, weighted;
};

// The entry that the token at `position` completes, of a sequence whose token p is row first_row + p of kv and
// score; of these, the rows that the shard owns.
inline PooledStats PoolTokens(const In<2>& kv, const In<2>& score, const View<const float, 2>& ape,
                              const CompressorOptions& options, int64_t first_row,
                              int64_t position) {
  const int64_t ratio = options.ratio;
  const int64_t window = options.overlap ? 2 * ratio : ratio;
  const int64_t head_dim = options.overlap ? kv.extent[1] / 2 : kv.extent[1];
  PooledStats stats;
  for (int64_t d = 0; d < head_dim; ++d) {
    std::vector<double> s, x;
    for (int64_t p = position - window + 1; p <= position; ++p) {
      if (p < 0 || p / options.shard.interleave % options.shard.world != options.shard.rank) {
        continue;
      }
      const bool is_newer = p > position - ratio;
      const int64_t column = options.overlap && is_newer ? head_dim + d : d;
      s.push_back(At(score, first_row + p, column) + At(In<2>(ape), p % ratio, column));
      x.push_back(At(kv, first_row + p, column));
    }
    double max = -kInf, sum = 0.0, weighted = 0.0;
    for (const double score_of_row : s) {
      if (std::isnan(score_of_row) || score_of_row > max) max = score_of_row;
    }
    for (size_t i = 0; i < s.size() && max != -kInf; ++i) {
      sum += std::exp(s[i] - max);
      weighted += std::exp(s[i] - max) * x[i];
    }
    stats.max.push_back(max);
    stats.sum.push_back(sum);
    stats.weighted.push_back(weighted);
  }
  return stats;
}

// The entry as it goes to the cache.
inline std::vector<double> CompressedRow(const CompressorArgs& args,
                                         const CompressorOptions& options, int64_t first_row,
                                         int64_t position) {
  const PooledStats stats = PoolTokens(args.kv, args.score, args.ape, options, first_row, position);
  std::vector<double> row(stats.sum.size());
  for (size_t d = 0; d < row.size(); ++d) {
    row[d] = stats.sum[d] == 0.0 ? 0.0 : stats.weighted[d] / stats.sum[d];
  }
  return TransformRow(args.transform, position / options.ratio * options.ratio, row);
}

}  // namespace lathe::ref

#endif  // LATHE_REF_COMPRESSOR_REF_H_
