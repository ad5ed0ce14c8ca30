// SPDX-License-Identifier: Apache-2.0
// What becomes of each C struct, field by field. A new operation's structs are added here, its function in
// lathe/capi_impl.h.
#ifndef LATHE_CAPI_CONVERT_H_
#define LATHE_CAPI_CONVERT_H_

#include "lathe/capi.h"
#include "lathe/capi/conversion.h"
#include "lathe/lathe.h"

namespace lathe::capi {

// M(a), M(b), ... of up to 12 names.
#define LATHE_C_EACH_1(M, a) M(a)
#define LATHE_C_EACH_2(M, a, ...) M(a), LATHE_C_EACH_1(M, __VA_ARGS__)
#define LATHE_C_EACH_3(M, a, ...) M(a), LATHE_C_EACH_2(M, __VA_ARGS__)
#define LATHE_C_EACH_4(M, a, ...) M(a), LATHE_C_EACH_3(M, __VA_ARGS__)
#define LATHE_C_EACH_5(M, a, ...) M(a), LATHE_C_EACH_4(M, __VA_ARGS__)
#define LATHE_C_EACH_6(M, a, ...) M(a), LATHE_C_EACH_5(M, __VA_ARGS__)
#define LATHE_C_EACH_7(M, a, ...) M(a), LATHE_C_EACH_6(M, __VA_ARGS__)
#define LATHE_C_EACH_8(M, a, ...) M(a), LATHE_C_EACH_7(M, __VA_ARGS__)
#define LATHE_C_EACH_9(M, a, ...) M(a), LATHE_C_EACH_8(M, __VA_ARGS__)
#define LATHE_C_EACH_10(M, a, ...) M(a), LATHE_C_EACH_9(M, __VA_ARGS__)
#define LATHE_C_EACH_11(M, a, ...) M(a), LATHE_C_EACH_10(M, __VA_ARGS__)
#define LATHE_C_EACH_12(M, a, ...) M(a), LATHE_C_EACH_11(M, __VA_ARGS__)
#define LATHE_C_PICK(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, each, ...) each
#define LATHE_C_EACH(M, ...)                                                                   \
  LATHE_C_PICK(__VA_ARGS__, LATHE_C_EACH_12, LATHE_C_EACH_11, LATHE_C_EACH_10, LATHE_C_EACH_9, \
               LATHE_C_EACH_8, LATHE_C_EACH_7, LATHE_C_EACH_6, LATHE_C_EACH_5, LATHE_C_EACH_4, \
               LATHE_C_EACH_3, LATHE_C_EACH_2, LATHE_C_EACH_1, )                               \
  (M, __VA_ARGS__)

// Fields that both sides call by these names, in the order of their refusals; of the second, 0 is the C++ default.
#define LATHE_C_FIELD(name) conversion.Field(#name, from.name, &to->name)
#define LATHE_C_FIELD_OR_DEFAULT(name) conversion.FieldOrDefault(#name, from.name, &to->name)
#define LATHE_C_FIELDS(...) LATHE_C_EACH(LATHE_C_FIELD, __VA_ARGS__)
#define LATHE_C_FIELDS_OR_DEFAULT(...) LATHE_C_EACH(LATHE_C_FIELD_OR_DEFAULT, __VA_ARGS__)

#define LATHE_C_CONVERT(From, To) \
  inline void Convert(const From& from, To* to, Conversion& conversion) noexcept
// A struct of nothing but such fields.
#define LATHE_C_STRUCT(From, To, ...) \
  LATHE_C_CONVERT(From, To) { LATHE_C_FIELDS(__VA_ARGS__); }

LATHE_C_STRUCT(lathe_row_norm, RowNorm, kind, weight, bias, eps)
LATHE_C_STRUCT(lathe_row_transform, RowTransform, norm, rope, hadamard, round_to_bfloat16)
LATHE_C_STRUCT(lathe_mla_shape, MlaShape, num_heads, kv_lora_rank, qk_rope_head_dim)
LATHE_C_STRUCT(lathe_prefill_shape, PrefillShape, num_heads, num_kv_heads, qk_head_dim, v_head_dim)
LATHE_C_STRUCT(lathe_prefill_args, PrefillArgs, q, query_start_loc, k, v, kv_start_loc, attn_sink,
               out, lse)
LATHE_C_STRUCT(lathe_latent_write_args, LatentWriteArgs, kv_c, k_pe, slot_mapping, cache, transform,
               positions)
LATHE_C_STRUCT(lathe_latent_write_options, LatentWriteOptions, target, power_of_two_scales)
LATHE_C_STRUCT(lathe_latent_gather_args, LatentGatherArgs, cache, block_table, gather_lens,
               gather_starts, last_n, out_start_loc, out)
LATHE_C_STRUCT(lathe_latent_gather_options, LatentGatherOptions, target)
LATHE_C_STRUCT(lathe_record_copy_args, RecordCopyArgs, cache, width, src_slots, dst_slots)
LATHE_C_STRUCT(lathe_merge_part, MergePart, out, lse, lse_policy)
LATHE_C_STRUCT(lathe_merge_states_options, MergeStatesOptions, lse_policy, target)
LATHE_C_STRUCT(lathe_query_prep_args, QueryPrepArgs, q, transform, positions, out, codes, q_scales,
               weights, weights_out)
LATHE_C_STRUCT(lathe_topk_args, TopkArgs, logits, row_starts, row_ends, row_lens, indices, counts,
               values, block_table, block_size, num_blocks, row_seq)
LATHE_C_STRUCT(lathe_indexer_shape, IndexerShape, num_heads, head_dim)
LATHE_C_STRUCT(lathe_indexer_inputs, IndexerInputs, q, q_fp8, weights, query_start_loc, keys,
               candidate_blocks, candidate_block_size)
LATHE_C_STRUCT(lathe_indexer_logits_args, IndexerLogitsArgs, inputs, logits)
LATHE_C_STRUCT(lathe_indexer_topk_args, IndexerTopkArgs, inputs, indices, counts, block_table,
               block_size, num_blocks, row_seq)
LATHE_C_STRUCT(lathe_compressor_shape, CompressorShape, head_dim)
LATHE_C_STRUCT(lathe_compressor_args, CompressorArgs, kv, score, ape, positions, query_start_loc,
               state, state_block_table, transform, cache, block_table, slot_mapping, partials)
LATHE_C_STRUCT(lathe_compressor_options, CompressorOptions, target, ratio, overlap,
               power_of_two_scales, state_tokens, shard)
LATHE_C_STRUCT(lathe_compressed_merge_options, CompressedMergeOptions, target, ratio,
               power_of_two_scales)

LATHE_C_CONVERT(lathe_lse_policy, LsePolicy) {
  LATHE_C_FIELDS(base2);
  if (from.has_empty != 0) LATHE_C_FIELDS(empty);
}

template <class Byte>
void Convert(const lathe_paged_cache& from, BasicPagedCache<Byte>* to,
             Conversion& conversion) noexcept {
  to->data = static_cast<Byte*>(from.data);
  LATHE_C_FIELDS(format, num_blocks, block_size, block_stride, row_stride);
  LATHE_C_FIELDS_OR_DEFAULT(scale);
}

LATHE_C_CONVERT(lathe_key_set, KeySet) {
  LATHE_C_FIELDS(cache, block_table, wraps, seq_lens);
  LATHE_C_FIELDS_OR_DEFAULT(compress_ratio);
  LATHE_C_FIELDS(row_kv_lens, row_starts);
  LATHE_C_FIELDS_OR_DEFAULT(window);
  LATHE_C_FIELDS(indices, topk_length, index_space);
}

LATHE_C_CONVERT(lathe_rope, Rope) {
  LATHE_C_FIELDS(cos, sin);
  to->interleaved = from.is_neox_style == 0;
  LATHE_C_FIELDS(leading, inverse);
}

LATHE_C_CONVERT(lathe_mla_decode_options, MlaDecodeOptions) {
  LATHE_C_FIELDS(softmax_scale);
  to->causal = from.no_causal == 0;
  LATHE_C_FIELDS(precision, lse_policy, target);
  to->check_indices = from.no_check_indices == 0;
  ConvertScoreTransforms(from, to);
}

LATHE_C_CONVERT(lathe_mla_decode_args, MlaDecodeArgs) {
  if (!conversion.IsGiven("keys", from.keys)) return;
  LATHE_C_FIELDS(q, q_nope, q_pe, query_start_loc, keys, extra_keys, attn_sink, out_rope, positions,
                 tree_mask, out, lse);
}

LATHE_C_CONVERT(lathe_limits, Limits) {
  LATHE_C_FIELDS(max_num_seqs, max_num_tokens, max_num_keys);
  LATHE_C_FIELDS_OR_DEFAULT(num_workers);
}

LATHE_C_CONVERT(lathe_prefill_options, PrefillOptions) {
  LATHE_C_FIELDS(softmax_scale);
  to->causal = from.no_causal == 0;
  LATHE_C_FIELDS_OR_DEFAULT(window);
  LATHE_C_FIELDS(precision, lse_policy, target);
  ConvertScoreTransforms(from, to);
}

LATHE_C_CONVERT(lathe_page_copy_args, PageCopyArgs) {
  to->source = static_cast<const std::byte*>(from.source);
  LATHE_C_FIELDS(num_source_blocks, source_stride);
  to->destination = static_cast<std::byte*>(from.destination);
  LATHE_C_FIELDS(num_destination_blocks, destination_stride, page_bytes, block_pairs);
}

LATHE_C_CONVERT(lathe_merge_states_args, MergeStatesArgs) {
  to->parts = conversion.Array<MergePart>("parts", from.parts, from.num_parts);
  LATHE_C_FIELDS(num_parts, attn_sink, out, lse);
}

LATHE_C_CONVERT(lathe_query_prep_options, QueryPrepOptions) {
  LATHE_C_FIELDS(target, power_of_two_scales);
  LATHE_C_FIELDS_OR_DEFAULT(softmax_scale, head_scale);
}

LATHE_C_CONVERT(lathe_topk_options, TopkOptions) {
  LATHE_C_FIELDS(k, append_newest);
  LATHE_C_FIELDS_OR_DEFAULT(pool_size);
  LATHE_C_FIELDS(index_base);
  to->check_indices = from.no_check_indices == 0;
  LATHE_C_FIELDS(allow_holes, target);
}

LATHE_C_CONVERT(lathe_indexer_logits_options, IndexerLogitsOptions) {
  LATHE_C_FIELDS(precision, target, fill);
  to->check_indices = from.no_check_indices == 0;
}

LATHE_C_CONVERT(lathe_indexer_topk_options, IndexerTopkOptions) {
  LATHE_C_FIELDS(k, index_base, precision, target);
  to->check_indices = from.no_check_indices == 0;
  LATHE_C_FIELDS(allow_holes);
}

LATHE_C_CONVERT(lathe_context_shard, ContextShard) {
  LATHE_C_FIELDS_OR_DEFAULT(world);
  LATHE_C_FIELDS(rank);
  LATHE_C_FIELDS_OR_DEFAULT(interleave);
}

LATHE_C_CONVERT(lathe_compressed_merge_args, CompressedMergeArgs) {
  to->parts = conversion.Array<View<const float, 3>>("parts", from.parts, from.num_parts);
  LATHE_C_FIELDS(num_parts, positions, slot_mapping, transform, cache);
}

}  // namespace lathe::capi

#endif  // LATHE_CAPI_CONVERT_H_
