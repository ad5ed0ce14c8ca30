// SPDX-License-Identifier: Apache-2.0
// The functions of lathe/capi.h. Exactly one unit of a program includes this; it needs what every unit that calls
// the C++ interface needs, the implementation: lathe/impl.h in this unit or in another, or lathe::dispatch.
// Each function converts its arguments on the stack, some 100 ns, and calls the C++ function of its name.
#ifndef LATHE_CAPI_IMPL_H_
#define LATHE_CAPI_IMPL_H_

#include "lathe/cache/formats.h"
#include "lathe/capi/call.h"
#include "lathe/version.h"

extern "C" {

void lathe_version(int32_t* major, int32_t* minor, int32_t* patch) {
  if (major != nullptr) *major = LATHE_VERSION_MAJOR;
  if (minor != nullptr) *minor = LATHE_VERSION_MINOR;
  if (patch != nullptr) *patch = LATHE_VERSION_PATCH;
}

size_t lathe_num_targets(void) { return lathe::Targets().size; }

int32_t lathe_get_target(size_t index, lathe_target_info* info, lathe_message* message) {
  lathe::capi::Conversion conversion;
  lathe_target_info known{};
  const lathe::TargetList targets = lathe::Targets();
  if (conversion.IsGiven("info", info)) conversion.Check("info", info, &known);
  if (conversion.ok() && index >= targets.size) {
    conversion.RefuseNamed("index", lathe::OutOfRange("").Is(index).Must("be below", targets.size));
  }
  if (!conversion.ok()) return conversion.Finish(message);
  const lathe::TargetInfo& target = targets.data[index];
  known.target = static_cast<int32_t>(target.target);
  known.compiled = target.compiled;
  known.runnable = target.runnable;
  known.native_bf16 = target.native_bf16;
  known.name = target.name;
  known.reason = target.reason;
  lathe::capi::Give(known, info);
  return conversion.Finish(message);
}

int32_t lathe_best_target(void) { return static_cast<int32_t>(lathe::BestTarget()); }

int32_t lathe_decline_amx(void) { return lathe::DeclineAmx() ? 1 : 0; }

int32_t lathe_get_format(int32_t format, int64_t width, lathe_format_info* info,
                         lathe_message* message) {
  lathe::capi::Conversion conversion;
  lathe_format_info known{};
  lathe::CacheFormat the_format{};
  if (conversion.IsGiven("info", info)) conversion.Check("info", info, &known);
  conversion.Field("format", format, &the_format);
  const int64_t fixed_width = lathe::FixedWidth(the_format);
  const lathe::Status of_width = lathe::Invalid("").Is(width);
  if (lathe::RecordAlignment(the_format) == 0) {
    conversion.RefuseNamed("format", lathe::Invalid("").Is(format).Must("be a known CacheFormat"));
  }
  if (fixed_width != 0 && width != fixed_width) {
    conversion.RefuseNamed("width", of_width.Must("be that of the format,", fixed_width));
  }
  if (width < 1) conversion.RefuseNamed("width", of_width.Must("be at least", 1));
  if (width > INT32_MAX) conversion.RefuseNamed("width", of_width.Must("be at most", INT32_MAX));
  if (!conversion.ok()) return conversion.Finish(message);
  known.record_bytes = lathe::RecordBytes(the_format, width);
  known.side_bytes = lathe::SideBytes(the_format);
  known.fixed_width = fixed_width;
  known.alignment = static_cast<int64_t>(lathe::RecordAlignment(the_format));
  known.has_tensor_scale = lathe::HasTensorScale(the_format);
  lathe::capi::Give(known, info);
  return conversion.Finish(message);
}

size_t lathe_array_workspace_bytes(size_t count) {
  return count * lathe::capi::kArrayEntryBytes + lathe::capi::kArrayAlignment;
}

int32_t lathe_mla_decode_sizes(const lathe_mla_shape* shape,
                               const lathe_mla_decode_options* options, const lathe_limits* limits,
                               lathe_sizes* sizes, lathe_message* message) {
  return lathe::capi::CallSizes(lathe::MlaDecodeSizes, shape, options, limits, sizes, message);
}

int32_t lathe_plan_mla_decode(const lathe_mla_shape* shape, const lathe_mla_decode_options* options,
                              const lathe_mla_decode_args* args, size_t num_workers,
                              lathe_buffer plan_memory, const lathe_mla_decode_plan** plan,
                              lathe_message* message) {
  return lathe::capi::CallPlan(lathe::PlanMlaDecode, shape, options, args, num_workers, plan_memory,
                               plan, message);
}

int32_t lathe_mla_decode_plan_target(const lathe_mla_decode_plan* plan) {
  return static_cast<int32_t>(lathe::PlanTarget(lathe::capi::ToPlan(plan)));
}

size_t lathe_mla_decode_plan_workspace_bytes(const lathe_mla_decode_plan* plan) {
  return lathe::PlanWorkspaceBytes(lathe::capi::ToPlan(plan));
}

int32_t lathe_run_mla_decode(const lathe_mla_decode_plan* plan, const lathe_mla_decode_args* args,
                             lathe_buffer workspace, const lathe_executor* executor,
                             lathe_message* message) {
  return lathe::capi::CallRun(lathe::RunMlaDecode, plan, args, workspace, message,
                              lathe::capi::ToExecutor(executor));
}

int32_t lathe_run_mla_decode_part(const lathe_mla_decode_plan* plan,
                                  const lathe_mla_decode_args* args, lathe_buffer workspace,
                                  size_t ith, size_t nth, lathe_message* message) {
  return lathe::capi::CallRun(lathe::RunMlaDecodePart, plan, args, workspace, message, ith, nth);
}

int32_t lathe_run_mla_decode_merge(const lathe_mla_decode_plan* plan,
                                   const lathe_mla_decode_args* args, lathe_buffer workspace,
                                   size_t ith, size_t nth, lathe_message* message) {
  return lathe::capi::CallRun(lathe::RunMlaDecodeMerge, plan, args, workspace, message, ith, nth);
}

int32_t lathe_prefill_sizes(const lathe_prefill_shape* shape, const lathe_prefill_options* options,
                            const lathe_limits* limits, lathe_sizes* sizes,
                            lathe_message* message) {
  return lathe::capi::CallSizes(lathe::PrefillSizes, shape, options, limits, sizes, message);
}

int32_t lathe_plan_prefill(const lathe_prefill_shape* shape, const lathe_prefill_options* options,
                           const lathe_prefill_args* args, size_t num_workers,
                           lathe_buffer plan_memory, const lathe_prefill_plan** plan,
                           lathe_message* message) {
  return lathe::capi::CallPlan(lathe::PlanPrefill, shape, options, args, num_workers, plan_memory,
                               plan, message);
}

int32_t lathe_prefill_plan_target(const lathe_prefill_plan* plan) {
  return static_cast<int32_t>(lathe::PlanTarget(lathe::capi::ToPlan(plan)));
}

size_t lathe_prefill_plan_workspace_bytes(const lathe_prefill_plan* plan) {
  return lathe::PlanWorkspaceBytes(lathe::capi::ToPlan(plan));
}

int32_t lathe_run_prefill(const lathe_prefill_plan* plan, const lathe_prefill_args* args,
                          lathe_buffer workspace, const lathe_executor* executor,
                          lathe_message* message) {
  return lathe::capi::CallRun(lathe::RunPrefill, plan, args, workspace, message,
                              lathe::capi::ToExecutor(executor));
}

int32_t lathe_run_prefill_part(const lathe_prefill_plan* plan, const lathe_prefill_args* args,
                               lathe_buffer workspace, size_t ith, size_t nth,
                               lathe_message* message) {
  return lathe::capi::CallRun(lathe::RunPrefillPart, plan, args, workspace, message, ith, nth);
}

int32_t lathe_run_prefill_merge(const lathe_prefill_plan* plan, const lathe_prefill_args* args,
                                lathe_buffer workspace, size_t ith, size_t nth,
                                lathe_message* message) {
  return lathe::capi::CallRun(lathe::RunPrefillMerge, plan, args, workspace, message, ith, nth);
}

int32_t lathe_write_latent_cache(const lathe_latent_write_args* args,
                                 const lathe_latent_write_options* options,
                                 const lathe_executor* executor, lathe_message* message) {
  return lathe::capi::Call(lathe::WriteLatentCache, args, options, executor, message);
}

int32_t lathe_write_latent_caches(const lathe_latent_write_args* layers, size_t num_layers,
                                  const lathe_latent_write_options* options, lathe_buffer workspace,
                                  const lathe_executor* executor, lathe_message* message) {
  lathe::capi::Conversion conversion(workspace);
  lathe::LatentWriteOptions the_options;
  conversion.Struct("options", options, &the_options);
  return lathe::capi::CallLayers(lathe::WriteLatentCaches, conversion, layers, num_layers, message,
                                 the_options, lathe::capi::ToExecutor(executor));
}

int32_t lathe_gather_latent_cache(const lathe_latent_gather_args* args,
                                  const lathe_latent_gather_options* options,
                                  const lathe_executor* executor, lathe_message* message) {
  return lathe::capi::Call(lathe::GatherLatentCache, args, options, executor, message);
}

int32_t lathe_copy_cache_pages(const lathe_page_copy_args* args, const lathe_executor* executor,
                               lathe_message* message) {
  return lathe::capi::Call(lathe::CopyCachePages, args, executor, message);
}

int32_t lathe_copy_caches_pages(const lathe_page_copy_args* layers, size_t num_layers,
                                lathe_buffer workspace, const lathe_executor* executor,
                                lathe_message* message) {
  lathe::capi::Conversion conversion(workspace);
  return lathe::capi::CallLayers(lathe::CopyCachesPages, conversion, layers, num_layers, message,
                                 lathe::capi::ToExecutor(executor));
}

int32_t lathe_copy_cache_records(const lathe_record_copy_args* args, const lathe_executor* executor,
                                 lathe_message* message) {
  return lathe::capi::Call(lathe::CopyCacheRecords, args, executor, message);
}

int32_t lathe_copy_caches_records(const lathe_record_copy_args* layers, size_t num_layers,
                                  lathe_buffer workspace, const lathe_executor* executor,
                                  lathe_message* message) {
  lathe::capi::Conversion conversion(workspace);
  return lathe::capi::CallLayers(lathe::CopyCachesRecords, conversion, layers, num_layers, message,
                                 lathe::capi::ToExecutor(executor));
}

int32_t lathe_merge_states(const lathe_merge_states_args* args,
                           const lathe_merge_states_options* options, lathe_buffer workspace,
                           const lathe_executor* executor, lathe_message* message) {
  return lathe::capi::Call(lathe::MergeStates, args, options, workspace, executor, message);
}

int32_t lathe_prepare_queries(const lathe_query_prep_args* args,
                              const lathe_query_prep_options* options,
                              const lathe_executor* executor, lathe_message* message) {
  return lathe::capi::Call(lathe::PrepareQueries, args, options, executor, message);
}

int32_t lathe_topk_sizes(const lathe_topk_options* options, const lathe_limits* limits,
                         lathe_sizes* sizes, lathe_message* message) {
  return lathe::capi::CallSizes(lathe::TopkSizes, options, limits, sizes, message);
}

int32_t lathe_select_topk(const lathe_topk_args* args, const lathe_topk_options* options,
                          lathe_buffer workspace, const lathe_executor* executor,
                          lathe_message* message) {
  return lathe::capi::Call(lathe::SelectTopk, args, options, workspace, executor, message);
}

int32_t lathe_indexer_logits_sizes(const lathe_indexer_shape* shape,
                                   const lathe_indexer_logits_options* options,
                                   const lathe_limits* limits, lathe_sizes* sizes,
                                   lathe_message* message) {
  return lathe::capi::CallSizes(lathe::IndexerLogitsSizes, shape, options, limits, sizes, message);
}

int32_t lathe_compute_indexer_logits(const lathe_indexer_logits_args* args,
                                     const lathe_indexer_logits_options* options,
                                     lathe_buffer workspace, const lathe_executor* executor,
                                     lathe_message* message) {
  return lathe::capi::Call(lathe::ComputeIndexerLogits, args, options, workspace, executor,
                           message);
}

int32_t lathe_indexer_topk_sizes(const lathe_indexer_shape* shape,
                                 const lathe_indexer_topk_options* options,
                                 const lathe_limits* limits, lathe_sizes* sizes,
                                 lathe_message* message) {
  return lathe::capi::CallSizes(lathe::IndexerTopkSizes, shape, options, limits, sizes, message);
}

int32_t lathe_select_indexer_topk(const lathe_indexer_topk_args* args,
                                  const lathe_indexer_topk_options* options, lathe_buffer workspace,
                                  const lathe_executor* executor, lathe_message* message) {
  return lathe::capi::Call(lathe::SelectIndexerTopk, args, options, workspace, executor, message);
}

int32_t lathe_compressor_sizes(const lathe_compressor_shape* shape,
                               const lathe_compressor_options* options, const lathe_limits* limits,
                               lathe_sizes* sizes, lathe_message* message) {
  return lathe::capi::CallSizes(lathe::CompressorSizes, shape, options, limits, sizes, message);
}

int32_t lathe_compress_tokens(const lathe_compressor_args* args,
                              const lathe_compressor_options* options, lathe_buffer workspace,
                              const lathe_executor* executor, lathe_message* message) {
  return lathe::capi::Call(lathe::CompressTokens, args, options, workspace, executor, message);
}

int32_t lathe_merge_compressed(const lathe_compressed_merge_args* args,
                               const lathe_compressed_merge_options* options,
                               lathe_buffer workspace, const lathe_executor* executor,
                               lathe_message* message) {
  return lathe::capi::Call(lathe::MergeCompressed, args, options, workspace, executor, message);
}

int64_t lathe_num_compressed(int64_t seq_len, int64_t ratio) {
  return lathe::NumCompressed(seq_len, ratio);
}
int64_t lathe_compressed_length(int64_t position, int64_t ratio) {
  return lathe::CompressedLength(position, ratio);
}
int32_t lathe_is_boundary(int64_t position, int64_t ratio) {
  return lathe::IsBoundary(position, ratio);
}
int64_t lathe_num_boundaries(int64_t position, int64_t count, int64_t ratio) {
  return lathe::NumBoundaries(position, count, ratio);
}
int64_t lathe_compressed_position(int64_t position, int64_t ratio) {
  return lathe::CompressedPosition(position, ratio);
}
int64_t lathe_window_begin(int64_t position, int64_t window) {
  return lathe::WindowBegin(position, window);
}
int64_t lathe_window_length(int64_t position, int64_t window) {
  return lathe::WindowLength(position, window);
}
int64_t lathe_window_gather_length(int64_t prefix_len, int64_t q_len, int64_t window) {
  return lathe::WindowGatherLength(prefix_len, q_len, window);
}
int64_t lathe_row_position(int64_t seq_len, int64_t q_len, int64_t i) {
  return lathe::RowPosition(seq_len, q_len, i);
}
int64_t lathe_row_keys(int64_t seq_len, int64_t q_len, int64_t i) {
  return lathe::RowKeys(seq_len, q_len, i);
}
int64_t lathe_row_compressed_keys(int64_t seq_len, int64_t q_len, int64_t i, int64_t ratio) {
  return lathe::RowCompressedKeys(seq_len, q_len, i, ratio);
}

int64_t lathe_block_table_slot(const lathe_tensor* block_table, int64_t row, int64_t index,
                               int64_t block_size) {
  return lathe::capi::WithTable(block_table, [=](const auto& table) {
    return lathe::BlockTableSlot(table, row, index, block_size);
  });
}
int64_t lathe_compressed_slot(const lathe_tensor* block_table, int64_t row, int64_t position,
                              int64_t ratio, int64_t block_size) {
  return lathe::capi::WithTable(block_table, [=](const auto& table) {
    return lathe::CompressedSlot(table, row, position, ratio, block_size);
  });
}

int32_t lathe_owns_position(const lathe_context_shard* shard, int64_t position) {
  return lathe::capi::WithShard(shard, [=](const auto& the_shard) {
           return int64_t{lathe::OwnsPosition(the_shard, position)};
         }) == 1;
}
int64_t lathe_local_length(const lathe_context_shard* shard, int64_t length) {
  return lathe::capi::WithShard(
      shard, [=](const auto& the_shard) { return lathe::LocalLength(the_shard, length); });
}
int64_t lathe_local_position(const lathe_context_shard* shard, int64_t position) {
  return lathe::capi::WithShard(
      shard, [=](const auto& the_shard) { return lathe::LocalPosition(the_shard, position); });
}
int64_t lathe_global_position(const lathe_context_shard* shard, int64_t local) {
  return lathe::capi::WithShard(
      shard, [=](const auto& the_shard) { return lathe::GlobalPosition(the_shard, local); });
}

}  // extern "C"

#endif  // LATHE_CAPI_IMPL_H_
