// SPDX-License-Identifier: Apache-2.0
// What decides a row's arithmetic is what that row sees: not the places and holes of a list, not what other rows of its
// block see, not who folds which pieces.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <limits>
#include <numeric>

#include "formats/format_pages.h"
#include "prefill/prefill_problem.h"
#include "support/mla_problem.h"
#include "support/run_decode.h"

namespace lathe::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr uint32_t kNanBits = 0x7FC00000;

uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// Two query rows of one sequence, which see the first row_lens[set][row] keys of two caches.
class TwoRows {
 public:
  static constexpr int64_t kKeys = 1200, kBlockSize = 16;

  TwoRows(CacheFormat first, CacheFormat second, int64_t num_heads)
      : width_(FixedWidth(first) != 0 ? FixedWidth(first) : WidthOf(second)),
        pages_{{first, width_, kKeys / kBlockSize, kBlockSize, 64, 1.0f},
               {second, width_, kKeys / kBlockSize, kBlockSize, 64, 0.037f}},
        q_(static_cast<size_t>(2 * num_heads * width_)),
        table_(static_cast<size_t>(kKeys / kBlockSize)) {
    shape_ = {num_heads, width_ > 512 ? 512 : width_, width_ > 512 ? width_ - 512 : 0};
    Random random(3);
    for (bfloat16& x : q_) x = FromFloat<bfloat16>(random.Normal());
    std::iota(table_.begin(), table_.end(), 0);
    for (int set = 0; set < 2; ++set) {
      std::vector<float> rows(static_cast<size_t>(kKeys * width_));
      for (float& x : rows) x = random.Normal();
      Write(set, 0, rows);
    }
    out_ = Guarded<float>(static_cast<size_t>(2 * num_heads * shape_.kv_lora_rank));
    lse_ = Guarded<float>(static_cast<size_t>(2 * num_heads));
    options.softmax_scale = 1.0f / std::sqrt(static_cast<float>(width_));
  }

  // Into the slots from `slot` on.
  void Write(int set, int64_t slot, const std::vector<float>& rows) {
    std::vector<int64_t> slots(rows.size() / static_cast<size_t>(width_));
    std::iota(slots.begin(), slots.end(), slot);
    LatentWriteArgs args;
    args.kv_c = Packed(rows.data(), slots.size(), width_);
    args.slot_mapping = Packed(static_cast<const int64_t*>(slots.data()), slots.size());
    args.cache = pages_[set].cache;
    REQUIRE(WriteLatentCache(args).ok());
  }
  void Poison(int set, int64_t slot, float with) {
    std::vector<float> row(static_cast<size_t>(width_), 0.25f);
    row[5] = with;
    Write(set, slot, row);
  }

  using Lens = int32_t[2][2];  // [set][row]
  MlaResult<float> Run(const Lens& lens, size_t num_workers = 1) {
    return Run(lens, starts, num_workers);
  }
  MlaResult<float> Run(const Lens& lens, const Lens& row_starts, size_t num_workers) {
    const int32_t seq_lens[] = {kKeys}, row_begins[] = {0, 2};
    MlaDecodeArgs args;
    args.q = Packed(q_.data(), 2, shape_.num_heads, width_);
    args.query_start_loc = Packed(row_begins, 2);
    for (int set = 0; set < 2; ++set) {
      KeySet& keys = set == 0 ? args.keys : args.extra_keys;
      keys.cache = pages_[set].cache;
      keys.block_table = Packed(table_.data(), 1, table_.size());
      keys.seq_lens = Packed(seq_lens, 1);
      keys.row_kv_lens = Packed(static_cast<const int32_t*>(lens[set]), 2);
      keys.row_starts = Packed(static_cast<const int32_t*>(row_starts[set]), 2);
      keys.window = windows[set];
    }
    args.out = Packed(out_.data(), 2, shape_.num_heads, shape_.kv_lora_rank);
    args.lse = Packed(lse_.data(), 2, shape_.num_heads);
    out_.Poison();
    lse_.Poison();
    RunDecode(shape_, options, args, num_workers);
    return {out_.Copy(), lse_.Copy()};
  }

  // Whether each row has the bits that it has where the other sees what it sees.
  void CheckEachRow(const Lens& lens) {
    const MlaResult<float> together = Run(lens);
    REQUIRE(SameBits(Run(lens, 3), together));
    for (size_t row = 0; row < 2; ++row) {
      INFO("row " << row);
      const Lens alone = {{lens[0][row], lens[0][row]}, {lens[1][row], lens[1][row]}};
      const Lens from = {{starts[0][row], starts[0][row]}, {starts[1][row], starts[1][row]}};
      const MlaResult<float> expected = Run(alone, from, 1);
      const auto half = static_cast<ptrdiff_t>(together.out.size() / 2);
      const auto heads = static_cast<ptrdiff_t>(shape_.num_heads);
      const auto r = static_cast<ptrdiff_t>(row);
      REQUIRE(std::memcmp(together.out.data() + r * half, expected.out.data() + r * half,
                          static_cast<size_t>(half) * sizeof(float)) == 0);
      REQUIRE(std::memcmp(together.lse.data() + r * heads, expected.lse.data() + r * heads,
                          static_cast<size_t>(heads) * sizeof(float)) == 0);
    }
  }

