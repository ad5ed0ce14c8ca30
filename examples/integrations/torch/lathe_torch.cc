// SPDX-License-Identifier: Apache-2.0
// lathe as PyTorch custom ops in the namespace `lathe`, with the arguments of the ops they replace:
//
//   mla_decode_kvcache_cpu      vLLM's CPU op: dense decode of one token a sequence
//   concat_and_cache_mla        vLLM's cache write, with its kv_cache_dtype strings
//   flash_mla_with_kvcache      FlashMLA's: dense causal or sparse, q_len >= 1, fp8 caches, sink, a second cache
//
//   torch.ops.load_library("liblathe_torch.so"); torch.ops.lathe.mla_decode_kvcache_cpu(...)
//
// Errors are RuntimeErrors with lathe's message. Threads are at::parallel_for's, so torch.set_num_threads counts;
// bits do not depend on it. Plan memory and workspace come from torch's CPU allocator.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <lathe/lathe.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>

namespace {

using at::Tensor;
using OptionalTensor = c10::optional<Tensor>;

void Check(const lathe::Status& status) {
  TORCH_CHECK(status.ok(), "lathe: ", lathe::Format(status).c_str());
}

struct ParallelFor {
  template <class Body>
  void operator()(int64_t begin, int64_t end, const Body& body) const {
    at::parallel_for(begin, end, 1, body);
  }
};
lathe::Executor TorchExecutor() {
  static ParallelFor parallel_for;
  return lathe::RangeExecutor(parallel_for, static_cast<size_t>(at::get_num_threads()));
}

// Freed when it goes out of scope.
struct Scratch {
  explicit Scratch(size_t bytes)
      : memory(at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte))) {}
  lathe::Buffer buffer() const { return {memory.data_ptr(), static_cast<size_t>(memory.numel())}; }
  Tensor memory;
};

lathe::DType FloatType(const Tensor& tensor, const char* name) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return lathe::DType::kFloat32;
    case at::kHalf:
      return lathe::DType::kFloat16;
    case at::kBFloat16:
      return lathe::DType::kBFloat16;
    default:
      TORCH_CHECK(false, "lathe: ", name, " must be float32, float16 or bfloat16, it is ",
                  tensor.scalar_type());
  }
}

template <class View>
View Shaped(const Tensor& tensor, const char* name) {
  constexpr auto kRank = std::extent_v<decltype(View::extent)>;
  TORCH_CHECK(tensor.device().is_cpu(), "lathe: ", name, " must be on the CPU");
  TORCH_CHECK(tensor.dim() == static_cast<int64_t>(kRank), "lathe: ", name, " must have ", kRank,
              " axes, it has ", tensor.dim());
  View view;
  for (size_t i = 0; i < kRank; ++i) {
    view.extent[i] = tensor.size(static_cast<int64_t>(i));
    view.stride[i] = tensor.stride(static_cast<int64_t>(i));
  }
  return view;
}
template <size_t R>
lathe::In<R> In(const Tensor& tensor, const char* name) {
  auto view = Shaped<lathe::In<R>>(tensor, name);
  view.dtype = FloatType(tensor, name);
  view.data = static_cast<const std::byte*>(tensor.data_ptr());
  return view;
}
template <size_t R>
lathe::Out<R> Out(const Tensor& tensor, const char* name) {
  auto view = Shaped<lathe::Out<R>>(tensor, name);
  view.dtype = FloatType(tensor, name);
  view.data = static_cast<std::byte*>(tensor.data_ptr());
  return view;
}
template <size_t R>
lathe::IndexView<R> Index(const Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.scalar_type() == at::kInt || tensor.scalar_type() == at::kLong,
              "lathe: ", name, " must be int32 or int64");
  auto view = Shaped<lathe::IndexView<R>>(tensor, name);
  view.data = tensor.data_ptr();
  view.is_int64 = tensor.scalar_type() == at::kLong;
  return view;
}
template <class T, size_t R>
lathe::View<T, R> Floats(const Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.scalar_type() == at::kFloat, "lathe: ", name, " must be float32");
  auto view = Shaped<lathe::View<T, R>>(tensor, name);
  view.data = static_cast<T*>(tensor.data_ptr());
  return view;
}

