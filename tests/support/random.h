// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same on every standard library, and cheap enough for 64k keys.
#ifndef LATHE_TESTS_SUPPORT_RANDOM_H_
#define LATHE_TESTS_SUPPORT_RANDOM_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace lathe::test {

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0)
      : state_(seed * 0xD1342543DE82EF95u + stream * 0xAF251AF3B0F025B5u) {
    Next();
  }

  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // Bell-shaped, mean 0, variance 1, below 3.5 in size: the sum of four uniform numbers.
  float Normal() {
    const uint64_t x = Next();
    const uint64_t sum = (x & 0xFFFF) + (x >> 16 & 0xFFFF) + (x >> 32 & 0xFFFF) + (x >> 48);
    return (static_cast<float>(sum) / 65536.0f - 2.0f) * 1.7320508f;
  }

  // In [0, limit).
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(limit));
  }

  template <class T>
  void Shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[static_cast<size_t>(Below(static_cast<int64_t>(i)))]);
    }
  }

 private:
  uint64_t state_;
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_RANDOM_H_
