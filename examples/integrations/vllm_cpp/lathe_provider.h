// SPDX-License-Identifier: Apache-2.0
// lathe as a provider of an engine's ops: raw tensor descriptors in, std::runtime_error with lathe's message out.
//
//   op                    lathe                differs from the engine's own kernel
//   ConcatAndCacheMla     WriteLatentCache     -
//   MlaDecodeAttention    RunMlaDecode         entries >= L of topk_indices are skipped, not refused
//   GatherMlaCache        GatherLatentCache    -
//   MergeAttnStates       MergeStates          both parts empty: 0, not the prefix's row
//   ConcatAndCacheDsMla   WriteLatentCache     -
//   DsaTopkSelect         SelectTopk                 -
//
// Results do not depend on the number of threads. Plan memory and workspace are kept by each calling thread and
// only grow. Any block size and head count, any strides whose innermost is 1.
#ifndef LATHE_EXAMPLES_VLLM_CPP_LATHE_PROVIDER_H_
#define LATHE_EXAMPLES_VLLM_CPP_LATHE_PROVIDER_H_

#include <cstddef>
#include <cstdint>

#include "host/vt.h"

namespace lathe_provider {

// kv_c [>=T, R], k_pe [>=T, P], kv_cache [NB, bs, R + P] of any float types, slot_mapping int64 [T].
void ConcatAndCacheMla(vt::Queue& queue, const vt::Tensor& kv_c, const vt::Tensor& k_pe,
                       vt::Tensor& kv_cache, const vt::Tensor& slot_mapping);

// out [B, H, Dv], lse null or f32 [B, H], query [B, H, D], kv_cache [NB, bs, D], block_table int32 [B, MB],
// seq_lens int32 [B].
void MlaDecodeAttention(vt::Queue& queue, vt::Tensor& out, vt::Tensor* lse, const vt::Tensor& query,
                        const vt::Tensor& kv_cache, const vt::Tensor& block_table,
                        const vt::Tensor& seq_lens, const vt::MlaDecodeAttentionArgs& args);

// dst [>=n, D], src_cache [NB, bs, D], block_table int32 [B, MB], cu_seq_lens int32 [B + 1], seq_starts null or
// int32 [B]. token_to_seq is not needed.
void GatherMlaCache(vt::Queue& queue, vt::Tensor& dst, const vt::Tensor& src_cache,
                    const vt::Tensor& block_table, const vt::Tensor& cu_seq_lens,
                    const vt::Tensor& token_to_seq, const vt::Tensor* seq_starts,
                    int64_t num_tokens);

// Outputs [T, H, Dv], lse f32 [H, T]. Tokens from n on have no prefix.
void MergeAttnStates(vt::Queue& queue, vt::Tensor& output, vt::Tensor* output_lse,
                     const vt::Tensor& prefix_output, const vt::Tensor& prefix_lse,
                     const vt::Tensor& suffix_output, const vt::Tensor& suffix_lse, int64_t n);

// k [>=T, 512] 16-bit or float, kv_cache kI8 [NB, bytes of a block] of V4's records, slot_mapping int64 [T].
void ConcatAndCacheDsMla(vt::Queue& queue, const vt::Tensor& k, vt::Tensor& kv_cache,
                         const vt::Tensor& slot_mapping, int64_t block_size);

// indices int32 [T, k], counts int32 [T], logits f32 [T, S], win_start and win_end int32 [T].
void DsaTopkSelect(vt::Queue& queue, vt::Tensor& indices, vt::Tensor& counts,
                   const vt::Tensor& logits, const vt::Tensor& win_start,
                   const vt::Tensor& win_end);

// What the engine registers, for its CPU device.
extern const vt::OpProvider kProviders[];
extern const size_t kNumProviders;

}  // namespace lathe_provider

#endif  // LATHE_EXAMPLES_VLLM_CPP_LATHE_PROVIDER_H_
