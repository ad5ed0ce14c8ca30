// SPDX-License-Identifier: Apache-2.0
#include "lathe_ggml.h"

#include <type_traits>

namespace lathe_ggml {
namespace {

size_t BytesOf(ggml_type type) {
  return type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 ? 2 : type == GGML_TYPE_I64 ? 8 : 4;
}

// Types that lathe does not take come out as a number that it refuses.
lathe::DType FloatType(ggml_type type) {
  switch (type) {
    case GGML_TYPE_F32:
      return lathe::DType::kFloat32;
    case GGML_TYPE_F16:
      return lathe::DType::kFloat16;
    case GGML_TYPE_BF16:
      return lathe::DType::kBFloat16;
    default:
      return static_cast<lathe::DType>(255);
  }
}

// ggml's axes are the other way round, its strides in bytes.
template <class View>
View Shaped(const ggml_tensor& tensor) {
  constexpr auto kRank = std::extent_v<decltype(View::extent)>;
  View view;
  for (size_t i = 0; i < kRank; ++i) {
    view.extent[i] = tensor.ne[kRank - 1 - i];
    view.stride[i] = static_cast<int64_t>(tensor.nb[kRank - 1 - i] / BytesOf(tensor.type));
  }
  return view;
}
template <size_t R>
lathe::In<R> In(const ggml_tensor& tensor) {
  auto view = Shaped<lathe::In<R>>(tensor);
  view.data = static_cast<const std::byte*>(tensor.data);
  view.dtype = FloatType(tensor.type);
  return view;
}
template <size_t R>
lathe::Out<R> Out(const ggml_tensor& tensor) {
  auto view = Shaped<lathe::Out<R>>(tensor);
  view.data = static_cast<std::byte*>(tensor.data);
  view.dtype = FloatType(tensor.type);
  return view;
}
template <size_t R>
lathe::IndexView<R> Index(const ggml_tensor& tensor) {
  auto view = Shaped<lathe::IndexView<R>>(tensor);
  view.data = tensor.data;
  view.is_int64 = tensor.type == GGML_TYPE_I64;
  return view;
}

lathe::MutablePagedCache Pages(const ggml_tensor& tensor) {
  lathe::MutablePagedCache cache;
  cache.data = static_cast<std::byte*>(tensor.data);
  cache.format = tensor.type == GGML_TYPE_F32   ? lathe::CacheFormat::kLatentFloat32
                 : tensor.type == GGML_TYPE_F16 ? lathe::CacheFormat::kLatentFloat16
                                                : lathe::CacheFormat::kLatentBFloat16;
  cache.num_blocks = tensor.ne[2];
  cache.block_size = tensor.ne[1];
  cache.block_stride = static_cast<int64_t>(tensor.nb[2]);
  cache.row_stride = static_cast<int64_t>(tensor.nb[1]);
  return cache;
}

lathe::MlaDecodeArgs ArgsOf(const ggml_tensor& part) {
  lathe::MlaDecodeArgs args;
  args.q = In<3>(*part.src[0]);
  args.keys.cache = Pages(*part.src[1]);
  args.keys.block_table = Index<2>(*part.src[2]);
  args.keys.seq_lens = Index<1>(*part.src[3]);
  if (part.src[4] != nullptr) args.query_start_loc = Index<1>(*part.src[4]);
  if (part.src[5] != nullptr) {
    args.attn_sink = Shaped<lathe::View<const float, 1>>(*part.src[5]);
    args.attn_sink.data = static_cast<const float*>(part.src[5]->data);
  }
  args.out = Out<3>(part);
  return args;
}

// All threads are refused alike: one of them says so.
void Record(const lathe::Status& status, int ith, lathe::Status* to) {
  if (ith == 0 && to->ok()) *to = status;
}

using Half = decltype(&lathe::RunMlaDecodePart);

void RunHalf(Half run, const ggml_tensor& part, int ith, int nth, DecodeStep* step) {
  if (step->plan == nullptr) return;  // Plan has said why
  Record(run(*step->plan, ArgsOf(part), {step->workspace.data(), step->workspace.size()},
             static_cast<size_t>(ith), static_cast<size_t>(nth)),
         ith, &step->status);
}

}  // namespace

lathe::Status Plan(const ggml_tensor* part, DecodeStep* step) {
  const lathe::MlaDecodeArgs args = ArgsOf(*part);
  const lathe::MlaShape shape{args.q.extent[1], args.out.extent[2],
                              args.q.extent[2] - args.out.extent[2]};
  lathe::Limits limits;
  limits.max_num_tokens = args.q.extent[0];
  limits.max_num_seqs = args.keys.seq_lens.extent[0];
  limits.max_num_keys = args.keys.block_table.extent[1] * args.keys.cache.block_size;
  limits.num_workers = step->num_threads;
  lathe::Sizes sizes;
  step->plan = nullptr;
  step->status = lathe::MlaDecodeSizes(shape, step->options, limits, &sizes);
  if (!step->status.ok()) return step->status;
  if (step->plan_memory.size() < sizes.plan_bytes) step->plan_memory.resize(sizes.plan_bytes);
  if (step->workspace.size() < sizes.workspace_bytes) {
    step->workspace.resize(sizes.workspace_bytes);
  }
  step->status =
      lathe::PlanMlaDecode(shape, step->options, args, step->num_threads,
                           {step->plan_memory.data(), step->plan_memory.size()}, &step->plan);
  return step->status;
}

void MlaDecodePart(ggml_tensor* dst, int ith, int nth, void* step) {
  RunHalf(lathe::RunMlaDecodePart, *dst, ith, nth, static_cast<DecodeStep*>(step));
}

// In place, so dst lies where the part's tensor does; that one knows its sources.
void MlaDecodeMerge(ggml_tensor*, const ggml_tensor* part, int ith, int nth, void* step) {
  RunHalf(lathe::RunMlaDecodeMerge, *part, ith, nth, static_cast<DecodeStep*>(step));
}

void WriteLatents(ggml_tensor*, const ggml_tensor* cache, const ggml_tensor* latents,
                  const ggml_tensor* slots, int ith, int nth, void* step) {
  const int64_t num_tokens = slots->ne[0];
  const int64_t begin = num_tokens * ith / nth, end = num_tokens * (ith + 1) / nth;
  lathe::LatentWriteArgs args;
  args.kv_c = In<2>(*latents);
  args.kv_c.data += begin * static_cast<int64_t>(latents->nb[1]);
  args.kv_c.extent[0] -= begin;
  args.slot_mapping = Index<1>(*slots);
  args.slot_mapping.data =
      static_cast<const std::byte*>(slots->data) + begin * static_cast<int64_t>(slots->nb[0]);
  args.slot_mapping.extent[0] = end - begin;
  args.cache = Pages(*cache);
  const lathe::Status status = lathe::WriteLatentCache(args);
  if (status.ok()) return;
  auto* write = static_cast<WriteStep*>(step);
  const std::lock_guard<std::mutex> lock(write->mutex);
  Record(status, 0, &write->status);
}

}  // namespace lathe_ggml
