// SPDX-License-Identifier: Apache-2.0
// Writing new tokens into a paged cache, reading them back as plain rows, and copying pages and records. A latent cache
// (DeepSeek-V2, arXiv 2405.04434, section 2.1) has the compressed latent kv_c (after RMSNorm) and the rotated key part
// k_pe of each token in one record. The keys of a lightning indexer (DeepSeek-V3.2, arXiv 2512.02556, section 2.1), one
// a token, which its heads share, are records without k_pe: the key is kv_c.
#ifndef LATHE_LATENT_CACHE_H_
#define LATHE_LATENT_CACHE_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/executor.h"
#include "lathe/base/keys.h"
#include "lathe/base/row_transform.h"
#include "lathe/base/status.h"
#include "lathe/base/target.h"
#include "lathe/base/view.h"

namespace lathe {

// N = slot_mapping.extent[0] tokens are written; kv_c and k_pe may have more rows, which are not read.
//
//   kv_c          [>=N, kv_lora_rank] float32, float16 or bfloat16, innermost stride 1; an indexer's keys [>=N, 128]
//   k_pe          [>=N, qk_rope_head_dim] of any of these types, innermost stride 1; not given when the
//                 record has no rope part of its own
//   slot_mapping  [N] block * block_size + offset; negative: the token is not written. No slots at all are N = 0
//                 of a list with a stride, as Packed gives it; a list that was never set is refused where
//                 kv_c has rows. Two tokens with one slot leave one of the two records there, whole if they
//                 are written by one worker.
//   cache         any format; its record width is kv_lora_rank + qk_rope_head_dim. Of an indexer kIndexerFp8 or
//                 kIndexerMxfp4
//   transform     optional (row_transform.h): what becomes of a row before it is written. With k_pe, the
//                 norm acts on kv_c, the rope on k_pe and rounding on both (DeepSeek-V2 and V3: kv_c before
//                 its RMSNorm, k_pe before rotation); a Hadamard matrix is refused then. Without k_pe all of
//                 it acts on the whole row of kv_c (DeepSeek-V4: RMSNorm of 512 columns, rope of the last 64;
//                 V3.2's indexer: LayerNorm, rope of the first 64, Hadamard matrix)
//   positions     [>=N] of the tokens, below P of transform.rope; looked at with a rope, where slots
//                 are not negative
struct LatentWriteArgs {
  In<2> kv_c = {};
  In<2> k_pe = {};
  IndexView<1> slot_mapping = {};
  MutablePagedCache cache = {};
  RowTransform transform = {};
  IndexView<1> positions = {};
};

struct LatentWriteOptions {
  Target target = Target::kAuto;
  // Scales are 2^ceil(log2(max(amax, 1e-4) / 448)) (vLLM's scale_fmt ue8m0): of kFp8DsMla instead of
  // max(amax / 448, FLT_MIN), of kIndexerFp8, as floats, instead of max(amax, 1e-4) / 448. Other formats have one rule
  // each (docs/formats.md); cache.scale is never chosen by a writer.
  bool power_of_two_scales = false;
};

// Writes the records and nothing else: bytes between records and pages keep their values. Conversion
// rounds to nearest even and gives equal bits on every target; the caller's floating-point modes are not
// touched, and flush-to-zero changes nothing. O(N * width); no workspace. NaN stays NaN. Beyond the
// largest code values saturate, infinities too; in formats with scales of tiles an infinity counts as the
// largest float, so the rest of its tile becomes small. e2m1 has no NaN: a tile with a NaN or an
// infinity becomes NaN as a whole. Transformed rows are those of PrepareQueries (query_prep.h) in float32, of
// the same bits; they are equal on one target, for any number of workers, and close on different ones.
// Refuses, before anything is written: a forgotten slot_mapping, null data, strides smaller than a row,
// misaligned data, fewer source rows than slots, a transform that does not fit (query_prep.h), rows above
// kMaxTransformWidth with one, slots >= num_blocks * block_size, a width that the format does not have, a
// cache.scale that is not finite and above 0 where it counts, a cache that overlaps what is read.
LATHE_API Status WriteLatentCache(const LatentWriteArgs& args,
                                  const LatentWriteOptions& options = {},
                                  const Executor& executor = {}) noexcept;

// WriteLatentCache for `num_layers` calls at once, which share workers: layers of few tokens need not wait for one
// another. Everything may differ between layers; their caches may lie interleaved in one block of memory.
// Refuses what WriteLatentCache refuses for any layer, and a cache that overlaps any layer's source, before
// anything is written. O(sum of N * width + num_layers^2).
LATHE_API Status WriteLatentCaches(const LatentWriteArgs* layers, size_t num_layers,
                                   const LatentWriteOptions& options = {},
                                   const Executor& executor = {}) noexcept;

// B sequences. Sequence b gives gather_lens[b] tokens from position gather_starts[b] on, or the last
// `last_n` of these where that is fewer, to consecutive rows of out from out_start_loc[b] on.
//
//   cache          any format
//   block_table    [B, max_blocks] page ids; only those of gathered tokens are read
//   gather_lens    [B] tokens to gather, not the sequence's
//   gather_starts  [B] optional: position of the first of them, any (chunks of a context); else 0
//   last_n         0 = all
//   out_start_loc  [B] or more (cumulative lengths have B + 1; the last one is not read): a
//                  sequence's rows begin where those of the one before it end, or later
//   out            [rows, width] float32, float16 or bfloat16, innermost stride 1; width is that
//                  of the records
struct LatentGatherArgs {
  PagedCache cache = {};
  IndexView<2> block_table = {};
  IndexView<1> gather_lens = {};
  IndexView<1> gather_starts = {};
  int64_t last_n = 0;
  IndexView<1> out_start_loc = {};
  Out<2> out = {};
};

struct LatentGatherOptions {
  Target target = Target::kAuto;
};

// Writes the rows that are gathered and no others. Values are dequantised in float32, times
// cache.scale where it counts, then rounded to out's type to nearest even: equal bits on every
// target, except that values below 2^-126 may become 0. O(tokens * width + B); no workspace.
// Refuses, before anything is written: null data, strides smaller than a row, misaligned data, a
// width that the format does not have, a cache.scale that is not finite and above 0 where it
// counts, lengths beyond the block table, block ids outside the cache, rows outside out or of two
// sequences, an out that overlaps what is read.
LATHE_API Status GatherLatentCache(const LatentGatherArgs& args,
                                   const LatentGatherOptions& options = {},
                                   const Executor& executor = {}) noexcept;

// Copies between pages of one cache (forks of a sequence, compaction) or of two.
//
//   source, destination   [num_blocks] pages each, the next one *_stride bytes on; for one cache,
//                         the same address and stride
//   page_bytes            of each page, from its first byte on: a cache's block_stride for all of
//                         it, gaps included, or block_size * (row_stride + side bytes)
//   block_pairs           [P, 2] (source page, destination page)
struct PageCopyArgs {
  const std::byte* source = nullptr;
  int64_t num_source_blocks = 0;
  int64_t source_stride = 0;
  std::byte* destination = nullptr;
  int64_t num_destination_blocks = 0;
  int64_t destination_stride = 0;
  int64_t page_bytes = 0;
  IndexView<2> block_pairs = {};
};

// Copies pair after pair, as a loop of memmove does, with any number of workers: a pair sees what
// those before it wrote. Each worker takes a slice of every page. O(P * page_bytes); no workspace.
// Refuses, before anything is written: null data, strides below page_bytes, page ids outside, a
// destination that overlaps block_pairs, or the source unless they are one cache.
LATHE_API Status CopyCachePages(const PageCopyArgs& args, const Executor& executor = {}) noexcept;

// CopyCachePages for `num_layers` calls at once, which share workers. Everything may differ between
// layers; a page that one layer writes must be of no use to another, which is not checked.
LATHE_API Status CopyCachesPages(const PageCopyArgs* layers, size_t num_layers,
                                 const Executor& executor = {}) noexcept;

// Copies single records inside a cache: accepted tokens of a tree of drafts to consecutive slots, compaction of
// sequences that lost tokens. The rope part of a record knows its position, which a copy does not change: drafts are
// rotated for the positions that they would have on their path (MlaDecodeArgs::tree_mask), where they go.
//
//   cache                 any format
//   width                 columns of a record, kv_lora_rank + qk_rope_head_dim
//   src_slots, dst_slots  [N] block * block_size + offset each: the record at src_slots[i] goes to dst_slots[i].
//                         A negative dst_slots[i] copies nothing, and src_slots[i] may be anything then
struct RecordCopyArgs {
  MutablePagedCache cache = {};
  int64_t width = 0;
  IndexView<1> src_slots = {};
  IndexView<1> dst_slots = {};
};

// Copies record after record in the order of the lists, with any number of workers: each copy sees what those before it
// wrote. So records that move to the front, both lists ascending, arrive whole though the slots overlap. Codes and
// scales are copied as they are, from both parts of a page where it has two; all other bytes keep their values.
// O(N * record bytes); no workspace. Refuses, before anything is written: what a cache write refuses of its cache,
// a width that the format does not have, lists of different lengths, slots >= num_blocks * block_size, negative
// src_slots beside dst_slots that are not, lists that overlap the cache.
LATHE_API Status CopyCacheRecords(const RecordCopyArgs& args,
                                  const Executor& executor = {}) noexcept;

// CopyCacheRecords for `num_layers` calls at once, which share workers. Everything may differ between layers; a record that
// one layer writes must be of no use to another, which is not checked. O(sum of N * record bytes + num_layers^2).
LATHE_API Status CopyCachesRecords(const RecordCopyArgs* layers, size_t num_layers,
                                   const Executor& executor = {}) noexcept;

}  // namespace lathe

#endif  // LATHE_LATENT_CACHE_H_
