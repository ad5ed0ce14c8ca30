// SPDX-License-Identifier: Apache-2.0
// Items shared among the tasks of an executor: each once, one at a time in a lane, in one fork-join, on no more lanes
// than there are items.
#include "lathe/host/parallel.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "support/threads.h"

namespace lathe::test {
namespace {

constexpr size_t kWorkers = 5;

// How a pool may run tasks, and what it was asked for.
struct Pool {
  enum Kind { kThreads, kForwards, kBackwards } kind;
  std::vector<size_t> asked;

  template <class Body>
  void operator()(size_t num_tasks, const Body& body) {
    asked.push_back(num_tasks);
    if (kind == kThreads) return OnThreads(num_tasks, body);
    for (size_t i = 0; i < num_tasks; ++i) body(kind == kForwards ? i : num_tasks - 1 - i);
  }
};

TEST_CASE("every item once, in one fork-join of at most as many lanes", "[parallel]") {
  const auto kind = GENERATE(Pool::kThreads, Pool::kForwards, Pool::kBackwards);
  const size_t max_lanes = GENERATE(1u, 3u, 100u);
  for (const int64_t num_items : {0, 1, 2, 3, 4, 5, 6, 100}) {
    CAPTURE(kind, max_lanes, num_items);
    Pool pool{kind, {}};
    const size_t lanes = (std::min)({kWorkers, max_lanes, static_cast<size_t>(num_items)});
    std::vector<std::atomic<int>> runs(static_cast<size_t>(num_items)), busy(kWorkers);
    std::atomic<int> faults{0};
    detail::ForEachItem(CallableExecutor(pool, kWorkers), max_lanes, num_items,
                        [&](int64_t item, size_t lane) {
                          if (lane >= lanes || busy[lane]++ != 0) return void(++faults);
                          ++runs[static_cast<size_t>(item)];
                          --busy[lane];
                        });
    REQUIRE(faults.load() == 0);
    for (const auto& n : runs) REQUIRE(n.load() == 1);
    REQUIRE(pool.asked == (lanes > 1 ? std::vector<size_t>{lanes} : std::vector<size_t>{}));
  }
}

TEST_CASE("lanes begin with the items of their numbers, and take what is next", "[parallel]") {
  Pool pool{Pool::kForwards, {}};
  std::vector<int64_t> items;
  detail::ForEachItem(CallableExecutor(pool, kWorkers), 3, 6,
                      [&](int64_t item, size_t) { items.push_back(item); });
  REQUIRE(items == std::vector<int64_t>{0, 3, 4, 5, 1, 2});
}

TEST_CASE("ranges cover what is shared, in pieces of the grain and more", "[parallel]") {
  for (const int64_t n : {0, 1, 16, 17, 1000}) {
    Pool pool{Pool::kThreads, {}};
    std::vector<std::atomic<int>> runs(static_cast<size_t>(n));
    std::atomic<int> short_pieces{0};
    detail::ForEachRange(CallableExecutor(pool, kWorkers), n, 16, [&](int64_t begin, int64_t end) {
      if (end - begin < (std::min)(n, int64_t{16})) ++short_pieces;
      for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
    });
    CAPTURE(n);
    REQUIRE(short_pieces.load() == 0);
    for (const auto& count : runs) REQUIRE(count.load() == 1);
  }
}

}  // namespace
}  // namespace lathe::test
