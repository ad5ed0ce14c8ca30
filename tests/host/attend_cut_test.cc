// SPDX-License-Identifier: Apache-2.0
// How attention is cut for many workers: every leaf once, nobody with much more than a share, and no more to be folded than
// Sizes has room for. Pieces of any run fold to the tree of all leaves.
#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <vector>

#include "lathe/host/attend/cut.h"

namespace lathe::test {
namespace {

using detail::AttendBatch;
using detail::AttendTask;
using detail::KeyRange;

// What the tree over leaves [begin, end) computes, written out.
using Node = std::string;
void FoldNodes(Node& to, const Node& from) { to = "(" + to + from + ")"; }

Node TreeOf(const KeyRange& all, const std::vector<KeyRange>& runs) {
  std::vector<Node> pieces;
  std::vector<int64_t> places;
  for (const KeyRange& run : runs) {
    detail::ForEachPiece(run, all, [&](const KeyRange& piece) {
      std::vector<Node> leaves;
      for (int64_t leaf = piece.begin; leaf < piece.end; ++leaf)
        leaves.push_back(std::to_string(leaf) + ".");
      detail::OpenNodes<Node*> nodes;
      const auto fold = [](Node* to, const Node* from) { FoldNodes(*to, *from); };
      for (int64_t leaf = piece.begin; leaf < piece.end; ++leaf) {
        nodes.CloseBefore(leaf, fold);
        nodes.Add(&leaves[static_cast<size_t>(leaf - piece.begin)], fold);
      }
      pieces.push_back(*nodes.CloseAll(fold));
      places.push_back(piece.begin);
    });
  }
  detail::OpenNodes<Node*> nodes;
  const auto fold = [](Node* to, const Node* from) { FoldNodes(*to, *from); };
  for (size_t i = 0; i < pieces.size(); ++i) {
    nodes.CloseBefore(places[i], fold);
    nodes.Add(&pieces[i], fold);
  }
  return *nodes.CloseAll(fold);
}

TEST_CASE("runs of leaves fold to one tree, wherever they are cut", "[host][positions]") {
  const KeyRange all{GENERATE(0, 1, 7, 8, 13, 16), GENERATE(17, 24, 31, 64, 77)};
  CAPTURE(all.begin, all.end);
  const Node whole = TreeOf(all, {all});
  for (int64_t first = all.begin + 1; first < all.end; ++first) {
    REQUIRE(TreeOf(all, {{all.begin, first}, {first, all.end}}) == whole);
    for (int64_t second = first + 1; second < all.end; second += 3) {
      REQUIRE(TreeOf(all, {{all.begin, first}, {first, second}, {second, all.end}}) == whole);
    }
  }
}

TEST_CASE("attention is shared out evenly wherever its leaves allow it", "[host][positions]") {
  constexpr int64_t kLeafKeys = 128, kWidth = 512;
  const int64_t num_heads = GENERATE(16, 64, 128);
  const int64_t num_keys = GENERATE(64, 640, 4096, 65536, 1000000);
  const int64_t num_seqs = GENERATE(1, 3, 40);
  const std::vector<int32_t> seq_lens(static_cast<size_t>(num_seqs),
                                      static_cast<int32_t>(num_keys));
  const std::vector<int32_t> table(1, 0);
  detail::AttendCall call;
  call.qk_dim = call.v_dim = kWidth;
  call.unit_heads = call.bits_heads = num_heads;
  // Beside a second set of a quarter of the keys, or alone.
  call.num_key_sets = GENERATE(1, 2);
  for (int set = 0; set < call.num_key_sets; ++set) {
    detail::KeyRows& keys = call.keys[set];
    keys.seq_lens = IndexView<1>(View<const int32_t, 1>{seq_lens.data(), {num_seqs}, {1}});
    keys.block_table = IndexView<2>(View<const int32_t, 2>{table.data(), {1, 1}, {1, 1}});
    keys.compress_ratio = set == 0 ? 1 : 4;
  }
  const AttendBatch batch{call, {{num_seqs, num_seqs}, {}}, num_heads};
  for (size_t num_workers = 1; num_workers <= 256; ++num_workers) {
    CAPTURE(num_heads, num_keys, num_seqs, call.num_key_sets, num_workers);
    const auto workers = static_cast<int64_t>(num_workers);
    const detail::AttendCutter cutter(batch, kLeafKeys, kWidth, num_workers);
    int64_t leaf_rows = 0, spans = 0, floats = 0, total = 0, largest_leaf = 0;
    std::vector<int64_t> works;
    cutter.ForEachTask(
        [&](const AttendTask& task) {
          leaf_rows += detail::NumLeaves(task) * task.num_rows;
          works.push_back(task.work);
          total += task.work;
          largest_leaf = (std::max)(largest_leaf, kLeafKeys * task.num_rows);
          if (task.partial < 0) return;
          detail::ForEachPieceOf(task, kLeafKeys, [&](int, const KeyRange&) {
            ++spans;
            floats += detail::PartialFloats(task.num_rows, kWidth);
          });
        },
        [](const AttendTask&) {});
    int64_t leaves = detail::CeilDiv(num_keys, kLeafKeys);
    if (call.num_key_sets == 2) leaves += detail::CeilDiv(num_keys / 4, kLeafKeys);
    REQUIRE(leaf_rows == num_seqs * num_heads * leaves);
    REQUIRE(spans <= detail::kSpansPerWorker * workers);
    REQUIRE(floats <= detail::kBlocksPerWorker * workers * detail::PartialFloats(128, kWidth));
    // Longest first, to whoever is free.
    std::sort(works.rbegin(), works.rend());
    std::vector<int64_t> loads(num_workers, 0);
    for (const int64_t work : works) *std::min_element(loads.begin(), loads.end()) += work;
    const int64_t most = *std::max_element(loads.begin(), loads.end());
    REQUIRE(10 * (most - largest_leaf) <= 13 * total / workers + 10);
  }
}

}  // namespace
}  // namespace lathe::test
