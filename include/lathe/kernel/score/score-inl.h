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
// More words for one or two rows are faster in cache (0.134 instead of 0.187 ms, 4096 keys) and slower out of memory
// (2.85 instead of 2.24 ms, 32768 keys): they fetch too fast, and the CPU drops what it has no buffers for.
// Lanes = tokens lost: it transposes every key (64 shuffles per 16 x 32 block) for the same products.
#if defined(LATHE_KERNEL_SCORE_SCORE_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_SCORE_SCORE_INL_H_
#undef LATHE_KERNEL_SCORE_SCORE_INL_H_
#else
#define LATHE_KERNEL_SCORE_SCORE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lathe/kernel/score/four_words-inl.h"
#include "lathe/kernel/score/key_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// `kVectors` vectors of rows, each row `kWords` neighbouring lanes wide.
struct RowGroup {
  int vectors;
  int words;
  constexpr int64_t rows() const { return vectors * kLanes / words; }
  constexpr bool operator==(const RowGroup& other) const {
    return vectors == other.vectors && words == other.words;
  }
};

// The group that the next rows go to when `left` of them remain.
LATHE_INLINE RowGroup NextGroup(int64_t left) {
  if (left > 2 * kLanes - kLanes / 4) return {2, 1};
  if (left > kLanes * 3 / 4) return {1, 1};
  if (left > kLanes / 4) return {1, 2};
  return {1, 4};
}

// The groups that a block of rows is scored in. Groups of another kind sum in another order, so a row's kind is that of
// its head among all heads of a token, whatever rows are at hand; neighbours of one kind share groups.
class RowGroups {
 public:
  RowGroups() = default;
  // Of `num_rows` rows, the first of which is head `head` of `num_heads`.
  RowGroups(int64_t head, int64_t num_rows, int64_t num_heads) : num_rows_(num_rows) {
    int num_kinds = 0;
    for (int64_t at = 0; at < num_heads;) {
      const RowGroup group = NextGroup(num_heads - at);
      if (num_kinds == 0 || !(kinds_[num_kinds - 1].group == group)) {
        kinds_[num_kinds++] = {group, at, at, 0};
      }
      at += group.rows();
      kinds_[num_kinds - 1].end = (std::min)(at, num_heads);
    }
    for (int kind = 0; kind < num_kinds; ++kind) kinds_[kind].next = (kind + 1) % num_kinds;
    while (first_ + 1 < num_kinds && head >= kinds_[first_].end) ++first_;
    first_head_ = head;
    ForEach([this](const RowGroup& group, int64_t row) { num_scored_ = row + group.rows(); });
  }

  const RowGroup& first() const { return kinds_[first_].group; }

  // f(RowGroup, its first row); a group has rows that the next one scores again, or that are nobody's.
  template <class F>
  LATHE_INLINE void ForEach(const F& f) const {
    const Kind* kind = &kinds_[first_];
    int64_t head = first_head_;
    for (int64_t row = 0; row < num_rows_;) {
      const bool is_only_kind = kind->next == 0 && kind == kinds_;
      const int64_t left = num_rows_ - row;
      const int64_t run_end = row + (is_only_kind ? left : (std::min)(left, kind->end - head));
      for (; row < run_end; row += kind->group.rows()) f(kind->group, row);
      row = run_end;
      kind = &kinds_[kind->next];
      head = kind->begin;
    }
  }

  // Rows that there are scores of.
  int64_t num_scored() const { return num_scored_; }
  // At most that, for any block of `max_rows` rows, and the rows that its groups have room for.
  static constexpr int64_t MaxScored(int64_t max_rows) { return max_rows + 2 * kLanes - 1; }
  static constexpr int64_t MaxPacked(int64_t max_rows) { return 2 * max_rows + 2 * kLanes; }

 private:
  struct Kind {
    RowGroup group;
    int64_t begin;  // heads
    int64_t end;
    int next;
  };

  Kind kinds_[4] = {};
  int first_ = 0;
  int64_t first_head_ = 0;
  int64_t num_rows_ = 0;
  int64_t num_scored_ = 0;
};

// 4 x 4 words transposed.
LATHE_INLINE void TransposeWords4(const uint32_t* HWY_RESTRICT from, int64_t from_stride,
                                  uint32_t* HWY_RESTRICT to, int64_t to_stride) {
  const hn::FixedTag<uint32_t, 4> d;
  const hn::Repartition<uint64_t, decltype(d)> d64;
  const auto row0 = hn::LoadU(d, from), row1 = hn::LoadU(d, from + from_stride);
  const auto row2 = hn::LoadU(d, from + 2 * from_stride);
  const auto row3 = hn::LoadU(d, from + 3 * from_stride);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, row0, row1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, row2, row3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, row0, row1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, row2, row3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, to + 3 * to_stride);
}

