// SPDX-License-Identifier: Apache-2.0
// Pages of any format in adversarial memory, and decode problems moved into them.
#ifndef LATHE_TESTS_FORMATS_FORMAT_PAGES_H_
#define LATHE_TESTS_FORMATS_FORMAT_PAGES_H_

#include <cstdint>
#include <vector>

#include "support/mla_problem.h"

namespace lathe::test {

struct FormatRow {
  CacheFormat format;
  const char* name;
};
inline const std::vector<FormatRow> kFormats{
#define LATHE_FORMAT(enumerator, number, ...) {CacheFormat::enumerator, #enumerator},
#include "lathe/cache/formats.def"
#undef LATHE_FORMAT
};

inline const char* NameOf(CacheFormat format) {
  for (const FormatRow& row : kFormats) {
    if (row.format == format) return row.name;
  }
  return "unknown";
}

// The model whose rows the format holds.
inline MlaShape ShapeOf(CacheFormat format, int64_t num_heads) {
  const int64_t width = FixedWidth(format);
  if (width == 0 || width == 576) return {num_heads, 512, 64};
  return {num_heads, width, 0};
}

inline bool IsFp4(CacheFormat format) {
  return format == CacheFormat::kDs41Fp4 || format == CacheFormat::kNvfp4DsMla ||
         format == CacheFormat::kIndexerMxfp4;
}

// Float scales of tiles, which LatentWriteOptions::power_of_two_scales changes.
inline bool HasFloatScales(CacheFormat format) {
  return format == CacheFormat::kFp8DsMla || format == CacheFormat::kIndexerFp8;
}

inline int64_t WidthOf(CacheFormat format) { return ShapeOf(format, 1).head_dim(); }

inline int64_t PayloadBytes(CacheFormat format, int64_t width, int64_t block_size) {
  return block_size * (RecordBytes(format, width) + SideBytes(format));
}

// Pages whose last byte lies before an unmapped page, all poisoned, with poisoned gaps between
// them.
struct FormatPages {
  FormatPages(CacheFormat format, int64_t width, int64_t num_blocks, int64_t block_size,
              int64_t page_gap = 0, float scale = 1.0f)
      : bytes(static_cast<size_t>(
            num_blocks == 0
                ? 0
                : (num_blocks - 1) * (PayloadBytes(format, width, block_size) + page_gap) +
                      PayloadBytes(format, width, block_size))) {
    cache.data = bytes.data();
    cache.format = format;
    cache.num_blocks = num_blocks;
    cache.block_size = block_size;
    cache.row_stride = RecordBytes(format, width);
    cache.block_stride = PayloadBytes(format, width, block_size) + page_gap;
    cache.scale = scale;
  }
  std::byte* Record(int64_t slot) {
    return bytes.data() + slot / cache.block_size * cache.block_stride +
           slot % cache.block_size * cache.row_stride;
  }
  std::byte* Side(int64_t slot) {
    return bytes.data() + slot / cache.block_size * cache.block_stride +
           cache.block_size * cache.row_stride + slot % cache.block_size * SideBytes(cache.format);
  }
  std::vector<double> Row(int64_t slot, int64_t width) const {
    return ref::DecodeRow(cache, slot / cache.block_size, slot % cache.block_size, width);
  }

  Guarded<std::byte> bytes;
  MutablePagedCache cache;
};

// Writes the rows of `problem` that its lengths cover into pages of `format`, everything else stays
// 0xFF, and lets the problem attend over them.
template <class T, class O>
FormatPages MoveInto(MlaProblem<T, O>& problem, CacheFormat format, float scale = 1.0f) {
  const int64_t width = problem.width(), rank = problem.v_dim(), rope = width - rank;
  FormatPages pages(format, width, problem.num_blocks(), problem.the_case().block_size, 64, scale);
  std::vector<T> kv_c, k_pe;
  std::vector<int64_t> slots;
  for (size_t b = 0; b < problem.the_case().seq_lens.size(); ++b) {
    for (int64_t i = 0; i < problem.the_case().seq_lens[b]; ++i) {
      const T* row = problem.Row(static_cast<int64_t>(b), i);
      kv_c.insert(kv_c.end(), row, row + rank);
      k_pe.insert(k_pe.end(), row + rank, row + width);
      slots.push_back(problem.Slot(static_cast<int64_t>(b), i));
    }
  }
  LatentWriteArgs args;
  args.kv_c = Packed(static_cast<const T*>(kv_c.data()), slots.size(), rank);
  if (rope > 0) args.k_pe = Packed(static_cast<const T*>(k_pe.data()), slots.size(), rope);
  args.slot_mapping = Packed(static_cast<const int64_t*>(slots.data()), slots.size());
  args.cache = pages.cache;
  const Status status = WriteLatentCache(args);
  INFO(Format(status).c_str());
  REQUIRE(status.ok());
  problem.args.keys.cache = pages.cache;
  return pages;
}

// Scores far from 0, for rows without a rope part: what MlaProblem does by itself where there is
// one.
template <class T, class O>
void ShiftScores(MlaProblem<T, O>& problem) {
  if (problem.width() != problem.v_dim()) return;
  const int64_t last = problem.width() - 1;
  for (size_t b = 0; b < problem.the_case().seq_lens.size(); ++b) {
    for (int64_t i = 0; i < problem.the_case().seq_lens[b]; ++i) {
      problem.Row(static_cast<int64_t>(b), i)[last] = FromFloat<T>(1.0f);
    }
  }
  for (int64_t t = 0; t < problem.num_tokens(); ++t) {
    for (int64_t h = 0; h < problem.num_heads(); ++h) {
      problem.Query(t, h)[last] = FromFloat<T>(kScoreShift / problem.options.softmax_scale);
    }
  }
}

}  // namespace lathe::test

#endif  // LATHE_TESTS_FORMATS_FORMAT_PAGES_H_
