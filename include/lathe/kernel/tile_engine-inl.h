// SPDX-License-Identifier: Apache-2.0
// TileEngine: scores and P x V on the tile unit (AMX), under a tile policy of arch/x86_amx.h.
//
//   scores  S^T [token][row]  = K x Q^T
//     A: 16 rows of the cache as they lie, wherever 16 addresses have one stride (pages of 16 and
//        more); else a copy of them
//     B: the query, packed once a task:            [row tile][step][pair][row]
//   P x V   O [row][column]  += P x V
//     A: P transposed, once a group of rows:       [row tile][step][row][pair]
//     B: token pairs of V, once a tile of keys:    [column tile][step][pair][column]
//     Twice the keys a tile of other engines, since O (256 KiB for 128 rows) is read and written once a tile
//
// Groups of 32 rows outside, keys inside: the queries, S and P of a group stay in L1, which keys pass by
// (LoadStreamed). In L2, on Sapphire Rapids, the products of 256 keys and 128 rows take 16.5 us for the scores and
// 17.8 for P x V; with keys outside, 20.8 and 19.1. Softmax, masks, folding and the column order of O (that of
// interleaving inside 128-bit blocks) are those of the bf16 dot engine.

template <class Tile>
class TileEngine {
 public:
  using Arithmetic = BFloat16Arithmetic;
  using Element = bfloat16;
  static constexpr int64_t kTileKeys = kMaxTileKeys;
  static constexpr int64_t kGroupRows = 2 * kTileRows;

  // Tiles belong to a thread and hold nothing between tasks: what a caller or another library has
  // set up is neither used nor, by design of the instruction set, kept. On return there are none.
  struct Session {
    Session() { Tile::Configure(arch::kWholeTiles); }
    ~Session() { Tile::Release(); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
  };

  // Whole tiles everywhere: S and O have room for the rows that pad the last one.
  static int64_t PaddedRows(int64_t rows) { return RoundUp(rows, kTileRows); }
  static int64_t OutputRows(int64_t rows) { return RoundUp(rows, kTileRows); }

  TileEngine(Arena& arena, int64_t qk_dim, int64_t v_dim, int64_t max_rows) {
    const int64_t rows = PaddedRows(max_rows);
    const int64_t width = RowSource<Arithmetic>::PaddedWidth(qk_dim);
    const auto take = [&arena](int64_t words) {
      return arena.Take<uint32_t>(static_cast<size_t>(words));
    };
    q_ = take(rows * width / 2);
    weights_ = take(kGroupRows * kTileKeys / 2);
    values_ = take(detail::PartialColumns(v_dim) * kTileKeys / 2);
    keys_ = arena.Take<Element>(static_cast<size_t>(kTileKeys * width));
    width_ = width;
  }

  // As RegisterEngine::Pack.
  template <class LoadRow>
  void Pack(int64_t num_rows, int64_t words, Element* staging, const LoadRow& load) {
    row_tiles_ = PaddedRows(num_rows) / kTileRows;
    row_bytes_ = words * static_cast<int64_t>(sizeof(uint32_t));
    steps_ = RoundUp(words, kTileColumns) / kTileColumns;
    const int64_t padded_words = steps_ * kTileColumns;
    for (int64_t tile = 0; tile < row_tiles_; ++tile) {
      for (int64_t i = 0; i < kTileRows; ++i) {
        Element* query = staging + i * width_;
        const int64_t row = tile * kTileRows + i;
        if (row < num_rows) {
          load(row, query);
        } else {
          std::memset(query, 0, static_cast<size_t>(width_) * sizeof(Element));
        }
      }
      uint32_t* to = q_ + tile * padded_words * kTileRows;
      PackGroup(reinterpret_cast<const uint32_t*>(staging), width_ / 2, words, kTileGroup, to);
      std::memset(to + words * kTileRows, 0,
                  static_cast<size_t>((padded_words - words) * kTileRows) * sizeof(uint32_t));
    }
    // The columns of padding of copied rows.
    for (int64_t t = 0; t < kTileKeys; ++t) {
      std::memset(keys_ + t * width_ + words * 2, 0,
                  static_cast<size_t>(padded_words - words) * sizeof(uint32_t));
    }
  }

  void StartTile(const RowSource<Arithmetic>& source, const KeyTile& tile, const KeyTile& next) {
    fetcher_ = {};
    if (source.keys_in_place()) Fetch(next, tile.count);
    for (int64_t t = 0; t < tile.count; t += kTileRows) runs_[t / kTileRows] = KeyRun(tile.rows, t);
    source.FetchValues(next, 0, tile.count);
  }

