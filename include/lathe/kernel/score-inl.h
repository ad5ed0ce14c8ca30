// SPDX-License-Identifier: Apache-2.0
// Scores: S^T[token][row] = <query row, key row>, unscaled, float32.
//
// Lanes are query rows. The query is packed once per task into words [word][row]; a key's word is
// broadcast from the cache row, so keys are never packed, moved or transposed, and nothing is summed
// across lanes:
//
//     key row t:   | k0 | k1 | k2 | ...            acc[t] += broadcast(k_w) . q[w]
//     packed q:    | q0 of rows 0..15 | q1 of rows 0..15 | ...
//
// Rows left over when whole vectors are filled share a vector with 2 or 4 consecutive words each (lanes =
// rows x words, 64- or 128-bit broadcasts, neighbours added at the end), so that odd head counts waste
// at most a quarter of a vector. 8 tokens x 2 vectors (6 x 2 with 16 registers) keep 16 (12) independent
// sums, enough to cover the latency of 6 cycles at two products a cycle, and need 0.63 loads a product.
// Lanes = tokens lost: it transposes every key (64 shuffles per 16 x 32 block) for the same products.

// Words advanced per iteration, and what a row that is read in place must be a multiple of.
constexpr int64_t kScoreWords = 8;
constexpr int kScoreTokens = kRegisters == 32 ? 8 : 6;

// `kVectors` vectors of rows, each row `kWords` neighbouring lanes wide.
struct RowGroup {
  int vectors;
  int words;
  int64_t rows() const { return vectors * kLanes / words; }
};

// The group that the next rows go to when `left` of them remain.
LATHE_INLINE RowGroup NextGroup(int64_t left) {
  if (left > 2 * kLanes - kLanes / 4) return {2, 1};
  if (left > kLanes * 3 / 4 || kLanes < 2) return {1, 1};
  if (left > kLanes / 4 || kLanes < 4) return {1, 2};
  return {1, 4};
}

// Packs the rows of a group, `stride` words apart, into [words / group.words][row][group.words]. A few
// words of all rows at a time: word by word through one row touches more lines than L1 holds.
inline void PackGroup(const uint32_t* HWY_RESTRICT rows, int64_t stride, int64_t words,
                      RowGroup group, uint32_t* HWY_RESTRICT packed) {
  const int64_t lanes = group.vectors * kLanes;
  for (int64_t begin = 0; begin < words; begin += kScoreWords) {
    uint32_t* to = packed + begin / group.words * lanes;
    for (int64_t row = 0; row < group.rows(); ++row, to += group.words) {
      const uint32_t* from = rows + row * stride + begin;
      for (int64_t w = 0; w < kScoreWords; ++w) {
        to[w / group.words * lanes + w % group.words] = from[w];
      }
    }
  }
}

// 2 or 4 words, over and over.
template <int kWords>
LATHE_INLINE VU BroadcastWords(const std::byte* from) {
  if constexpr (kWords == 2) {
    uint64_t words;
    std::memcpy(&words, from, sizeof(words));
    return hn::BitCast(U32(), hn::Set(hn::Repartition<uint64_t, U32>(), words));
  } else {
    return hn::LoadDup128(U32(), reinterpret_cast<const uint32_t*>(from));
  }
}

// Sums of neighbouring lanes: those of x, then those of y.
LATHE_INLINE VF AddNeighbours(VF x, VF y) {
  return hn::Add(hn::ConcatEven(F32(), y, x), hn::ConcatOdd(F32(), y, x));
}

// Stores the sums of kTokens tokens: vector v of row group at s + v * kLanes, tokens s_stride apart.
template <int kTokens, int kVectors, int kWords>
LATHE_INLINE void StoreScores(const VF (&acc)[kTokens][2], float* s, int64_t s_stride) {
  const F32 d;
  if constexpr (kVectors == 2) {
    LATHE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      hn::StoreU(acc[t][0], d, s + t * s_stride);
      hn::StoreU(acc[t][1], d, s + t * s_stride + kLanes);
    }
  } else if constexpr (kWords == 1) {
    LATHE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      hn::StoreU(hn::Add(acc[t][0], acc[t][1]), d, s + t * s_stride);
    }
  } else {
    constexpr int64_t kRows = kLanes / kWords;
    HWY_ALIGN float sums[kLanes];
    LATHE_UNROLL
    for (int t = 0; t < kTokens; t += kWords) {
      VF sum[4];
      LATHE_UNROLL
      for (int j = 0; j < kWords; ++j) {
        const int token = t + j < kTokens ? t + j : kTokens - 1;
        sum[j] = hn::Add(acc[token][0], acc[token][1]);
      }
      VF all = AddNeighbours(sum[0], sum[1]);
      if constexpr (kWords == 4) all = AddNeighbours(all, AddNeighbours(sum[2], sum[3]));
      hn::Store(all, d, sums);
      LATHE_UNROLL
      for (int j = 0; j < kWords; ++j) {
        if (t + j < kTokens)
          std::memcpy(s + (t + j) * s_stride, sums + j * kRows, sizeof(float) * kRows);
      }
    }
  }
}