// [num_blocks, block_size, width or bytes]. Bytes are one of the quantised records: `format`.
lathe::MutablePagedCache Pages(const Tensor& tensor, lathe::CacheFormat format) {
  TORCH_CHECK(tensor.dim() == 3 && tensor.stride(2) == 1,
              "lathe: a cache must be [num_blocks, block_size, width] with innermost stride 1");
  lathe::MutablePagedCache cache;
  cache.data = static_cast<std::byte*>(tensor.data_ptr());
  cache.format = format;
  cache.num_blocks = tensor.size(0);
  cache.block_size = tensor.size(1);
  cache.block_stride = tensor.stride(0) * static_cast<int64_t>(tensor.element_size());
  cache.row_stride = tensor.stride(1) * static_cast<int64_t>(tensor.element_size());
  // V4's scales follow a page's data rows; its tensor shows 584 bytes a token, as if they were side by side.
  if (format == lathe::CacheFormat::kFp8Ds4) cache.row_stride = 576;
  return cache;
}

lathe::CacheFormat PlainFormat(const Tensor& cache) {
  switch (FloatType(cache, "the cache")) {
    case lathe::DType::kFloat32:
      return lathe::CacheFormat::kLatentFloat32;
    case lathe::DType::kFloat16:
      return lathe::CacheFormat::kLatentFloat16;
    default:
      return lathe::CacheFormat::kLatentBFloat16;
  }
}

// A FlashMLA cache [num_blocks, block_size, 1, width or bytes], whose format its width tells.
lathe::PagedCache FlashPages(const Tensor& cache, bool is_fp8) {
  TORCH_CHECK(cache.dim() == 4 && cache.size(2) == 1,
              "lathe: a cache must be [num_blocks, block_size, 1, width]");
  const Tensor pages = cache.squeeze(2);
  if (!is_fp8) return Pages(pages, PlainFormat(pages));
  TORCH_CHECK(cache.element_size() == 1 && (cache.size(3) == 656 || cache.size(3) == 584),
              "lathe: an fp8 cache must have 656 (V3.2) or 584 (V4) bytes a token");
  return Pages(pages,
               cache.size(3) == 656 ? lathe::CacheFormat::kFp8DsMla : lathe::CacheFormat::kFp8Ds4);
}

void Decode(const lathe::MlaShape& shape, const lathe::MlaDecodeOptions& options,
            const lathe::MlaDecodeArgs& args) {
  const lathe::Executor executor = TorchExecutor();
  const auto most_keys = [](const lathe::KeySet& keys) {
    return keys.has_indices() ? keys.indices.extent[1]
                              : keys.block_table.extent[1] * keys.cache.block_size;
  };
  lathe::Limits limits;
  limits.max_num_tokens = std::max<int64_t>(1, args.out.extent[0]);
  limits.max_num_seqs = args.query_start_loc.empty()
                            ? limits.max_num_tokens
                            : std::max<int64_t>(1, args.query_start_loc.extent[0] - 1);
  limits.max_num_keys = std::max<int64_t>(1, most_keys(args.keys) + most_keys(args.extra_keys));
  limits.num_workers = executor.num_workers;
  lathe::Sizes sizes;
  Check(lathe::MlaDecodeSizes(shape, options, limits, &sizes));
  const Scratch plan_memory(sizes.plan_bytes);
  const lathe::MlaDecodePlan* plan = nullptr;
  Check(lathe::PlanMlaDecode(shape, options, args, executor.num_workers, plan_memory.buffer(),
                             &plan));
  const Scratch workspace(lathe::PlanWorkspaceBytes(*plan));
  Check(lathe::RunMlaDecode(*plan, args, workspace.buffer(), executor));
}

// out [S, H, Dv], query [S, H, D], kv_cache [NB, bs, D] of any float types, block_tables [S, max_blocks],
// seq_lens [S]. Any block size and widths.
void mla_decode_kvcache_cpu(Tensor out, const Tensor& query, const Tensor& kv_cache, double scale,
                            const Tensor& block_tables, const Tensor& seq_lens) {
  lathe::MlaDecodeArgs args;
  args.q = In<3>(query, "query");
  args.keys.cache = Pages(kv_cache, PlainFormat(kv_cache));
  args.keys.block_table = Index<2>(block_tables, "block_tables");
  args.keys.seq_lens = Index<1>(seq_lens, "seq_lens");
  args.out = Out<3>(out, "out");
  lathe::MlaDecodeOptions options;
  options.softmax_scale = static_cast<float>(scale);
  Decode({query.size(1), out.size(2), query.size(2) - out.size(2)}, options, args);
}

