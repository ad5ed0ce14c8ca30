// SPDX-License-Identifier: Apache-2.0
// Key sets and tensors of keys and values, resolved into what kernels read.
#ifndef LATHE_HOST_KEYS_RESOLVE_H_
#define LATHE_HOST_KEYS_RESOLVE_H_

#include <algorithm>

#include "lathe/kernel/keys/key_rows.h"

namespace lathe::detail {
namespace {

inline KeyRows ResolveKeys(const KeySet& keys) {
  KeyRows rows;
  static_cast<KeySet&>(rows) = keys;
  return rows;
}

// The rows of one head of a tensor [S, heads, width], as one page of S records.
inline PagedCache PageOfRows(const In<3>& rows) {
  PagedCache page;
  page.data = rows.data;
  page.format = LatentFormatOf(rows.dtype);
  page.num_blocks = 1;
  page.block_size = (std::max)(rows.extent[0], int64_t{1});
  page.row_stride = rows.stride[0] * static_cast<int64_t>(SizeOf(rows.dtype));
  return page;
}

// Keys and values of prefill.h.
inline KeyRows ResolveKeys(const In<3>& k, const In<3>& v, const IndexView<1>& kv_start_loc,
                           int64_t window) {
  KeyRows rows;
  rows.cache = PageOfRows(k);
  rows.head_stride = k.stride[1] * static_cast<int64_t>(SizeOf(k.dtype));
  rows.values = PageOfRows(v);
  rows.value_head_stride = v.stride[1] * static_cast<int64_t>(SizeOf(v.dtype));
  rows.seq_starts = kv_start_loc;
  rows.window = window;
  return rows;
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_KEYS_RESOLVE_H_
