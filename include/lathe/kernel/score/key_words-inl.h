// SPDX-License-Identifier: Apache-2.0
// Words of the keys that are scored together (score-inl.h), a few at a time:
//
//   in place   rows of the engine's own type
//   widened    rows of 16 bits, for the float32 engine: while products of some words keep it busy, the next ones are
//              widened into rows of scratch in L1, which all groups of query rows after the first read in place
//
// Widening whole rows before they are scored took 7 to 8 % of the time at 16 query rows.
#if defined(LATHE_KERNEL_SCORE_KEY_WORDS_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_SCORE_KEY_WORDS_INL_H_
#undef LATHE_KERNEL_SCORE_KEY_WORDS_INL_H_
#else
#define LATHE_KERNEL_SCORE_KEY_WORDS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lathe/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

// Words advanced per iteration, and what a row that is read in place must be a multiple of.
constexpr int64_t kScoreWords = 8;
constexpr int kScoreTokens = kRegisters == 32 ? 8 : 6;

// The lines of other rows that lie where `word` of these does, a share of them a step.
template <int kTokens, int64_t kStep, int64_t kWordBytes>
LATHE_INLINE void FetchWords(const std::byte* const* rows, int64_t word) {
  constexpr int64_t kShares = (std::max)(64 / (kStep * kWordBytes), int64_t{1});
  constexpr int64_t kEach = (kTokens + kShares - 1) / kShares;
  const std::byte* const* share = rows + word / kStep % kShares * kEach;
  LATHE_UNROLL
  for (int64_t t = 0; t < kEach; ++t) PrefetchToL2(share[t] + word * kWordBytes);
}

template <int kTokens>
class KeysInPlace {
 public:
  static constexpr int64_t kStep = kScoreWords;

  // `next`: rows to be fetched meanwhile; these, if there are none.
  LATHE_INLINE KeysInPlace(const std::byte* const* rows, const std::byte* const* next)
      : next_(next) {
    LATHE_UNROLL
    for (int t = 0; t < kTokens; ++t) rows_[t] = rows[t];
  }

  // Words from `word` on are asked for next.
  LATHE_INLINE void Next(int64_t word) {
    at_ = word * kWordBytes;
    FetchWords<kTokens, kStep, kWordBytes>(next_, word);
  }

  // Word w of those, and what follows it.
  LATHE_INLINE const std::byte* At(int t, int64_t w) const {
    return rows_[t] + at_ + w * kWordBytes;
  }

 private:
  static constexpr int64_t kWordBytes = sizeof(uint32_t);
  const std::byte* rows_[kTokens];
  const std::byte* const* next_;
  int64_t at_ = 0;
};

template <class Stored, int kTokens>
class WidenedKeys {
 public:
  static constexpr int64_t kStep = (std::max)(kScoreWords, kLanes);

  // `scratch`: kTokens rows of `words` floats.
  LATHE_INLINE WidenedKeys(const std::byte* const* rows, const std::byte* const* next,
                           int64_t words, float* scratch)
      : next_(next), words_(words), scratch_(scratch) {
    LATHE_UNROLL
    for (int t = 0; t < kTokens; ++t) rows_[t] = reinterpret_cast<const Stored*>(rows[t]);
  }

  // To be called first of all: the words of the first step, or all of them.
  LATHE_INLINE void WidenFirst() { Widen(0); }
  LATHE_INLINE void WidenAll() {
    for (int64_t word = 0; word < words_; word += kStep) Widen(word);
  }

  LATHE_INLINE void Next(int64_t word) {
    at_ = word;
    if (word + kStep < words_) Widen(word + kStep);
  }

  LATHE_INLINE const std::byte* At(int t, int64_t w) const {
    return reinterpret_cast<const std::byte*>(scratch_ + t * words_ + at_ + w);
  }

 private:
  LATHE_INLINE void Widen(int64_t word) {
    FetchWords<kTokens, kStep, sizeof(Stored)>(next_, word);
    LATHE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      LATHE_UNROLL
      for (int64_t i = 0; i < kStep; i += kLanes) {
        hn::StoreU(LoadFloats(rows_[t] + word + i), F32(), scratch_ + t * words_ + word + i);
      }
    }
  }

  const Stored* rows_[kTokens];
  const std::byte* const* next_;
  int64_t words_;
  float* scratch_;
  int64_t at_ = 0;
};

// What the width of rows must be a multiple of to be read so.
template <class A, class Stored>
constexpr int64_t kKeyWords =
    std::is_same_v<Stored, typename A::Element> ? KeysInPlace<1>::kStep
                                                : WidenedKeys<Stored, 1>::kStep;

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