  MlaDecodeOptions options;
  Lens starts = {};  // the first key that a row sees
  int64_t windows[2] = {kNoWindow, kNoWindow};

 private:
  int64_t width_;
  FormatPages pages_[2];
  Guarded<bfloat16> q_;
  Guarded<int32_t> table_;
  Guarded<float> out_{0}, lse_{0};
  MlaShape shape_;
};

bool ArePair(CacheFormat first, CacheFormat second) {
  const int64_t a = FixedWidth(first), b = FixedWidth(second);
  return a == b || a == 0 || b == 0;
}

TEST_CASE("a row beside another that sees other keys has the bits that it has alone",
          "[mla_decode][company][D1][D2][long]") {
  const FormatRow first = GENERATE(from_range(kFormats));
  const TwoRows::Lens lens[] = {
      {{1, 1}, {1, 0}},   // the second set has a key for one row alone
      {{16, 3}, {0, 5}},  // neither set is seen by both rows
      {{0, 7}, {9, 0}},   // one set each
      {{40, 1150},
       {3, 3}},  // few keys beside many: one row gets back what rounding takes, one does not
      {{900, 2}, {300, 3}},    // many in two sets
      {{130, 1000}, {0, 140}}  // other leaves
  };
  for (const FormatRow& second : kFormats) {
    if (!ArePair(first.format, second.format)) continue;
    TwoRows rows(first.format, second.format, 5);
    for (const Target target : RunnableTargets()) {
      for (const Precision precision : {Precision::kAuto, Precision::kBFloat16}) {
        INFO(first.name << " and " << second.name << " on " << Name(target) << ", precision "
                        << static_cast<int>(precision));
        rows.options.target = target;
        rows.options.precision = precision;
        for (const TwoRows::Lens& each : lens) {
          INFO(each[0][0] << " and " << each[0][1] << " keys, " << each[1][0] << " and "
                          << each[1][1] << " more");
          rows.CheckEachRow(each);
        }
      }
    }
  }
}

TEST_CASE(
    "a row has its bits whatever another's length does to a window, and whatever its keys hold",
    "[mla_decode][company][D2][long]") {
  const Target target = LATHE_GENERATE_TARGET();
  const CacheFormat first = GENERATE(CacheFormat::kLatentBFloat16, CacheFormat::kLatentFloat32);
  const CacheFormat second =
      GENERATE(CacheFormat::kLatentBFloat16, CacheFormat::kLatentFp8E4m3, CacheFormat::kFp8DsMla);
  const int64_t num_heads = GENERATE(3, 64);
  CAPTURE(Name(target), NameOf(first), NameOf(second), num_heads);
  TwoRows rows(first, second, num_heads);
  rows.options.target = target;
  SECTION("windows") {
    rows.windows[0] = GENERATE(1, 100, 300);
    rows.windows[1] = GENERATE(kNoWindow, int64_t{60});
    rows.CheckEachRow({{1000, 380}, {20, 20}});
    rows.CheckEachRow({{5, 1150}, {700, 90}});
    rows.CheckEachRow({{0, 1150}, {0, 1000}});
  }
  SECTION("first keys") {
    rows.starts[0][0] = 300;
    rows.starts[0][1] = GENERATE(0, 310, 900);
    rows.starts[1][1] = 40;
    rows.CheckEachRow({{1000, 1150}, {100, 60}});
  }
  SECTION("keys that are not finite") {
    const float with = GENERATE(kNan, kInf, -kInf);
    // Where a tile has a scale an infinity becomes the largest float.
    rows.Poison(0, 6, with);
    if (second != CacheFormat::kFp8DsMla) rows.Poison(1, 3, with);
    rows.CheckEachRow({{7, 6}, {3, 3}});
    rows.CheckEachRow({{6, 6}, {3, 4}});
    rows.CheckEachRow({{6, 300}, {4, 0}});
  }
}