// Packs the rows of a group, `stride` words apart, into [words / group.words][row][group.words]. A few
// words of all rows at a time: word by word through one row touches more lines than L1 holds.
inline void PackGroup(const uint32_t* HWY_RESTRICT rows, int64_t stride, int64_t words,
                      RowGroup group, uint32_t* HWY_RESTRICT packed) {
  const int64_t lanes = group.vectors * kLanes;
  for (int64_t begin = 0; begin < words; begin += kScoreWords) {
    uint32_t* to = packed + begin / group.words * lanes;
    int64_t row = 0;
    for (; group.words == 1 && row < lanes; row += 4, to += 4) {
      const uint32_t* from = rows + row * stride + begin;
      for (int64_t w = 0; w < kScoreWords; w += 4) {
        TransposeWords4(from + w, stride, to + w * lanes, lanes);
      }
    }
    for (; row < group.rows(); ++row, to += group.words) {
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

// What becomes of a group's scores is the sink's business, which gets them in registers:
//
//   sink.template Take<kTokens, kVectors, kWords>(acc, row)
//
// acc[t][0] and acc[t][1] are the sums of token t: of the first and the second kLanes rows from `row` on
// if kVectors is 2, else two halves of one vector of sums, whose kWords neighbours belong to one row.

// The sums over kCount neighbouring lanes of kCount vectors: those of the first vector, of the second, ...
template <int kCount>
LATHE_INLINE VF SumsOf(const VF* v) {
  if constexpr (kCount == 1) {
    return v[0];
  } else {
    return AddNeighbours(SumsOf<kCount / 2>(v), SumsOf<kCount / 2>(v + kCount / 2));
  }
}

// Adds up the halves of kTokens tokens, kWords of them side by side: f(t, sums) gets the kLanes / kWords
// rows of token t, `sums` in memory.
template <int kTokens, int kWords, class F>
LATHE_INLINE void ForEachNarrow(const VF (&acc)[kTokens][2], const F& f) {
  constexpr int64_t kRows = kLanes / kWords;
  HWY_ALIGN float sums[kLanes];
  LATHE_UNROLL
  for (int t = 0; t < kTokens; t += kWords) {
    VF sum[kWords];
    LATHE_UNROLL
    for (int j = 0; j < kWords; ++j) {
      const int token = t + j < kTokens ? t + j : kTokens - 1;
      sum[j] = hn::Add(acc[token][0], acc[token][1]);
    }
    hn::Store(SumsOf<kWords>(sum), F32(), sums);
    LATHE_UNROLL
    for (int j = 0; j < kWords; ++j) {
      if (t + j < kTokens) f(t + j, sums + j * kRows);
    }
  }
}

// Four words of kTokens keys times those of one or two vectors of rows. One vector has two sums, of even and
// odd words, so that there are enough of them.
template <class A, int kTokens, int kVectors, class Keys>
LATHE_INLINE void ScoreFourWords(const Keys& keys, int64_t word, const uint32_t* HWY_RESTRICT q,
                                 VF (&acc)[kTokens][2]) {
  const U32 du;
  LATHE_UNROLL
  for (int w = 0; w < 4; ++w) {
    const VU q0 = hn::Load(du, q + w * kVectors * kLanes);
    const VU q1 = hn::Load(du, q + (w * kVectors + kVectors - 1) * kLanes);
    LATHE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const FourWords words(keys.At(t, word));
      if constexpr (kVectors == 2) {
        acc[t][0] = words.template MulAdd<A>(q0, w, acc[t][0]);
        acc[t][1] = words.template MulAdd<A>(q1, w, acc[t][1]);
      } else {
        acc[t][w % 2] = words.template MulAdd<A>(q0, w, acc[t][w % 2]);
      }
    }
  }
}

// Stores S^T: row r of token t at s + t * stride + r.
struct StoreScores {
  float* s;
  int64_t stride;

  template <int kTokens, int kVectors, int kWords>
  LATHE_INLINE void Take(const VF (&acc)[kTokens][2], int64_t row) const {
    const F32 d;
    float* to = s + row;
    if constexpr (kVectors == 2) {
      LATHE_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        hn::StoreU(acc[t][0], d, to + t * stride);
        hn::StoreU(acc[t][1], d, to + t * stride + kLanes);
      }
    } else if constexpr (kWords == 1) {
      LATHE_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        hn::StoreU(hn::Add(acc[t][0], acc[t][1]), d, to + t * stride);
      }
    } else {
      ForEachNarrow<kTokens, kWords>(acc, [to, this](int t, const float* sums) {
        std::memcpy(to + t * stride, sums, sizeof(float) * kLanes / kWords);
      });
    }
  }
};

// Words [begin, end) of `total` words of a row are multiplied: whole steps of the keys (kScoreWords).
struct WordRange {
  int64_t begin;
  int64_t end;
  int64_t total;

  static WordRange All(int64_t words) { return {0, words, words}; }
};

