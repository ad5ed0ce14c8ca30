// SPDX-License-Identifier: Apache-2.0
// The key cache of a lightning indexer (DeepSeek-V3.2): one key a token, which
// all indexer heads share.
#ifndef LATHE_INDEXER_H_
#define LATHE_INDEXER_H_

#include "lathe/base/config.h"
#include "lathe/base/executor.h"
#include "lathe/base/keys.h"
#include "lathe/base/row_transform.h"
#include "lathe/base/status.h"
#include "lathe/base/target.h"
#include "lathe/base/view.h"

namespace lathe {

// N = slot_mapping.extent[0] keys are written; k may have more rows, which are not read.
//
//   k             [>=N, width] float32, float16 or bfloat16, innermost stride 1; normalised and
//                 rotated, unless the transform does it
//   slot_mapping  [N] block * block_size + offset; negative: the key is not written
//   cache         kIndexerFp8 or kIndexerMxfp4 (width 128), or any other format of the width;
//                 kLatentFloat32, kLatentFloat16 and kLatentBFloat16 hold plain keys of any width
//   transform     optional (row_transform.h), of each key. DeepSeek-V3.2: LayerNorm, rope of the first 64
//                 columns, Hadamard matrix
//   positions     [>=N] of the keys, below P of transform.rope; looked at with a rope, where slots
//                 are not negative
struct IndexerWriteArgs {
  In<2> k = {};
  IndexView<1> slot_mapping = {};
  MutablePagedCache cache = {};
  RowTransform transform = {};
  IndexView<1> positions = {};
};

struct IndexerWriteOptions {
  Target target = Target::kAuto;
  // kIndexerFp8: scales are 2^ceil(log2(max(amax, 1e-4) / 448)), stored as floats (vLLM's scale_fmt
  // ue8m0), not max(amax, 1e-4) / 448.
  bool power_of_two_scales = false;
};

// Writes keys with their scales and nothing else, as WriteLatentCache does (latent_cache.h): the
// same rounding, the same refusals before anything is written. GatherLatentCache reads keys back,
// CopyCachePages copies their pages. For many layers at once there is WriteLatentCaches, with k as
// kv_c. O(N * width); no workspace.
LATHE_API Status WriteIndexerCache(const IndexerWriteArgs& args,
                                   const IndexerWriteOptions& options = {},
                                   const Executor& executor = {}) noexcept;

}  // namespace lathe

#endif  // LATHE_INDEXER_H_