// Four words of kTokens keys times those of one or two vectors of rows. One vector has two sums, of even and
// odd words, so that there are enough of them.
template <class A, int kTokens, int kVectors>
LATHE_INLINE void ScoreFourWords(const std::byte* const (&k)[kTokens], int64_t at,
                                 const uint32_t* HWY_RESTRICT q, VF (&acc)[kTokens][2]) {
  const U32 du;
  LATHE_UNROLL
  for (int w = 0; w < 4; ++w) {
    const VU q0 = hn::Load(du, q + w * kVectors * kLanes);
    const VU q1 = hn::Load(du, q + (w * kVectors + kVectors - 1) * kLanes);
    LATHE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const FourWords words(k[t] + at);
      if constexpr (kVectors == 2) {
        acc[t][0] = words.template MulAdd<A>(q0, w, acc[t][0]);
        acc[t][1] = words.template MulAdd<A>(q1, w, acc[t][1]);
      } else {
        acc[t][w % 2] = words.template MulAdd<A>(q0, w, acc[t][w % 2]);
      }
    }
  }
}

// One group of query rows against kTokens keys. With kPrefetch the same places of the next tile's rows
// are fetched in the order in which they will be read.
template <class A, int kTokens, int kVectors, int kWords, bool kPrefetch>
LATHE_INLINE void ScoreTokens(const std::byte* const* rows, const std::byte* const* next,
                              const uint32_t* HWY_RESTRICT q, int64_t words, float* s,
                              int64_t s_stride) {
  const U32 du;
  const std::byte* k[kTokens];
  VF acc[kTokens][2];
  LATHE_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    k[t] = rows[t];
    acc[t][0] = acc[t][1] = hn::Zero(F32());
  }
  constexpr int64_t kBytes = kScoreWords * static_cast<int64_t>(sizeof(uint32_t));
  for (int64_t at = 0; at < words * 4; at += kBytes) {
    if constexpr (kPrefetch) {
      constexpr int kHalf = (kTokens + 1) / 2;
      const std::byte* const* half = next + (at / kBytes % 2) * (kTokens / 2);
      LATHE_UNROLL
      for (int j = 0; j < kHalf; ++j) PrefetchToL2(half[j] + at);
    }
    if constexpr (kWords == 1) {
      LATHE_UNROLL
      for (int w = 0; w < static_cast<int>(kScoreWords); w += 4) {
        ScoreFourWords<A, kTokens, kVectors>(k, at + w * 4, q, acc);
        q += 4 * kVectors * kLanes;
      }
    } else {
      LATHE_UNROLL
      for (int w = 0; w < static_cast<int>(kScoreWords); w += kWords) {
        const VU q0 = hn::Load(du, q);
        q += kLanes;
        LATHE_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          VF& sum = acc[t][w / kWords % 2];
          sum = A::MulAdd(q0, BroadcastWords<kWords>(k[t] + at + w * 4), sum);
        }
      }
    }
  }
  StoreScores<kTokens, kVectors, kWords>(acc, s, s_stride);
}

template <class A, int kTokens, bool kPrefetch>
LATHE_INLINE void ScoreGroup(RowGroup group, const std::byte* const* rows,
                             const std::byte* const* next, const uint32_t* q, int64_t words,
                             float* s, int64_t s_stride) {
  if (group.vectors == 2) {
    ScoreTokens<A, kTokens, 2, 1, kPrefetch>(rows, next, q, words, s, s_stride);
  } else if (group.words == 1) {
    ScoreTokens<A, kTokens, 1, 1, kPrefetch>(rows, next, q, words, s, s_stride);
  } else if constexpr (kLanes >= 2) {
    if (group.words == 2) {
      ScoreTokens<A, kTokens, 1, 2, kPrefetch>(rows, next, q, words, s, s_stride);
    } else if constexpr (kLanes >= 4) {
      ScoreTokens<A, kTokens, 1, 4, kPrefetch>(rows, next, q, words, s, s_stride);
    }
  }
}

// All groups against kTokens keys; the first group alone prefetches.
template <class A, int kTokens>
HWY_NOINLINE void ScoreStep(const std::byte* const* rows, const std::byte* const* next,
                            const uint32_t* q, int64_t words, int64_t num_rows, float* s,
                            int64_t s_stride) {
  int64_t row = 0;
  while (row < num_rows) {
    const RowGroup group = NextGroup(num_rows - row);
    if (row == 0 && next != nullptr) {
      ScoreGroup<A, kTokens, true>(group, rows, next, q, words, s, s_stride);
    } else {
      ScoreGroup<A, kTokens, false>(group, rows, next, q, words, s + row, s_stride);
    }
    row += group.rows();
    q += words / group.words * group.vectors * kLanes;
  }
}
