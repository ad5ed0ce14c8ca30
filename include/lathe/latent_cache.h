// SPDX-License-Identifier: Apache-2.0
// Writing new tokens into a paged latent cache (DeepSeek-V2, arXiv 2405.04434, section 2.1): the
// compressed latent kv_c (after RMSNorm) and the rotated key part k_pe of each token become one record.
#ifndef LATHE_LATENT_CACHE_H_
#define LATHE_LATENT_CACHE_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/executor.h"
#include "lathe/base/keys.h"
#include "lathe/base/status.h"
#include "lathe/base/target.h"
#include "lathe/base/view.h"

namespace lathe {

// N = slot_mapping.extent[0] tokens are written; kv_c and k_pe may have more rows, which are not read.
//
//   kv_c          [>=N, kv_lora_rank] float32, float16 or bfloat16, innermost stride 1
//   k_pe          [>=N, qk_rope_head_dim] of any of these types, innermost stride 1; not given when the
//                 record has no rope part of its own
//   slot_mapping  [N] block * block_size + offset; negative: the token is not written. Two tokens with one
//                 slot leave one of the two records there, whole if they are written by one worker.
//   cache         any format; its record width is kv_lora_rank + qk_rope_head_dim
struct LatentWriteArgs {
  In<2> kv_c = {};
  In<2> k_pe = {};
  IndexView<1> slot_mapping = {};
  MutablePagedCache cache = {};
};

struct LatentWriteOptions {
  Target target = Target::kAuto;
  // kFp8DsMla: scales are 2^ceil(log2(max(amax, 1e-4) / 448)), not max(amax / 448, FLT_MIN). Other formats
  // have one rule each (docs/formats.md); cache.scale is never chosen by a writer.
  bool power_of_two_scales = false;
};

// Writes the records and nothing else: bytes between records and pages keep their values. Conversion
// rounds to nearest even and gives equal bits on every target; the caller's floating-point modes are not
// touched, and flush-to-zero changes nothing. O(N * width); no workspace. NaN stays NaN. Beyond the
// largest code values saturate, infinities too; in formats with scales of tiles an infinity counts as the
// largest float, so the rest of its tile becomes small. e2m1 has no NaN: a tile with a NaN or an
// infinity becomes NaN as a whole.
// Refuses, before anything is written: null data, strides smaller than a row, misaligned data, fewer
// source rows than slots, slots >= num_blocks * block_size, a width that the format does not have, a
// cache.scale that is not finite and above 0 where it counts, a cache that overlaps a source.
Status WriteLatentCache(const LatentWriteArgs& args, const LatentWriteOptions& options = {},
                        const Executor& executor = {}) noexcept;

// The same for `num_layers` calls at once, which share workers: layers of few tokens need not wait for one
// another. Everything may differ between layers; their caches may lie interleaved in one block of memory.
// Refuses what WriteLatentCache refuses for any layer, and a cache that overlaps any layer's source, before
// anything is written. O(sum of N * width + num_layers^2).
Status WriteLatentCaches(const LatentWriteArgs* layers, size_t num_layers,
                         const LatentWriteOptions& options = {},
                         const Executor& executor = {}) noexcept;

}  // namespace lathe

#endif  // LATHE_LATENT_CACHE_H_