TEST_CASE("D1: live keys decide, not the places of a list", "[mla_decode][D1]") {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t places = GENERATE(2, 1024, 1025, 2048);
  CAPTURE(Name(target), places);
  MlaProblem<bfloat16> problem({{3, 512, 64}, {40}});
  problem.options.target = target;
  problem.SetRow(0, 0, 0x1p-9f, 4.0f);
  problem.SetRow(0, 1, 0.0f, -4.0f);
  problem.SetQuery(1.0f);
  Guarded<int32_t> indices(static_cast<size_t>(places));
  for (int32_t& index : indices) index = -1;
  indices[0] = 0;
  const bool is_last = GENERATE(false, true);
  indices[is_last ? indices.size() - 1 : 1] = 1;
  problem.args.keys.indices = Packed(indices.data(), 1, places);
  problem.Run();
  for (size_t h = 0; h < 3; ++h) {
    REQUIRE(std::abs(problem.out[h * 512 + 1] - 4.0f * std::tanh(0x1p-10f)) <= 2e-5f);
  }
}

TEST_CASE("D1: few live keys in many places are as exact as without holes", "[mla_decode][D1]") {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t live = GENERATE(9, 16, 64, 200);
  const bool has_window = GENERATE(false, true);
  CAPTURE(Name(target), live, has_window);
  MlaProblem<bfloat16> problem({{16, 512, 64}, {400, 300}, {1, 1}});
  problem.options.target = target;
  constexpr int64_t kPlaces = 2048;
  const auto listed = [&](Guarded<int32_t>& indices, int64_t places) {
    for (int32_t& index : indices) index = -1;
    for (int64_t i = 0; i < 2 * live; ++i) {
      indices[static_cast<size_t>(i / live * places + i % live)] = static_cast<int32_t>(i % live);
    }
    KeySet& keys = has_window ? problem.args.extra_keys : problem.args.keys;
    keys = problem.args.keys;
    keys.window = kNoWindow;
    keys.indices = Packed(static_cast<const int32_t*>(indices.data()), 2, places);
    if (has_window) problem.args.keys.window = 128;
  };
  Guarded<int32_t> padded(static_cast<size_t>(2 * kPlaces));
  listed(padded, kPlaces);
  problem.Run();
  problem.RequireMatchesReference();
  const MlaResult<float> with_holes = problem.Result();
  Guarded<int32_t> tight(static_cast<size_t>(2 * live));
  listed(tight, live);
  problem.Run();
  REQUIRE(SameBits(problem.Result(), with_holes));
}

TEST_CASE("D2: a key set that another row sees does not touch a row's one key",
          "[mla_decode][D2]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  TwoRows rows(CacheFormat::kLatentBFloat16, CacheFormat::kLatentFp8E4m3, 64);
  rows.options.target = target;
  rows.Write(0, 0, std::vector<float>(576, 0.640625f));
  for (const size_t workers : {1, 2, 7}) {
    CAPTURE(workers);
    const MlaResult<float> result = rows.Run({{1, 1}, {1, 0}}, workers);
    for (size_t i = 64 * 512; i < result.out.size(); ++i) REQUIRE(result.out[i] == 0.640625f);
  }
}

TEST_CASE("D3: the bits of NaN do not depend on workers", "[mla_decode][D3]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MlaProblem<bfloat16> problem({{1, 512, 64}, {300, 300}});
  problem.options.target = target;
  // Signs and payloads of all sorts: every NaN becomes one.
  for (int64_t c = 0; c < 576; c += 3) {
    problem.Query(0, 0)[c].bits = static_cast<uint16_t>(0x7F81 + 7 * (c % 16));
    problem.Query(0, 0)[c + 1].bits = 0xFFC0;
  }
  for (const int64_t position : {50, 150, 250}) problem.Row(1, position)[position].bits = 0xFFC1;
  for (const size_t workers : {1, 3, 7}) {
    CAPTURE(workers);
    problem.RunOnThreads(workers);
    for (const float x : problem.out) REQUIRE(BitsOf(x) == kNanBits);
    for (const float x : problem.lse) REQUIRE(BitsOf(x) == kNanBits);
  }
}

// Tasks of fewer rows have more keys that all their rows see.
TEST_CASE("values that are not finite leave other columns their bits, however rows are dealt out",
          "[prefill][D2]") {
  const Target target = LATHE_GENERATE_TARGET();
  const float with = GENERATE(kNan, kInf, -kInf);
  const int64_t v_dim = GENERATE(128, 40);  // read in place, and decoded
  CAPTURE(Name(target), with, v_dim);
  PrefillCase c;
  c.shape = {1, 0, 64, v_dim};
  c.q_lens = {130};
  c.kv_lens = {300};
  PrefillProblem<bfloat16> problem(c);
  problem.options.target = target;
  for (const int64_t key : {40, 171, 230, 260, 290}) {
    problem.Value(key, 0)[key % v_dim] = FromFloat<bfloat16>(with);
  }
  problem.Run();
  problem.RequireMatches(problem.Reference());
  const MlaResult<float> serial = problem.Result();
  for (const size_t workers : {2, 3, 7, 32}) {
    CAPTURE(workers);
    problem.Run(workers);
    REQUIRE(SameBits(problem.Result(), serial));
  }
}

}  // namespace
}  // namespace lathe::test
