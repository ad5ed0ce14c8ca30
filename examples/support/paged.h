// SPDX-License-Identifier: Apache-2.0
// What the longer examples share: caches with memory of their own, and a check of every call.
#ifndef LATHE_EXAMPLES_SUPPORT_PAGED_H_
#define LATHE_EXAMPLES_SUPPORT_PAGED_H_

#include <lathe/cache/formats.h>
#include <lathe/lathe.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

namespace example {

inline void Check(const lathe::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", lathe::Format(status).c_str());
  std::exit(1);
}

// Pages of one sequence of `num_rows` rows, lying anywhere; row i goes to slot_mapping[i].
struct Pages {
  Pages(int64_t num_rows, int64_t page_size)
      : block_size(page_size), blocks(static_cast<size_t>((num_rows + page_size - 1) / page_size)) {
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(7));
    for (int64_t i = 0; i < num_rows; ++i) {
      slot_mapping.push_back(int64_t{blocks[static_cast<size_t>(i / block_size)]} * block_size +
                             i % block_size);
    }
  }
  int64_t count() const { return static_cast<int64_t>(blocks.size()); }
  // The block table of `num_seqs` sequences over the same pages.
  lathe::IndexView<2> Table(int64_t num_seqs = 1) const {
    lathe::IndexView<2> table = lathe::Packed(blocks.data(), num_seqs, count());
    table.stride[0] = 0;
    return table;
  }
  lathe::IndexView<1> Slots() const {
    return lathe::Packed(slot_mapping.data(), slot_mapping.size());
  }

  int64_t block_size;
  std::vector<int32_t> blocks;
  std::vector<int64_t> slot_mapping;
};

// A cache of one format with its memory, dense pages.
struct Cache {
  Cache(lathe::CacheFormat format, int64_t width, const Pages& pages)
      : bytes(static_cast<size_t>(pages.count() * pages.block_size *
                                  (lathe::RecordBytes(format, width) + lathe::SideBytes(format)))) {
    view.data = bytes.data();
    view.format = format;
    view.num_blocks = pages.count();
    view.block_size = pages.block_size;
    view.row_stride = lathe::RecordBytes(format, width);
    view.block_stride = pages.block_size * (view.row_stride + lathe::SideBytes(format));
  }
  std::vector<std::byte> bytes;
  lathe::MutablePagedCache view;
};

// Sizes, plan and run in one, for examples that do a single step.
inline void Attend(const lathe::MlaShape& shape, const lathe::MlaDecodeOptions& options,
                   const lathe::MlaDecodeArgs& args, int64_t max_keys) {
  const int64_t num_tokens = args.out.extent[0];
  lathe::Sizes sizes;
  Check(lathe::MlaDecodeSizes(shape, options, {num_tokens, num_tokens, max_keys, 1}, &sizes));
  std::vector<std::byte> plan_memory(sizes.plan_bytes), workspace(sizes.workspace_bytes);
  const lathe::MlaDecodePlan* plan = nullptr;
  Check(lathe::PlanMlaDecode(shape, options, args, 1, {plan_memory.data(), plan_memory.size()},
                             &plan));
  Check(lathe::RunMlaDecode(*plan, args, {workspace.data(), workspace.size()}));
}

inline double MaxError(const std::vector<float>& values, const std::vector<float>& golden) {
  double worst = 0.0;
  for (size_t i = 0; i < golden.size(); ++i) {
    worst = std::max(worst, std::abs(double{values[i]} - double{golden[i]}));
  }
  return worst;
}

}  // namespace example

#endif  // LATHE_EXAMPLES_SUPPORT_PAGED_H_
