// SPDX-License-Identifier: Apache-2.0
// Latent write: each token's kv_c and k_pe, transformed if asked for, become one record at its slot.
#if defined(LATHE_KERNEL_CACHE_LATENT_WRITE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_CACHE_LATENT_WRITE_INL_H_
#undef LATHE_KERNEL_CACHE_LATENT_WRITE_INL_H_
#else
#define LATHE_KERNEL_CACHE_LATENT_WRITE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "lathe/cache/formats-inl.h"
#include "lathe/kernel/rows/row_transform-inl.h"
#include "lathe/latent_cache.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

LATHE_INLINE TokenRow RowOf(const LatentWriteArgs& args, int64_t token) {
  const auto row = [token](const In<2>& part) { return part.empty() ? nullptr : part.At(token); };
  return TokenRow{args.kv_c.dtype, row(args.kv_c), args.kv_c.extent[1],
                  args.k_pe.dtype, row(args.k_pe), args.k_pe.extent[1]};
}

template <class Format>
void EncodeTokens(const LatentWriteArgs& args, const ScaleRule& rule, int64_t token_begin,
                  int64_t token_end) {
  const MutablePagedCache& cache = args.cache;
  const auto first_live = [&](int64_t token) {
    while (token < token_end && args.slot_mapping(token) < 0) ++token;
    return token;
  };
  int64_t token = first_live(token_begin), next = token;
  if (token == token_end) return;
  for (auto amax = AmaxOf(Format{}, RowOf(args, token)); token < token_end; token = next) {
    // The next token's maxima come out of a long chain of shuffles, this one's codes meanwhile.
    next = first_live(token + 1);
    auto next_amax = amax;
    if (next < token_end) next_amax = AmaxOf(Format{}, RowOf(args, next));
    const int64_t slot = args.slot_mapping(token);
    const int64_t page = slot / cache.block_size, at = slot % cache.block_size;
    EncodeRecord(Format{}, RowOf(args, token), amax, rule, cache.RecordAt(page, at),
                 Format::kSideBytes > 0 ? cache.SideAt(page, at, Format::kSideBytes) : nullptr);
    amax = next_amax;
  }
}

inline void EncodeAsGiven(const LatentWriteArgs& args, bool power_of_two_scales,
                          int64_t token_begin, int64_t token_end) {
  VisitFormat(args.cache.format, [&](auto tag) {
    EncodeTokens<typename decltype(tag)::Type>(args, {power_of_two_scales, args.cache.scale},
                                               token_begin, token_end);
  });
}

// A row of both parts: each has a step of its own.
inline void TransformParts(const LatentWriteArgs& args, int64_t position, float* row) {
  const int64_t c_width = args.kv_c.extent[1], pe_width = args.k_pe.extent[1];
  if (pe_width == 0) return TransformRow(args.transform, position, c_width, row);
  NormRow(args.transform.norm, c_width, row);
  RopeRow(args.transform.rope, position, pe_width, row + c_width);
  if (args.transform.round_to_bfloat16) RoundRowToBFloat16(c_width + pe_width, row);
}

// Each row goes through scratch and is written from there as a float32 row without parts.
HWY_NOINLINE inline void EncodeTransformed(const LatentWriteArgs& args, bool power_of_two_scales,
                                           int64_t token_begin, int64_t token_end) {
  HWY_ALIGN float scratch[kMaxTransformWidth];
  const int64_t width = args.kv_c.extent[1] + args.k_pe.extent[1];
  LatentWriteArgs write;
  write.kv_c = Packed(scratch, 1, width);
  write.cache = args.cache;
  for (int64_t token = token_begin; token < token_end; ++token) {
    const int64_t slot = args.slot_mapping(token);
    if (slot < 0) continue;
    RowOf(args, token).Load(0, width, scratch);
    TransformParts(args, args.transform.rope.is_given() ? args.positions(token) : 0, scratch);
    write.slot_mapping = Packed(&slot, 1);
    EncodeAsGiven(write, power_of_two_scales, 0, 1);
  }
}

inline void WriteLatents(const LatentWriteArgs& args, bool power_of_two_scales, int64_t token_begin,
                         int64_t token_end) {
  const auto write = args.transform.is_identity() ? EncodeAsGiven : EncodeTransformed;
  write(args, power_of_two_scales, token_begin, token_end);
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
