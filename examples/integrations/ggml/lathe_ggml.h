// SPDX-License-Identifier: Apache-2.0
// MLA decode and latent cache writes as custom ops of a ggml graph. ggml runs fn(dst, ith, nth) on all threads and
// waits between nodes, so decode is two nodes, one for each half of lathe's (ith, nth) interface:
//
//   ggml_tensor* src[] = {q, cache, block_table, seq_lens};
//   part = ggml_custom_4d(ctx, GGML_TYPE_F32, kv_lora_rank, num_heads, T, 1, src, 4, lathe_ggml::MlaDecodePart,
//                         num_threads, &step);
//   out = ggml_map_custom1_inplace(ctx, part, lathe_ggml::MlaDecodeMerge, num_threads, &step);
//
//   lathe_ggml::Plan(part, &step);      once per step, when seq_lens and block_table hold their values
//   ggml_graph_compute(...);            any number of layers with the same step
//   step.status                         what the nodes refused, if anything: ggml has no way to say so
//
// Tensors, in ggml's order of axes (innermost first):
//
//   q            [D, H, T] F32, F16 or BF16
//   cache        [D, block_size, num_blocks] F32, F16 or BF16
//   block_table  [max_blocks, B] I32
//   seq_lens     [B] I32, T = B; or with query_start_loc T rows of B sequences
//   query_start_loc  [B + 1] I32 optional, src[4]
//   attn_sink    [H] F32 optional, src[5]
//   out          [kv_lora_rank, H, T] F32, F16 or BF16
#ifndef LATHE_EXAMPLES_GGML_LATHE_GGML_H_
#define LATHE_EXAMPLES_GGML_LATHE_GGML_H_

#include <lathe/lathe.h>

#include <cstddef>
#include <mutex>
#include <vector>

#include "host/ggml.h"

namespace lathe_ggml {

// userdata of the decode nodes of one step; shared by all of its layers, which run one after the other.
struct DecodeStep {
  lathe::MlaDecodeOptions options;
  size_t num_threads = 1;  // n_tasks of the nodes; ggml must not run them on fewer

  lathe::Status status;  // the first refusal; Plan resets it
  const lathe::MlaDecodePlan* plan = nullptr;
  std::vector<std::byte> plan_memory, workspace;
};

// Plans for the shapes and lengths of a decode node. Grows step->plan_memory and workspace when they are too small.
lathe::Status Plan(const ggml_tensor* part, DecodeStep* step);

// ggml_custom_op_t and ggml_custom1_op_t; `step` is a DecodeStep.
void MlaDecodePart(ggml_tensor* dst, int ith, int nth, void* step);
void MlaDecodeMerge(ggml_tensor* dst, const ggml_tensor* part, int ith, int nth, void* step);

// userdata of cache writes: what the first thread that was refused has been told.
struct WriteStep {
  lathe::Status status;
  std::mutex mutex;
};

// ggml_custom3_op_t, for ggml_map_custom3_inplace(ctx, cache, latents, slots, WriteLatents, num_threads, &step):
// latents [D, N] (kv_c and the rotated k_pe side by side) go to the slots [N] I32 or I64, negative ones nowhere.
// Each thread writes a share of the tokens, so after a refusal of one the others' are written. `step` is a
// WriteStep.
void WriteLatents(ggml_tensor* dst, const ggml_tensor* cache, const ggml_tensor* latents,
                  const ggml_tensor* slots, int ith, int nth, void* step);

}  // namespace lathe_ggml

#endif  // LATHE_EXAMPLES_GGML_LATHE_GGML_H_
