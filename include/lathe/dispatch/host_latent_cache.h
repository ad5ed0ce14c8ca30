// SPDX-License-Identifier: Apache-2.0
// Latent write: checks, then tokens shared among workers.
#ifndef LATHE_DISPATCH_HOST_LATENT_CACHE_H_
#define LATHE_DISPATCH_HOST_LATENT_CACHE_H_

#include "lathe/dispatch/host_check.h"
#include "lathe/dispatch/host_parallel.h"
#include "lathe/dispatch/registry.h"
#include "lathe/latent_cache.h"

namespace lathe {
namespace detail {
namespace LATHE_ABI {

inline Status CheckSource(const char* name, const In<2>& source, int64_t num_tokens) {
  LATHE_RETURN_IF_REFUSED(CheckTensor(name, source, {source.extent[1] > 0}));
  if (source.extent[0] < num_tokens) {
    return Invalid(name, ".extent")
        .At(0)
        .Is(source.extent[0])
        .Must("be at least slot_mapping.extent[0] =", num_tokens);
  }
  if (source.extent[1] > kMaxDim) {
    return Invalid(name, ".extent").At(1).Is(source.extent[1]).Must("be at most", kMaxDim);
  }
  return OkStatus();
}

inline Status CheckSlots(const LatentWriteArgs& args) {
  const IndexView<1>& slots = args.slot_mapping;
  const int64_t num_slots = args.cache.num_blocks * args.cache.block_size;
  for (int64_t i = 0; i < slots.extent[0]; ++i) {
    if (slots(i) >= num_slots) {
      return Refuse(StatusCode::kIndexOutOfRange, "slot_mapping")
          .At(i)
          .Is(slots(i))
          .Must("be below cache.num_blocks * cache.block_size =", num_slots);
    }
  }
  return OkStatus();
}

inline Status CheckLatentWrite(const LatentWriteArgs& args) {
  const int64_t num_tokens = args.slot_mapping.extent[0];
  if (num_tokens == 0) return OkStatus();
  LATHE_RETURN_IF_REFUSED(CheckIndices("slot_mapping", args.slot_mapping, {-1}));
  if (args.kv_c.extent[1] < 1) {
    return Invalid("kv_c", ".extent").At(1).Is(args.kv_c.extent[1]).Must("be at least", 1);
  }
  LATHE_RETURN_IF_REFUSED(CheckSource("kv_c", args.kv_c, num_tokens));
  if (IsGiven(args.k_pe)) LATHE_RETURN_IF_REFUSED(CheckSource("k_pe", args.k_pe, num_tokens));
  const int64_t width = args.kv_c.extent[1] + args.k_pe.extent[1];
  LATHE_RETURN_IF_REFUSED(CheckCache("cache", args.cache, width, true));
  const ByteRange cache = RangeOf(args.cache, width);
  if (Overlap(RangeOf(args.kv_c), cache)) return Invalid("kv_c").Must("not overlap cache");
  if (Overlap(RangeOf(args.k_pe), cache)) return Invalid("k_pe").Must("not overlap cache");
  if (Overlap(RangeOf(args.slot_mapping), cache)) {
    return Invalid("slot_mapping").Must("not overlap cache");
  }
  return CheckSlots(args);
}

inline Status WriteLatentCache(const LatentWriteArgs& args, const LatentWriteOptions& options,
                               const Executor& executor) noexcept {
  LATHE_RETURN_IF_REFUSED(CheckLatentWrite(args));
  LATHE_RETURN_IF_REFUSED(CheckExecutor(executor));
  Target target;
  const KernelTable* kernels;
  LATHE_RETURN_IF_REFUSED(ResolveTarget(options.target, &target, &kernels));
  LatentWriteArgs call = args;
  if (call.k_pe.empty()) {  // no columns, copied from somewhere: null is no source even for none
    call.k_pe = {};
    call.k_pe.data = args.kv_c.data;
  }
  // A record takes some 50 ns; fewer than 32 of them are not worth a second thread.
  ForEachRange(executor, args.slot_mapping.extent[0], 32,
               [&](int64_t begin, int64_t end) { kernels->write_latents(call, begin, end); });
  return OkStatus();
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_DISPATCH_HOST_LATENT_CACHE_H_
