// SPDX-License-Identifier: Apache-2.0
// What CompressTokens and MergeCompressed refuse. O(N + B + pages of the state that are touched).
#ifndef LATHE_HOST_COMPRESSOR_CHECK_H_
#define LATHE_HOST_COMPRESSOR_CHECK_H_

#include "lathe/compressor.h"
#include "lathe/host/batch.h"
#include "lathe/host/check.h"
#include "lathe/host/row_transform_check.h"
#include "lathe/kernel/compressor/batch.h"

namespace lathe::detail {
namespace {

// Tokens of a sequence: sums and products of positions and ratios stay far from overflow.
constexpr int64_t kMaxPosition = int64_t{1} << 40;

// True of a call that completes no entry, too, whose partials may be null.
inline bool WantsPartials(const CompressorArgs& args) {
  return !args.partials.empty() || args.partials.extent[2] != 0;
}
inline bool HasSlotMapping(const CompressorArgs& args) { return IsGiven(args.slot_mapping); }

inline int64_t NumTokens(const CompressorArgs& args) { return args.positions.extent[0]; }
inline int64_t NumSeqs(const CompressorArgs& args) {
  return args.query_start_loc.empty() ? NumTokens(args) : args.query_start_loc.extent[0] - 1;
}
inline int64_t HeadDim(const CompressorArgs& args, const CompressorOptions& options) {
  return options.overlap ? args.kv.extent[1] / 2 : args.kv.extent[1];
}

// Rows of one rank among any `window` neighbouring ones.
inline int64_t MostOwned(const ContextShard& shard, int64_t window) {
  const int64_t cycle = shard.world * shard.interleave;
  return window / cycle * shard.interleave + (std::min)(window % cycle, shard.interleave);
}

inline Status CheckCompressorOptions(const CompressorOptions& options) {
  LATHE_RETURN_IF_REFUSED(CheckWithin("options.ratio", options.ratio, 1, kMaxDim));
  if (options.state_tokens != 0) {
    LATHE_RETURN_IF_REFUSED(CheckWithin("options.state_tokens", options.state_tokens,
                                        PoolWindow(options), kMaxPosition));
  }
  const ContextShard& shard = options.shard;
  LATHE_RETURN_IF_REFUSED(CheckWithin("options.shard.world", shard.world, 1, kMaxDim));
  LATHE_RETURN_IF_REFUSED(CheckWithin("options.shard.rank", shard.rank, 0, shard.world - 1));
  return CheckWithin("options.shard.interleave", shard.interleave, 1, kMaxDim);
}

inline Status CheckTokenRows(const char* name, const In<2>& rows, int64_t num_tokens,
                             int64_t width) {
  LATHE_RETURN_IF_REFUSED(CheckExtent(name, 1, rows.extent[1], width));
  LATHE_RETURN_IF_REFUSED(CheckTensor(name, rows, {num_tokens > 0}));
  if (rows.extent[0] < num_tokens) {
    return RefuseExtent(name, 0, rows.extent[0])
        .Must("be at least positions.extent[0] =", num_tokens);
  }
  return OkStatus();
}

inline Status CheckCompressorInputs(const CompressorArgs& args, const CompressorOptions& options) {
  const int64_t width = args.kv.extent[1], num_parts = options.overlap ? 2 : 1;
  if (width < 1) return RefuseExtent("kv", 1, width).Must("be at least", 1);
  if (width % num_parts != 0)
    return RefuseExtent("kv", 1, width).Must("be even with options.overlap");
  if (HeadDim(args, options) > kMaxTransformWidth) {
    return RefuseExtent("kv", 1, width).Must("be at most", num_parts * kMaxTransformWidth);
  }
  LATHE_RETURN_IF_REFUSED(CheckIndices("positions", args.positions, {-1}));
  LATHE_RETURN_IF_REFUSED(CheckTokenRows("kv", args.kv, NumTokens(args), width));
  LATHE_RETURN_IF_REFUSED(CheckTokenRows("score", args.score, NumTokens(args), width));
  LATHE_RETURN_IF_REFUSED(CheckExtent("ape", 0, args.ape.extent[0], options.ratio));
  LATHE_RETURN_IF_REFUSED(CheckExtent("ape", 1, args.ape.extent[1], width));
  return CheckTensor("ape", In<2>(args.ape), {});
}

inline Status CheckSequences(const CompressorArgs& args) {
  const IndexView<1>& starts = args.query_start_loc;
  if (!IsGiven(starts)) return OkStatus();
  LATHE_RETURN_IF_REFUSED(CheckStartLocShape("query_start_loc", starts));
  return CheckStartLoc("query_start_loc", starts, NumTokens(args), "be positions.extent[0] =");
}

inline Status CheckPosition(int64_t i, int64_t position) {
  const Status status = Invalid("positions").At(i).Is(position);
  if (position < 0) return status.Must("be at least", 0);
  if (position > kMaxPosition) return status.Must("be at most", kMaxPosition);
  return OkStatus();
}

inline Status CheckTokenPositions(const CompressorArgs& args) {
  for (int64_t b = 0; b < NumSeqs(args); ++b) {
    const SeqTokens tokens = TokensOf(args, b);
    for (int64_t token = tokens.begin; token < tokens.end; ++token) {
      const int64_t position = args.positions(token);
      LATHE_RETURN_IF_REFUSED(CheckPosition(token, position));
      const int64_t expected = tokens.position + token - tokens.begin;
      if (position == expected) continue;
      return Invalid("positions")
          .At(token)
          .Is(position)
          .Must("follow the position before it, be", expected);
    }
  }
  return OkStatus();
}

inline Status CheckState(const CompressorArgs& args, const CompressorOptions& options) {
  const MutablePagedCache& state = args.state;
  if (state.format != CacheFormat::kLatentFloat32) {
    return Invalid("state.format")
        .IsNamed(Name(state.format))
        .MustName("be", Name(CacheFormat::kLatentFloat32));
  }
  LATHE_RETURN_IF_REFUSED(CheckCache("state", state, 2 * args.kv.extent[1], true));
  LATHE_RETURN_IF_REFUSED(CheckWithin("state.block_size", state.block_size, 1, kMaxDim));
  LATHE_RETURN_IF_REFUSED(
      CheckIndices("state_block_table", args.state_block_table, {NumSeqs(args), -1}));
  const int64_t columns = args.state_block_table.extent[1];
  if (columns > kMaxDim) {
    return RefuseExtent("state_block_table", 1, columns).Must("be at most", kMaxDim);
  }
  const int64_t needed = MostOwned(options.shard, PoolWindow(options));
  if (columns * state.block_size < needed) {
    return RefuseExtent("state_block_table", 1, columns)
        .Must("hold the rows of one entry, times state.block_size be at least", needed);
  }
  return OkStatus();
}

// Pages of rows [begin, end) of a sequence, in its ring.
inline Status CheckStatePages(const CompressorArgs& args, const CompressorOptions& options,
                              int64_t seq, int64_t begin, int64_t end) {
  const int64_t first = LocalLength(options.shard, begin), last = LocalLength(options.shard, end);
  return CheckBlocks("state_block_table",
                     "be within 0 and state.num_blocks - 1 =", args.state_block_table,
                     args.state.num_blocks, seq, first / args.state.block_size,
                     CeilDiv(last, args.state.block_size));
}

// f(seq, token, position) for the boundaries among a call's tokens, in order, until one refuses.
template <class F>
Status ForEachBoundary(const CompressorArgs& args, int64_t ratio, const F& f) {
  for (int64_t seq = 0; seq < NumSeqs(args); ++seq) {
    const SeqTokens tokens = TokensOf(args, seq);
    const int64_t first = CompressedPosition(tokens.position, ratio) + ratio - 1;
    for (int64_t position = first; position < tokens.end_position(); position += ratio) {
      LATHE_RETURN_IF_REFUSED(f(seq, tokens.begin + position - tokens.position, position));
    }
  }
  return OkStatus();
}

// Where the entry of a boundary goes; negative: nowhere. Partials have no slots.
inline int64_t SlotOfEntry(const CompressorArgs& args, int64_t ratio, int64_t seq, int64_t token,
                           int64_t position) {
  if (WantsPartials(args)) return 0;
  if (HasSlotMapping(args)) return args.slot_mapping(token);
  return CompressedSlot(args.block_table, seq, position, ratio, args.cache.block_size);
}

inline Status CheckEntrySlot(const IndexView<1>& slot_mapping, int64_t i,
                             const MutablePagedCache& cache) {
  const int64_t num_slots = cache.num_blocks * cache.block_size;
  if (slot_mapping(i) < num_slots) return OkStatus();
  return OutOfRange("slot_mapping")
      .At(i)
      .Is(slot_mapping(i))
      .Must("be below cache.num_blocks * cache.block_size =", num_slots);
}

// Rope of the entry of the token at a position.
inline Status CheckEntryRope(const Rope& rope, int64_t i, int64_t position, int64_t ratio) {
  const int64_t limit = rope.cos.extent[0];
  if (!rope.is_given() || CompressedPosition(position, ratio) < limit) return OkStatus();
  return OutOfRange("positions")
      .At(i)
      .Is(position)
      .Must("have its entry's first token below transform.rope.cos.extent[0] =", limit);
}

// That the entry has a place, and that the state has the rows it needs.
inline Status CheckEntry(const CompressorArgs& args, const CompressorOptions& options, int64_t seq,
                         int64_t token, int64_t position) {
  if (HasSlotMapping(args)) {
    if (args.slot_mapping(token) < 0) return OkStatus();
    LATHE_RETURN_IF_REFUSED(CheckEntrySlot(args.slot_mapping, token, args.cache));
  } else if (!WantsPartials(args)) {
    const int64_t entry = position / options.ratio;
    const int64_t covered = SaturatingMul(args.block_table.extent[1], args.cache.block_size);
    if (entry >= covered) {
      return OutOfRange("positions")
          .At(token)
          .Is(position)
          .Must("have its entry below block_table.extent[1] * cache.block_size =", covered);
    }
    const int64_t page = entry / args.cache.block_size;
    LATHE_RETURN_IF_REFUSED(CheckBlocks("block_table",
                                        "be within 0 and cache.num_blocks - 1 =", args.block_table,
                                        args.cache.num_blocks, seq, page, page + 1));
  }
  if (!WantsPartials(args)) {
    LATHE_RETURN_IF_REFUSED(CheckEntryRope(args.transform.rope, token, position, options.ratio));
  }
  const int64_t from_state = TokensOf(args, seq).position;
  const int64_t begin = WindowBegin(position, PoolWindow(options));
  return begin < from_state ? CheckStatePages(args, options, seq, begin, from_state) : OkStatus();
}

inline Status CheckEntriesAndRows(const CompressorArgs& args, const CompressorOptions& options) {
  LATHE_RETURN_IF_REFUSED(
      ForEachBoundary(args, options.ratio, [&](int64_t seq, int64_t token, int64_t position) {
        return CheckEntry(args, options, seq, token, position);
      }));
  for (int64_t seq = 0; seq < NumSeqs(args); ++seq) {
    const SeqTokens tokens = TokensOf(args, seq);
    LATHE_RETURN_IF_REFUSED(CheckStatePages(
        args, options, seq, FirstSavedPosition(args, options, tokens), tokens.end_position()));
  }
  return OkStatus();
}

inline Status CheckPartials(const char* name, const View<const float, 3>& partials,
                            int64_t num_entries, int64_t head_dim, bool is_output) {
  LATHE_RETURN_IF_REFUSED(CheckExtent(name, 1, partials.extent[1], 3));
  LATHE_RETURN_IF_REFUSED(CheckExtent(name, 2, partials.extent[2], head_dim));
  LATHE_RETURN_IF_REFUSED(CheckTensor(name, In<3>(partials), {num_entries > 0, is_output}));
  if (partials.extent[0] < num_entries) {
    return RefuseExtent(name, 0, partials.extent[0])
        .Must("be at least the number of entries,", num_entries);
  }
  return OkStatus();
}

// Where entries go: one of three places.
inline Status CheckDestination(const CompressorArgs& args, const CompressorOptions& options,
                               int64_t num_entries) {
  const int64_t head_dim = HeadDim(args, options);
  const bool has_table = IsGiven(args.block_table);
  if (WantsPartials(args)) {
    if (has_table) return Invalid("block_table").Must("not be given beside partials");
    if (HasSlotMapping(args)) return Invalid("slot_mapping").Must("not be given beside partials");
    return CheckPartials("partials", args.partials, num_entries, head_dim, true);
  }
  if (options.shard.world > 1) {
    return Invalid("options.shard.world").Is(options.shard.world).Must("be 1 without partials");
  }
  LATHE_RETURN_IF_REFUSED(CheckCache("cache", args.cache, head_dim, true));
  LATHE_RETURN_IF_REFUSED(CheckRowTransform(args.transform, head_dim));
  if (HasSlotMapping(args)) {
    if (has_table) return Invalid("block_table").Must("not be given beside slot_mapping");
    return CheckIndices("slot_mapping", args.slot_mapping, {NumTokens(args)});
  }
  if (!has_table && NumTokens(args) == 0) return OkStatus();
  return CheckIndices("block_table", args.block_table, {NumSeqs(args), -1});
}

// No input may lie where something is written, nor may the workspace.
inline Status CheckCompressorOverlaps(const CompressorArgs& args, int64_t head_dim,
                                      ByteRange workspace) {
  const bool has_cache = !WantsPartials(args);
  const WrittenRange state = {"not overlap state", RangeOf(args.state, 2 * args.kv.extent[1])};
  const WrittenRange cache = {"not overlap cache",
                              has_cache ? RangeOf(args.cache, head_dim) : ByteRange{}};
  const WrittenRange partials = {"not overlap partials", RangeOf(args.partials)};
  const WrittenRange own = {"not overlap workspace", workspace};
  LATHE_RETURN_IF_REFUSED(CheckApart({{"kv", RangeOf(args.kv)},
                                      {"score", RangeOf(args.score)},
                                      {"ape", RangeOf(args.ape)},
                                      {"positions", RangeOf(args.positions)},
                                      {"query_start_loc", RangeOf(args.query_start_loc)},
                                      {"state_block_table", RangeOf(args.state_block_table)},
                                      {"block_table", RangeOf(args.block_table)},
                                      {"slot_mapping", RangeOf(args.slot_mapping)}},
                                     {state, cache, partials, own}));
  for (const WrittenRange& to : {state, cache, partials, own}) {
    if (has_cache && Overlaps(args.transform, to.range)) return Invalid("transform").Must(to.rule);
  }
  LATHE_RETURN_IF_REFUSED(CheckApart({{"partials", partials.range}}, {state}));
  return CheckApart({{"workspace", workspace}}, {state, cache, partials});
}

inline Status CheckMergePlaces(const CompressedMergeArgs& args, int64_t ratio) {
  for (int64_t i = 0; i < args.positions.extent[0]; ++i) {
    if (args.slot_mapping(i) < 0) continue;
    LATHE_RETURN_IF_REFUSED(CheckEntrySlot(args.slot_mapping, i, args.cache));
    const int64_t position = args.positions(i);
    LATHE_RETURN_IF_REFUSED(CheckPosition(i, position));
    LATHE_RETURN_IF_REFUSED(CheckEntryRope(args.transform.rope, i, position, ratio));
  }
  return OkStatus();
}

inline Status CheckCompressedMerge(const CompressedMergeArgs& args,
                                   const CompressedMergeOptions& options) {
  LATHE_RETURN_IF_REFUSED(CheckWithin("options.ratio", options.ratio, 1, kMaxDim));
  if (args.num_parts == 0) return Invalid("num_parts").Is(0).Must("be at least", 1);
  if (args.parts == nullptr) return Invalid("parts").Must("not be null");
  LATHE_RETURN_IF_REFUSED(CheckIndices("positions", args.positions, {-1}));
  const int64_t num_entries = args.positions.extent[0], head_dim = args.parts[0].extent[2];
  LATHE_RETURN_IF_REFUSED(CheckIndices("slot_mapping", args.slot_mapping, {num_entries}));
  LATHE_RETURN_IF_REFUSED(CheckWithin("parts[0].extent[2]", head_dim, 1, kMaxTransformWidth));
  LATHE_RETURN_IF_REFUSED(CheckCache("cache", args.cache, head_dim, true));
  LATHE_RETURN_IF_REFUSED(CheckRowTransform(args.transform, head_dim));
  const ByteRange cache = RangeOf(args.cache, head_dim);
  for (size_t i = 0; i < args.num_parts; ++i) {
    Status status = CheckPartials("stats", args.parts[i], num_entries, head_dim, false);
    if (status.ok() && Overlap(RangeOf(args.parts[i]), cache)) {
      status = Invalid("stats").Must("not overlap cache");
    }
    if (!status.ok()) return status.Of("parts", static_cast<int64_t>(i));
  }
  LATHE_RETURN_IF_REFUSED(CheckApart(
      {{"positions", RangeOf(args.positions)}, {"slot_mapping", RangeOf(args.slot_mapping)}},
      {{"not overlap cache", cache}}));
  if (Overlaps(args.transform, cache)) return Invalid("transform").Must("not overlap cache");
  return CheckMergePlaces(args, options.ratio);
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_COMPRESSOR_CHECK_H_