  // Token pairs, columns in the order of O.
  void LoadValues(const KeyTile& tile, int64_t tokens, int64_t v_columns) const {
    const int64_t steps = NumSteps(tokens);
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t c = 0; c < v_columns; c += kValueColumns) {
        for (int64_t pair = 0; pair < kTileRows; ++pair) {
          VU x[kValueVectors];
          Arithmetic::LoadValues<bfloat16>(tile.values + 2 * (step * kTileRows + pair), c, x);
          LATHE_UNROLL
          for (int j = 0; j < kValueVectors; ++j) {
            const int64_t at = c + j * kLanes;
            uint32_t* to = values_ + (at / kTileColumns * steps + step) * kTileWords;
            hn::Store(x[j], U32(), to + pair * kTileColumns + at % kTileColumns);
          }
        }
      }
    }
  }

  // Scores up to 15 rows more than the tile has: they are zeros.
  void Score(const RowSource<Arithmetic>&, const KeyTile& tile, const KeyTile&, int64_t row,
             float* s, int64_t s_stride) {
    const int64_t num_key_tiles = RoundUp(tile.count, kTileRows) / kTileRows;
    const int64_t row_tile = row / kTileRows;
    const bool is_pair = row_tile + 1 < row_tiles_;
    for (int64_t k = 0; k < num_key_tiles;) {
      const int64_t left = num_key_tiles - k;
      float* to = s + k * kTileRows * s_stride;
      // One tile of rows shares its load of Q among four of keys; otherwise it is 2 x 2.
      const int64_t n = !is_pair && left >= 4 ? 4 : left >= 2 ? 2 : 1;
      if (n == 4) {
        ScoreTiles<4, 1>(row_tile, runs_ + k, to, s_stride);
      } else if (n == 2) {
        is_pair ? ScoreTiles<2, 2>(row_tile, runs_ + k, to, s_stride)
                : ScoreTiles<2, 1>(row_tile, runs_ + k, to, s_stride);
      } else {
        is_pair ? ScoreTiles<1, 2>(row_tile, runs_ + k, to, s_stride)
                : ScoreTiles<1, 1>(row_tile, runs_ + k, to, s_stride);
      }
      k += n;
    }
  }

  // As RegisterEngine::Accumulate, of what LoadValues has read. The sums of padding rows are finite or NaN, and
  // never used.
  void Accumulate(DType, Carry carry, const KeyTile&, int64_t tokens, int64_t v_columns,
                  int64_t row, const uint32_t* p, int64_t p_stride, float* o, int64_t o_stride,
                  const float* alpha) {
    const int64_t steps = NumSteps(tokens);
    const int64_t num_tiles = (std::min)(row_tiles_ - row / kTileRows, kGroupRows / kTileRows);
    TransposeWeights(p, p_stride, tokens / 2, steps, num_tiles);
    for (int64_t column = 0; column < v_columns; column += kSliceColumns) {
      if (carry == Carry::kRescale) Rescale(o + column, o_stride, alpha, num_tiles * kTileRows);
      if (carry == Carry::kNone) {
        AccumulateSlice<false>(num_tiles, column, steps, o + column, o_stride);
      } else {
        AccumulateSlice<true>(num_tiles, column, steps, o + column, o_stride);
      }
    }
  }

 private:
  static constexpr int64_t kSliceColumns = 64;  // what v_columns is a multiple of
  static constexpr int64_t kSliceTiles = kSliceColumns / kTileColumns;
  static constexpr RowGroup kTileGroup = {static_cast<int>(kTileRows / kLanes), 1};
  static_assert(kTileKeys % kTileElements == 0, "a tile of keys is whole steps of P x V");
  static_assert(kSliceColumns % kValueColumns == 0);

  static int64_t NumSteps(int64_t tokens) { return RoundUp(tokens, kTileElements) / kTileElements; }

  // Rows [t, t + 16) as they lie, or a copy of them.
  TileRun KeyRun(const std::byte* const* tile_rows, int64_t t) const {
    const std::byte* const* rows = tile_rows + t;
    const auto address = [rows](int64_t i) { return reinterpret_cast<intptr_t>(rows[i]); };
    const int64_t stride = address(1) - address(0);
    bool is_in_place = row_bytes_ % arch::kTileRowBytes == 0;
    for (int64_t i = 2; i < kTileRows; ++i) {
      is_in_place = is_in_place && address(i) - address(i - 1) == stride;
    }
    if (is_in_place) return {rows[0], stride};
    Element* copy = keys_ + t * width_;
    for (int64_t i = 0; i < kTileRows; ++i) {
      std::memcpy(copy + i * width_, rows[i], static_cast<size_t>(row_bytes_));
    }
    return {reinterpret_cast<const std::byte*>(copy),
            width_ * static_cast<int64_t>(sizeof(Element))};
  }

  // Deals the lines of `next` out over the steps that `count` keys will take.
  void Fetch(const KeyTile& next, int64_t count) {
    const int64_t row_pairs = (row_tiles_ + 1) / 2;
    const int64_t key_tiles = (count + kTileRows - 1) / kTileRows;
    const int64_t score_steps = (key_tiles + 1) / 2 * row_pairs * steps_;
    const int64_t value_steps = (key_tiles + 1) / 2 * row_pairs * (width_ / kSliceColumns) * 2;
    const int64_t steps = score_steps + value_steps;
    fetcher_.row = next.rows;
    fetcher_.end = next.rows + next.count;
    fetcher_.row_bytes = row_bytes_;
    fetcher_.lines_per_step = (next.count * ((row_bytes_ + 63) / 64) + steps - 1) / steps;
  }

  template <int kA, int kB>
  LATHE_INLINE void ScoreTiles(int64_t row_tile, const TileRun* keys, float* s, int64_t s_stride) {
    const auto* q = reinterpret_cast<const std::byte*>(q_ + row_tile * steps_ * kTileWords);
    MultiplyTiles<Tile, kA, kB, arch::kTileRowBytes, true, false>(keys, q, steps_, s, s_stride,
                                                                  fetcher_);
  }

  template <bool kHasSums>
  void AccumulateSlice(int64_t num_tiles, int64_t column, int64_t steps, float* o,
                       int64_t o_stride) {
    const int64_t run = steps * kTileWords;
    const TileRun a[2] = {
        {reinterpret_cast<const std::byte*>(weights_), arch::kTileRowBytes},
        {reinterpret_cast<const std::byte*>(weights_ + run), arch::kTileRowBytes}};
    const auto* b = reinterpret_cast<const std::byte*>(values_ + column / kTileColumns * run);
    if (num_tiles == 1) {
      return MultiplyTiles<Tile, 1, kSliceTiles, kTileBytes, false, kHasSums>(a, b, steps, o,
                                                                              o_stride, fetcher_);
    }
    for (int64_t j = 0; j < kSliceTiles; j += 2) {
      MultiplyTiles<Tile, 2, 2, kTileBytes, false, kHasSums>(
          a, b + j * steps * kTileBytes, steps, o + j * kTileColumns, o_stride, fetcher_);
    }
  }

  // From [pair][row]; pairs past the last become weights of 0.
  void TransposeWeights(const uint32_t* p, int64_t p_stride, int64_t num_pairs, int64_t steps,
                        int64_t num_tiles) const {
    uint32_t* to = weights_;
    for (int64_t row_tile = 0; row_tile < num_tiles; ++row_tile) {
      for (int64_t step = 0; step < steps; ++step, to += kTileWords) {
        const int64_t pair = step * kTileRows;
        TransposeTile(p + pair * p_stride + row_tile * kTileRows, p_stride,
                      (std::min)(num_pairs - pair, kTileRows), to);
      }
    }
  }

  // Most maxima stay where they are after a few tiles, so most rows are left alone.
  static void Rescale(float* o, int64_t o_stride, const float* alpha, int64_t num_rows) {
    const F32 d;
    for (int64_t r = 0; r < num_rows; ++r) {
      if (alpha[r] == 1.0f) continue;
      const VF factor = hn::Set(d, alpha[r]);
      float* row = o + r * o_stride;
      for (int64_t c = 0; c < kSliceColumns; c += kLanes) {
        hn::Store(hn::Mul(hn::Load(d, row + c), factor), d, row + c);
      }
    }
  }

  uint32_t* q_;
  uint32_t* weights_;
  uint32_t* values_;
  Element* keys_;
  TileRun runs_[kTileKeys / kTileRows];  // of the tile's keys
  LineFetcher fetcher_;
  int64_t width_;
  int64_t row_tiles_ = 0;
  int64_t row_bytes_ = 0;
  int64_t steps_ = 0;
};
