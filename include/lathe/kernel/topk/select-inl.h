// SPDX-License-Identifier: Apache-2.0
// Exact selection of the k best scores. Scores below a floor are dropped at the speed of reading; the rest
// become candidates, (key, index) in ascending order of index; too many of them are thinned out to the k
// best, which raises the floor. Nothing is ever reordered, so equal keys go to the lower index and results
// come out ascending. The answer is unique, so floors may be anything that is safe: guessed from a sample
// and tried, or what another range has already found.
//
// Pieces, for scores from memory (topk_write-inl.h) and for scores as they are computed:
//   GuessFloor       a floor that about k scores of a row reach; to be tried
//   SelectRange      adds a range's candidates
//   KeepBest         thins candidates out to the k best
//   SetBars          how good a range's candidates are
//   DropHopeless     thins candidates of a range out by what all ranges have
//   MergeCandidates  the k best of the candidates of several ranges
#if defined(LATHE_KERNEL_TOPK_SELECT_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_TOPK_SELECT_INL_H_
#undef LATHE_KERNEL_TOPK_SELECT_INL_H_
#else
#define LATHE_KERNEL_TOPK_SELECT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "lathe/kernel/topk/row.h"
#include "lathe/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using detail::TopkCandidates;
using detail::TopkPart;

using VI = hn::Vec<I32>;

// Integers in the order of scores: 0 for both zeros, one key for all NaN, just below -inf's.
constexpr int32_t kInfinityKey = 0x7F800000;
constexpr int32_t kNanKey = -kInfinityKey - 1;
// The floor that every score reaches, NaN too.
constexpr int32_t kNoFloor = (std::numeric_limits<int32_t>::min)();

LATHE_INLINE int32_t SortKey(float score) {
  int32_t bits;
  std::memcpy(&bits, &score, sizeof(bits));
  const int32_t key = bits < 0 ? kNoFloor - bits : bits;
  return key > kInfinityKey || key < kNanKey ? kNanKey : key;
}

// The score of a key above kNanKey; NaN, which no score reaches, beyond kInfinityKey.
LATHE_INLINE float ScoreOfKey(int32_t key) {
  const int32_t bits = key < 0 ? kNoFloor - key : key;
  float score;
  std::memcpy(&score, &bits, sizeof(score));
  return score;
}

LATHE_INLINE VI SortKeys(VF scores) {
  const I32 d;
  const VI bits = hn::BitCast(d, scores);
  const VI nan = hn::Set(d, kNanKey);
  const VI key = hn::IfNegativeThenElse(bits, hn::Sub(hn::Set(d, kNoFloor), bits), bits);
  return hn::IfThenElse(hn::Gt(key, hn::Set(d, kInfinityKey)), nan, hn::Max(key, nan));
}

// How many keys are at least `bar`. Reads whole vectors: past n lies what PadKeys put there.
inline int64_t CountReaching(const int32_t* keys, int64_t n, int32_t bar) {
  const I32 d;
  const VI below = hn::Set(d, bar - 1);
  VI sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  for (int64_t i = 0; i < n; i += 2 * kLanes) {
    sum0 = hn::Sub(sum0, hn::VecFromMask(d, hn::Gt(hn::LoadU(d, keys + i), below)));
    sum1 = hn::Sub(sum1, hn::VecFromMask(d, hn::Gt(hn::LoadU(d, keys + i + kLanes), below)));
  }
  return hn::ReduceSum(d, hn::Add(sum0, sum1));
}

// Whole vectors, two at a time, of keys that no bar lets pass.
inline void PadKeys(int32_t* keys, int64_t n) {
  const I32 d;
  hn::StoreU(hn::Set(d, kNoFloor), d, keys + n);
  hn::StoreU(hn::Set(d, kNoFloor), d, keys + n + kLanes);
}

struct TopkKeyRange {
  int32_t least;
  int32_t most;
};

// The range of n >= 1 keys.
inline TopkKeyRange RangeOfKeys(const int32_t* keys, int64_t n) {
  const I32 d;
  VI least = hn::Set(d, keys[0]), most = least;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const VI key = hn::LoadU(d, keys + i);
    least = hn::Min(least, key);
    most = hn::Max(most, key);
  }
  TopkKeyRange range{hn::ReduceMin(d, least), hn::ReduceMax(d, most)};
  for (; i < n; ++i) {
    range.least = (std::min)(range.least, keys[i]);
    range.most = (std::max)(range.most, keys[i]);
  }
  return range;
}

