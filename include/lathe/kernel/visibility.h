// SPDX-License-Identifier: Apache-2.0
// Which positions a query row sees: the one place where causality, compression, per-row lengths and windows meet.
#ifndef LATHE_KERNEL_VISIBILITY_H_
#define LATHE_KERNEL_VISIBILITY_H_

#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/keys.h"

namespace lathe {
namespace detail {

struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

LATHE_INLINE int64_t NumKeys(const KeyRange& range) {
  return range.end > range.begin ? range.end - range.begin : 0;
}

// Keys seen by query `i` of the `q_len` of a sequence of `seq_len` tokens; `token` is the query's row in the
// batch. The range is empty (end <= begin) for a row that sees nothing.
LATHE_INLINE KeyRange VisibleKeys(const KeySet& keys, bool causal, int64_t seq_len, int64_t q_len,
                                  int64_t i, int64_t token) {
  const int64_t num_keys = seq_len / keys.compress_ratio;
  int64_t end = num_keys;
  if (!keys.row_kv_lens.empty()) {
    end = keys.row_kv_lens(token);
  } else if (causal) {
    end = (seq_len - q_len + i + 1) / keys.compress_ratio;
  }
  if (end > num_keys) end = num_keys;
  if (end < 0) end = 0;
  return {end > keys.window ? end - keys.window : 0, end};
}

// From the first to the last key that any of the queries [i, i + num_queries) sees; `token` is the first's.
LATHE_INLINE KeyRange VisibleKeysOfRows(const KeySet& keys, bool causal, int64_t seq_len,
                                        int64_t q_len, int64_t i, int64_t num_queries,
                                        int64_t token) {
  KeyRange all = VisibleKeys(keys, causal, seq_len, q_len, i, token);
  for (int64_t n = 1; n < num_queries; ++n) {
    const KeyRange range = VisibleKeys(keys, causal, seq_len, q_len, i + n, token + n);
    if (NumKeys(range) == 0) continue;
    if (NumKeys(all) == 0 || range.begin < all.begin) all.begin = range.begin;
    if (range.end > all.end) all.end = range.end;
  }
  return all;
}

}  // namespace detail
}  // namespace lathe

#endif  // LATHE_KERNEL_VISIBILITY_H_
