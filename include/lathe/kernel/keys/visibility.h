// SPDX-License-Identifier: Apache-2.0
// Which positions a query row sees: the one place where causality, trees, compression, per-row bounds and windows
// meet.
#ifndef LATHE_KERNEL_KEYS_VISIBILITY_H_
#define LATHE_KERNEL_KEYS_VISIBILITY_H_

#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/keys.h"

namespace lathe::detail {
namespace {

struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

LATHE_INLINE int64_t NumKeys(const KeyRange& range) {
  return range.end > range.begin ? range.end - range.begin : 0;
}

// Query `i` of the `q_len` of a sequence of `seq_len` tokens; `token` is its row in the batch.
struct QueryPlace {
  int64_t seq_len;
  int64_t q_len;
  int64_t i;
  int64_t token;

  // Position of query 0; below 0 where there are more queries than tokens.
  LATHE_INLINE int64_t first() const { return seq_len - q_len; }
  LATHE_INLINE int64_t num_before() const { return first() > 0 ? first() : 0; }
};

// What a query sees of its sequence: all of it; what lies not behind it; or, with a mask, all tokens in front of the
// queries, and of theirs those whose bits are set in its row (mla_decode.h).
struct Causality {
  bool is_causal = true;
  View<const uint64_t, 2> tree_mask = {};  // [T, words]

  // Whether the mask tells single keys of a set apart. Of entries that stand for several tokens it gives the number.
  LATHE_INLINE bool MasksKeys(const KeySet& keys) const {
    return !tree_mask.empty() && keys.row_kv_lens.empty() && keys.compress_ratio == 1;
  }
  LATHE_INLINE bool SeesQuery(const QueryPlace& query, int64_t j) const {
    const int64_t at = query.token * tree_mask.stride[0] + j / 64 * tree_mask.stride[1];
    return (tree_mask.data[at] >> (j % 64) & 1) != 0;
  }
  // Of a token of the sequence, by a query that has a mask.
  LATHE_INLINE bool SeesToken(const QueryPlace& query, int64_t position) const {
    return position < query.num_before() || SeesQuery(query, position - query.first());
  }
};

// The last `window` tokens that a query's mask shows.
LATHE_INLINE KeyRange TreeTokens(const Causality& causality, const QueryPlace& query,
                                 int64_t window) {
  const int64_t first = query.first();
  int64_t end = 0;
  for (int64_t j = query.q_len - 1; j >= 0 && first + j >= 0; --j) {
    if (!causality.SeesQuery(query, j)) continue;
    if (end == 0) end = first + j + 1;
    if (--window == 0) return {first + j, end};
  }
  const int64_t before = query.num_before();
  return {before > window ? before - window : 0, end == 0 ? before : end};
}

// Tokens of the sequence that a causal query sees, itself included: its position, plus 1.
LATHE_INLINE int64_t PathLength(const Causality& causality, const QueryPlace& query) {
  if (causality.tree_mask.empty()) return query.first() + query.i + 1;
  int64_t length = query.num_before();
  for (int64_t j = length - query.first(); j < query.q_len; ++j) {
    length += causality.SeesQuery(query, j) ? 1 : 0;
  }
  return length;
}

// From the first to the last key that a query sees; empty (end <= begin) where it sees nothing. All in between are
// seen, unless the tree mask tells single keys apart.
LATHE_INLINE KeyRange VisibleKeys(const KeySet& keys, const Causality& causality,
                                  const QueryPlace& query) {
  const int64_t num_keys = query.seq_len / keys.compress_ratio;
  int64_t end = num_keys;
  if (!keys.row_kv_lens.empty()) {
    end = keys.row_kv_lens(query.token);
  } else if (causality.MasksKeys(keys)) {
    return TreeTokens(causality, query, keys.window);
  } else if (causality.is_causal) {
    end = PathLength(causality, query) / keys.compress_ratio;
  }
  if (end > num_keys) end = num_keys;
  if (end < 0) end = 0;
  KeyRange range = {end > keys.window ? end - keys.window : 0, end};
  if (keys.row_starts.empty()) return range;
  const int64_t start = keys.row_starts(query.token);
  if (start > range.begin) range.begin = start < end ? start : end;
  return range;
}

// How many keys a query sees.
LATHE_INLINE int64_t NumVisibleKeys(const KeySet& keys, const Causality& causality,
                                    const QueryPlace& query) {
  if (!causality.MasksKeys(keys)) {
    return NumKeys(VisibleKeys(keys, causality, query));
  }
  const int64_t length = PathLength(causality, query);
  return length < keys.window ? length : keys.window;
}

// From the first to the last key that any of `num_queries` queries sees, of which `query` is the first.
LATHE_INLINE KeyRange VisibleKeysOfRows(const KeySet& keys, const Causality& causality,
                                        QueryPlace query, int64_t num_queries) {
  KeyRange all = VisibleKeys(keys, causality, query);
  if (keys.row_kv_lens.empty() && keys.row_starts.empty() && causality.tree_mask.empty() &&
      num_queries > 1) {
    query.i += num_queries - 1;
    query.token += num_queries - 1;
    return {all.begin, VisibleKeys(keys, causality, query).end};  // of both, each sees no less
  }
  for (int64_t n = 1; n < num_queries; ++n) {
    ++query.i;
    ++query.token;
    const KeyRange range = VisibleKeys(keys, causality, query);
    if (NumKeys(range) == 0) continue;
    if (NumKeys(all) == 0 || range.begin < all.begin) all.begin = range.begin;
    if (range.end > all.end) all.end = range.end;
  }
  return all;
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_KERNEL_KEYS_VISIBILITY_H_