// The least key that at most k of the keys reach, or any with exactly k, and how many do.
struct TopkBar {
  int32_t key;
  int64_t num_reaching;
};

// What the k best of n > k keys reach, by bisection: counting is so fast that it beats partitioning, it needs no
// memory, and no order of the keys is bad.
inline TopkBar FindBar(int32_t* keys, int64_t n, int64_t k) {
  PadKeys(keys, n);
  const TopkKeyRange range = RangeOfKeys(keys, n);
  int64_t low = range.least,
          high = int64_t{range.most} + 1;  // reached by more than k, by at most k
  int64_t num_reaching = 0;
  while (high - low > 1 && num_reaching < k) {
    const int64_t middle = low + (high - low) / 2;
    const int64_t count = CountReaching(keys, n, static_cast<int32_t>(middle));
    if (count > k) {
      low = middle;
    } else {
      high = middle;
      num_reaching = count;
    }
  }
  return {static_cast<int32_t>(high), num_reaching};
}

// Moves the candidates of [begin, end) whose keys are at least `bar` to `to` <= begin, in their order;
// returns where they end.
inline int64_t MoveReaching(TopkCandidates& c, int64_t begin, int64_t end, int32_t bar,
                            int64_t to) {
  const I32 d;
  const VI below = hn::Set(d, bar - 1);
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    const VI key = hn::LoadU(d, c.keys + i), index = hn::LoadU(d, c.indices + i);
    const auto reaches = hn::Gt(key, below);
    // Whole vectors: what is overwritten past the moved ones has been read.
    hn::StoreU(hn::Compress(key, reaches), d, c.keys + to);
    hn::StoreU(hn::Compress(index, reaches), d, c.indices + to);
    to += static_cast<int64_t>(hn::CountTrue(d, reaches));
  }
  for (; i < end; ++i) {
    const int32_t key = c.keys[i], index = c.indices[i];
    c.keys[to] = key;
    c.indices[to] = index;
    to += key >= bar ? 1 : 0;
  }
  return to;
}

// Where the first `wanted` >= 1 keys equal to `key` end.
inline int64_t EndOfEqual(const int32_t* keys, int32_t key, int64_t wanted) {
  const I32 d;
  int64_t i = 0;
  for (;; i += kLanes) {
    const auto equal =
        static_cast<int64_t>(hn::CountTrue(d, hn::Eq(hn::LoadU(d, keys + i), hn::Set(d, key))));
    if (equal >= wanted) break;
    wanted -= equal;
  }
  for (; wanted > 0; ++i) wanted -= keys[i] == key ? 1 : 0;
  return i;
}

// Leaves the k best of more. Later scores have higher indices, so that an equal key loses, and *floor is
// raised to what they have to reach.
inline void KeepBest(int64_t k, int32_t* floor, TopkCandidates* c) {
  const TopkBar bar = FindBar(c->keys, c->count, k);
  const int64_t wanted = k - bar.num_reaching;  // of those that just fail, the first ones
  const int64_t split = wanted > 0 ? EndOfEqual(c->keys, bar.key - 1, wanted) : 0;
  const int64_t kept = MoveReaching(*c, 0, split, bar.key - 1, 0);
  c->count = MoveReaching(*c, split, c->count, bar.key, kept);
  *floor = (std::max)(*floor, bar.key);
}

// Adds all scores.
inline void AddAll(const float* scores, int64_t n, int64_t base_index, TopkCandidates* c) {
  const I32 d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes, c->count += kLanes) {
    hn::StoreU(SortKeys(hn::LoadU(F32(), scores + i)), d, c->keys + c->count);
    hn::StoreU(hn::Iota(d, static_cast<int32_t>(base_index + i)), d, c->indices + c->count);
  }
  for (; i < n; ++i, ++c->count) {
    c->keys[c->count] = SortKey(scores[i]);
    c->indices[c->count] = static_cast<int32_t>(base_index + i);
  }
}

