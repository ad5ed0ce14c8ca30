// SPDX-License-Identifier: Apache-2.0
// What operations over key sets refuse of them, and of block tables. All of it is O(T + B), block ids excepted.
#ifndef LATHE_HOST_KEYS_CHECK_H_
#define LATHE_HOST_KEYS_CHECK_H_

#include "lathe/host/batch.h"
#include "lathe/kernel/keys/key_rows.h"
#include "lathe/kernel/keys/visibility.h"

namespace lathe::detail {
namespace {

// What messages call the members of a key set, and rules that name another member.
struct KeyNames {
  const char* cache;
  const char* block_table;
  const char* wraps;
  const char* seq_lens;
  const char* compress_ratio;
  const char* row_starts;
  const char* row_kv_lens;
  const char* window;
  const char* indices;
  const char* topk_length;
  const char* index_space;
  const char* within_blocks;
  const char* within_list;
  const char* not_without_list;
};
#define LATHE_KEY_NAMES(set)                                                                      \
  {                                                                                               \
    set ".cache", set ".block_table", set ".wraps", set ".seq_lens", set ".compress_ratio",       \
        set ".row_starts", set ".row_kv_lens", set ".window", set ".indices", set ".topk_length", \
        set ".index_space", "be within 0 and " set ".cache.num_blocks - 1 =",                     \
        "be within 0 and " set ".indices.extent[1] =", "not be given without " set ".indices"     \
  }

inline bool UsesPages(const KeySet& keys) {
  return !keys.has_indices() || keys.index_space == IndexSpace::kLogical;
}

// Whether the slots of the cache in their order are the keys of the call's only sequence.
inline bool IsOneSequence(const KeySet& keys) {
  return UsesPages(keys) && !IsGiven(keys.block_table);
}

// Everything that can be said without reading what index arrays hold.
inline Status CheckKeys(const KeyNames& names, const KeySet& keys, int64_t width,
                        const BatchSize& batch, bool needs_data) {
  LATHE_RETURN_IF_REFUSED(CheckCache(names.cache, keys.cache, width, needs_data));
  if (keys.window < 1) return Invalid(names.window).Is(keys.window).Must("be at least", 1);
  if (keys.compress_ratio < 1) {
    return Invalid(names.compress_ratio).Is(keys.compress_ratio).Must("be at least", 1);
  }
  if (keys.index_space > IndexSpace::kPhysical) {
    return Invalid(names.index_space).Is(keys.index_space).Must("be a known IndexSpace");
  }
  // Without pages table and lengths are not used, but part of what a plan is recognised by.
  const int64_t num_seqs = UsesPages(keys) ? batch.num_seqs : -1;
  const bool is_one_sequence = IsOneSequence(keys);
  if (!is_one_sequence || IsGiven(keys.seq_lens)) {
    LATHE_RETURN_IF_REFUSED(CheckIndices(names.seq_lens, keys.seq_lens, {num_seqs}));
  } else if (keys.compress_ratio != 1) {
    return Invalid(names.compress_ratio).Is(keys.compress_ratio).Must("be, without seq_lens,", 1);
  }
  if (!is_one_sequence) {
    LATHE_RETURN_IF_REFUSED(CheckIndices(names.block_table, keys.block_table, {num_seqs, -1}));
  } else if (num_seqs > 1) {
    return Invalid(names.block_table).Must("be given where there are several sequences");
  } else if (keys.wraps) {
    return Invalid(names.wraps).Must("be false without a block_table");
  }
  if (IsGiven(keys.row_kv_lens)) {
    LATHE_RETURN_IF_REFUSED(CheckIndices(names.row_kv_lens, keys.row_kv_lens, {batch.num_tokens}));
  }
  if (IsGiven(keys.row_starts)) {
    if (keys.has_indices()) {
      return Invalid(names.row_starts).Must("not be given beside a list of indices");
    }
    LATHE_RETURN_IF_REFUSED(CheckIndices(names.row_starts, keys.row_starts, {batch.num_tokens}));
  }
  if (keys.has_indices()) {
    LATHE_RETURN_IF_REFUSED(CheckIndices(names.indices, keys.indices, {batch.num_tokens, -1}));
    if (keys.wraps) return Invalid(names.wraps).Must("be false beside a list of indices");
  }
  if (IsGiven(keys.topk_length)) {
    if (!keys.has_indices()) return Invalid(names.topk_length).Must(names.not_without_list);
    LATHE_RETURN_IF_REFUSED(CheckIndices(names.topk_length, keys.topk_length, {batch.num_tokens}));
  }
  return OkStatus();
}

// What a key set is read from is not written.
inline Status CheckKeysApart(const KeyNames& names, const KeySet& keys, int64_t width,
                             std::initializer_list<WrittenRange> outputs) {
  return CheckApart({{names.cache, RangeOf(keys.cache, width)},
                     {names.block_table, RangeOf(keys.block_table)},
                     {names.seq_lens, RangeOf(keys.seq_lens)},
                     {names.row_starts, RangeOf(keys.row_starts)},
                     {names.row_kv_lens, RangeOf(keys.row_kv_lens)},
                     {names.indices, RangeOf(keys.indices)},
                     {names.topk_length, RangeOf(keys.topk_length)}},
                    outputs);
}

// Pages [begin, end) of sequence b that hold keys some row may see.
inline KeyRange PagesOf(const KeyRows& keys, const Batch& batch, const Causality& causality,
                        int64_t b) {
  const QueryRows rows = batch.RowsOf(b);
  const int64_t seq_len = keys.SeqLen(b), block_size = keys.cache.block_size;
  if (rows.q_len == 0) return {};
  KeyRange range = {0, seq_len / keys.compress_ratio};
  if (!keys.has_indices()) {
    range =
        VisibleKeysOfRows(keys, causality, {seq_len, rows.q_len, 0, rows.token_begin}, rows.q_len);
  }
  if (NumKeys(range) == 0) return {};
  return {range.begin / block_size, (range.end - 1) / block_size + 1};
}

// The lengths of sequences and lists.
inline Status CheckKeyLengths(const KeyNames& names, const KeyRows& keys, const Batch& batch,
                              const Causality& causality) {
  const bool has_table = !IsOneSequence(keys);
  const int64_t columns = has_table ? keys.block_table.extent[1] : keys.cache.num_blocks;
  const int64_t covered = SaturatingMul(columns, keys.cache.block_size);
  for (int64_t b = 0; UsesPages(keys) && b < batch.num_seqs; ++b) {
    const int64_t seq_len = keys.SeqLen(b);
    const Status refused = OutOfRange(names.seq_lens).At(b).Is(seq_len);
    if (seq_len < 0) return Invalid(names.seq_lens).At(b).Is(seq_len).Must("be at least", 0);
    if (!keys.wraps && seq_len / keys.compress_ratio > covered) {
      return refused.Must(has_table ? "give at most as many keys as block_table covers,"
                                    : "give at most as many keys as the cache has slots,",
                          covered);
    }
    if (keys.wraps && NumKeys(PagesOf(keys, batch, causality, b)) > columns) {
      return refused.Must("leave its rows' keys in at most as many pages as a ring has,", columns);
    }
  }
  for (int64_t t = 0; !keys.topk_length.empty() && t < batch.num_tokens; ++t) {
    const int64_t length = keys.topk_length(t), most = keys.indices.extent[1];
    if (length >= 0 && length <= most) continue;
    return OutOfRange(names.topk_length).At(t).Is(length).Must(names.within_list, most);
  }
  return OkStatus();
}

// Block ids that the lengths reach.
inline Status CheckKeyBlocks(const KeyNames& names, const KeyRows& keys, const Batch& batch,
                             const Causality& causality) {
  if (!UsesPages(keys) || keys.block_table.empty()) return OkStatus();
  for (int64_t b = 0; b < batch.num_seqs; ++b) {
    const KeyRange pages = PagesOf(keys, batch, causality, b);
    LATHE_RETURN_IF_REFUSED(CheckBlocks(names.block_table, names.within_blocks, keys.block_table,
                                        keys.cache.num_blocks, b, pages.begin, pages.end));
  }
  return OkStatus();
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_KEYS_CHECK_H_
