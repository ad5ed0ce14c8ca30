// SPDX-License-Identifier: Apache-2.0
// A ragged batch: which rows of a tensor belong to which sequence.
#ifndef LATHE_HOST_BATCH_H_
#define LATHE_HOST_BATCH_H_

#include "lathe/host/check.h"

namespace lathe {
namespace detail {
namespace LATHE_ABI {

struct BatchSize {
  int64_t num_tokens;  // T
  int64_t num_seqs;    // B
};

// The query rows of a sequence.
struct QueryRows {
  int64_t token_begin;
  int64_t q_len;
};

// Of sequence b; without query_start_loc it is row b alone.
inline QueryRows RowsOf(const IndexView<1>& query_start_loc, int64_t b) {
  if (query_start_loc.empty()) return {b, 1};
  const int64_t begin = query_start_loc(b);
  return {begin, query_start_loc(b + 1) - begin};
}

// The extent of an array of starts; what it holds is CheckStartLoc's.
inline Status CheckStartLocShape(const char* name, const IndexView<1>& starts) {
  LATHE_RETURN_IF_REFUSED(CheckIndices(name, starts, {-1}));
  if (starts.extent[0] < 1) return Invalid(name, ".extent").At(0).Is(0).Must("be at least", 1);
  return OkStatus();
}

// From 0 on, ascending, up to `num_rows`, which the rule names.
inline Status CheckStartLoc(const char* name, const IndexView<1>& starts, int64_t num_rows,
                            const char* ends_at_rule) {
  const int64_t num_seqs = starts.extent[0] - 1;
  if (starts(0) != 0) return Invalid(name).At(0).Is(starts(0)).Must("be", 0);
  for (int64_t b = 0; b < num_seqs; ++b) {
    if (starts(b + 1) >= starts(b)) continue;
    return Invalid(name)
        .At(b + 1)
        .Is(starts(b + 1))
        .Must("be at least the entry before it,", starts(b));
  }
  if (starts(num_seqs) == num_rows) return OkStatus();
  return Invalid(name).At(num_seqs).Is(starts(num_seqs)).Must(ends_at_rule, num_rows);
}

// The rows of each sequence, from query_start_loc or one each. `name`: what the caller knows it by.
inline Status CheckQueryStartLoc(const char* name, const IndexView<1>& starts, int64_t num_tokens) {
  if (starts.empty()) return OkStatus();
  return CheckStartLoc(name, starts, num_tokens, "be the number of query rows,");
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_HOST_BATCH_H_