// Bit i of `bits` says whether score i reaches `least`, for n scores rounded down to whole words of 64;
// returns that number. Bits rather than compressed stores: most vectors have nothing to store, and a store
// to an odd address in each of them takes longer than the scores.
inline int64_t MarkReaching(const float* scores, int64_t n, float least, uint8_t* bits) {
  const F32 d;
  const VF least_of_all = hn::Set(d, least);
  const int64_t end = n / 64 * 64;
  for (int64_t i = 0; i < end; i += (std::max)(kLanes, int64_t{8})) {
    if constexpr (kLanes >= 8) {
      hn::StoreMaskBits(d, hn::Ge(hn::LoadU(d, scores + i), least_of_all), bits + i / 8);
    } else {
      uint8_t byte = 0;
      for (int64_t j = 0; j < 8; j += kLanes) {
        uint8_t part;
        hn::StoreMaskBits(d, hn::Ge(hn::LoadU(d, scores + i + j), least_of_all), &part);
        byte = static_cast<uint8_t>(byte | part << j);
      }
      bits[i / 8] = byte;
    }
  }
  return end;
}

// Adds those of at most kTopkChunk scores that reach `floor`, which is not kNoFloor. Under
// denormals-are-zero the comparison lets a few more pass, never fewer: it keeps its order, and keys decide
// in the end.
inline void AddReaching(const float* scores, int64_t n, int64_t base_index, int32_t floor,
                        TopkCandidates* c) {
  HWY_ALIGN uint8_t bits[detail::kTopkChunk / 8];
  const float least = ScoreOfKey(floor);
  const int64_t marked = MarkReaching(scores, n, least, bits);
  const auto base = static_cast<int32_t>(base_index);
  const int64_t begin = c->count;
  int32_t* to = c->indices + begin;
  for (int64_t i = 0; i < marked; i += 64) {
    uint64_t word;
    std::memcpy(&word, bits + i / 8, sizeof(word));
    for (; word != 0; word &= word - 1) {
      // Not Highway's, which needs its library in builds with assertions: static.h links nothing.
      const int32_t bit = __builtin_ctzll(word);
      *to++ = base + static_cast<int32_t>(i) + bit;
    }
  }
  for (int64_t i = marked; i < n; ++i) {
    *to = base + static_cast<int32_t>(i);
    to += scores[i] >= least ? 1 : 0;
  }
  c->count = to - c->indices;
  for (int64_t j = begin; j < c->count; ++j) c->keys[j] = SortKey(scores[c->indices[j] - base]);
}

// Adds to `c` the candidates among n scores; the first one has the index `base_index`, which is above all
// that `c` holds. A score below *floor is dropped, and *floor rises with what has been found, so ranges that
// are taken in ascending order share one floor, be their candidates in one `c` or each in its own. In the
// end `c` may hold more than k: KeepBest. k > 0; c->capacity is TopkCapacity of all that `c` is shown.
inline void SelectRange(const float* scores, int64_t n, int64_t base_index, int64_t k,
                        int32_t* floor, TopkCandidates* c) {
  for (int64_t i = 0; i < n;) {
    const int64_t chunk = (std::min)(n - i, detail::kTopkChunk);
    if (chunk > c->capacity - c->count) KeepBest(k, floor, c);
    if (*floor == kNoFloor) {
      AddAll(scores + i, chunk, base_index + i, c);
    } else {
      AddReaching(scores + i, chunk, base_index + i, *floor, c);
    }
    i += chunk;
  }
}

// The bars of a range that has its k best.
inline void SetBars(int64_t k, TopkPart* part) {
  TopkCandidates& c = part->best;
  for (int i = 0; i < TopkPart::kNumBars; ++i) {
    const int64_t rank = TopkPart::RankOfBar(i, k, part->num_parts);
    int32_t& bar = part->bars[i];
    if (rank > c.count || (i > 0 && rank == TopkPart::RankOfBar(i - 1, k, part->num_parts))) {
      bar = kNoFloor;
    } else if (rank == c.count) {
      bar = RangeOfKeys(c.keys, rank).least;
    } else {
      const TopkBar found = FindBar(c.keys, c.count, rank);
      bar = found.key - (found.num_reaching < rank ? 1 : 0);
    }
  }
}

