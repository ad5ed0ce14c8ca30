// SPDX-License-Identifier: Apache-2.0
// Cache writes: checks, then tokens shared among workers.
#ifndef LATHE_HOST_CACHE_LATENT_CACHE_H_
#define LATHE_HOST_CACHE_LATENT_CACHE_H_

#include "lathe/host/call.h"
#include "lathe/host/check.h"
#include "lathe/host/parallel.h"
#include "lathe/host/row_transform_check.h"
#include "lathe/latent_cache.h"

namespace lathe::detail {
namespace {

inline Status CheckSource(const char* name, const In<2>& source, int64_t num_tokens) {
  LATHE_RETURN_IF_REFUSED(CheckTensor(name, source, {source.extent[1] > 0}));
  if (source.extent[0] < num_tokens) {
    return RefuseExtent(name, 0, source.extent[0])
        .Must("be at least slot_mapping.extent[0] =", num_tokens);
  }
  if (source.extent[1] > kMaxDim) {
    return RefuseExtent(name, 1, source.extent[1]).Must("be at most", kMaxDim);
  }
  return OkStatus();
}

inline Status CheckSlots(const LatentWriteArgs& args) {
  const IndexView<1>& slots = args.slot_mapping;
  const int64_t num_slots = args.cache.num_blocks * args.cache.block_size;
  for (int64_t i = 0; i < slots.extent[0]; ++i) {
    if (slots(i) >= num_slots) {
      return OutOfRange("slot_mapping")
          .At(i)
          .Is(slots(i))
          .Must("be below cache.num_blocks * cache.block_size =", num_slots);
    }
  }
  return OkStatus();
}

inline int64_t RecordWidth(const LatentWriteArgs& args) {
  return args.kv_c.extent[1] + args.k_pe.extent[1];
}

// Slots are checked already: positions of tokens that are not written may be anything.
inline Status CheckWriteTransform(const LatentWriteArgs& args) {
  const RowTransform& transform = args.transform;
  if (transform.is_identity()) return OkStatus();
  const int64_t c_width = args.kv_c.extent[1], pe_width = args.k_pe.extent[1];
  if (RecordWidth(args) > kMaxTransformWidth) {
    return Invalid("transform")
        .Must("not be given with records of more columns than", kMaxTransformWidth);
  }
  if (pe_width == 0) {
    LATHE_RETURN_IF_REFUSED(CheckRowTransform(transform, c_width));
  } else {
    LATHE_RETURN_IF_REFUSED(CheckRowNorm(transform.norm, c_width));
    LATHE_RETURN_IF_REFUSED(CheckRope(kTransformRopeNames, transform.rope, pe_width));
    if (transform.hadamard) {
      return Invalid("transform.hadamard").Must("not be asked for with k_pe");
    }
  }
  return CheckPositions("positions", args.positions, transform.rope, args.slot_mapping.extent[0],
                        [&args](int64_t i) { return args.slot_mapping(i) >= 0; });
}

// Slots that nobody has set; a list without slots has a stride, as Packed gives it.
inline bool IsForgotten(const IndexView<1>& slots) {
  return slots.data == nullptr && slots.extent[0] == 0 && slots.stride[0] == 0;
}

// A record that is too narrow by a fixed format most often lacks the part that was forgotten.
inline Status CheckRecords(const LatentWriteArgs& args) {
  const Status refused = CheckCache("cache", args.cache, RecordWidth(args), true);
  const bool is_narrow = RecordWidth(args) < FixedWidth(args.cache.format);
  if (!is_narrow || IsGiven(args.k_pe)) return refused;
  return refused.Because("k_pe is not given, and the record is as wide as kv_c alone");
}

inline Status CheckLatentWrite(const LatentWriteArgs& args) {
  const int64_t num_tokens = args.slot_mapping.extent[0];
  if (IsForgotten(args.slot_mapping) && args.kv_c.extent[0] > 0) {
    return Invalid("slot_mapping")
        .Must("be given")
        .Because("there are rows to write, and it says where");
  }
  if (num_tokens == 0) return OkStatus();
  LATHE_RETURN_IF_REFUSED(CheckIndices("slot_mapping", args.slot_mapping, {-1}));
  if (args.kv_c.extent[1] < 1) {
    return RefuseExtent("kv_c", 1, args.kv_c.extent[1]).Must("be at least", 1);
  }
  LATHE_RETURN_IF_REFUSED(CheckSource("kv_c", args.kv_c, num_tokens));
  if (IsGiven(args.k_pe)) LATHE_RETURN_IF_REFUSED(CheckSource("k_pe", args.k_pe, num_tokens));
  LATHE_RETURN_IF_REFUSED(CheckRecords(args));
  LATHE_RETURN_IF_REFUSED(CheckSlots(args));
  return CheckWriteTransform(args);
}

// Nothing that is read for any layer may lie in the cache of any.
inline Status CheckOverlaps(const LatentWriteArgs* layers, size_t num_layers) {
  for (size_t i = 0; i < num_layers; ++i) {
    if (layers[i].slot_mapping.extent[0] == 0) continue;
    const LatentWriteArgs& args = layers[i];
    const NamedRange inputs[] = {
        {"kv_c", RangeOf(args.kv_c)},
        {"k_pe", RangeOf(args.k_pe)},
        {"slot_mapping", RangeOf(args.slot_mapping)},
        {"positions", args.transform.rope.is_given() ? RangeOf(args.positions) : ByteRange{}}};
    for (size_t j = 0; j < num_layers; ++j) {
      if (layers[j].slot_mapping.extent[0] == 0) continue;
      const ByteRange cache = RangeOf(layers[j].cache, RecordWidth(layers[j]));
      for (const NamedRange& input : inputs) {
        if (Overlap(input.range, cache)) return Invalid(input.name).Must("not overlap cache");
      }
      if (Overlaps(args.transform, cache)) return Invalid("transform").Must("not overlap cache");
    }
  }
  return OkStatus();
}

}  // namespace
}  // namespace lathe::detail

lathe::Status lathe::WriteLatentCaches(const LatentWriteArgs* layers, size_t num_layers,
                                       const LatentWriteOptions& options,
                                       const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  if (layers == nullptr && num_layers > 0) return Invalid("layers").Must("not be null");
  for (size_t i = 0; i < num_layers; ++i) {
    LATHE_RETURN_IF_REFUSED(CheckLatentWrite(layers[i]));
  }
  LATHE_RETURN_IF_REFUSED(CheckOverlaps(layers, num_layers));
  const KernelTable* kernels = nullptr;
  LATHE_RETURN_IF_REFUSED(StartCall(options.target, executor, &kernels));
  bool is_plain = true;
  for (size_t i = 0; i < num_layers; ++i) {
    is_plain =
        is_plain && FixedWidth(layers[i].cache.format) == 0 && layers[i].transform.is_identity();
  }
  // Some 2 us: a row that is converted takes 0.1, one that is transformed or has scales of its own 0.5 and more.
  ForEachRangeOfParts(
      executor, static_cast<int64_t>(num_layers), is_plain ? 16 : 4,
      [&](int64_t i) { return layers[i].slot_mapping.extent[0]; },
      [&](int64_t i, int64_t begin, int64_t end) {
        kernels->write_latents(layers[i], options.power_of_two_scales, begin, end);
      });
  return OkStatus();
}

lathe::Status lathe::WriteLatentCache(const LatentWriteArgs& args,
                                      const LatentWriteOptions& options,
                                      const Executor& executor) noexcept {
  return WriteLatentCaches(&args, 1, options, executor);
}

#endif  // LATHE_HOST_CACHE_LATENT_CACHE_H_