// kv_c [>=N, R], k_pe [>=N, P], slot_mapping [N]. kv_cache [NB, bs, R + P] of the inputs' or another float type
// ("auto"), of one byte ("fp8", "fp8_e4m3", "fp8_e5m2": value / scale, scale a tensor of one float), or
// [NB, bs, 656] bytes ("fp8_ds_mla").
void concat_and_cache_mla(const Tensor& kv_c, const Tensor& k_pe, Tensor kv_cache,
                          const Tensor& slot_mapping, c10::string_view kv_cache_dtype,
                          const Tensor& scale) {
  lathe::LatentWriteArgs args;
  args.kv_c = In<2>(kv_c, "kv_c");
  args.k_pe = In<2>(k_pe, "k_pe");
  args.slot_mapping = Index<1>(slot_mapping, "slot_mapping");
  if (kv_cache_dtype == "auto") {
    args.cache = Pages(kv_cache, PlainFormat(kv_cache));
  } else {
    TORCH_CHECK(kv_cache.element_size() == 1, "lathe: an fp8 cache must have elements of a byte");
    const bool is_e5m2 = kv_cache_dtype == "fp8_e5m2", is_ds_mla = kv_cache_dtype == "fp8_ds_mla";
    TORCH_CHECK(is_e5m2 || is_ds_mla || kv_cache_dtype == "fp8" || kv_cache_dtype == "fp8_e4m3",
                "lathe: unknown kv_cache_dtype ", kv_cache_dtype);
    args.cache = Pages(kv_cache, is_ds_mla ? lathe::CacheFormat::kFp8DsMla
                                 : is_e5m2 ? lathe::CacheFormat::kLatentFp8E5m2
                                           : lathe::CacheFormat::kLatentFp8E4m3);
    if (!is_ds_mla) args.cache.scale = scale.item<float>();
  }
  Check(lathe::WriteLatentCache(args, {}, TorchExecutor()));
}

// Rows of a [b, s_q, ...] tensor as [b * s_q, ...], without a copy where strides allow.
Tensor Flat(const Tensor& tensor) { return tensor.flatten(0, 1); }

// The list of keys that a sparse call has for a cache; topk_length [b] counts for each of a request's rows.
lathe::KeySet Listed(const Tensor& cache, const Tensor& flat_indices, const Tensor& row_lengths,
                     bool is_fp8) {
  return lathe::ListedSlots(
      FlashPages(cache, is_fp8), Index<2>(flat_indices, "indices"),
      row_lengths.defined() ? Index<1>(row_lengths, "topk_length") : lathe::IndexView<1>{});
}
Tensor RowLengths(const OptionalTensor& topk_length, int64_t s_q) {
  return topk_length ? topk_length->repeat_interleave(s_q) : Tensor();
}

