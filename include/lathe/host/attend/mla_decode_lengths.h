// SPDX-License-Identifier: Apache-2.0
// What PlanMlaDecode refuses of what index arrays hold. All of it is O(T + B), block ids excepted.
#ifndef LATHE_HOST_ATTEND_MLA_DECODE_LENGTHS_H_
#define LATHE_HOST_ATTEND_MLA_DECODE_LENGTHS_H_

#include "lathe/host/attend/mla_decode_check.h"

namespace lathe {
namespace detail {
namespace LATHE_ABI {

// The mask has a bit for each query of every sequence.
inline Status CheckTreeMask(const MlaDecodeArgs& args) {
  if (!IsGiven(args.tree_mask)) return OkStatus();
  for (int64_t b = 0; b < BatchOf(args).num_seqs; ++b) {
    const int64_t q_len = RowsOf(args, b).q_len, words = args.tree_mask.extent[1];
    if ((q_len + 63) / 64 <= words) continue;
    return Invalid("tree_mask", ".extent")
        .At(1)
        .Is(words)
        .Must("be at least a word for each 64 queries of a sequence,", (q_len + 63) / 64);
  }
  return OkStatus();
}

inline Status CheckWork(const MlaDecodeArgs& args) {
  int64_t work = 0;
  for (int64_t b = 0; b < BatchOf(args).num_seqs; ++b) {
    const int64_t num_rows = SaturatingMul(RowsOf(args, b).q_len, args.out.extent[1]);
    for (const auto& [number, keys, names] : KeySetsOf(args)) {
      const bool has_list = keys.has_indices();
      const int64_t num_keys = has_list ? keys.indices.extent[1] : keys.seq_lens(b);
      work = SaturatingAdd(work, SaturatingMul(num_rows, SaturatingAdd(num_keys, 1)));
      if (work <= kMaxWork) continue;
      const Status refused =
          has_list ? Invalid(names.indices, ".extent").At(1) : Invalid(names.seq_lens).At(b);
      return refused.Is(num_keys).Must("keep the sum of query rows * keys at most", kMaxWork);
    }
  }
  return OkStatus();
}

inline Status CheckSeqLens(const MlaDecodeArgs& args, const NamedKeys& set,
                           const Causality& causality) {
  const auto& [number, keys, names] = set;
  const int64_t columns = keys.block_table.extent[1];
  const int64_t covered = SaturatingMul(columns, keys.cache.block_size);
  for (int64_t b = 0; b < BatchOf(args).num_seqs; ++b) {
    const int64_t seq_len = keys.seq_lens(b);
    const Status refused = Refuse(StatusCode::kIndexOutOfRange, names.seq_lens).At(b).Is(seq_len);
    if (seq_len < 0) return Invalid(names.seq_lens).At(b).Is(seq_len).Must("be at least", 0);
    if (!keys.wraps && seq_len / keys.compress_ratio > covered) {
      if (keys.compress_ratio == 1) return refused.Must(names.at_most_covered, covered);
      return refused.Must("give at most as many keys as block_table covers,", covered);
    }
    if (keys.wraps && NumKeys(PagesOf(args, keys, causality, b)) > columns) {
      return refused.Must("leave its rows' keys in at most as many pages as a ring has,", columns);
    }
  }
  return OkStatus();
}

inline Status CheckLengths(const MlaDecodeArgs& args, const Causality& causality) {
  for (const NamedKeys& set : KeySetsOf(args)) {
    const auto& [number, keys, names] = set;
    if (UsesPages(keys)) LATHE_RETURN_IF_REFUSED(CheckSeqLens(args, set, causality));
    for (int64_t t = 0; !keys.topk_length.empty() && t < BatchOf(args).num_tokens; ++t) {
      const int64_t length = keys.topk_length(t);
      if (length < 0 || length > keys.indices.extent[1]) {
        return Refuse(StatusCode::kIndexOutOfRange, names.topk_length)
            .At(t)
            .Is(length)
            .Must(names.within_list, keys.indices.extent[1]);
      }
    }
  }
  return CheckWork(args);
}

// Rows that see keys must stand where out_rope has angles.
inline Status CheckOutPositions(const MlaDecodeArgs& args, bool causal) {
  if (!args.out_rope.is_given()) return OkStatus();
  const int64_t limit = args.out_rope.cos.extent[0];
  if (IsGiven(args.positions)) {
    return CheckPositions("positions", args.positions, args.out_rope, BatchOf(args).num_tokens,
                          [](int64_t) { return true; });
  }
  bool is_causal = causal;  // then a row in front of the sequence sees nothing, and is not rotated
  for (const auto& [number, keys, names] : KeySetsOf(args)) {
    is_causal = is_causal && UsesPages(keys) && keys.row_kv_lens.empty();
  }
  for (int64_t b = 0; b < BatchOf(args).num_seqs; ++b) {
    const int64_t seq_len = args.keys.seq_lens(b), q_len = RowsOf(args, b).q_len;
    const Status refused =
        Refuse(StatusCode::kIndexOutOfRange, kKeyNames[0].seq_lens).At(b).Is(seq_len);
    if (q_len > 0 && seq_len > limit)
      return refused.Must("be at most out_rope.cos.extent[0] =", limit);
    if (q_len > seq_len && !is_causal) {
      return refused.Must("be at least the sequence's number of queries, for out_rope,", q_len);
    }
  }
  return OkStatus();
}

// Block ids that the lengths reach.
inline Status CheckBlockTables(const MlaDecodeArgs& args, const Causality& causality) {
  for (const auto& [number, keys, names] : KeySetsOf(args)) {
    const int64_t columns = keys.block_table.extent[1];
    for (int64_t b = 0; UsesPages(keys) && b < BatchOf(args).num_seqs; ++b) {
      const KeyRange pages = PagesOf(args, keys, causality, b);
      for (int64_t page = pages.begin; page < pages.end; ++page) {
        const int64_t column = keys.wraps ? page % columns : page;
        const int64_t block = keys.block_table(b, column);
        if (block >= 0 && block < keys.cache.num_blocks) continue;
        return Refuse(StatusCode::kIndexOutOfRange, names.block_table)
            .At(b * columns + column)
            .Is(block)
            .Must(names.within_blocks, keys.cache.num_blocks - 1);
      }
    }
  }
  return OkStatus();
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_HOST_ATTEND_MLA_DECODE_LENGTHS_H_
