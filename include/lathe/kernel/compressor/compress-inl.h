// SPDX-License-Identifier: Apache-2.0
// The compressor: rows of kv and scores pooled column by column, finished entries written, states saved.
//
//   window of an entry   row 0 | row 1 | ... | row window-1      a row: kv [D], scores [D] (with ape), float32
//                        \___ chunk of kPoolRows ___/ ...        lies in the state, or in the call's tokens
//   stats                maximum [D] | sum [D] | weighted sum [D]
//
// Chunks count from the window's start, so that the same rows meet in the same order however the tokens came,
// and rows of one chunk may come from either place. A chunk's scores are read once, its maximum taken, then the
// stats are rescaled once and not at every row: an online softmax with an exp more for each chunk and column.
#if defined(LATHE_KERNEL_COMPRESSOR_COMPRESS_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_COMPRESSOR_COMPRESS_INL_H_
#undef LATHE_KERNEL_COMPRESSOR_COMPRESS_INL_H_
#else
#define LATHE_KERNEL_COMPRESSOR_COMPRESS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "lathe/kernel/cache/latent_write-inl.h"
#include "lathe/kernel/compressor/batch.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/rows/row_transform-inl.h"
#include "lathe/simd/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using detail::CompressCall;
using detail::CompressedEntry;
using detail::SeqTokens;

// One after another, rows are streams too many and too far apart for hardware prefetchers: they come a few
// cache lines early by hand. Zen 4, one thread, CPU time beside other work, r = 128, 64 entries of a decode step:
// 2.8 ms, 4.5 ms without; ratio 4, 4096 tokens of bfloat16: 2.8 and 4.0 ms. Chunks of 16 rows take a fifth longer
// where rows are in L2: 32 lines at one place of a page are more than L1 has ways.
constexpr int64_t kPoolRows = 8;
constexpr int64_t kPoolAhead = 256;  // bytes

// Live rows of a chunk: first those of the state, whose scores have their ape and lie `state_width` after their kv,
// then those of the call. All begin with the columns that overlap lets the entry see.
struct PoolChunk {
  const float* state[kPoolRows];
  const std::byte* kv[kPoolRows];
  const std::byte* score[kPoolRows];
  const float* ape[kPoolRows];
  int64_t state_width = 0;
  int64_t num_state = 0;
  int64_t size = 0;
};

LATHE_INLINE float* StateRow(const CompressorArgs& args, const ContextShard& shard, int64_t seq,
                             int64_t position) {
  const MutablePagedCache& state = args.state;
  const int64_t row = LocalPosition(shard, position), page = row / state.block_size;
  const int64_t block = args.state_block_table(seq, page % args.state_block_table.extent[1]);
  const int64_t offset = row - page * state.block_size;
  return reinterpret_cast<float*>(state.RecordAt(block, offset));
}

// Rows [row_begin, row_begin + kPoolRows) of the window of an entry, those that exist.
inline void FindPoolRows(const CompressCall& call, const CompressedEntry& entry, int64_t row_begin,
                         PoolChunk* chunk) {
  const CompressorArgs& args = call.args;
  const CompressorOptions& options = call.options;
  const SeqTokens tokens = detail::TokensOf(args, entry.seq);
  const int64_t window = detail::PoolWindow(options), width = args.kv.extent[1];
  const int64_t head_dim = options.overlap ? width / 2 : width;
  const int64_t first = tokens.position + entry.token - tokens.begin - window + 1;
  const int64_t row_end = (std::min)(row_begin + kPoolRows, window);
  chunk->size = chunk->num_state = 0;
  chunk->state_width = width;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t position = first + row;
    if (position < 0 || !OwnsPosition(options.shard, position)) continue;
    const bool is_newer = row >= options.ratio;  // of two series
    const int64_t column = is_newer ? head_dim : 0;
    const int64_t i = chunk->size++;
    if (position < tokens.position) {
      chunk->state[i] = StateRow(args, options.shard, entry.seq, position) + column;
      ++chunk->num_state;
    } else {
      const int64_t token = tokens.begin + position - tokens.position;
      chunk->kv[i] = args.kv.At(token, column);
      chunk->score[i] = args.score.At(token, column);
      chunk->ape[i] = &args.ape(is_newer ? row - options.ratio : row, column);
    }
  }
}

