// SPDX-License-Identifier: Apache-2.0
// Which keys a row of an indexer sees, candidate blocks apart.
#ifndef LATHE_KERNEL_INDEXER_VISIBILITY_H_
#define LATHE_KERNEL_INDEXER_VISIBILITY_H_

#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/indexer_logits.h"
#include "lathe/kernel/keys/visibility.h"

namespace lathe {
namespace detail {

// Of query `i` of the `q_len` of sequence `seq`, row `token` of the batch; end >= begin.
LATHE_INLINE KeyRange IndexerKeys(const IndexerInputs& inputs, int64_t seq, int64_t q_len,
                                  int64_t i, int64_t token) {
  if (!inputs.row_starts.empty()) return {inputs.row_starts(token), inputs.row_ends(token)};
  KeySet tokens;
  tokens.row_kv_lens = inputs.row_kv_lens;
  const KeyRange seen = VisibleKeys(tokens, {}, {inputs.seq_lens(seq), q_len, i, token});
  return {0, seen.end / inputs.compress_ratio};
}

}  // namespace detail
}  // namespace lathe

#endif  // LATHE_KERNEL_INDEXER_VISIBILITY_H_
