// SPDX-License-Identifier: Apache-2.0
// The C structs that say what given C++ ones say, so that any problem of the other tests also goes through C.
#ifndef LATHE_TESTS_CAPI_MIRROR_H_
#define LATHE_TESTS_CAPI_MIRROR_H_

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "lathe/capi.h"
#include "lathe/lathe.h"

namespace lathe::test {

template <class AnyView>
lathe_tensor MirrorTensor(const AnyView& v, int32_t dtype) {
  constexpr size_t kRank = std::extent_v<decltype(v.extent)>;
  lathe_tensor tensor{};
  bool is_given = v.data != nullptr;
  for (size_t i = 0; i < kRank; ++i) {
    tensor.extent[i] = v.extent[i];
    tensor.stride[i] = v.stride[i];
    is_given = is_given || v.extent[i] != 0;
  }
  tensor.data = const_cast<void*>(static_cast<const void*>(v.data));
  tensor.dtype = dtype;
  tensor.rank = is_given ? static_cast<int32_t>(kRank) : 0;
  return tensor;
}
template <class Byte, size_t R>
lathe_tensor Mirror(const AnyView<Byte, R>& v) {
  return MirrorTensor(v, static_cast<int32_t>(v.dtype));
}
template <size_t R>
lathe_tensor Mirror(const IndexView<R>& v) {
  return MirrorTensor(v, v.is_int64 ? LATHE_DTYPE_INT64 : LATHE_DTYPE_INT32);
}
template <class T, size_t R>
lathe_tensor Mirror(const View<T, R>& v) {
  return MirrorTensor(v, sizeof(T) == 1   ? LATHE_DTYPE_UINT8
                         : sizeof(T) == 8 ? LATHE_DTYPE_UINT64
                                          : LATHE_DTYPE_FLOAT32);
}

inline lathe_lse_policy Mirror(const LsePolicy& policy) { return {policy.base2, 1, policy.empty}; }

template <class C>
C Sized() {
  C c{};
  c.struct_size = sizeof(C);
  return c;
}

// Structs with what they point to; they stay where they are.
struct Pinned {
  Pinned() = default;
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
};

template <class Byte>
lathe_paged_cache Mirror(const BasicPagedCache<Byte>& cache) {
  auto c = Sized<lathe_paged_cache>();
  c.data = const_cast<std::byte*>(cache.data);
  c.format = static_cast<int32_t>(cache.format);
  c.scale = cache.scale;
  c.num_blocks = cache.num_blocks;
  c.block_size = cache.block_size;
  c.block_stride = cache.block_stride;
  c.row_stride = cache.row_stride;
  return c;
}

struct CKeySet : Pinned {
  lathe_paged_cache cache;
  lathe_key_set c = Sized<lathe_key_set>();
  explicit CKeySet(const KeySet& keys) : cache(Mirror(keys.cache)) {
    c.cache = &cache;
    c.block_table = Mirror(keys.block_table);
    c.wraps = keys.wraps;
    c.seq_lens = Mirror(keys.seq_lens);
    c.compress_ratio = keys.compress_ratio;
    c.row_kv_lens = Mirror(keys.row_kv_lens);
    c.row_starts = Mirror(keys.row_starts);
    c.window = keys.window == kNoWindow ? 0 : keys.window;
    c.indices = Mirror(keys.indices);
    c.topk_length = Mirror(keys.topk_length);
    c.index_space = static_cast<int32_t>(keys.index_space);
  }
};

inline lathe_rope Mirror(const Rope& rope) {
  auto c = Sized<lathe_rope>();
  c.cos = Mirror(rope.cos);
  c.sin = Mirror(rope.sin);
  c.is_neox_style = !rope.interleaved;
  c.leading = rope.leading;
  c.inverse = rope.inverse;
  return c;
}

struct CTransform : Pinned {
  lathe_row_norm norm = Sized<lathe_row_norm>();
  lathe_rope rope;
  lathe_row_transform c = Sized<lathe_row_transform>();
  explicit CTransform(const RowTransform& transform) : rope(Mirror(transform.rope)) {
    norm.kind = static_cast<int32_t>(transform.norm.kind);
    norm.eps = transform.norm.eps;
    norm.weight = Mirror(transform.norm.weight);
    norm.bias = Mirror(transform.norm.bias);
    c.norm = &norm;
    c.rope = &rope;
    c.hadamard = transform.hadamard;
    c.round_to_bfloat16 = transform.round_to_bfloat16;
  }
};

struct CDecode : Pinned {
  CKeySet keys, extra_keys;
  lathe_rope out_rope;
  lathe_mla_shape shape = Sized<lathe_mla_shape>();
  lathe_mla_decode_options options = Sized<lathe_mla_decode_options>();
  lathe_mla_decode_args args = Sized<lathe_mla_decode_args>();
  CDecode(const MlaShape& of_shape, const MlaDecodeOptions& of_options, const MlaDecodeArgs& of)
      : keys(of.keys), extra_keys(of.extra_keys), out_rope(Mirror(of.out_rope)) {
    shape.num_heads = of_shape.num_heads;
    shape.kv_lora_rank = of_shape.kv_lora_rank;
    shape.qk_rope_head_dim = of_shape.qk_rope_head_dim;
    options.softmax_scale = of_options.softmax_scale;
    options.no_causal = !of_options.causal;
    options.precision = static_cast<int32_t>(of_options.precision);
    options.target = static_cast<int32_t>(of_options.target);
    options.lse_policy = Mirror(of_options.lse_policy);
    options.no_check_indices = !of_options.check_indices;
#define LATHE_SCORE_TRANSFORM(option, functor) options.option = of_options.option;
#include "lathe/base/score_transforms.def"
#undef LATHE_SCORE_TRANSFORM
    args.q = Mirror(of.q);
    args.q_nope = Mirror(of.q_nope);
    args.q_pe = Mirror(of.q_pe);
    args.query_start_loc = Mirror(of.query_start_loc);
    args.keys = &keys.c;
    if (of.extra_keys.is_given()) args.extra_keys = &extra_keys.c;
    args.attn_sink = Mirror(of.attn_sink);
    if (of.out_rope.is_given()) args.out_rope = &out_rope;
    args.positions = Mirror(of.positions);
    args.tree_mask = Mirror(of.tree_mask);
    args.out = Mirror(of.out);
    args.lse = Mirror(of.lse);
  }
};

struct CPrefill {
  lathe_prefill_shape shape = Sized<lathe_prefill_shape>();
  lathe_prefill_options options = Sized<lathe_prefill_options>();
  lathe_prefill_args args = Sized<lathe_prefill_args>();
  CPrefill(const PrefillShape& of_shape, const PrefillOptions& of_options, const PrefillArgs& of) {
    shape.num_heads = of_shape.num_heads;
    shape.num_kv_heads = of_shape.num_kv_heads;
    shape.qk_head_dim = of_shape.qk_head_dim;
    shape.v_head_dim = of_shape.v_head_dim;
    options.softmax_scale = of_options.softmax_scale;
    options.no_causal = !of_options.causal;
    options.window = of_options.window == kNoWindow ? 0 : of_options.window;
    options.precision = static_cast<int32_t>(of_options.precision);
    options.target = static_cast<int32_t>(of_options.target);
    options.lse_policy = Mirror(of_options.lse_policy);
#define LATHE_SCORE_TRANSFORM(option, functor) options.option = of_options.option;
#include "lathe/base/score_transforms.def"
#undef LATHE_SCORE_TRANSFORM
    args.q = Mirror(of.q);
    args.query_start_loc = Mirror(of.query_start_loc);
    args.k = Mirror(of.k);
    args.v = Mirror(of.v);
    args.kv_start_loc = Mirror(of.kv_start_loc);
    args.attn_sink = Mirror(of.attn_sink);
    args.out = Mirror(of.out);
    args.lse = Mirror(of.lse);
  }
};

struct CWrite : Pinned {
  CTransform transform;
  lathe_paged_cache cache;
  lathe_latent_write_args args = Sized<lathe_latent_write_args>();
  explicit CWrite(const LatentWriteArgs& of) : transform(of.transform), cache(Mirror(of.cache)) {
    args.kv_c = Mirror(of.kv_c);
    args.k_pe = Mirror(of.k_pe);
    args.slot_mapping = Mirror(of.slot_mapping);
    args.cache = &cache;
    args.transform = &transform.c;
    args.positions = Mirror(of.positions);
  }
};

inline lathe_page_copy_args Mirror(const PageCopyArgs& of) {
  auto c = Sized<lathe_page_copy_args>();
  c.source = of.source;
  c.num_source_blocks = of.num_source_blocks;
  c.source_stride = of.source_stride;
  c.destination = of.destination;
  c.num_destination_blocks = of.num_destination_blocks;
  c.destination_stride = of.destination_stride;
  c.page_bytes = of.page_bytes;
  c.block_pairs = Mirror(of.block_pairs);
  return c;
}

struct CRecordCopy : Pinned {
  lathe_paged_cache cache;
  lathe_record_copy_args args = Sized<lathe_record_copy_args>();
  explicit CRecordCopy(const RecordCopyArgs& of) : cache(Mirror(of.cache)) {
    args.cache = &cache;
    args.width = of.width;
    args.src_slots = Mirror(of.src_slots);
    args.dst_slots = Mirror(of.dst_slots);
  }
};

// call(message) gives this code and text.
template <class CCall>
void RequireMessage(const CCall& call, int32_t code, const std::string& text) {
  lathe_message message;
  const int32_t got = call(&message);
  REQUIRE(std::string(message.text) == text);
  REQUIRE(got == code);
  REQUIRE(call(nullptr) == code);
}
template <class CCall>
void RequireOk(const CCall& call) {
  RequireMessage(call, LATHE_STATUS_OK, "ok");
}
template <class CCall>
void RequireInvalid(const CCall& call, const std::string& text) {
  RequireMessage(call, LATHE_STATUS_INVALID_ARGUMENT, "invalid argument: " + text);
}

inline lathe_executor Mirror(const Executor& executor) {
  return {executor.ctx, executor.num_workers, executor.run};
}

}  // namespace lathe::test

#endif  // LATHE_TESTS_CAPI_MIRROR_H_