// One group of query rows against kTokens keys. `q`: all words of the group.
template <class A, int kTokens, int kVectors, int kWords, class Keys, class Sink>
LATHE_INLINE void ScoreTokens(Keys keys, const uint32_t* HWY_RESTRICT q, const WordRange& words,
                              int64_t row, const Sink& sink) {
  VF acc[kTokens][2];
  LATHE_UNROLL
  for (int t = 0; t < kTokens; ++t) acc[t][0] = acc[t][1] = hn::Zero(F32());
  q += words.begin / kWords * kVectors * kLanes;
  for (int64_t word = words.begin; word < words.end; word += Keys::kStep) {
    keys.Next(word);
    if constexpr (kWords == 1) {
      LATHE_UNROLL
      for (int64_t w = 0; w < Keys::kStep; w += 4, q += 4 * kVectors * kLanes) {
        ScoreFourWords<A, kTokens, kVectors>(keys, w, q, acc);
      }
    } else {
      LATHE_UNROLL
      for (int64_t w = 0; w < Keys::kStep; w += kWords, q += kLanes) {
        const VU q0 = hn::Load(U32(), q);
        LATHE_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          VF& sum = acc[t][w / kWords % 2];
          sum = A::MulAdd(q0, BroadcastWords<kWords>(keys.At(t, w)), sum);
        }
      }
    }
  }
  sink.template Take<kTokens, kVectors, kWords>(acc, row);
}

// ScoreTokens of less than a vector of rows.
template <class A, int kTokens, class... Args>
LATHE_INLINE void ScoreNarrow(int words, const Args&... args) {
  if (words == 2) return ScoreTokens<A, kTokens, 1, 2>(args...);
  ScoreTokens<A, kTokens, 1, 4>(args...);
}

template <class A, int kTokens, class... Args>
LATHE_INLINE void ScoreWhole(int vectors, const Args&... args) {
  if (vectors == 2) return ScoreTokens<A, kTokens, 2, 1>(args...);
  ScoreTokens<A, kTokens, 1, 1>(args...);
}

// Groups of rows, all or all but the first, against kTokens keys, which are in place. `next`: rows to be fetched beside
// the first of them.
template <class A, int kTokens, class Sink>
HWY_NOINLINE void ScoreGroups(const std::byte* const* rows, const std::byte* const* next,
                              const uint32_t* q, const WordRange& words, const RowGroups& groups,
                              bool skips_first, Sink sink) {
  groups.ForEach([&](const RowGroup& group, int64_t row) {
    if (row > 0 || !skips_first) {
      const KeysInPlace<kTokens> keys(rows, next);
      if (group.words == 1) {
        ScoreWhole<A, kTokens>(group.vectors, keys, q, words, row, sink);
      } else {
        ScoreNarrow<A, kTokens>(group.words, keys, q, words, row, sink);
      }
      next = rows;
    }
    q += words.total / group.words * group.vectors * kLanes;
  });
}

// All groups against kTokens keys, rows of Stored that are widened beside the first group, if that fills vectors.
template <class A, class Stored, int kTokens, class Sink>
HWY_NOINLINE void ScoreWidened(const std::byte* const* rows, const std::byte* const* next,
                               float* scratch, const uint32_t* q, const WordRange& words,
                               const RowGroups& groups, Sink sink) {
  const RowGroup first = groups.first();
  WidenedKeys<Stored, kTokens> keys(rows, next, words.total, scratch);
  const bool is_whole = first.words == 1;
  if (is_whole) {
    keys.WidenFirst();
    ScoreWhole<A, kTokens>(first.vectors, keys, q, words, 0, sink);
  } else {
    keys.WidenAll();
  }
  const std::byte* widened[kTokens];
  for (int t = 0; t < kTokens; ++t) widened[t] = keys.At(t, 0);
  ScoreGroups<A, kTokens>(widened, widened, q, words, groups, is_whole, sink);
}

// `count` keys, step by step: sink_at(t) is asked for the sink of those from key t on when it is their turn. `next`: as
// many rows to be fetched meanwhile, or null. Rows that are widened take all words. A step may score up to kScoreTokens - 1 rows more.
template <class A, class Stored, class SinkAt>
LATHE_INLINE void ScoreKeys(const std::byte* const* rows, const std::byte* const* next,
                            float* scratch, int64_t count, const uint32_t* q,
                            const WordRange& words, const RowGroups& groups,
                            const SinkAt& sink_at) {
  if (next == nullptr) next = rows;
  for (int64_t t = 0; t < count;) {
    if constexpr (!std::is_same_v<Stored, typename A::Element>) {
      ScoreWidened<A, Stored, kScoreTokens>(rows + t, next + t, scratch, q, words, groups,
                                            sink_at(t));
    } else if (count - t <= 2) {
      // Two tokens alone are bound by latency, yet cheaper than a padded step.
      return ScoreGroups<A, 2>(rows + t, next + t, q, words, groups, false, sink_at(t));
    } else {
      ScoreGroups<A, kScoreTokens>(rows + t, next + t, q, words, groups, false, sink_at(t));
    }
    t += kScoreTokens;
  }
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
