// SPDX-License-Identifier: Apache-2.0
// A resolved key set: where the rows of keys and values lie, whatever tensors or pages a call gave, and who sees which.
#ifndef LATHE_KERNEL_KEYS_KEY_ROWS_H_
#define LATHE_KERNEL_KEYS_KEY_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/keys.h"

namespace lathe::detail {
namespace {

// host/keys/resolve.h makes them. Key `at` of a sequence is in slot FirstSlot(seq) + at, counted over the pages of the
// block table, or of the cache itself where there is none.
struct KeyRows : KeySet {
  int64_t head_stride = 0;  // bytes from the row of one key head to that of the next
  IndexView<1> seq_starts =
      {};  // [B+1] of sequences that lie one after another: the first slot of each
  // Values in rows of their own, at the same slots. Not given: the first columns of the rows of keys.
  PagedCache values = {};
  int64_t value_head_stride = 0;

  LATHE_INLINE bool has_values() const { return values.block_size != 0; }
  LATHE_INLINE int64_t FirstSlot(int64_t seq) const {
    return seq_starts.empty() ? 0 : seq_starts(seq);
  }
  // Tokens of a sequence.
  LATHE_INLINE int64_t SeqLen(int64_t seq) const {
    if (!seq_starts.empty()) return seq_starts(seq + 1) - seq_starts(seq);
    return seq_lens.empty() ? cache.num_blocks * cache.block_size : seq_lens(seq);
  }
  LATHE_INLINE int64_t BlockOf(int64_t seq, int64_t page) const {
    if (block_table.empty()) return page;
    return block_table(seq, wraps ? page % block_table.extent[1] : page);
  }
};

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_KERNEL_KEYS_KEY_ROWS_H_
