// SPDX-License-Identifier: Apache-2.0
// Copies of whole pages: checks, then slices of pages shared among workers. Each worker does all
// pairs in order for its slice: no pair has to wait for another's worker, and the result is that of
// a loop.
#ifndef LATHE_HOST_CACHE_PAGE_COPY_H_
#define LATHE_HOST_CACHE_PAGE_COPY_H_

#include <cstring>

#include "lathe/host/call.h"
#include "lathe/host/check.h"
#include "lathe/host/parallel.h"
#include "lathe/latent_cache.h"

namespace lathe::detail {
namespace {

// The names of one side's arguments in refusals.
struct PagesNames {
  const char* data;
  const char* num_blocks;
  const char* stride;
};

inline Status CheckPages(const PagesNames& names, const std::byte* data, int64_t num_blocks,
                         int64_t stride, int64_t page_bytes) {
  if (num_blocks < 0) return Invalid(names.num_blocks).Is(num_blocks).Must("be at least", 0);
  if (num_blocks == 0) return OkStatus();
  if (num_blocks > 1 && stride < page_bytes) {
    return Invalid(names.stride).Is(stride).Must("be at least page_bytes =", page_bytes);
  }
  const int64_t span = SaturatingAdd(SaturatingMul(num_blocks - 1, stride), page_bytes);
  if (num_blocks > 1 && span > kMaxSpan) {
    return Invalid(names.stride)
        .Is(stride)
        .Must("not lead beyond the address space with", num_blocks);
  }
  if (data == nullptr) return Invalid(names.data).Must("not be null");
  return OkStatus();
}

inline ByteRange PagesRange(const std::byte* data, int64_t num_blocks, int64_t stride,
                            int64_t page_bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const int64_t span = num_blocks > 0 ? (num_blocks - 1) * stride + page_bytes : 0;
  return {begin, begin + static_cast<uintptr_t>(span)};
}

inline Status CheckPairs(const PageCopyArgs& args) {
  const IndexView<2>& pairs = args.block_pairs;
  const int64_t num_blocks[2] = {args.num_source_blocks, args.num_destination_blocks};
  for (int64_t i = 0; i < pairs.extent[0]; ++i) {
    for (int64_t side = 0; side < 2; ++side) {
      const int64_t block = pairs(i, side);
      if (block >= 0 && block < num_blocks[side]) continue;
      const Status refused = OutOfRange("block_pairs").At(2 * i + side).Is(block);
      return side == 0
                 ? refused.Must("be within 0 and num_source_blocks - 1 =", num_blocks[0] - 1)
                 : refused.Must("be within 0 and num_destination_blocks - 1 =", num_blocks[1] - 1);
    }
  }
  return OkStatus();
}

inline Status CheckPageCopy(const PageCopyArgs& args) {
  LATHE_RETURN_IF_REFUSED(CheckIndices("block_pairs", args.block_pairs, {-1, 2}));
  if (args.page_bytes < 1 || args.page_bytes > kMaxSpan) {
    return Invalid("page_bytes").Is(args.page_bytes).Must("be within 1 and", kMaxSpan);
  }
  LATHE_RETURN_IF_REFUSED(CheckPages({"source", "num_source_blocks", "source_stride"}, args.source,
                                     args.num_source_blocks, args.source_stride, args.page_bytes));
  LATHE_RETURN_IF_REFUSED(
      CheckPages({"destination", "num_destination_blocks", "destination_stride"}, args.destination,
                 args.num_destination_blocks, args.destination_stride, args.page_bytes));
  const ByteRange source =
      PagesRange(args.source, args.num_source_blocks, args.source_stride, args.page_bytes);
  const ByteRange destination = PagesRange(args.destination, args.num_destination_blocks,
                                           args.destination_stride, args.page_bytes);
  const bool is_one_cache =
      args.source == args.destination && args.source_stride == args.destination_stride;
  if (!is_one_cache && Overlap(source, destination)) {
    return Invalid("source").Must("not overlap destination, or be the same pages");
  }
  if (Overlap(RangeOf(args.block_pairs), destination)) {
    return Invalid("block_pairs").Must("not overlap destination");
  }
  return CheckPairs(args);
}

// Bytes [begin, end) of every page.
inline void CopySlices(const PageCopyArgs& args, int64_t begin, int64_t end) {
  for (int64_t i = 0; i < args.block_pairs.extent[0]; ++i) {
    const std::byte* from = args.source + args.block_pairs(i, 0) * args.source_stride + begin;
    std::byte* to = args.destination + args.block_pairs(i, 1) * args.destination_stride + begin;
    if (from != to) std::memcpy(to, from, static_cast<size_t>(end - begin));
  }
}

}  // namespace
}  // namespace lathe::detail

lathe::Status lathe::CopyCachesPages(const PageCopyArgs* layers, size_t num_layers,
                                     const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  if (layers == nullptr && num_layers > 0) return Invalid("layers").Must("not be null");
  const auto is_empty = [&](size_t i) { return layers[i].block_pairs.extent[0] == 0; };
  int64_t bytes = 0;
  for (size_t i = 0; i < num_layers; ++i) {
    if (is_empty(i)) continue;
    LATHE_RETURN_IF_REFUSED(CheckPageCopy(layers[i]));
    bytes = SaturatingAdd(bytes, layers[i].page_bytes);
    if (bytes > kMaxSpan) {
      return Invalid("page_bytes").Is(layers[i].page_bytes).Must("sum to at most", kMaxSpan);
    }
  }
  LATHE_RETURN_IF_REFUSED(CheckExecutor(executor));
  ForEachRangeOfParts(
      executor, static_cast<int64_t>(num_layers), 4096,
      [&](int64_t i) { return is_empty(static_cast<size_t>(i)) ? 0 : layers[i].page_bytes; },
      [&](int64_t i, int64_t begin, int64_t end) { CopySlices(layers[i], begin, end); });
  return OkStatus();
}

lathe::Status lathe::CopyCachePages(const PageCopyArgs& args, const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  return CopyCachesPages(&args, 1, executor);
}

#endif  // LATHE_HOST_CACHE_PAGE_COPY_H_
