// SPDX-License-Identifier: Apache-2.0
// What becomes of each C struct, field by field. A new operation's structs are added here, its function in
// lathe/capi_impl.h.
#ifndef LATHE_CAPI_CONVERT_H_
#define LATHE_CAPI_CONVERT_H_

#include <type_traits>

#include "lathe/capi.h"
#include "lathe/capi/conversion.h"
#include "lathe/lathe.h"

namespace lathe::capi {

// The field of one name on both sides; the second for fields whose 0 is the C++ default.
#define LATHE_C_FIELD(name) conversion.Field(#name, from.name, &to->name)
#define LATHE_C_FIELD_OR_DEFAULT(name) conversion.FieldOrDefault(#name, from.name, &to->name)

inline void Convert(const lathe_lse_policy& from, LsePolicy* to, Conversion& conversion) noexcept {
  LATHE_C_FIELD(base2);
  if (from.has_empty != 0) LATHE_C_FIELD(empty);
}

template <class Byte>
void Convert(const lathe_paged_cache& from, BasicPagedCache<Byte>* to,
             Conversion& conversion) noexcept {
  to->data = static_cast<Byte*>(from.data);
  LATHE_C_FIELD(format);
  LATHE_C_FIELD(num_blocks);
  LATHE_C_FIELD(block_size);
  LATHE_C_FIELD(block_stride);
  LATHE_C_FIELD(row_stride);
  LATHE_C_FIELD_OR_DEFAULT(scale);
}

inline void Convert(const lathe_key_set& from, KeySet* to, Conversion& conversion) noexcept {
  LATHE_C_FIELD(cache);
  LATHE_C_FIELD(block_table);
  LATHE_C_FIELD(wraps);
  LATHE_C_FIELD(seq_lens);
  LATHE_C_FIELD_OR_DEFAULT(compress_ratio);
  LATHE_C_FIELD(row_kv_lens);
  LATHE_C_FIELD(row_starts);
  LATHE_C_FIELD_OR_DEFAULT(window);
  LATHE_C_FIELD(indices);
  LATHE_C_FIELD(topk_length);
  LATHE_C_FIELD(index_space);
}

inline void Convert(const lathe_rope& from, Rope* to, Conversion& conversion) noexcept {
  LATHE_C_FIELD(cos);
  LATHE_C_FIELD(sin);
  to->interleaved = from.is_neox_style == 0;
  LATHE_C_FIELD(leading);
  LATHE_C_FIELD(inverse);
}

inline void Convert(const lathe_row_norm& from, RowNorm* to, Conversion& conversion) noexcept {
  LATHE_C_FIELD(kind);
  LATHE_C_FIELD(weight);
  LATHE_C_FIELD(bias);
  LATHE_C_FIELD(eps);
}

inline void Convert(const lathe_row_transform& from, RowTransform* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(norm);
  LATHE_C_FIELD(rope);
  LATHE_C_FIELD(hadamard);
  LATHE_C_FIELD(round_to_bfloat16);
}

inline void Convert(const lathe_mla_shape& from, MlaShape* to, Conversion& conversion) noexcept {
  LATHE_C_FIELD(num_heads);
  LATHE_C_FIELD(kv_lora_rank);
  LATHE_C_FIELD(qk_rope_head_dim);
}

inline void Convert(const lathe_mla_decode_options& from, MlaDecodeOptions* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(softmax_scale);
  to->causal = from.no_causal == 0;
  LATHE_C_FIELD_OR_DEFAULT(split_tokens);
  LATHE_C_FIELD(precision);
  LATHE_C_FIELD(lse_policy);
  LATHE_C_FIELD(target);
  to->check_indices = from.no_check_indices == 0;
  ConvertScoreTransforms(from, to);
}

inline void Convert(const lathe_mla_decode_args& from, MlaDecodeArgs* to,
                    Conversion& conversion) noexcept {
  if (!conversion.IsGiven("keys", from.keys)) return;
  LATHE_C_FIELD(q);
  LATHE_C_FIELD(q_nope);
  LATHE_C_FIELD(q_pe);
  LATHE_C_FIELD(query_start_loc);
  LATHE_C_FIELD(keys);
  LATHE_C_FIELD(extra_keys);
  LATHE_C_FIELD(attn_sink);
  LATHE_C_FIELD(out_rope);
  LATHE_C_FIELD(positions);
  LATHE_C_FIELD(tree_mask);
  LATHE_C_FIELD(out);
  LATHE_C_FIELD(lse);
}

inline void Convert(const lathe_limits& from, Limits* to, Conversion& conversion) noexcept {
  LATHE_C_FIELD(max_num_seqs);
  LATHE_C_FIELD(max_num_tokens);
  LATHE_C_FIELD(max_num_keys);
  LATHE_C_FIELD_OR_DEFAULT(num_workers);
}

inline void Convert(const lathe_prefill_shape& from, PrefillShape* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(num_heads);
  LATHE_C_FIELD(num_kv_heads);
  LATHE_C_FIELD(qk_head_dim);
  LATHE_C_FIELD(v_head_dim);
}

inline void Convert(const lathe_prefill_options& from, PrefillOptions* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(softmax_scale);
  to->causal = from.no_causal == 0;
  LATHE_C_FIELD_OR_DEFAULT(window);
  LATHE_C_FIELD_OR_DEFAULT(split_tokens);
  LATHE_C_FIELD(precision);
  LATHE_C_FIELD(lse_policy);
  LATHE_C_FIELD(target);
  ConvertScoreTransforms(from, to);
}

inline void Convert(const lathe_prefill_args& from, PrefillArgs* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(q);
  LATHE_C_FIELD(query_start_loc);
  LATHE_C_FIELD(k);
  LATHE_C_FIELD(v);
  LATHE_C_FIELD(kv_start_loc);
  LATHE_C_FIELD(attn_sink);
  LATHE_C_FIELD(out);
  LATHE_C_FIELD(lse);
}

inline void Convert(const lathe_latent_write_args& from, LatentWriteArgs* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(kv_c);
  LATHE_C_FIELD(k_pe);
  LATHE_C_FIELD(slot_mapping);
  LATHE_C_FIELD(cache);
  LATHE_C_FIELD(transform);
  LATHE_C_FIELD(positions);
}

inline void Convert(const lathe_latent_write_options& from, LatentWriteOptions* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(target);
  LATHE_C_FIELD(power_of_two_scales);
}

inline void Convert(const lathe_latent_gather_args& from, LatentGatherArgs* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(cache);
  LATHE_C_FIELD(block_table);
  LATHE_C_FIELD(gather_lens);
  LATHE_C_FIELD(gather_starts);
  LATHE_C_FIELD(last_n);
  LATHE_C_FIELD(out_start_loc);
  LATHE_C_FIELD(out);
}

inline void Convert(const lathe_latent_gather_options& from, LatentGatherOptions* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(target);
}

inline void Convert(const lathe_page_copy_args& from, PageCopyArgs* to,
                    Conversion& conversion) noexcept {
  to->source = static_cast<const std::byte*>(from.source);
  LATHE_C_FIELD(num_source_blocks);
  LATHE_C_FIELD(source_stride);
  to->destination = static_cast<std::byte*>(from.destination);
  LATHE_C_FIELD(num_destination_blocks);
  LATHE_C_FIELD(destination_stride);
  LATHE_C_FIELD(page_bytes);
  LATHE_C_FIELD(block_pairs);
}

inline void Convert(const lathe_record_copy_args& from, RecordCopyArgs* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(cache);
  LATHE_C_FIELD(width);
  LATHE_C_FIELD(src_slots);
  LATHE_C_FIELD(dst_slots);
}

inline void Convert(const lathe_merge_part& from, MergePart* to, Conversion& conversion) noexcept {
  LATHE_C_FIELD(out);
  LATHE_C_FIELD(lse);
  LATHE_C_FIELD(lse_policy);
}

inline void Convert(const lathe_merge_states_args& from, MergeStatesArgs* to,
                    Conversion& conversion) noexcept {
  to->parts = conversion.Array<MergePart>("parts", from.parts, from.num_parts);
  LATHE_C_FIELD(num_parts);
  LATHE_C_FIELD(attn_sink);
  LATHE_C_FIELD(out);
  LATHE_C_FIELD(lse);
}

inline void Convert(const lathe_merge_states_options& from, MergeStatesOptions* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(lse_policy);
  LATHE_C_FIELD(target);
}

inline void Convert(const lathe_query_prep_args& from, QueryPrepArgs* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(q);
  LATHE_C_FIELD(transform);
  LATHE_C_FIELD(positions);
  LATHE_C_FIELD(out);
  LATHE_C_FIELD(codes);
  LATHE_C_FIELD(q_scales);
  LATHE_C_FIELD(weights);
  LATHE_C_FIELD(weights_out);
}

inline void Convert(const lathe_query_prep_options& from, QueryPrepOptions* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(target);
  LATHE_C_FIELD(power_of_two_scales);
  LATHE_C_FIELD_OR_DEFAULT(softmax_scale);
  LATHE_C_FIELD_OR_DEFAULT(head_scale);
}

inline void Convert(const lathe_topk_args& from, TopkArgs* to, Conversion& conversion) noexcept {
  LATHE_C_FIELD(logits);
  LATHE_C_FIELD(row_starts);
  LATHE_C_FIELD(row_ends);
  LATHE_C_FIELD(row_lens);
  LATHE_C_FIELD(indices);
  LATHE_C_FIELD(counts);
  LATHE_C_FIELD(values);
  LATHE_C_FIELD(block_table);
  LATHE_C_FIELD(block_size);
  LATHE_C_FIELD(num_blocks);
  LATHE_C_FIELD(row_seq);
}

inline void Convert(const lathe_topk_options& from, TopkOptions* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(k);
  LATHE_C_FIELD(append_newest);
  LATHE_C_FIELD_OR_DEFAULT(pool_size);
  LATHE_C_FIELD(index_base);
  to->check_indices = from.no_check_indices == 0;
  LATHE_C_FIELD(allow_holes);
  LATHE_C_FIELD(target);
}

inline void Convert(const lathe_indexer_shape& from, IndexerShape* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(num_heads);
  LATHE_C_FIELD(head_dim);
}

inline void Convert(const lathe_indexer_inputs& from, IndexerInputs* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(q);
  LATHE_C_FIELD(q_fp8);
  LATHE_C_FIELD(weights);
  LATHE_C_FIELD(query_start_loc);
  LATHE_C_FIELD(keys);
  LATHE_C_FIELD(candidate_blocks);
  LATHE_C_FIELD(candidate_block_size);
}

inline void Convert(const lathe_indexer_logits_args& from, IndexerLogitsArgs* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(inputs);
  LATHE_C_FIELD(logits);
}

inline void Convert(const lathe_indexer_logits_options& from, IndexerLogitsOptions* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(precision);
  LATHE_C_FIELD(target);
  LATHE_C_FIELD(fill);
  to->check_indices = from.no_check_indices == 0;
}

inline void Convert(const lathe_indexer_topk_args& from, IndexerTopkArgs* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(inputs);
  LATHE_C_FIELD(indices);
  LATHE_C_FIELD(counts);
  LATHE_C_FIELD(block_table);
  LATHE_C_FIELD(block_size);
  LATHE_C_FIELD(num_blocks);
  LATHE_C_FIELD(row_seq);
}

inline void Convert(const lathe_indexer_topk_options& from, IndexerTopkOptions* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(k);
  LATHE_C_FIELD(index_base);
  LATHE_C_FIELD(precision);
  LATHE_C_FIELD(target);
  to->check_indices = from.no_check_indices == 0;
  LATHE_C_FIELD(allow_holes);
}

inline void Convert(const lathe_compressor_shape& from, CompressorShape* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(head_dim);
}

inline void Convert(const lathe_compressor_args& from, CompressorArgs* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(kv);
  LATHE_C_FIELD(score);
  LATHE_C_FIELD(ape);
  LATHE_C_FIELD(positions);
  LATHE_C_FIELD(query_start_loc);
  LATHE_C_FIELD(state);
  LATHE_C_FIELD(state_block_table);
  LATHE_C_FIELD(transform);
  LATHE_C_FIELD(cache);
  LATHE_C_FIELD(block_table);
  LATHE_C_FIELD(slot_mapping);
  LATHE_C_FIELD(partials);
}

inline void Convert(const lathe_context_shard& from, ContextShard* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD_OR_DEFAULT(world);
  LATHE_C_FIELD(rank);
  LATHE_C_FIELD_OR_DEFAULT(interleave);
}

inline void Convert(const lathe_compressor_options& from, CompressorOptions* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(target);
  LATHE_C_FIELD(ratio);
  LATHE_C_FIELD(overlap);
  LATHE_C_FIELD(power_of_two_scales);
  LATHE_C_FIELD(state_tokens);
  LATHE_C_FIELD(shard);
}

inline void Convert(const lathe_compressed_merge_args& from, CompressedMergeArgs* to,
                    Conversion& conversion) noexcept {
  to->parts = conversion.Array<View<const float, 3>>("parts", from.parts, from.num_parts);
  LATHE_C_FIELD(num_parts);
  LATHE_C_FIELD(positions);
  LATHE_C_FIELD(slot_mapping);
  LATHE_C_FIELD(transform);
  LATHE_C_FIELD(cache);
}

inline void Convert(const lathe_compressed_merge_options& from, CompressedMergeOptions* to,
                    Conversion& conversion) noexcept {
  LATHE_C_FIELD(target);
  LATHE_C_FIELD(ratio);
  LATHE_C_FIELD(power_of_two_scales);
}

#undef LATHE_C_FIELD
#undef LATHE_C_FIELD_OR_DEFAULT

}  // namespace lathe::capi

#endif  // LATHE_CAPI_CONVERT_H_
