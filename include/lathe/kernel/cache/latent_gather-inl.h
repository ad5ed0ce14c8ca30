// SPDX-License-Identifier: Apache-2.0
// Gather: records of a sequence become rows of plain elements.
#if defined(LATHE_KERNEL_CACHE_LATENT_GATHER_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_CACHE_LATENT_GATHER_INL_H_
#undef LATHE_KERNEL_CACHE_LATENT_GATHER_INL_H_
#else
#define LATHE_KERNEL_CACHE_LATENT_GATHER_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lathe/cache/decode-inl.h"
#include "lathe/cache/formats-inl.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/latent_cache.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// row[i] = from[i] * scale; the two may be the same memory if their elements have one size.
template <class From, class To>
void ScaleRow(const From* from, float scale, To* row, int64_t n) {
  const VF factor = hn::Set(F32(), scale);
  int64_t i = 0;
  if constexpr (std::is_same_v<From, bfloat16> && std::is_same_v<To, bfloat16>) {
    // Even and odd columns need no widening: a quarter of the time on Zen 4.
    const U32 du;
    for (const int64_t end = n / (2 * kLanes) * (2 * kLanes); i < end; i += 2 * kLanes) {
      const VU pairs = hn::LoadU(du, reinterpret_cast<const uint32_t*>(from + i));
      hn::StoreU(
          PackPairs<false>(hn::Mul(EvenFloats(pairs), factor), hn::Mul(OddFloats(pairs), factor)),
          du, reinterpret_cast<uint32_t*>(row + i));
    }
  }
  for (const int64_t end = n / kLanes * kLanes; i < end; i += kLanes) {
    StoreFloats(hn::Mul(LoadFloats(from + i), factor), row + i);
  }
  for (; i < n; ++i) row[i] = FromFloat<To>(ToFloat(from[i]) * scale);
}

// Widths may be any, and there is no workspace: values that are bfloat16 numbers pass through the
// row itself, others through the stack, which a format of any width and other values cannot.
template <class Format, class To>
void GatherRow(const PagedCache& cache, const std::byte* record, const std::byte* side,
               int64_t width, To* row) {
  using Stored = typename Format::Element;
  constexpr bool kScales = Format::kHasTensorScale;
  constexpr BFloat16Rows kRows = Format::kBFloat16;
  const float scale = kScales ? cache.scale : 1.0f;
  if constexpr (!std::is_void_v<Stored>) {
    ConvertRow(reinterpret_cast<const Stored*>(record), row, width);
  } else if constexpr (std::is_same_v<To, float> || (std::is_same_v<To, bfloat16> &&
                                                     kRows == BFloat16Rows::kRounded && !kScales)) {
    DecodeRecord(Format{}, record, side, width, row);
    if (kScales && scale != 1.0f) ScaleRow(row, scale, row, width);
  } else if constexpr (kRows == BFloat16Rows::kExact) {
    auto* values = reinterpret_cast<bfloat16*>(row);
    DecodeRecord(Format{}, record, side, width, values);
    if (!std::is_same_v<To, bfloat16> || scale != 1.0f) ScaleRow(values, scale, row, width);
  } else if constexpr (Format::kWidth > 0) {
    float values[Format::kWidth];
    DecodeRecord(Format{}, record, side, width, values);
    ScaleRow(values, scale, row, width);
  } else {
    for (int64_t c = 0; c < width; ++c) {
      row[c] = FromFloat<To>(Format::DecodeColumn(record, side, c) * scale);
    }
  }
}

template <class Format, class To>
void GatherTokens(const LatentGatherArgs& args, const detail::GatherTask& task) {
  const PagedCache& cache = args.cache;
  To* row = reinterpret_cast<To*>(args.out.At(task.row));
  int64_t page = task.position / cache.block_size;
  int64_t slot = task.position % cache.block_size;
  for (int64_t i = 0; i < task.count; ++page, slot = 0) {
    const int64_t block = args.block_table(task.seq, page);
    for (; slot < cache.block_size && i < task.count; ++slot, ++i, row += args.out.stride[0]) {
      GatherRow<Format>(
          cache, cache.RecordAt(block, slot),
          Format::kSideBytes > 0 ? cache.SideAt(block, slot, Format::kSideBytes) : nullptr,
          args.out.extent[1], row);
    }
  }
}

inline void GatherLatents(const LatentGatherArgs& args, const detail::GatherTask& task) {
  VisitFormat(args.cache.format, [&](auto tag) {
    using Format = typename decltype(tag)::Type;
    switch (args.out.dtype) {
      case DType::kFloat32:
        return GatherTokens<Format, float>(args, task);
      case DType::kFloat16:
        return GatherTokens<Format, float16>(args, task);
      case DType::kBFloat16:
        return GatherTokens<Format, bfloat16>(args, task);
    }
  });
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
