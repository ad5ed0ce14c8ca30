// SPDX-License-Identifier: Apache-2.0
// easy::MlaDecode allocates what a call with two key sets needs, whichever of them has more keys.
#include "lathe/easy.h"

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "lathe/lathe.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

constexpr int64_t kWidth = 4, kWindow = 8, kRatio = 4, kRingPages = 3, kPage = 8, kExtraPage = 64;

std::vector<int32_t> Counted(int64_t n) {
  std::vector<int32_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// One sequence, whose query is zero: every key has the same weight, so lse is the logarithm of their number.
void CheckWindowBesideEntries(int64_t num_entries, int64_t num_rows, size_t num_workers) {
  const auto num_pages = (num_entries + kExtraPage - 1) / kExtraPage;
  const std::vector<float> window(kRingPages * kPage * kWidth, 1.5f);
  const std::vector<float> entries(static_cast<size_t>(num_pages * kExtraPage * kWidth), 1.5f);
  const std::vector<int32_t> ring{2, 0, 1}, table = Counted(num_pages);
  const std::vector<int64_t> seq_lens{num_entries * kRatio}, starts{0, num_rows};
  const std::vector<float> q(static_cast<size_t>(num_rows * kWidth));
  std::vector<float> out(q.size(), -1.0f), lse(static_cast<size_t>(num_rows), -1.0f);

  MlaDecodeOptions options;
  options.softmax_scale = 1.0f;
  MlaDecodeArgs args;
  args.q = Packed(q.data(), num_rows, 1, kWidth);
  args.query_start_loc = Packed(starts.data(), 2);
  args.keys = WindowKeys(LatentPages(window.data(), kRingPages, kPage, kWidth),
                         Packed(ring.data(), 1, kRingPages), Packed(seq_lens.data(), 1), kWindow,
                         /*wraps=*/true);
  args.extra_keys =
      CompressedKeys(LatentPages(entries.data(), num_pages, kExtraPage, kWidth),
                     Packed(table.data(), 1, num_pages), Packed(seq_lens.data(), 1), kRatio);
  args.out = Packed(out.data(), num_rows, 1, kWidth);
  args.lse = Packed(lse.data(), num_rows, 1);
  const Status status = easy::MlaDecode({1, kWidth, 0}, options, args, ThreadExecutor(num_workers));
  INFO(Format(status).c_str());
  REQUIRE(status.ok());
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t seen = kWindow + RowCompressedKeys(seq_lens[0], num_rows, i, kRatio);
    const auto row = static_cast<size_t>(i);
    INFO("row " << i << " sees " << seen << " keys, lse " << lse[row]);
    REQUIRE(std::abs(static_cast<double>(lse[row]) - std::log(static_cast<double>(seen))) < 1e-5);
    REQUIRE(std::abs(out[row * kWidth] - 1.5f) < 1e-5f);
  }
}

TEST_CASE("easy::MlaDecode takes a window ring beside any number of entries",
          "[mla_decode][sliding_window]") {
  for (const int64_t num_entries : {10, 1000, 40000, 100000}) {
    for (const int64_t num_rows : {1, 4}) {
      for (const size_t num_workers : {size_t{1}, size_t{2}, size_t{4}}) {
        INFO(num_entries << " entries, " << num_rows << " rows, " << num_workers << " workers");
        CheckWindowBesideEntries(num_entries, num_rows, num_workers);
      }
    }
  }
}

TEST_CASE("easy::MlaDecode refuses what Plan and Run refuse", "[mla_decode][validation]") {
  REQUIRE(std::string(Format(easy::MlaDecode({0, 4, 0}, {}, {})).c_str()) ==
          "invalid argument: shape.num_heads is 0, must be at least 1");
}

}  // namespace
}  // namespace lathe::test
