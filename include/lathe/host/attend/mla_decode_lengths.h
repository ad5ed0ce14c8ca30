// SPDX-License-Identifier: Apache-2.0
// What PlanMlaDecode refuses of what index arrays hold. All of it is O(T + B), block ids excepted.
#ifndef LATHE_HOST_ATTEND_MLA_DECODE_LENGTHS_H_
#define LATHE_HOST_ATTEND_MLA_DECODE_LENGTHS_H_

#include "lathe/host/attend/mla_decode_check.h"

namespace lathe::detail {
namespace {

// The mask has a bit for each query of every sequence.
inline Status CheckTreeMask(const MlaDecodeArgs& args) {
  if (!IsGiven(args.tree_mask)) return OkStatus();
  const Batch batch = BatchOf(args);
  for (int64_t b = 0; b < batch.num_seqs; ++b) {
    const int64_t q_len = batch.RowsOf(b).q_len, words = args.tree_mask.extent[1];
    if ((q_len + 63) / 64 <= words) continue;
    return RefuseExtent("tree_mask", 1, words)
        .Must("be at least a word for each 64 queries of a sequence,", (q_len + 63) / 64);
  }
  return OkStatus();
}

inline Status CheckWork(const AttendCall& call, const Batch& batch, int64_t num_heads) {
  int64_t work = 0;
  for (int64_t b = 0; b < batch.num_seqs; ++b) {
    const int64_t num_rows = SaturatingMul(batch.RowsOf(b).q_len, num_heads);
    for (int set = 0; set < call.num_key_sets; ++set) {
      const KeyRows& keys = call.keys[set];
      const bool has_list = keys.has_indices();
      const int64_t num_keys = has_list ? keys.indices.extent[1] : keys.SeqLen(b);
      work = SaturatingAdd(work, SaturatingMul(num_rows, SaturatingAdd(num_keys, 1)));
      if (work <= kMaxWork) continue;
      const Status refused = has_list ? Invalid(kKeyNames[set].indices, ".extent").At(1)
                                      : Invalid(kKeyNames[set].seq_lens).At(b);
      return refused.Is(num_keys).Must("keep the sum of query rows * keys at most", kMaxWork);
    }
  }
  return OkStatus();
}

inline Status CheckLengths(const MlaDecodeArgs& args, const AttendCall& call) {
  const Batch batch = BatchOf(args);
  for (int set = 0; set < call.num_key_sets; ++set) {
    LATHE_RETURN_IF_REFUSED(CheckKeyLengths(kKeyNames[set], call.keys[set], batch, call.causality));
  }
  return CheckWork(call, batch, args.out.extent[1]);
}

// Rows that see keys must stand where out_rope has angles.
inline Status CheckOutPositions(const MlaDecodeArgs& args, const AttendCall& call) {
  if (!args.out_rope.is_given()) return OkStatus();
  const Batch batch = BatchOf(args);
  const int64_t limit = args.out_rope.cos.extent[0];
  if (IsGiven(args.positions)) {
    return CheckPositions("positions", args.positions, args.out_rope, batch.num_tokens,
                          [](int64_t) { return true; });
  }
  // Then a row in front of the sequence sees nothing, and is not rotated.
  bool is_causal = call.causality.is_causal;
  for (int set = 0; set < call.num_key_sets; ++set) {
    const KeyRows& keys = call.keys[set];
    is_causal = is_causal && UsesPages(keys) && keys.row_kv_lens.empty();
  }
  for (int64_t b = 0; b < batch.num_seqs; ++b) {
    const int64_t seq_len = call.keys[0].SeqLen(b), q_len = batch.RowsOf(b).q_len;
    const Status refused = OutOfRange(kKeyNames[0].seq_lens).At(b).Is(seq_len);
    if (q_len > 0 && seq_len > limit)
      return refused.Must("be at most out_rope.cos.extent[0] =", limit);
    if (q_len > seq_len && !is_causal) {
      return refused.Must("be at least the sequence's number of queries, for out_rope,", q_len);
    }
  }
  return OkStatus();
}

// Block ids that the lengths reach.
inline Status CheckBlockTables(const MlaDecodeArgs& args, const AttendCall& call) {
  for (int set = 0; set < call.num_key_sets; ++set) {
    LATHE_RETURN_IF_REFUSED(
        CheckKeyBlocks(kKeyNames[set], call.keys[set], BatchOf(args), call.causality));
  }
  return OkStatus();
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_ATTEND_MLA_DECODE_LENGTHS_H_