// FlashMLA's arguments: q [b, s_q, h_q, D]; k_cache [NB, bs, 1, D] of q's type, or bytes with is_fp8_kvcache; dense
// over block_table [b, max_blocks] and cache_seqlens [b], or sparse over indices [b, s_q, topk] of slots, with
// topk_length [b]; block_table and cache_seqlens do not count then. extra_k_cache and its indices are a second cache
// under the same softmax. The two scheduler arguments are accepted and not needed. Returns out [b, s_q, h_q,
// head_dim_v] of q's type and lse [b, h_q, s_q]: natural, without the sink, +inf where there is no key. softmax_scale
// defaults to D^-0.5, as there.
std::tuple<Tensor, Tensor> flash_mla_with_kvcache(
    const Tensor& q, const Tensor& k_cache, const OptionalTensor& block_table,
    const OptionalTensor& cache_seqlens, int64_t head_dim_v,
    const OptionalTensor& /*tile_scheduler_metadata*/, const OptionalTensor& /*num_splits*/,
    c10::optional<double> softmax_scale, bool causal, bool is_fp8_kvcache,
    const OptionalTensor& indices, const OptionalTensor& attn_sink,
    const OptionalTensor& extra_k_cache, const OptionalTensor& extra_indices_in_kvcache,
    const OptionalTensor& topk_length, const OptionalTensor& extra_topk_length) {
  TORCH_CHECK(q.dim() == 4, "lathe: q must be [b, s_q, h_q, d]");
  const int64_t b = q.size(0), s_q = q.size(1), h_q = q.size(2), d = q.size(3);
  TORCH_CHECK(indices || (block_table && cache_seqlens),
              "lathe: without indices, block_table and cache_seqlens must be given");
  TORCH_CHECK(!(indices && causal), "lathe: causal must be false with indices");
  TORCH_CHECK(extra_k_cache.has_value() == extra_indices_in_kvcache.has_value() &&
                  (indices || !extra_k_cache),
              "lathe: extra_k_cache goes with indices and extra_indices_in_kvcache");

  Tensor out = at::empty({b, s_q, h_q, head_dim_v}, q.options());
  Tensor lse = at::empty({b, s_q, h_q}, q.options().dtype(at::kFloat));
  const Tensor flat_q = Flat(q), flat_out = Flat(out), flat_lse = Flat(lse);
  lathe::MlaDecodeArgs args;
  args.q = In<3>(flat_q, "q");
  args.out = Out<3>(flat_out, "out");
  args.lse = Floats<float, 2>(flat_lse, "lse");
  if (attn_sink) args.attn_sink = Floats<const float, 1>(*attn_sink, "attn_sink");

  Tensor starts, flat_indices, flat_extra;  // outlive the call
  const Tensor row_lengths = RowLengths(topk_length, s_q),
               extra_row_lengths = RowLengths(extra_topk_length, s_q);
  if (indices) {
    flat_indices = Flat(*indices);
    args.keys = Listed(k_cache, flat_indices, row_lengths, is_fp8_kvcache);
    if (extra_k_cache) {
      flat_extra = Flat(*extra_indices_in_kvcache);
      args.extra_keys = Listed(*extra_k_cache, flat_extra, extra_row_lengths, is_fp8_kvcache);
    }
  } else {
    starts = at::arange(0, (b + 1) * s_q, s_q, at::TensorOptions().dtype(at::kLong));
    args.query_start_loc = Index<1>(starts, "query_start_loc");
    args.keys.cache = FlashPages(k_cache, is_fp8_kvcache);
    args.keys.block_table = Index<2>(*block_table, "block_table");
    args.keys.seq_lens = Index<1>(*cache_seqlens, "cache_seqlens");
  }
  lathe::MlaDecodeOptions options;
  options.softmax_scale = static_cast<float>(
      softmax_scale.has_value() ? *softmax_scale : 1.0 / std::sqrt(static_cast<double>(d)));
  options.causal = causal;
  options.lse_policy.empty = std::numeric_limits<float>::infinity();
  Decode({h_q, head_dim_v, d - head_dim_v}, options, args);
  return {out, lse.transpose(1, 2)};
}

}  // namespace

TORCH_LIBRARY(lathe, m) {
  m.def(
      "mla_decode_kvcache_cpu(Tensor(a!) out, Tensor query, Tensor kv_cache, float scale, "
      "Tensor block_tables, Tensor seq_lens) -> ()");
  m.def(
      "concat_and_cache_mla(Tensor kv_c, Tensor k_pe, Tensor(a!) kv_cache, Tensor slot_mapping, "
      "str kv_cache_dtype, Tensor scale) -> ()");
  m.def(
      "flash_mla_with_kvcache(Tensor q, Tensor k_cache, Tensor? block_table, "
      "Tensor? cache_seqlens, int head_dim_v, Tensor? tile_scheduler_metadata=None, "
      "Tensor? num_splits=None, float? softmax_scale=None, bool causal=False, "
      "bool is_fp8_kvcache=False, Tensor? indices=None, Tensor? attn_sink=None, "
      "Tensor? extra_k_cache=None, Tensor? extra_indices_in_kvcache=None, "
      "Tensor? topk_length=None, Tensor? extra_topk_length=None) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(lathe, CPU, m) {
  m.impl("mla_decode_kvcache_cpu", mla_decode_kvcache_cpu);
  m.impl("concat_and_cache_mla", concat_and_cache_mla);
  m.impl("flash_mla_with_kvcache", flash_mla_with_kvcache);
}
