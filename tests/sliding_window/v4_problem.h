// SPDX-License-Identifier: Apache-2.0
// A V4 layer's step in adversarial memory: a window over one cache, compressed entries in another.
#ifndef LATHE_TESTS_SLIDING_WINDOW_V4_PROBLEM_H_
#define LATHE_TESTS_SLIDING_WINDOW_V4_PROBLEM_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "formats/format_pages.h"
#include "support/mla_problem.h"

namespace lathe::test {

struct V4Case {
  MlaShape shape{4, 512, 0};
  std::vector<int64_t> seq_lens{100};
  std::vector<int64_t> q_lens{};
  int64_t window = 128;
  int64_t ratio = 4;
  int64_t block_size = 64, entry_block_size = 16;
  uint32_t seed = 1;
};

// Angles of positions below num_positions, for `dim` columns.
struct Angles {
  Angles(int64_t num_positions, int64_t dim)
      : cos(static_cast<size_t>(num_positions * dim / 2)), sin(cos.size()) {
    for (int64_t p = 0; p < num_positions; ++p) {
      for (int64_t i = 0; i < dim / 2; ++i) {
        const double angle = static_cast<double>(p) * std::pow(1e4, -2.0 * static_cast<double>(i) /
                                                                        static_cast<double>(dim));
        cos[static_cast<size_t>(p * dim / 2 + i)] = static_cast<float>(std::cos(angle));
        sin[static_cast<size_t>(p * dim / 2 + i)] = static_cast<float>(std::sin(angle));
      }
    }
    rope.cos = Packed(static_cast<const float*>(cos.data()), num_positions, dim / 2);
    rope.sin = Packed(static_cast<const float*>(sin.data()), num_positions, dim / 2);
    rope.inverse = true;
  }
  Guarded<float> cos, sin;
  Rope rope;
};

template <class T, class O = float>
struct V4Problem : MlaProblem<T, O> {
  explicit V4Problem(const V4Case& c)
      : MlaProblem<T, O>({c.shape, c.seq_lens, c.q_lens, c.block_size, c.seed}),
        v4(c),
        entries({c.shape, NumEntries(c), {}, c.entry_block_size, c.seed + 1}) {
    ShiftScores(*this);
    ShiftScores(entries);
    this->args.keys.window = c.window;
    this->args.extra_keys = CompressedKeys(entries.args.keys.cache, entries.args.keys.block_table,
                                           this->args.keys.seq_lens, c.ratio);
  }
  static std::vector<int64_t> NumEntries(const V4Case& c) {
    std::vector<int64_t> counts;
    for (const int64_t len : c.seq_lens) counts.push_back(len / c.ratio);
    return counts;
  }

  // Both caches into pages of formats.
  void Move(CacheFormat window_format, CacheFormat entry_format, float window_scale = 1.0f,
            float entry_scale = 1.0f) {
    pages.push_back(MoveInto(*this, window_format, window_scale));
    pages.push_back(MoveInto(entries, entry_format, entry_scale));
    this->args.extra_keys.cache = entries.args.keys.cache;
  }
  // The first sequence's window pages as a ring: page p in column p % columns; what was overwritten is nowhere.
  Guarded<int32_t> RingOf(int64_t columns) const {
    Guarded<int32_t> ring(static_cast<size_t>(columns));
    for (int32_t& entry : ring) entry = 0x7FFFFFF0;
    const int64_t num_pages = (v4.seq_lens[0] + v4.block_size - 1) / v4.block_size;
    for (int64_t page = std::max<int64_t>(0, num_pages - columns); page < num_pages; ++page) {
      ring[static_cast<size_t>(page % columns)] = this->block_table[static_cast<size_t>(page)];
    }
    return ring;
  }
  // Random entries of each row, some of them not there yet, some holes.
  void PickEntries(int64_t k) {
    Random random(v4.seed, 77);
    picked = Guarded<int32_t>(static_cast<size_t>(this->num_tokens() * k));
    for (int32_t& entry : picked) {
      entry = static_cast<int32_t>(random.Below(v4.seq_lens[0] / v4.ratio + 3)) - 1;
    }
    this->args.extra_keys.indices =
        Packed(static_cast<const int32_t*>(picked.data()), this->num_tokens(), k);
  }

  V4Case v4;
  MlaProblem<T> entries;
  std::vector<FormatPages> pages;
  Guarded<int32_t> picked{0};
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_SLIDING_WINDOW_V4_PROBLEM_H_
