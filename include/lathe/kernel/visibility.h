// SPDX-License-Identifier: Apache-2.0
// Which positions a query row sees: the one place where causality, per-row lengths and windows meet.
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

// Positions seen by query `i` of the `q_len` of a sequence with `seq_len` keys; `token` is the query's
// row in the batch. The range is empty (end <= begin) for a row that sees nothing.
LATHE_INLINE KeyRange VisibleKeys(const KeySet& keys, bool causal, int64_t seq_len, int64_t q_len,
                                  int64_t i, int64_t token) {
  int64_t end = seq_len;
  if (!keys.row_kv_lens.empty()) {
    end = keys.row_kv_lens(token);
  } else if (causal) {
    end = seq_len - q_len + i + 1;
  }
  if (end > seq_len) end = seq_len;
  if (end < 0) end = 0;
  const int64_t begin = keys.window > 0 && end > keys.window ? end - keys.window : 0;
  return {begin, end};
}

}  // namespace detail
}  // namespace lathe

#endif  // LATHE_KERNEL_VISIBILITY_H_
