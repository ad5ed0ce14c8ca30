// SPDX-License-Identifier: Apache-2.0
// The compressor of DeepSeek-V4's attention: every `ratio` tokens of a sequence become one entry of a
// compressed cache, and every token leaves its part of that in a state.
#ifndef LATHE_COMPRESSOR_H_
#define LATHE_COMPRESSOR_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/executor.h"
#include "lathe/base/keys.h"
#include "lathe/base/plan.h"
#include "lathe/base/row_transform.h"
#include "lathe/base/status.h"
#include "lathe/base/target.h"
#include "lathe/base/view.h"
#include "lathe/v4_metadata.h"

namespace lathe {

// head_dim: D, the width of an entry, 1 to kMaxTransformWidth.
struct CompressorShape {
  int64_t head_dim = 512;
};

// N tokens of B sequences. C = D, or 2 * D with overlap.
//
// The token at position p has a row of C values kv and as many scores s = score + ape[p mod ratio]; ape (absolute
// position embedding) is a learned bias for each place among the `ratio` tokens of an entry. If (p + 1) mod ratio == 0
// the token is a boundary, the last one of an entry, and entry p / ratio is made of the `window` rows that end at p,
// those before position 0 left out. Without overlap these are the entry's own rows, window = ratio. With overlap they
// are those of the entry before it as well, window = 2 * ratio: a token's row has then two halves of D columns, the
// first for the entry after its own, the second for its own. Each column by itself,
//
//   y = sum_w softmax(s)_w * kv_w
//
// (0 where all scores are -inf), then `transform` at position p / ratio * ratio, then the cache.
//
//   kv, score          [>=N, C] float32, float16 or bfloat16 each, innermost stride 1
//   ape                [ratio, C] float32, innermost stride 1
//   positions          [N] those of a sequence's tokens are consecutive
//   query_start_loc    [B + 1] optional: tokens of sequence b are [query_start_loc[b], query_start_loc[b + 1]);
//                      else every token is a sequence of its own, B = N
//   state              kLatentFloat32 pages (LatentPages) of records [kv C | s C], 2 * C wide
//   state_block_table  [B, columns] page ids; row i of a sequence lies in page i / state.block_size, which stands
//                      in column (page mod columns): a ring of columns * state.block_size rows, at least
//                      `window`, or as many columns as there are pages. Sequences share no page
//   transform          RMSNorm with weight and rope in the models; Hadamard and rounding as wanted
//   cache              any format, records of D columns
//   block_table        [B, max_blocks] page ids of cache: entry c lies in page c / cache.block_size
//   slot_mapping       [N] instead of block_table: a boundary's entry goes to slot block * block_size + offset,
//                      or nowhere if that is negative; other tokens' numbers are not read
//   partials           [>=E, 3, D] instead of cache, block_table, slot_mapping and transform: for each of the E
//                      boundaries in order of tokens, column by column, the largest score m, sum exp(s - m) and
//                      sum exp(s - m) * kv, for MergeCompressed; -inf, 0, 0 without rows. Innermost stride 1
struct CompressorArgs {
  In<2> kv = {};
  In<2> score = {};
  View<const float, 2> ape = {};
  IndexView<1> positions = {};
  IndexView<1> query_start_loc = {};
  MutablePagedCache state = {};
  IndexView<2> state_block_table = {};
  RowTransform transform = {};
  MutablePagedCache cache = {};
  IndexView<2> block_table = {};
  IndexView<1> slot_mapping = {};
  View<float, 3> partials = {};
};

struct CompressorOptions {
  Target target = Target::kAuto;
  // Tokens of an entry, at least 1; 4 with overlap and 128 without in the models. It has no default.
  int64_t ratio = 0;
  bool overlap = false;
  // Scales are powers of two in formats that leave the choice, see LatentWriteOptions.
  bool power_of_two_scales = false;
  // The rows of each sequence's last `state_tokens` tokens are saved: at least `window`, and k more where k
  // tokens may be taken back (speculation). 0: as many as the ring holds, all of them in an unwrapped table.
  int64_t state_tokens = 0;
  // Rows of other ranks are neither pooled nor saved; the state holds a rank's own rows in order, row
  // LocalPosition(shard, p) for position p. With world > 1 the result is partials.
  ContextShard shard = {};
};

// Bytes of workspace that suffice for CompressTokens within `limits`, of which max_num_seqs and max_num_tokens count:
// about 12 * D + 8 bytes for each of at most 256 entries, and 24 bytes an entry. O(1). Refuses what CompressTokens refuses
// of the options, a head_dim out of range, and those two limits if they are not positive.
LATHE_API Status CompressorSizes(const CompressorShape& shape, const CompressorOptions& options,
                                 const Limits& limits, Sizes* sizes) noexcept;

// Saves the tokens' rows in the state and writes the entries that they complete, in prefill (many tokens a
// sequence), decode (one) and mixtures. A row before the call's tokens comes from the state, one of its tokens from
// kv and score, so a call may be longer than the ring. Arithmetic in float32, in an order that positions alone
// fix: the bits do not depend on how tokens are divided into calls, on the other sequences or on the number of
// workers. NaN stays in its column, and in its entry if there is a norm; other entries do not see it.
//
// O(entries * window * D + N * C), shared among workers by entries and columns, so that one entry of ratio 128 uses
// all of them. Writes the records of entries and of saved rows, or partials, and nothing else.
//
// Refuses, before anything is written: null data, strides smaller than a row, misaligned data, extents that do not
// fit one another, ratio < 1, positions that are negative or not consecutive or beyond the tables, page ids outside
// of state or cache where a row or entry is needed, slots outside of the cache, a ring smaller than `window`,
// a workspace that is too small (kBufferTooSmall), an input or workspace that overlaps what is written. state
// and cache may be pages of one block of memory; that their records are apart is not checked.
LATHE_API Status CompressTokens(const CompressorArgs& args, const CompressorOptions& options,
                                Buffer workspace, const Executor& executor = {}) noexcept;

// Entries from partials of several ranks: each of the E entries is pooled over all parts, in their order, then
// transformed and written as by CompressTokens.
//
//   parts, num_parts  any number >= 1 of [>=E, 3, D], innermost stride 1
//   positions         [E] of the boundaries, or of any token of the entries
//   slot_mapping      [E] block * block_size + offset; negative: the entry is not written
//   transform, cache  as above
struct CompressedMergeArgs {
  const View<const float, 3>* parts = nullptr;
  size_t num_parts = 0;
  IndexView<1> positions = {};
  IndexView<1> slot_mapping = {};
  RowTransform transform = {};
  MutablePagedCache cache = {};
};

struct CompressedMergeOptions {
  Target target = Target::kAuto;
  int64_t ratio = 0;
  bool power_of_two_scales = false;
};

// O(num_parts * E * D); no workspace. One part gives the bits of CompressTokens. Refuses what CompressTokens
// refuses of the same arguments.
LATHE_API Status MergeCompressed(const CompressedMergeArgs& args,
                                 const CompressedMergeOptions& options,
                                 const Executor& executor = {}) noexcept;

}  // namespace lathe

#endif  // LATHE_COMPRESSOR_H_
