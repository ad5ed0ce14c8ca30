// SPDX-License-Identifier: Apache-2.0
// Sharing items among the tasks of an executor.
#ifndef LATHE_HOST_PARALLEL_H_
#define LATHE_HOST_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lathe/arch/float_flags.h"
#include "lathe/base/executor.h"
#include "lathe/dispatch/abi.h"

namespace lathe::detail {
namespace {

// body(item, lane) for every item in [0, num_items), handed out in order to at most `max_lanes` lanes that
// run side by side; items of one lane run one after another. Whatever the pool does, the longest-first
// order of the items is kept. The caller's thread keeps its flags of exceptions (impl.h); here, those that it is
// lent do.
template <class Body>
void ForEachItem(const Executor& executor, size_t max_lanes, int64_t num_items, const Body& body) {
  struct Shared {
    const Body& body;
    std::atomic<int64_t> next;
    int64_t num_items;
  } shared{body, {0}, num_items};
  const size_t lanes = (std::min)(
      {(std::max)(executor.num_workers, size_t{1}), max_lanes, static_cast<size_t>(num_items)});
  const auto lane_task = [](void* arg, size_t lane) {
    const arch::KeepFloatFlags keep;
    auto& s = *static_cast<Shared*>(arg);
    for (int64_t item; (item = s.next.fetch_add(1, std::memory_order_relaxed)) < s.num_items;) {
      s.body(item, lane);
    }
  };
  if (lanes > 1) {
    executor.run(executor.ctx, lanes, lane_task, &shared);
  } else if (lanes == 1) {
    lane_task(&shared, 0);
  }
}

// body(begin, end) over [0, n) in pieces of at least `grain`, a few for each worker.
template <class Body>
void ForEachRange(const Executor& executor, int64_t n, int64_t grain, const Body& body) {
  const auto workers = static_cast<int64_t>((std::max)(executor.num_workers, size_t{1}));
  const int64_t piece = (std::max)(grain, (n + 4 * workers - 1) / (4 * workers));
  ForEachItem(executor, static_cast<size_t>(workers), (n + piece - 1) / piece,
              [&](int64_t item, size_t) { body(item * piece, (std::min)(n, (item + 1) * piece)); });
}

// body(part, begin, end) over the size(part) items of each part in [0, num_parts): the items of all parts,
// one part after another, are shared as ForEachRange does it, so small parts do not wait for one another.
template <class Size, class Body>
void ForEachRangeOfParts(const Executor& executor, int64_t num_parts, int64_t grain,
                         const Size& size, const Body& body) {
  int64_t n = 0;
  for (int64_t part = 0; part < num_parts; ++part) n += size(part);
  ForEachRange(executor, n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t part = 0; part < num_parts && end > 0; ++part) {
      const int64_t items = size(part);
      if (begin < items) {
        body(part, (std::max)(begin, int64_t{0}), (std::min)(end, items));
      }
      begin -= items;
      end -= items;
    }
  });
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_PARALLEL_H_
