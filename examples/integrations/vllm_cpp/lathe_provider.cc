// SPDX-License-Identifier: Apache-2.0
#include "lathe_provider.h"

#include <lathe/lathe.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace lathe_provider {
namespace {

[[noreturn]] void Throw(const std::string& what) { throw std::runtime_error("lathe: " + what); }

void Check(const lathe::Status& status) {
  if (!status.ok()) Throw(lathe::Format(status).c_str());
}
void Require(bool is_met, const char* rule) {
  if (!is_met) Throw(rule);
}

lathe::DType FloatType(const vt::Tensor& tensor) {
  switch (tensor.dtype) {
    case vt::DType::kF32:
      return lathe::DType::kFloat32;
    case vt::DType::kF16:
      return lathe::DType::kFloat16;
    case vt::DType::kBF16:
      return lathe::DType::kBFloat16;
    default:
      Throw("a tensor must be f32, f16 or bf16");
  }
}

template <class View>
View Shaped(const vt::Tensor& tensor) {
  constexpr auto kRank = std::extent_v<decltype(View::extent)>;
  Require(tensor.rank == static_cast<int>(kRank), "a tensor has the wrong rank");
  View view;
  for (size_t i = 0; i < kRank; ++i) {
    view.extent[i] = tensor.shape[i];
    view.stride[i] = tensor.stride[i];
  }
  return view;
}

template <size_t R>
lathe::In<R> In(const vt::Tensor& tensor) {
  auto view = Shaped<lathe::In<R>>(tensor);
  view.dtype = FloatType(tensor);
  view.data = static_cast<const std::byte*>(tensor.data);
  return view;
}
template <size_t R>
lathe::Out<R> Out(const vt::Tensor& tensor) {
  auto view = Shaped<lathe::Out<R>>(tensor);
  view.dtype = FloatType(tensor);
  view.data = static_cast<std::byte*>(tensor.data);
  return view;
}
template <class T, size_t R>
lathe::View<T, R> Floats(const vt::Tensor& tensor) {
  Require(tensor.dtype == vt::DType::kF32, "lse, sinks and logits must be f32");
  auto view = Shaped<lathe::View<T, R>>(tensor);
  view.data = static_cast<T*>(tensor.data);
  return view;
}
template <class AnyIndices>
AnyIndices Indices(const vt::Tensor& tensor) {
  Require(tensor.dtype == vt::DType::kI32 || tensor.dtype == vt::DType::kI64,
          "indices and lengths must be i32 or i64");
  auto view = Shaped<AnyIndices>(tensor);
  view.is_int64 = tensor.dtype == vt::DType::kI64;
  view.data = tensor.data;
  return view;
}
template <size_t R>
lathe::IndexView<R> Index(const vt::Tensor& tensor) {
  return Indices<lathe::IndexView<R>>(tensor);
}

// [NB, bs, D]
lathe::MutablePagedCache Pages(const vt::Tensor& tensor) {
  const auto view = Out<3>(tensor);
  Require(view.stride[2] == 1, "a cache must have innermost stride 1");
  const auto bytes = static_cast<int64_t>(lathe::SizeOf(view.dtype));
  lathe::MutablePagedCache cache;
  cache.data = view.data;
  cache.format = view.dtype == lathe::DType::kFloat32   ? lathe::CacheFormat::kLatentFloat32
                 : view.dtype == lathe::DType::kFloat16 ? lathe::CacheFormat::kLatentFloat16
                                                        : lathe::CacheFormat::kLatentBFloat16;
  cache.num_blocks = view.extent[0];
  cache.block_size = view.extent[1];
  cache.block_stride = view.stride[0] * bytes;
  cache.row_stride = view.stride[1] * bytes;
  return cache;
}

// The engine's pool, as often as a call needs it. A body that throws would be the engine's bug: lathe's do not.
struct PoolRunner {
  vt::ThreadPool* pool;
  template <class Body>
  void operator()(const Body& body) {
    pool->Run(body);
  }
};

class Workers {
 public:
  explicit Workers(vt::Queue& queue) : runner_{queue.pool} {}
  lathe::Executor executor() {
    return runner_.pool == nullptr ? lathe::Executor{}
                                   : lathe::IthNthExecutor(runner_, runner_.pool->num_threads());
  }

 private:
  PoolRunner runner_;
};

// Memory that the calling thread keeps; `slot` tells buffers that live together apart.
lathe::Buffer Scratch(size_t slot, size_t bytes) {
  thread_local std::vector<std::byte> memory[2];
  if (memory[slot].size() < bytes) memory[slot].resize(bytes);
  return {memory[slot].data(), memory[slot].size()};
}

// Rows [begin, end) of a tensor [T, ...] along its axis `axis`.
template <class View>
View Rows(View view, size_t axis, int64_t begin, int64_t end, size_t element_bytes) {
  const auto offset = begin * view.stride[axis] * static_cast<int64_t>(element_bytes);
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
                                  const std::byte, std::byte>;
  view.data = reinterpret_cast<decltype(view.data)>(reinterpret_cast<Byte*>(view.data) + offset);
  view.extent[axis] = end - begin;
  return view;
}

}  // namespace

