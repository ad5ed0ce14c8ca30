// SPDX-License-Identifier: Apache-2.0
// Sharing items among the tasks of an executor.
#ifndef LATHE_HOST_PARALLEL_H_
#define LATHE_HOST_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lathe/arch/float_flags.h"
#include "lathe/base/arena.h"
#include "lathe/base/executor.h"
#include "lathe/dispatch/abi.h"
#include "lathe/host/share.h"

namespace lathe::detail {
namespace {

// body(item, lane) for every item in [0, num_items), by at most `max_lanes` lanes that run side by side; items of one
// lane run one after another. A lane begins with the item of its number, so that lanes do not all reach for the counter
// at once, and takes what is next whenever it has done one: longest first evens out. The caller's thread keeps its flags
// of exceptions (impl.h); here, those that it is lent do.
template <class Body>
void ForEachItem(const Executor& executor, size_t max_lanes, int64_t num_items, const Body& body) {
  struct Shared {
    const Body& body;
    int64_t num_lanes;
    int64_t num_items;
    alignas(Arena::kAlign) std::atomic<int64_t> next;  // on a line that only takers touch
  };
  const size_t lanes = (std::min)(
      {(std::max)(executor.num_workers, size_t{1}), max_lanes, static_cast<size_t>(num_items)});
  const auto num_lanes = static_cast<int64_t>(lanes);
  Shared shared{body, num_lanes, num_items, {num_lanes}};
  const auto lane_task = [](void* arg, size_t lane) {
    const arch::KeepFloatFlags keep;
    auto& s = *static_cast<Shared*>(arg);
    const Body& run = s.body;
    const int64_t end = s.num_items;
    const bool is_dealt_out = s.num_lanes == end;
    auto item = static_cast<int64_t>(lane);
    do {
      run(item, lane);
    } while (!is_dealt_out && (item = s.next.fetch_add(1, std::memory_order_relaxed)) < end);
  };
  if (lanes > 1) {
    executor.run(executor.ctx, lanes, lane_task, &shared);
  } else if (lanes == 1) {
    lane_task(&shared, 0);
  }
}

// body(begin, end, lane) over [0, n) in equal pieces of at least `grain`, as many as workers want (share.h).
template <class Body>
void ForEachRangeInLane(const Executor& executor, size_t max_lanes, int64_t n, int64_t grain,
                        const Body& body) {
  if (n == 0) return;
  const size_t workers = (std::max)(executor.num_workers, size_t{1});
  const int64_t num_pieces = NumShares(n, static_cast<int64_t>(workers), grain);
  const auto begin_of = [n, num_pieces](int64_t i) {
    return n / num_pieces * i + n % num_pieces * i / num_pieces;
  };
  ForEachItem(executor, (std::min)(workers, max_lanes), num_pieces,
              [&](int64_t item, size_t lane) { body(begin_of(item), begin_of(item + 1), lane); });
}

// body(begin, end), likewise.
template <class Body>
void ForEachRange(const Executor& executor, int64_t n, int64_t grain, const Body& body) {
  ForEachRangeInLane(executor, (std::max)(executor.num_workers, size_t{1}), n, grain,
                     [&](int64_t begin, int64_t end, size_t) { body(begin, end); });
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
