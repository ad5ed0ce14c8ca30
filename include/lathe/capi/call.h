// SPDX-License-Identifier: Apache-2.0
// A C call: its arguments converted, the C++ function called, its status reported. One template for each form that
// operations have.
#ifndef LATHE_CAPI_CALL_H_
#define LATHE_CAPI_CALL_H_

#include <cstring>

#include "lathe/capi/convert.h"

namespace lathe::capi {

inline Executor ToExecutor(const lathe_executor* executor) noexcept {
  Executor result;
  if (executor == nullptr || executor->run == nullptr) return result;
  return {executor->ctx, executor->num_workers, executor->run};
}

inline Buffer ToBuffer(lathe_buffer buffer) noexcept { return {buffer.data, buffer.bytes}; }

// operation(args, options, executor), or with a workspace in front of the executor, with what the C structs say.
// Operations of C++ that take no workspace have one in C where their arguments are arrays of structs.
template <class Args, class Options, class... Rest, class FromArgs, class FromOptions>
int32_t Call(Status (*operation)(const Args&, const Options&, Rest...) noexcept,
             const FromArgs* from_args, const FromOptions* from_options, lathe_buffer workspace,
             const lathe_executor* executor, lathe_message* message) noexcept {
  Conversion conversion(workspace);
  Args args;
  Options options;
  conversion.Args(from_args, &args);
  conversion.Struct("options", from_options, &options);
  if (!conversion.ok()) return conversion.Finish(message);
  if constexpr (sizeof...(Rest) == 2) {
    return Conversion::Report(operation(args, options, ToBuffer(workspace), ToExecutor(executor)),
                              message);
  } else {
    return Conversion::Report(operation(args, options, ToExecutor(executor)), message);
  }
}
template <class Operation, class FromArgs, class FromOptions>
int32_t Call(Operation operation, const FromArgs* from_args, const FromOptions* from_options,
             const lathe_executor* executor, lathe_message* message) noexcept {
  return Call(operation, from_args, from_options, {}, executor, message);
}

// operation(args, executor).
template <class Args, class FromArgs>
int32_t Call(Status (*operation)(const Args&, const Executor&) noexcept, const FromArgs* from_args,
             const lathe_executor* executor, lathe_message* message) noexcept {
  Conversion conversion;
  Args args;
  conversion.Args(from_args, &args);
  if (!conversion.ok()) return conversion.Finish(message);
  return Conversion::Report(operation(args, ToExecutor(executor)), message);
}

// operation(layers, num_layers, ..., executor), whose layers go through the workspace.
template <class Args, class... Rest, class FromArgs, class... Given>
int32_t CallLayers(Status (*operation)(const Args*, size_t, Rest...) noexcept,
                   Conversion& conversion, const FromArgs* from_layers, size_t num_layers,
                   lathe_message* message, const Given&... rest) noexcept {
  const Args* layers = conversion.Array<Args>("layers", from_layers, num_layers);
  if (!conversion.ok()) return conversion.Finish(message);
  return Conversion::Report(operation(layers, num_layers, rest...), message);
}

// The fields that the caller's struct has. Its struct_size stays.
template <class Info>
void Give(Info info, Info* to) noexcept {
  info.struct_size = to->struct_size;
  std::memcpy(to, &info, info.struct_size < sizeof(info) ? info.struct_size : sizeof(info));
}

// Operations that are planned: sizes, plan, run. A plan in C is the plan of C++ by another name.
inline const MlaDecodePlan& ToPlan(const lathe_mla_decode_plan* plan) noexcept {
  return *reinterpret_cast<const MlaDecodePlan*>(plan);
}
inline const PrefillPlan& ToPlan(const lathe_prefill_plan* plan) noexcept {
  return *reinterpret_cast<const PrefillPlan*>(plan);
}

// What an operation needs, of whose arguments `conversion` has converted those before the options.
template <class Options, class FromOptions, class ToSizes>
int32_t GiveSizes(Conversion& conversion, const FromOptions* from_options,
                  const lathe_limits* from_limits, lathe_sizes* to, lathe_message* message,
                  const ToSizes& to_sizes) noexcept {
  Options options;
  Limits limits;
  lathe_sizes known{};
  conversion.Struct("options", from_options, &options);
  conversion.RequiredStruct("limits", from_limits, &limits);
  if (conversion.IsGiven("sizes", to)) conversion.Check("sizes", to, &known);
  if (!conversion.ok()) return conversion.Finish(message);
  Sizes sizes;
  const Status status = to_sizes(options, limits, &sizes);
  known.plan_bytes = sizes.plan_bytes;
  known.workspace_bytes = sizes.workspace_bytes;
  if (status.ok()) Give(known, to);
  return Conversion::Report(status, message);
}

// Sizes of an operation that has a shape, and of one that has none.
template <class Shape, class Options, class FromShape, class FromOptions>
int32_t CallSizes(Status (*operation)(const Shape&, const Options&, const Limits&, Sizes*) noexcept,
                  const FromShape* from_shape, const FromOptions* from_options,
                  const lathe_limits* from_limits, lathe_sizes* to,
                  lathe_message* message) noexcept {
  Conversion conversion;
  Shape shape;
  conversion.RequiredStruct("shape", from_shape, &shape);
  return GiveSizes<Options>(conversion, from_options, from_limits, to, message,
                            [&](const Options& options, const Limits& limits, Sizes* sizes) {
                              return operation(shape, options, limits, sizes);
                            });
}
template <class Options, class FromOptions>
int32_t CallSizes(Status (*operation)(const Options&, const Limits&, Sizes*) noexcept,
                  const FromOptions* from_options, const lathe_limits* from_limits, lathe_sizes* to,
                  lathe_message* message) noexcept {
  Conversion conversion;
  return GiveSizes<Options>(conversion, from_options, from_limits, to, message, operation);
}

template <class Shape, class Options, class Args, class Plan, class FromShape, class FromOptions,
          class FromArgs, class CPlan>
int32_t CallPlan(Status (*operation)(const Shape&, const Options&, const Args&, size_t, Buffer,
                                     const Plan**) noexcept,
                 const FromShape* from_shape, const FromOptions* from_options,
                 const FromArgs* from_args, size_t num_workers, lathe_buffer plan_memory,
                 const CPlan** to, lathe_message* message) noexcept {
  Conversion conversion;
  Shape shape;
  Options options;
  Args args;
  conversion.RequiredStruct("shape", from_shape, &shape);
  conversion.Struct("options", from_options, &options);
  conversion.Args(from_args, &args);
  conversion.IsGiven("plan", to);
  if (!conversion.ok()) return conversion.Finish(message);
  const Plan* plan = nullptr;
  const Status status = operation(shape, options, args, num_workers, ToBuffer(plan_memory), &plan);
  if (status.ok()) *to = reinterpret_cast<const CPlan*>(plan);
  return Conversion::Report(status, message);
}

// `rest`: the executor, or ith and nth.
template <class Plan, class Args, class... Rest, class FromPlan, class FromArgs, class... Given>
int32_t CallRun(Status (*operation)(const Plan&, const Args&, Buffer, Rest...) noexcept,
                const FromPlan* from_plan, const FromArgs* from_args, lathe_buffer workspace,
                lathe_message* message, const Given&... rest) noexcept {
  Conversion conversion;
  Args args;
  conversion.IsGiven("plan", from_plan);
  conversion.Args(from_args, &args);
  if (!conversion.ok()) return conversion.Finish(message);
  return Conversion::Report(operation(ToPlan(from_plan), args, ToBuffer(workspace), rest...),
                            message);
}

// f(shard); -1 where it cannot be read.
template <class F>
int64_t WithShard(const lathe_context_shard* from, const F& f) noexcept {
  Conversion conversion;
  ContextShard shard;
  conversion.Struct("shard", from, &shard);
  return conversion.ok() ? f(shard) : -1;
}

// f(block_table); -1 where it is not given or cannot be read.
template <class F>
int64_t WithTable(const lathe_tensor* from, const F& f) noexcept {
  Conversion conversion;
  IndexView<2> block_table;
  if (conversion.IsGiven("block_table", from)) conversion.Field("block_table", *from, &block_table);
  return conversion.ok() && !block_table.empty() ? f(block_table) : -1;
}

}  // namespace lathe::capi

#endif  // LATHE_CAPI_CALL_H_
