// SPDX-License-Identifier: Apache-2.0
// How work is shared out: every leaf once, in order, and no worker with much more than its share, for 1 to 256 workers.
#include "lathe/host/share.h"

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstddef>
#include <functional>
#include <numeric>
#include <vector>

#include "support/random.h"

namespace lathe::test {
namespace {

struct Item {
  int64_t leaves;
  int64_t leaf_work;
};
struct Piece {
  size_t item;
  int64_t share, first, last, work;
};

int64_t TotalOf(const std::vector<Item>& items) {
  int64_t total = 0;
  for (const Item& item : items) total += item.leaves * item.leaf_work;
  return total;
}

std::vector<Piece> PiecesOf(const std::vector<Item>& items, int64_t num_shares) {
  detail::ShareCutter cutter(TotalOf(items), num_shares);
  std::vector<Piece> pieces;
  for (size_t i = 0; i < items.size(); ++i) {
    cutter.Cut(items[i].leaves, items[i].leaf_work,
               [&](int64_t share, int64_t first, int64_t last) {
                 pieces.push_back({i, share, first, last, (last - first) * items[i].leaf_work});
               });
  }
  return pieces;
}

// The work of the worker that has most, where each takes the next task when it has done its last.
int64_t MostWork(const std::vector<int64_t>& tasks, int64_t workers) {
  std::vector<int64_t> done(static_cast<size_t>(workers), 0);  // a heap, the least on top
  for (const int64_t task : tasks) {
    std::pop_heap(done.begin(), done.end(), std::greater<>());
    done.back() += task;
    std::push_heap(done.begin(), done.end(), std::greater<>());
  }
  return *std::max_element(done.begin(), done.end());
}

std::vector<Item> Batch(Random& random, int kind) {
  std::vector<Item> items;
  const auto add = [&items](int64_t n, int64_t leaves, int64_t leaf_work) {
    items.insert(items.end(), static_cast<size_t>(n), {leaves, leaf_work});
  };
  switch (kind) {
    case 0:
      add(1, 1 + random.Below(100000), 1 + random.Below(100));
      break;
    case 1:
      add(1 + random.Below(5), 1 + random.Below(3000), 128);
      break;
    case 2:
      add(1 + random.Below(600), 1 + random.Below(100), 100);
      break;
    case 3:  // one is long
      add(random.Below(40), 1 + random.Below(10), 50);
      add(1, 20000, 50);
      add(random.Below(40), 1 + random.Below(10), 50);
      break;
    default:
      for (int64_t n = 1 + random.Below(100); n > 0; --n) {
        add(1, 1 + random.Below(int64_t{1} << random.Below(14)), 1 + random.Below(200));
      }
  }
  return items;
}

TEST_CASE("pieces cover every leaf once and in order", "[share]") {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Item> items = Batch(random, round % 5);
    const int64_t num_shares = 1 + random.Below(1024);
    CAPTURE(round, items.size(), num_shares);
    const std::vector<Piece> pieces = PiecesOf(items, num_shares);
    REQUIRE(pieces.size() <= items.size() + static_cast<size_t>(num_shares) - 1);
    size_t item = 0;
    int64_t leaf = 0, share = 0;
    for (const Piece& piece : pieces) {
      if (leaf == items[item].leaves) ++item, leaf = 0;
      REQUIRE(piece.item == item);
      REQUIRE(piece.first == leaf);
      REQUIRE(piece.last > piece.first);
      REQUIRE(piece.share >= share);
      REQUIRE(piece.share < num_shares);
      leaf = piece.last;
      share = piece.share;
    }
    REQUIRE(item + 1 == items.size());
    REQUIRE(leaf == items[item].leaves);
  }
}

// Whether pieces are tasks of their own, longest first, or a share is a task.
TEST_CASE("no worker has more than 1.3 times its share", "[share]") {
  Random random(2);
  const bool shares_are_tasks = GENERATE(false, true);
  for (int64_t workers = 1; workers <= 256; ++workers) {
    for (int kind = 0; kind < 5; ++kind) {
      const std::vector<Item> items = Batch(random, kind);
      const int64_t total = TotalOf(items);
      const int64_t piece_cost = int64_t{1} << random.Below(12);
      const int64_t num_shares = detail::NumShares(total, workers, piece_cost);
      CAPTURE(workers, kind, items.size(), total, piece_cost, num_shares, shares_are_tasks);
      int64_t leaf_work = 0;
      for (const Item& item : items) leaf_work = (std::max)(leaf_work, item.leaf_work);
      std::vector<int64_t> tasks;
      if (shares_are_tasks) tasks.resize(static_cast<size_t>(num_shares));
      for (const Piece& piece : PiecesOf(items, num_shares)) {
        if (shares_are_tasks) {
          tasks[static_cast<size_t>(piece.share)] += piece.work;
        } else {
          tasks.push_back(piece.work);
        }
      }
      if (!shares_are_tasks) std::sort(tasks.begin(), tasks.end(), std::greater<>());
      const int64_t most = MostWork(tasks, workers);
      const int64_t working = (std::min)(workers, num_shares);
      // A leaf is not cut, and work that is not worth more workers is left to fewer.
      REQUIRE(10 * working * most <= 13 * total + 10 * working * leaf_work);
      if (num_shares < workers) REQUIRE(total / num_shares < 2 * piece_cost);
    }
  }
}

TEST_CASE("one item is cut into equal pieces, as many for each worker", "[share]") {
  for (int64_t workers = 1; workers <= 256; ++workers) {
    CAPTURE(workers);
    const std::vector<Item> items{{1024, 128}};
    const std::vector<Piece> pieces = PiecesOf(items, detail::NumShares(1024 * 128, workers, 500));
    const auto n = static_cast<int64_t>(pieces.size());
    REQUIRE(n % workers == 0);
    for (const Piece& piece : pieces) {
      REQUIRE(piece.last - piece.first >= 1024 / n);
      REQUIRE(piece.last - piece.first <= (1024 + n - 1) / n);
    }
  }
}

TEST_CASE("shares: one of a single worker, as few as pay, more where they cost little", "[share]") {
  REQUIRE(detail::NumShares(1000000, 1, 1) == 1);
  REQUIRE(detail::NumShares(0, 16, 10) == 1);
  REQUIRE(detail::NumShares(99, 16, 10) == 9);
  REQUIRE(detail::NumShares(1600, 16, 10) == 16);
  REQUIRE(detail::NumShares(16 * 10 * 64, 16, 10) == 32);
  REQUIRE(detail::NumShares(int64_t{1} << 50, 16, 10) == 64);
  // Work whose products with the number of shares do not fit into 64 bits.
  const std::vector<Piece> pieces = PiecesOf({{int64_t{1} << 30, int64_t{1} << 32}}, 1024);
  REQUIRE(pieces.size() == 1024);
  REQUIRE(pieces.back().last - pieces.back().first == int64_t{1} << 20);
}

TEST_CASE("a table tells each share its items and parts of items", "[share]") {
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    const std::vector<Item> items = Batch(random, round % 5);
    const int64_t workers = 1 + random.Below(256), piece_cost = 1 + random.Below(2000);
    CAPTURE(round, items.size(), workers, piece_cost);
    std::vector<std::byte> memory(
        static_cast<size_t>(workers) * detail::ShareTable::BytesPerWorker() + 63);
    Arena arena(memory.data());
    detail::ShareTable table(arena, workers);
    REQUIRE(arena.bytes() <= memory.size());
    // Their numbers may have gaps.
    table.Fill(piece_cost, 3 * static_cast<int64_t>(items.size()), [&](const auto& add) {
      for (size_t i = 0; i < items.size(); ++i) {
        add(3 * static_cast<int64_t>(i), items[i].leaves, items[i].leaf_work);
      }
    });
    REQUIRE(table.num_parts() <= detail::ShareTable::MostParts(workers));
    REQUIRE(table.num_cuts() <= detail::ShareTable::MostCuts(workers));
    std::vector<int64_t> leaves(items.size(), 0);  // that have been met
    int64_t num_parts = 0;
    for (int64_t share = 0; share < table.num_shares(); ++share) {
      table.Run(
          share,
          [&](int64_t part, int64_t item, int64_t first, int64_t last) {
            const auto i = static_cast<size_t>(item / 3);
            REQUIRE(part == num_parts++);
            const detail::CutItem& cut = table.CutOf(part);
            REQUIRE(cut.item == item);
            REQUIRE(part - cut.first_part < cut.num_parts);
            REQUIRE(cut.parts_left == cut.num_parts);
            REQUIRE(leaves[i] == first);
            leaves[i] = (std::min)(last, items[i].leaves);
            REQUIRE((part == cut.first_part) == (first == 0));
            REQUIRE((part + 1 == cut.first_part + cut.num_parts) == (leaves[i] == items[i].leaves));
          },
          [&](int64_t begin, int64_t end) {
            for (size_t i = 0; i < items.size(); ++i) {
              const auto number = 3 * static_cast<int64_t>(i);
              if (number < begin || number >= end) continue;
              REQUIRE(leaves[i] == 0);
              leaves[i] = items[i].leaves;
            }
          });
    }
    REQUIRE(num_parts == table.num_parts());
    for (size_t i = 0; i < items.size(); ++i) REQUIRE(leaves[i] == items[i].leaves);
  }
}

TEST_CASE("an end of a share that falls next to an item's own moves there", "[share]") {
  // Shares end at 333, 667 and 1000.
  const std::vector<Piece> pieces = PiecesOf({{350, 1}, {300, 1}, {350, 1}}, 3);
  REQUIRE(pieces.size() == 3);
}

}  // namespace
}  // namespace lathe::test