void ConcatAndCacheMla(vt::Queue& queue, const vt::Tensor& kv_c, const vt::Tensor& k_pe,
                       vt::Tensor& kv_cache, const vt::Tensor& slot_mapping) {
  lathe::LatentWriteArgs args;
  args.kv_c = In<2>(kv_c);
  args.k_pe = In<2>(k_pe);
  args.slot_mapping = Index<1>(slot_mapping);
  args.cache = Pages(kv_cache);
  Check(lathe::WriteLatentCache(args, {}, Workers(queue).executor()));
}

void MlaDecodeAttention(vt::Queue& queue, vt::Tensor& out, vt::Tensor* lse, const vt::Tensor& query,
                        const vt::Tensor& kv_cache, const vt::Tensor& block_table,
                        const vt::Tensor& seq_lens, const vt::MlaDecodeAttentionArgs& in) {
  lathe::MlaDecodeArgs args;
  args.q = In<3>(query);
  args.out = Out<3>(out);
  if (lse != nullptr) args.lse = Floats<float, 2>(*lse);
  args.keys.cache = Pages(kv_cache);
  args.keys.block_table = Index<2>(block_table);
  args.keys.seq_lens = Index<1>(seq_lens);
  if (in.window_size) {
    Require(in.window_size->right == 0, "window_size.right must be 0");
    args.keys.window = in.window_size->left + 1;
  }
  Require((in.topk_indices == nullptr) == (in.valid_counts == nullptr),
          "topk_indices and valid_counts must be given together");
  if (in.topk_indices != nullptr) {
    Require(!in.window_size, "topk_indices and window_size must not be given together");
    args.keys.indices = Index<2>(*in.topk_indices);
    args.keys.topk_length = Index<1>(*in.valid_counts);
  }
  if (in.attn_sink != nullptr) args.attn_sink = Floats<const float, 1>(*in.attn_sink);

  const lathe::MlaShape shape{args.q.extent[1], args.out.extent[2],
                              args.q.extent[2] - args.out.extent[2]};
  lathe::MlaDecodeOptions options;
  options.softmax_scale = in.scale;
  Workers workers(queue);
  const lathe::Executor executor = workers.executor();
  lathe::Limits limits;
  limits.max_num_seqs = limits.max_num_tokens = std::max<int64_t>(1, args.out.extent[0]);
  limits.max_num_keys =
      std::max({int64_t{1}, args.keys.block_table.extent[1] * args.keys.cache.block_size,
                args.keys.indices.extent[1]});
  limits.num_workers = executor.num_workers;
  lathe::Sizes sizes;
  Check(lathe::MlaDecodeSizes(shape, options, limits, &sizes));
  const lathe::MlaDecodePlan* plan = nullptr;
  Check(lathe::PlanMlaDecode(shape, options, args, executor.num_workers,
                             Scratch(0, sizes.plan_bytes), &plan));
  Check(lathe::RunMlaDecode(*plan, args, Scratch(1, lathe::PlanWorkspaceBytes(*plan)), executor));
}

void GatherMlaCache(vt::Queue& queue, vt::Tensor& dst, const vt::Tensor& src_cache,
                    const vt::Tensor& block_table, const vt::Tensor& cu_seq_lens,
                    const vt::Tensor& /*token_to_seq*/, const vt::Tensor* seq_starts,
                    int64_t num_tokens) {
  const auto starts = Index<1>(cu_seq_lens);
  const int64_t num_seqs = starts.extent[0] - 1;
  Require(num_seqs >= 0 && starts(num_seqs) == num_tokens,
          "cu_seq_lens must have B + 1 entries, the last of them num_tokens");
  std::vector<int64_t> lens;
  for (int64_t b = 0; b < num_seqs; ++b) lens.push_back(starts(b + 1) - starts(b));
  lathe::LatentGatherArgs args;
  args.cache = Pages(src_cache);
  args.block_table = Index<2>(block_table);
  args.gather_lens = lathe::Packed(lens.data(), num_seqs);
  if (seq_starts != nullptr) args.gather_starts = Index<1>(*seq_starts);
  args.out_start_loc = starts;
  args.out = Out<2>(dst);
  Check(lathe::GatherLatentCache(args, {}, Workers(queue).executor()));
}

