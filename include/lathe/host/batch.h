// SPDX-License-Identifier: Apache-2.0
// A ragged batch: which rows of a tensor belong to which sequence.
#ifndef LATHE_HOST_BATCH_H_
#define LATHE_HOST_BATCH_H_

#include "lathe/host/check.h"

namespace lathe::detail {
namespace {

struct BatchSize {
  int64_t num_tokens;  // T
  int64_t num_seqs;    // B
};

// The query rows of a sequence.
struct QueryRows {
  int64_t token_begin;
  int64_t q_len;

  int64_t token_end() const { return token_begin + q_len; }
};

// Without query_start_loc every sequence has one row, or the only one has all.
struct Batch : BatchSize {
  IndexView<1> query_start_loc;

  QueryRows RowsOf(int64_t b) const {
    const bool is_even = query_start_loc.empty();
    const int64_t begin = is_even ? b * (num_tokens / num_seqs) : query_start_loc(b);
    return {begin, (is_even ? num_tokens / num_seqs : query_start_loc(b + 1) - begin)};
  }
  // The sequence of row `token`, by bisection.
  int64_t SeqOf(int64_t token) const {
    int64_t seq = 0;
    for (int64_t end = num_seqs; end - seq > 1;) {
      const int64_t middle = seq + (end - seq) / 2;
      (RowsOf(middle).token_begin <= token ? seq : end) = middle;
    }
    return seq;
  }
};

inline Batch BatchOf(int64_t num_tokens, const IndexView<1>& query_start_loc,
                     bool is_one_sequence) {
  return {{num_tokens, IsGiven(query_start_loc) ? query_start_loc.extent[0] - 1
                       : is_one_sequence        ? 1
                                                : num_tokens},
          query_start_loc};
}

// The extent of an array of starts; what it holds is CheckStartLoc's.
inline Status CheckStartLocShape(const char* name, const IndexView<1>& starts) {
  LATHE_RETURN_IF_REFUSED(CheckIndices(name, starts, {-1}));
  if (starts.extent[0] < 1) return RefuseExtent(name, 0, 0).Must("be at least", 1);
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

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_BATCH_H_
