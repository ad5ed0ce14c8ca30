// SPDX-License-Identifier: Apache-2.0
// The integer arithmetic around DeepSeek-V4's attention: which tokens a row's window and compressed entries
// cover, where they lie in paged or ring caches, and what a rank of a context-parallel group owns. Pure
// functions of positions, lengths and block tables; nothing is compiled for them and nothing is validated.
//
// Positions count from 0. Compressed entry c of ratio r stands for the tokens [c * r, (c + 1) * r) and exists
// from token (c + 1) * r - 1 on, its boundary.
#ifndef LATHE_V4_METADATA_H_
#define LATHE_V4_METADATA_H_

#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/view.h"

namespace lathe {

// Compressed entries of a sequence of seq_len tokens.
LATHE_INLINE constexpr int64_t NumCompressed(int64_t seq_len, int64_t ratio) noexcept {
  return seq_len / ratio;
}

// Compressed entries that the query at a position sees: 0 for position < ratio - 1.
LATHE_INLINE constexpr int64_t CompressedLength(int64_t position, int64_t ratio) noexcept {
  return NumCompressed(position + 1, ratio);
}

// Whether the token at a position completes an entry, number position / ratio.
LATHE_INLINE constexpr bool IsBoundary(int64_t position, int64_t ratio) noexcept {
  return (position + 1) % ratio == 0;
}

// Entries that the tokens [position, position + count) complete.
LATHE_INLINE constexpr int64_t NumBoundaries(int64_t position, int64_t count,
                                             int64_t ratio) noexcept {
  return NumCompressed(position + count, ratio) - NumCompressed(position, ratio);
}

// Where an entry stands for rope: at the first of its tokens. `position` is any of them.
LATHE_INLINE constexpr int64_t CompressedPosition(int64_t position, int64_t ratio) noexcept {
  return position / ratio * ratio;
}

// The query at a position sees the keys [WindowBegin, position] of a window of `window` keys, its own
// included, and WindowLength of them.
LATHE_INLINE constexpr int64_t WindowBegin(int64_t position, int64_t window) noexcept {
  return position < window ? 0 : position - window + 1;
}
LATHE_INLINE constexpr int64_t WindowLength(int64_t position, int64_t window) noexcept {
  return position < window ? position + 1 : window;
}

// Keys that the windows of a sequence's last q_len queries cover together, if prefix_len tokens precede them.
LATHE_INLINE constexpr int64_t WindowGatherLength(int64_t prefix_len, int64_t q_len,
                                                  int64_t window) noexcept {
  return q_len + (prefix_len < window ? prefix_len : window - 1);
}

// Position of query i of the q_len last tokens of seq_len; negative where q_len > seq_len.
LATHE_INLINE constexpr int64_t RowPosition(int64_t seq_len, int64_t q_len, int64_t i) noexcept {
  return seq_len - q_len + i;
}

// Keys that this query sees (what KeySet::row_kv_lens holds), of the tokens and of the compressed entries;
// 0 for a row before the sequence.
LATHE_INLINE constexpr int64_t RowKeys(int64_t seq_len, int64_t q_len, int64_t i) noexcept {
  const int64_t keys = RowPosition(seq_len, q_len, i) + 1;
  return keys > 0 ? keys : 0;
}
LATHE_INLINE constexpr int64_t RowCompressedKeys(int64_t seq_len, int64_t q_len, int64_t i,
                                                 int64_t ratio) noexcept {
  return NumCompressed(RowKeys(seq_len, q_len, i), ratio);
}

// The slot, block * block_size + offset, of element `index` (a position, or a compressed entry) of a
// sequence, whose row of a block_table [B, columns] may be a ring: page p stands in column p mod columns.
// Where the table holds a negative page: -1. index >= 0.
LATHE_INLINE int64_t BlockTableSlot(const IndexView<2>& block_table, int64_t row, int64_t index,
                                    int64_t block_size) noexcept {
  const int64_t block = block_table(row, index / block_size % block_table.extent[1]);
  return block < 0 ? -1 : block * block_size + index % block_size;
}

// The slot of the entry that the token at a position completes; -1 for other tokens. With it a slot mapping of
// compressed entries is filled, one number a token.
LATHE_INLINE int64_t CompressedSlot(const IndexView<2>& block_table, int64_t row, int64_t position,
                                    int64_t ratio, int64_t block_size) noexcept {
  if (!IsBoundary(position, ratio)) return -1;
  return BlockTableSlot(block_table, row, position / ratio, block_size);
}

// One of `world` ranks that share a sequence: token p belongs to rank (p / interleave) mod world, which keeps
// its tokens in order, without gaps. 0 <= rank < world, interleave >= 1.
struct ContextShard {
  int64_t world = 1;
  int64_t rank = 0;
  int64_t interleave = 1;
};

LATHE_INLINE constexpr bool OwnsPosition(const ContextShard& shard, int64_t position) noexcept {
  return shard.world == 1 || position / shard.interleave % shard.world == shard.rank;
}

// How many of a sequence's first `length` tokens the rank owns.
LATHE_INLINE constexpr int64_t LocalLength(const ContextShard& shard, int64_t length) noexcept {
  const int64_t cycle = shard.world * shard.interleave;
  const int64_t rest = length % cycle - shard.rank * shard.interleave;
  const int64_t owned = rest < 0 ? 0 : rest < shard.interleave ? rest : shard.interleave;
  return length / cycle * shard.interleave + owned;
}

// Where the owner of a position keeps it among its own tokens, and back.
LATHE_INLINE constexpr int64_t LocalPosition(const ContextShard& shard, int64_t position) noexcept {
  if (shard.world == 1) return position;
  const int64_t cycle = shard.world * shard.interleave;
  return position / cycle * shard.interleave + position % shard.interleave;
}
LATHE_INLINE constexpr int64_t GlobalPosition(const ContextShard& shard, int64_t local) noexcept {
  const int64_t cycle = shard.world * shard.interleave;
  return local / shard.interleave * cycle + shard.rank * shard.interleave +
         local % shard.interleave;
}

}  // namespace lathe

#endif  // LATHE_V4_METADATA_H_
