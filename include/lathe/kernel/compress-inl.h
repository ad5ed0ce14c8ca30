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

using detail::CompressCall;
using detail::CompressedEntry;
using detail::SeqTokens;

// 8 rows take as long as 16 (r = 128), 32 longer by a tenth: their pages are more than the first-level TLB holds.
constexpr int64_t kPoolRows = 16;

// Live rows of a chunk, columns of one entry: where overlap has put them. Scores of the state have their ape.
struct PoolChunk {
  DType kv_type[kPoolRows];
  DType score_type[kPoolRows];
  const std::byte* kv[kPoolRows];
  const std::byte* score[kPoolRows];
  const float* ape[kPoolRows];  // null: none is to be added
  int64_t size = 0;
};

LATHE_INLINE const std::byte* ElementAt(const In<2>& v, int64_t row, int64_t column) {
  return v.data + (row * v.stride[0] + column) * static_cast<int64_t>(SizeOf(v.dtype));
}

LATHE_INLINE float* StateRow(const CompressorArgs& args, const ContextShard& shard, int64_t seq,
                             int64_t position) {
  const MutablePagedCache& state = args.state;
  const int64_t slot =
      WindowSlot(args.state_block_table, seq, LocalPosition(shard, position), state.block_size);
  return reinterpret_cast<float*>(state.data + slot / state.block_size * state.block_stride +
                                  slot % state.block_size * state.row_stride);
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
  chunk->size = 0;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t position = first + row;
    if (position < 0 || !OwnsPosition(options.shard, position)) continue;
    const int64_t column = options.overlap && row >= options.ratio ? head_dim : 0;
    const int64_t i = chunk->size++;
    if (position < tokens.position) {
      const float* state = StateRow(args, options.shard, entry.seq, position) + column;
      chunk->kv_type[i] = chunk->score_type[i] = DType::kFloat32;
      chunk->kv[i] = reinterpret_cast<const std::byte*>(state);
      chunk->score[i] = reinterpret_cast<const std::byte*>(state + width);
      chunk->ape[i] = nullptr;
    } else {
      const int64_t token = tokens.begin + position - tokens.position;
      chunk->kv_type[i] = args.kv.dtype;
      chunk->score_type[i] = args.score.dtype;
      chunk->kv[i] = ElementAt(args.kv, token, column);
      chunk->score[i] = ElementAt(args.score, token, column);
      chunk->ape[i] = args.ape.data + row % options.ratio * args.ape.stride[0] + column;
    }
  }
}

// to = score + ape, as the state keeps it.
inline void AddApe(DType dtype, const std::byte* score, const float* ape, int64_t column, int64_t n,
                   float* to) {
  for (int64_t c = 0; c < n; c += kLanes) {
    const VF s = LoadFirst(dtype, score, column + c, n - c);
    StoreFirst(hn::Add(s, LoadFirst(ape + column + c, n - c)), to + c, n - c);
  }
}

// Columns of a chunk as floats: in place where they are, else converted.
struct PoolTile {
  HWY_ALIGN float converted[2][kPoolRows][detail::kPoolColumns];
  const float* kv[kPoolRows];
  const float* score[kPoolRows];
};