// to = score + ape, as the state keeps it.
inline void AddApe(DType dtype, const std::byte* score, const float* ape, int64_t n, float* to) {
  for (int64_t c = 0; c < n; c += kLanes) {
    const VF s = LoadFirst(dtype, score, c, n - c);
    StoreFirst(hn::Add(s, LoadFirst(ape + c, n - c)), to + c, n - c);
  }
}

// What is subtracted from scores: 0 where there is no score above -inf, since their difference would be NaN.
LATHE_INLINE VF SafeMaximum(VF max) {
  const F32 d;
  const VF lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  return hn::IfThenZeroElse(hn::Eq(max, lowest), max);
}

// exp(a - max).
LATHE_INLINE VF ExpBelow(VF a, VF max) {
  return Exp2(hn::Mul(hn::Sub(a, max), hn::Set(F32(), 1.44269504088896340736f)));
}

template <class T>
LATHE_INLINE void PrefetchAhead(const T* at) {
  PrefetchToL2(reinterpret_cast<const std::byte*>(at) + kPoolAhead);
}

LATHE_INLINE void KeepScore(VF score, float* kept, VF& max) {
  hn::Store(score, F32(), kept);
  max = hn::Max(max, score);
}

LATHE_INLINE void AddRow(const float* score, VF base, VF kv, VF& sum, VF& weighted) {
  const VF p = ExpBelow(hn::Load(F32(), score), base);
  sum = hn::Add(sum, p);
  weighted = hn::MulAdd(p, kv, weighted);
}

// A whole vector, or with kPartial the first n lanes of one.
template <bool kPartial, class T>
LATHE_INLINE VF LoadLanes(int64_t n, const T* from) {
  return kPartial ? LoadFirst(from, n) : LoadFloats(from);
}
template <bool kPartial>
LATHE_INLINE void StoreLanes(int64_t n, VF v, float* to) {
  kPartial ? StoreFirst(v, to, n) : StoreFloats(v, to);
}

// One vector of columns, or with kPartial the first n of one: a chunk's rows join the stats.
template <class Kv, class Score, bool kPartial>
LATHE_INLINE void PoolVector(const PoolChunk& chunk, int64_t column, int64_t n, float* max,
                             float* sum, float* weighted) {
  HWY_ALIGN float scores[kPoolRows * kLanes];
  const VF old_max = LoadLanes<kPartial>(n, max);
  VF new_max = old_max;
  for (int64_t i = 0; i < chunk.num_state; ++i) {
    const float* kv = chunk.state[i] + column;
    PrefetchAhead(kv);
    PrefetchAhead(kv + chunk.state_width);
    KeepScore(LoadLanes<kPartial>(n, kv + chunk.state_width), scores + i * kLanes, new_max);
  }
  for (int64_t i = chunk.num_state; i < chunk.size; ++i) {
    const Score* score = reinterpret_cast<const Score*>(chunk.score[i]) + column;
    PrefetchAhead(reinterpret_cast<const Kv*>(chunk.kv[i]) + column);
    PrefetchAhead(score);
    KeepScore(hn::Add(LoadLanes<kPartial>(n, score), LoadLanes<kPartial>(n, chunk.ape[i] + column)),
              scores + i * kLanes, new_max);
  }

  const VF base = SafeMaximum(new_max);
  const VF factor = ExpBelow(old_max, base);
  VF l = hn::Mul(LoadLanes<kPartial>(n, sum), factor);
  VF y = hn::Mul(LoadLanes<kPartial>(n, weighted), factor);
  for (int64_t i = 0; i < chunk.num_state; ++i) {
    AddRow(scores + i * kLanes, base, LoadLanes<kPartial>(n, chunk.state[i] + column), l, y);
  }
  for (int64_t i = chunk.num_state; i < chunk.size; ++i) {
    AddRow(scores + i * kLanes, base,
           LoadLanes<kPartial>(n, reinterpret_cast<const Kv*>(chunk.kv[i]) + column), l, y);
  }
  StoreLanes<kPartial>(n, new_max, max);
  StoreLanes<kPartial>(n, l, sum);
  StoreLanes<kPartial>(n, y, weighted);
}

