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
};

// Writes the records and nothing else: bytes between records and pages keep their values. Conversion
// rounds to nearest even, NaN stays NaN, equal bits on every target. O(N * width); no workspace.
// Refuses, before anything is written: null data, strides smaller than a row, misaligned data, fewer
// source rows than slots, slots >= num_blocks * block_size, a cache that overlaps a source.
Status WriteLatentCache(const LatentWriteArgs& args, const LatentWriteOptions& options = {},
                        const Executor& executor = {}) noexcept;

}  // namespace lathe

#endif  // LATHE_LATENT_CACHE_H_