inline void LoadTile(const PoolChunk& chunk, int64_t column, int64_t n, PoolTile* tile) {
  for (int64_t i = 0; i < chunk.size; ++i) {
    tile->kv[i] = reinterpret_cast<const float*>(chunk.kv[i]) + column;
    if (chunk.kv_type[i] != DType::kFloat32) {
      float* to = tile->converted[0][i];
      Convert(chunk.kv_type[i],
              chunk.kv[i] + column * static_cast<int64_t>(SizeOf(chunk.kv_type[i])),
              DType::kFloat32, reinterpret_cast<std::byte*>(to), n);
      tile->kv[i] = to;
    }
    tile->score[i] = reinterpret_cast<const float*>(chunk.score[i]) + column;
    if (chunk.ape[i] != nullptr) {
      float* to = tile->converted[1][i];
      AddApe(chunk.score_type[i], chunk.score[i], chunk.ape[i], column, n, to);
      tile->score[i] = to;
    }
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

// A tile's rows join the stats of n columns. Out of line: its bits must not depend on the caller.
HWY_NOINLINE inline void PoolTileRows(const PoolTile& tile, int64_t num_rows, int64_t n, float* max,
                                      float* sum, float* weighted) {
  for (int64_t c = 0; c < n; c += kLanes) {
    const int64_t rest = n - c;
    const VF old_max = LoadFirst(max + c, rest);
    VF new_max = old_max;
    for (int64_t i = 0; i < num_rows; ++i) {
      new_max = hn::Max(new_max, LoadFirst(tile.score[i] + c, rest));
    }
    const VF base = SafeMaximum(new_max);
    const VF factor = ExpBelow(old_max, base);
    VF l = hn::Mul(LoadFirst(sum + c, rest), factor);
    VF y = hn::Mul(LoadFirst(weighted + c, rest), factor);
    for (int64_t i = 0; i < num_rows; ++i) {
      const VF p = ExpBelow(LoadFirst(tile.score[i] + c, rest), base);
      l = hn::Add(l, p);
      y = hn::MulAdd(p, LoadFirst(tile.kv[i] + c, rest), y);
    }
    StoreFirst(new_max, max + c, rest);
    StoreFirst(l, sum + c, rest);
    StoreFirst(y, weighted + c, rest);
  }
}

// Columns [column_begin, column_end) of an entry into a row of stats.
inline void PoolEntry(const CompressCall& call, int64_t entry, int64_t column_begin,
                      int64_t column_end, int64_t stats_row) {
  float* max = call.stats.data + stats_row * call.stats.stride[0];
  float* sum = max + call.stats.stride[1];
  float* weighted = sum + call.stats.stride[1];
  const int64_t columns = column_end - column_begin;
  std::fill_n(max + column_begin, columns, -std::numeric_limits<float>::infinity());
  std::fill_n(sum + column_begin, columns, 0.0f);
  std::fill_n(weighted + column_begin, columns, 0.0f);
  PoolChunk chunk;
  PoolTile tile;
  const int64_t window = detail::PoolWindow(call.options);
  for (int64_t row = 0; row < window; row += kPoolRows) {
    FindPoolRows(call, call.entries[entry], row, &chunk);
    if (chunk.size == 0) continue;
    for (int64_t c = column_begin; c < column_end; c += detail::kPoolColumns) {
      const int64_t n = (std::min)(detail::kPoolColumns, column_end - c);
      LoadTile(chunk, c, n, &tile);
      PoolTileRows(tile, chunk.size, n, max + c, sum + c, weighted + c);
    }
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
  const float* sum = call.stats.data + stats_row * call.stats.stride[0] + call.stats.stride[1];
  const int64_t head_dim = call.stats.extent[2];
  HWY_ALIGN float y[kMaxTransformWidth];
  const float* weighted = sum + call.stats.stride[1];
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

// Of tokens [token_begin, token_end), those rows of this rank that stay in the state.
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
      Convert(args.kv.dtype, ElementAt(args.kv, token, 0), DType::kFloat32,
              reinterpret_cast<std::byte*>(row), width);
      AddApe(args.score.dtype, ElementAt(args.score, token, 0),
             args.ape.data + position % options.ratio * args.ape.stride[0], 0, width, row + width);
    }
    token_begin = (std::max)(token_begin, end);
  }
}

// n columns of an entry, pooled over the stats of all parts.
HWY_NOINLINE inline void MergeStats(const CompressedMergeArgs& args, int64_t entry, int64_t n,
                                    float* y) {
  const auto stat = [&](size_t part, int64_t which, int64_t column) {
    const View<const float, 3>& v = args.parts[part];
    return LoadFirst(v.data + entry * v.stride[0] + which * v.stride[1] + column, n - column);
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