// Columns [begin, end); max, sum and weighted are those of the entry.
template <class Kv, class Score>
void PoolRows(const PoolChunk& chunk, int64_t begin, int64_t end, float* max, float* sum,
              float* weighted) {
  int64_t c = begin;
  for (; c + kLanes <= end; c += kLanes) {
    PoolVector<Kv, Score, false>(chunk, c, kLanes, max + c, sum + c, weighted + c);
  }
  if (c < end) PoolVector<Kv, Score, true>(chunk, c, end - c, max + c, sum + c, weighted + c);
}

using PoolRowsFn = void (*)(const PoolChunk& chunk, int64_t begin, int64_t end, float* max,
                            float* sum, float* weighted);
constexpr PoolRowsFn kPoolRowsOf[3][3] = {  // by the DTypes of kv and score
    {PoolRows<float, float>, PoolRows<float, float16>, PoolRows<float, bfloat16>},
    {PoolRows<float16, float>, PoolRows<float16, float16>, PoolRows<float16, bfloat16>},
    {PoolRows<bfloat16, float>, PoolRows<bfloat16, float16>, PoolRows<bfloat16, bfloat16>}};

// Columns [column_begin, column_end) of an entry into a row of stats.
inline void PoolEntry(const CompressCall& call, int64_t entry, int64_t column_begin,
                      int64_t column_end, int64_t stats_row) {
  float *max = &call.stats(stats_row, 0), *sum = &call.stats(stats_row, 1);
  float* weighted = &call.stats(stats_row, 2);
  const int64_t columns = column_end - column_begin;
  std::fill_n(max + column_begin, columns, -std::numeric_limits<float>::infinity());
  std::fill_n(sum + column_begin, columns, 0.0f);
  std::fill_n(weighted + column_begin, columns, 0.0f);
  const CompressorArgs& args = call.args;
  const PoolRowsFn pool_rows =
      kPoolRowsOf[static_cast<size_t>(args.kv.dtype)][static_cast<size_t>(args.score.dtype)];
  PoolChunk chunk;
  const int64_t window = detail::PoolWindow(call.options);
  for (int64_t row = 0; row < window; row += kPoolRows) {
    FindPoolRows(call, call.entries[entry], row, &chunk);
    if (chunk.size > 0) pool_rows(chunk, column_begin, column_end, max, sum, weighted);
  }
}

// The pooled value, 0 where nothing was pooled.
LATHE_INLINE VF Pooled(VF weighted, VF sum) {
  return hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(F32())), hn::Div(weighted, sum));
}

// A pooled row goes where a latent write would take it.
inline void FinishPooled(const RowTransform& transform, int64_t position,
                         const MutablePagedCache& cache, bool power_of_two_scales, int64_t slot,
                         int64_t head_dim, const float* y) {
  LatentWriteArgs write;
  write.kv_c = Packed(y, 1, head_dim);
  write.transform = transform;
  write.positions = Packed(static_cast<const int64_t*>(&position), 1);
  write.slot_mapping = Packed(static_cast<const int64_t*>(&slot), 1);
  write.cache = cache;
  WriteLatents(write, power_of_two_scales, 0, 1);
}

inline void FinishEntry(const CompressCall& call, int64_t entry, int64_t stats_row) {
  const float *sum = &call.stats(stats_row, 1), *weighted = &call.stats(stats_row, 2);
  const int64_t head_dim = call.stats.extent[2];
  HWY_ALIGN float y[kMaxTransformWidth];
  for (int64_t c = 0; c < head_dim; c += kLanes) {
    const int64_t rest = head_dim - c;
    StoreFirst(Pooled(LoadFirst(weighted + c, rest), LoadFirst(sum + c, rest)), y + c, rest);
  }
  const CompressedEntry& e = call.entries[entry];
  const int64_t position = CompressedPosition(call.args.positions(e.token), call.options.ratio);
  FinishPooled(call.args.transform, position, call.args.cache, call.options.power_of_two_scales,
               e.slot, head_dim, y);
}