// The highest floor that the bars of all ranges show k scores of the row to reach, or kNoFloor.
inline int32_t FloorOfParts(const TopkPart* parts, int64_t num_parts, int64_t k) {
  constexpr int kNumBars = TopkPart::kNumBars;
  static_assert(kNumBars % kLanes == 0, "bars are whole vectors");
  const I32 d;
  // What each bar that is reached adds to those before it.
  HWY_ALIGN int32_t ranks[kNumBars];
  for (int i = 0; i < kNumBars; ++i) {
    const int64_t before = i > 0 ? TopkPart::RankOfBar(i - 1, k, num_parts) : 0;
    ranks[i] = static_cast<int32_t>(TopkPart::RankOfBar(i, k, num_parts) - before);
  }
  // No more than there are scores in all.
  const auto reaching = [&](int32_t key) {
    const VI below = hn::Set(d, key - 1);
    VI sum = hn::Zero(d);
    for (int64_t p = 0; p < num_parts; ++p) {
      for (int i = 0; i < kNumBars; i += kLanes) {
        const auto reaches = hn::Gt(hn::LoadU(d, parts[p].bars + i), below);
        sum = hn::Add(sum, hn::IfThenElseZero(reaches, hn::Load(d, ranks + i)));
      }
    }
    return int64_t{hn::ReduceSum(d, sum)};
  };
  if (reaching(kNanKey) < k) return kNoFloor;
  int64_t low = kNanKey, high = int64_t{kInfinityKey} + 1;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (reaching(static_cast<int32_t>(middle)) >= k ? low : high) = middle;
  }
  return static_cast<int32_t>(low);
}

// Leaves of range `part` what may be among the k best of all, so that little is left to be merged: where scores are
// random, a few hundredths more than k of all ranges.
inline void DropHopeless(TopkPart* parts, int64_t num_parts, int64_t k, int64_t part) {
  const int32_t floor = FloorOfParts(parts, num_parts, k);
  TopkCandidates& c = parts[part].best;
  if (floor != kNoFloor) c.count = MoveReaching(c, 0, c.count, floor, 0);
}

// The k best of the candidates range_at(r) of ranges in ascending order, into `c`, which has room for all of them.
template <class RangeAt>
void MergeCandidates(int64_t num_ranges, int64_t k, TopkCandidates* c, const RangeAt& range_at) {
  c->count = 0;
  for (int64_t r = 0; r < num_ranges; ++r) {
    const TopkCandidates& range = range_at(r);
    // One after another, and `c` may begin where the first range does.
    const auto bytes = static_cast<size_t>(range.count) * sizeof(int32_t);
    std::memmove(c->keys + c->count, range.keys, bytes);
    std::memmove(c->indices + c->count, range.indices, bytes);
    c->count += range.count;
  }
  int32_t floor = kNoFloor;
  if (c->count > k) KeepBest(k, &floor, c);
}

// A sample is runs of 16 scores, scattered so that no period of the row hits them all.
constexpr int64_t kSampleRun = 16;
constexpr int64_t kSampleStride = 512;

// A floor that somewhat more than k of n scores are expected to reach, or kNoFloor. `sample` has room for
// kTopkChunk keys and the slack of candidates.
inline int32_t GuessFloor(const float* scores, int64_t n, int64_t k, int32_t* sample) {
  const int64_t most_runs = detail::kTopkChunk / kSampleRun;
  const int64_t stride = (std::max)(kSampleStride, (n + most_runs - 1) / most_runs);
  const int64_t num_runs = n / stride;
  const int64_t size = num_runs * kSampleRun;
  const double expected =
      static_cast<double>(k) * static_cast<double>(size) / static_cast<double>(n);
  // An eighth and 3.5 standard deviations (of independent scores) more.
  const auto rank = static_cast<int64_t>(1.125 * expected + 3.5 * std::sqrt(expected) + 1.0);
  if (rank >= size / 2) return kNoFloor;
  const I32 d;
  for (int64_t run = 0; run < num_runs; ++run) {
    const int64_t shift = run * 37 % 32 * kSampleRun;
    for (int64_t i = 0; i < kSampleRun; i += kLanes) {
      hn::StoreU(SortKeys(hn::LoadU(F32(), scores + run * stride + shift + i)), d,
                 sample + run * kSampleRun + i);
    }
  }
  const int32_t key = FindBar(sample, size, rank).key - 1;
  return key > kNanKey ? key : kNoFloor;
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
