// SPDX-License-Identifier: Apache-2.0
// Copies of single records: checks, then slices of records shared among workers, who each do all pairs of slots in
// order for their slice (page_copy.h).
#ifndef LATHE_HOST_CACHE_RECORD_COPY_H_
#define LATHE_HOST_CACHE_RECORD_COPY_H_

#include <algorithm>
#include <cstring>

#include "lathe/host/call.h"
#include "lathe/host/check.h"
#include "lathe/host/parallel.h"
#include "lathe/latent_cache.h"

namespace lathe::detail {
namespace {

inline Status CheckRecordSlots(const RecordCopyArgs& args) {
  const int64_t num_slots = args.cache.num_blocks * args.cache.block_size;
  for (int64_t i = 0; i < args.dst_slots.extent[0]; ++i) {
    const int64_t to = args.dst_slots(i);
    if (to < 0) continue;
    if (to >= num_slots) {
      return OutOfRange("dst_slots")
          .At(i)
          .Is(to)
          .Must("be below cache.num_blocks * cache.block_size =", num_slots);
    }
    const int64_t from = args.src_slots(i);
    if (from >= 0 && from < num_slots) continue;
    return OutOfRange("src_slots")
        .At(i)
        .Is(from)
        .Must("be within 0 and cache.num_blocks * cache.block_size - 1 =", num_slots - 1);
  }
  return OkStatus();
}

inline Status CheckRecordCopy(const RecordCopyArgs& args) {
  LATHE_RETURN_IF_REFUSED(CheckIndices("src_slots", args.src_slots, {-1}));
  LATHE_RETURN_IF_REFUSED(CheckIndices("dst_slots", args.dst_slots, {args.src_slots.extent[0]}));
  if (args.dst_slots.extent[0] == 0) return OkStatus();
  if (args.width < 1 || args.width > kMaxDim) {
    return Invalid("width").Is(args.width).Must("be within 1 and", kMaxDim);
  }
  return CheckCache("cache", args.cache, args.width, true);
}

// No list may lie in the cache of any layer.
inline Status CheckRecordOverlaps(const RecordCopyArgs* layers, size_t num_layers) {
  for (size_t i = 0; i < num_layers; ++i) {
    if (layers[i].dst_slots.extent[0] == 0) continue;
    const ByteRange cache = RangeOf(layers[i].cache, layers[i].width);
    for (size_t j = 0; j < num_layers; ++j) {
      if (Overlap(RangeOf(layers[j].src_slots), cache))
        return Invalid("src_slots").Must("not overlap cache");
      if (Overlap(RangeOf(layers[j].dst_slots), cache))
        return Invalid("dst_slots").Must("not overlap cache");
    }
  }
  return OkStatus();
}

// A record and what the second part of its page holds of it, as one run of bytes.
struct RecordBytesOf {
  int64_t record;
  int64_t side;
  int64_t all() const { return record + side; }

  explicit RecordBytesOf(const RecordCopyArgs& args)
      : record(RecordBytes(args.cache.format, args.width)), side(SideBytes(args.cache.format)) {}
};

// Bytes [begin, end) of every record.
inline void CopyRecordSlices(const RecordCopyArgs& args, int64_t begin, int64_t end) {
  const MutablePagedCache& cache = args.cache;
  const RecordBytesOf bytes(args);
  const auto record = [&](int64_t slot) {
    return cache.RecordAt(slot / cache.block_size, slot % cache.block_size);
  };
  const auto side = [&](int64_t slot) {
    return cache.SideAt(slot / cache.block_size, slot % cache.block_size, bytes.side);
  };
  const auto copy = [](std::byte* to, const std::byte* from, int64_t first, int64_t last) {
    if (first < last && to != from)
      std::memcpy(to + first, from + first, static_cast<size_t>(last - first));
  };
  for (int64_t i = 0; i < args.dst_slots.extent[0]; ++i) {
    const int64_t to = args.dst_slots(i);
    if (to < 0) continue;
    const int64_t from = args.src_slots(i);
    copy(record(to), record(from), begin, (std::min)(end, bytes.record));
    copy(side(to), side(from), (std::max)(begin - bytes.record, int64_t{0}), end - bytes.record);
  }
}

}  // namespace
}  // namespace lathe::detail

lathe::Status lathe::CopyCachesRecords(const RecordCopyArgs* layers, size_t num_layers,
                                       const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  // Copies of fewer bytes are not worth a second thread.
  constexpr int64_t kPieceBytes = 16384;
  if (layers == nullptr && num_layers > 0) return Invalid("layers").Must("not be null");
  int64_t most_pairs = 1;
  for (size_t i = 0; i < num_layers; ++i) {
    LATHE_RETURN_IF_REFUSED(CheckRecordCopy(layers[i]));
    most_pairs = (std::max)(most_pairs, layers[i].dst_slots.extent[0]);
  }
  LATHE_RETURN_IF_REFUSED(CheckRecordOverlaps(layers, num_layers));
  for (size_t i = 0; i < num_layers; ++i) {
    LATHE_RETURN_IF_REFUSED(CheckRecordSlots(layers[i]));
  }
  LATHE_RETURN_IF_REFUSED(CheckExecutor(executor));
  ForEachRangeOfParts(
      executor, static_cast<int64_t>(num_layers),
      (std::max)(CeilDiv(kPieceBytes, most_pairs), int64_t{64}),
      [&](int64_t i) {
        return layers[i].dst_slots.extent[0] == 0 ? 0 : RecordBytesOf(layers[i]).all();
      },
      [&](int64_t i, int64_t begin, int64_t end) { CopyRecordSlices(layers[i], begin, end); });
  return OkStatus();
}

lathe::Status lathe::CopyCacheRecords(const RecordCopyArgs& args,
                                      const Executor& executor) noexcept {
  LATHE_BEGIN_CALL;
  return CopyCachesRecords(&args, 1, executor);
}

#endif  // LATHE_HOST_CACHE_RECORD_COPY_H_