inline void CompressEntries(const CompressCall& call, int64_t begin, int64_t end,
                            int64_t stats_row) {
  for (int64_t entry = begin; entry < end; ++entry) {
    PoolEntry(call, entry, 0, call.stats.extent[2], stats_row);
    FinishEntry(call, entry, stats_row);
  }
}

inline void PoolColumns(const CompressCall& call, int64_t begin, int64_t end) {
  const int64_t head_dim = call.stats.extent[2];
  const int64_t num_blocks = detail::NumPoolBlocks(head_dim);
  while (begin < end) {
    const int64_t entry = begin / num_blocks, block = begin % num_blocks;
    const int64_t block_end = (std::min)(block + end - begin, num_blocks);
    PoolEntry(call, entry, block * detail::kPoolColumns,
              (std::min)(block_end * detail::kPoolColumns, head_dim), entry);
    begin += block_end - block;
  }
}

inline void FinishEntries(const CompressCall& call, int64_t begin, int64_t end) {
  for (int64_t entry = begin; entry < end; ++entry) FinishEntry(call, entry, entry);
}

// Saves those of tokens [token_begin, token_end) that are this rank's and stay in the state.
inline void SaveStates(const CompressCall& call, int64_t token_begin, int64_t token_end) {
  const CompressorArgs& args = call.args;
  const CompressorOptions& options = call.options;
  const int64_t width = args.kv.extent[1];
  for (int64_t seq = detail::SeqOf(args, token_begin); token_begin < token_end; ++seq) {
    const SeqTokens tokens = detail::TokensOf(args, seq);
    const int64_t first = detail::FirstSavedPosition(args, options, tokens) - tokens.position;
    const int64_t end = (std::min)(tokens.end, token_end);
    for (int64_t token = (std::max)(token_begin, tokens.begin + first); token < end; ++token) {
      const int64_t position = tokens.position + token - tokens.begin;
      if (!OwnsPosition(options.shard, position)) continue;
      float* row = StateRow(args, options.shard, seq, position);
      Convert(args.kv.dtype, args.kv.At(token), DType::kFloat32, reinterpret_cast<std::byte*>(row),
              width);
      AddApe(args.score.dtype, args.score.At(token), &args.ape(position % options.ratio), width,
             row + width);
    }
    token_begin = (std::max)(token_begin, end);
  }
}

// n columns of an entry, pooled over the stats of all parts.
HWY_NOINLINE inline void MergeStats(const CompressedMergeArgs& args, int64_t entry, int64_t n,
                                    float* y) {
  const auto stat = [&](size_t part, int64_t which, int64_t column) {
    return LoadFirst(&args.parts[part](entry, which, column), n - column);
  };
  for (int64_t c = 0; c < n; c += kLanes) {
    VF max = stat(0, 0, c);
    for (size_t part = 1; part < args.num_parts; ++part) max = hn::Max(max, stat(part, 0, c));
    const VF base = SafeMaximum(max);
    const VF factor = ExpBelow(stat(0, 0, c), base);
    VF l = hn::Mul(stat(0, 1, c), factor);
    VF weighted = hn::Mul(stat(0, 2, c), factor);
    for (size_t part = 1; part < args.num_parts; ++part) {
      const VF p = ExpBelow(stat(part, 0, c), base);
      l = hn::MulAdd(p, stat(part, 1, c), l);
      weighted = hn::MulAdd(p, stat(part, 2, c), weighted);
    }
    StoreFirst(Pooled(weighted, l), y + c, n - c);
  }
}

inline void MergeCompressedEntries(const CompressedMergeArgs& args,
                                   const CompressedMergeOptions& options, int64_t begin,
                                   int64_t end) {
  const int64_t head_dim = args.parts[0].extent[2];
  HWY_ALIGN float y[kMaxTransformWidth];
  for (int64_t entry = begin; entry < end; ++entry) {
    const int64_t slot = args.slot_mapping(entry);
    if (slot < 0) continue;
    MergeStats(args, entry, head_dim, y);
    const int64_t position = CompressedPosition(args.positions(entry), options.ratio);
    FinishPooled(args.transform, position, args.cache, options.power_of_two_scales, slot, head_dim,
                 y);
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