void MergeAttnStates(vt::Queue& queue, vt::Tensor& output, vt::Tensor* output_lse,
                     const vt::Tensor& prefix_output, const vt::Tensor& prefix_lse,
                     const vt::Tensor& suffix_output, const vt::Tensor& suffix_lse, int64_t n) {
  const int64_t num_tokens = output.shape[0];
  Require(n >= 0 && n <= num_tokens, "n must be in [0, T]");
  Workers workers(queue);
  // Rows [begin, end) of `num_parts` parts, the suffix first. lse is [H, T] here, [T, H] to lathe.
  const auto merge = [&](int64_t begin, int64_t end, size_t num_parts) {
    if (begin == end) return;
    const auto transposed = [&](auto lse) {
      std::swap(lse.extent[0], lse.extent[1]);
      std::swap(lse.stride[0], lse.stride[1]);
      return Rows(lse, 0, begin, end, sizeof(float));
    };
    const auto part = [&](const vt::Tensor& out, const vt::Tensor& lse) {
      lathe::MergePart result;
      result.out = Rows(In<3>(out), 0, begin, end, lathe::SizeOf(FloatType(out)));
      result.lse = transposed(Floats<const float, 2>(lse));
      result.lse_policy.empty = std::numeric_limits<float>::infinity();  // and -inf, always
      return result;
    };
    lathe::MergePart parts[2];
    parts[0] = part(suffix_output, suffix_lse);
    if (num_parts == 2) parts[1] = part(prefix_output, prefix_lse);
    lathe::MergeStatesArgs args;
    args.parts = parts;
    args.num_parts = num_parts;
    args.out = Rows(Out<3>(output), 0, begin, end, lathe::SizeOf(FloatType(output)));
    if (output_lse != nullptr) args.lse = transposed(Floats<float, 2>(*output_lse));
    Check(lathe::MergeStates(args, {}, workers.executor()));
  };
  merge(0, n, 2);
  merge(n, num_tokens, 1);
}

void ConcatAndCacheDsMla(vt::Queue& queue, const vt::Tensor& k, vt::Tensor& kv_cache,
                         const vt::Tensor& slot_mapping, int64_t block_size) {
  Require(kv_cache.dtype == vt::DType::kI8 && kv_cache.rank == 2 && kv_cache.stride[1] == 1,
          "kv_cache must be i8 [NB, bytes of a block]");
  Require(block_size > 0 && kv_cache.shape[1] >= block_size * 584,
          "a block must have 584 bytes for each token");
  lathe::LatentWriteArgs args;
  args.kv_c = In<2>(k);
  args.slot_mapping = Index<1>(slot_mapping);
  args.cache.data = static_cast<std::byte*>(kv_cache.data);
  args.cache.format = lathe::CacheFormat::kFp8Ds4;
  args.cache.num_blocks = kv_cache.shape[0];
  args.cache.block_size = block_size;
  args.cache.block_stride = kv_cache.stride[0];
  args.cache.row_stride = 576;
  Check(lathe::WriteLatentCache(args, {}, Workers(queue).executor()));
}

void DsaTopkSelect(vt::Queue& queue, vt::Tensor& indices, vt::Tensor& counts,
                   const vt::Tensor& logits, const vt::Tensor& win_start,
                   const vt::Tensor& win_end) {
  lathe::TopkArgs args;
  args.logits = Floats<const float, 2>(logits);
  args.row_starts = Index<1>(win_start);
  args.row_ends = Index<1>(win_end);
  args.indices = Indices<lathe::MutableIndexView<2>>(indices);
  args.counts = Indices<lathe::MutableIndexView<1>>(counts);
  lathe::TopkOptions options;
  options.k = indices.shape[1];
  Workers workers(queue);
  const lathe::Executor executor = workers.executor();
  lathe::Limits limits;
  limits.max_num_keys = args.logits.extent[1];
  limits.num_workers = executor.num_workers;
  lathe::Sizes sizes;
  Check(lathe::TopkSizes(options, limits, &sizes));
  Check(lathe::SelectTopk(args, options, Scratch(1, sizes.workspace_bytes), executor));
}

#define LATHE_PROVIDER(op) \
  { #op, "lathe", 10, reinterpret_cast < void*>(&op) }
const vt::OpProvider kProviders[] = {
    LATHE_PROVIDER(ConcatAndCacheMla),   LATHE_PROVIDER(MlaDecodeAttention),
    LATHE_PROVIDER(GatherMlaCache),      LATHE_PROVIDER(MergeAttnStates),
    LATHE_PROVIDER(ConcatAndCacheDsMla), LATHE_PROVIDER(DsaTopkSelect),
};
#undef LATHE_PROVIDER
const size_t kNumProviders = sizeof(kProviders) / sizeof(kProviders[0]);

}  // namespace lathe_provider
