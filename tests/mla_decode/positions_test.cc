// SPDX-License-Identifier: Apache-2.0
// A row's bits follow from the positions that it sees, whichever way its token came: alone, as one of some drafts, in
// a chunk of any length, before others followed.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <numeric>

#include "formats/format_pages.h"
#include "prefill/prefill_problem.h"
#include "support/run_decode.h"

namespace lathe::test {
namespace {

// The last `num_rows` tokens of a sequence over one cache or two, in chunks.
class Tokens {
 public:
  static constexpr int64_t kBlockSize = 16;

  Tokens(CacheFormat format, CacheFormat second, int64_t num_heads, int64_t seq_len,
         int64_t num_rows)
      : seq_len_(seq_len),
        num_rows_(num_rows),
        shape_(ShapeOf(FixedWidth(format) != 0 ? format : second, num_heads)),
        pages_{{format, shape_.head_dim(), NumBlocks(), kBlockSize, 64, 1.0f},
               {second, shape_.head_dim(), NumBlocks(), kBlockSize, 64, 0.25f}},
        q_(static_cast<size_t>(num_rows * num_heads * shape_.head_dim())),
        table_(static_cast<size_t>(NumBlocks())) {
    Random random(7);
    for (bfloat16& x : q_) x = FromFloat<bfloat16>(random.Normal());
    std::iota(table_.begin(), table_.end(), 0);
    std::vector<int64_t> slots(static_cast<size_t>(seq_len));
    std::iota(slots.begin(), slots.end(), 0);
    for (FormatPages& pages : pages_) {
      std::vector<float> rows(slots.size() * static_cast<size_t>(shape_.head_dim()));
      for (float& x : rows) x = random.Normal();
      LatentWriteArgs args;
      args.kv_c = Packed(rows.data(), slots.size(), shape_.head_dim());
      args.slot_mapping = Packed(static_cast<const int64_t*>(slots.data()), slots.size());
      args.cache = pages.cache;
      REQUIRE(WriteLatentCache(args).ok());
    }
    options.softmax_scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim()));
  }

  // All rows, at most `chunk` a call.
  MlaResult<float> Run(int64_t chunk, size_t num_workers) const {
    MlaResult<float> all;
    for (int64_t row = 0; row < num_rows_; row += chunk) {
      Append(row, (std::min)(chunk, num_rows_ - row), num_workers, &all);
    }
    return all;
  }
  // The first `count` of them, as if others had never come.
  MlaResult<float> RunFirst(int64_t count, size_t num_workers) const {
    MlaResult<float> first;
    Append(0, count, num_workers, &first);
    return first;
  }

  MlaDecodeOptions options;
  std::vector<uint64_t> tree;  // a word for each row, if they are a tree; then in one call
  int64_t window = kNoWindow;
  int64_t compress_ratio = 0;  // of the second cache's entries; 0: there is one cache

 private:
  int64_t NumBlocks() const { return (seq_len_ + kBlockSize - 1) / kBlockSize; }

  void Append(int64_t row, int64_t count, size_t num_workers, MlaResult<float>* all) const {
    const int64_t heads = shape_.num_heads;
    const int64_t length = seq_len_ - num_rows_ + row + count;
    const int32_t seq_lens[] = {static_cast<int32_t>(length)};
    const int32_t starts[] = {0, static_cast<int32_t>(count)};
    Guarded<float> out(static_cast<size_t>(count * heads * shape_.kv_lora_rank));
    Guarded<float> lse(static_cast<size_t>(count * heads));
    MlaDecodeArgs args;
    args.q = Packed(q_.data() + row * heads * shape_.head_dim(), count, heads, shape_.head_dim());
    args.query_start_loc = Packed(starts, 2);
    for (int set = 0; set < (compress_ratio > 0 ? 2 : 1); ++set) {
      KeySet& keys = set == 0 ? args.keys : args.extra_keys;
      keys.cache = pages_[set].cache;
      keys.block_table = Packed(table_.data(), 1, table_.size());
      keys.seq_lens = Packed(seq_lens, 1);
    }
    args.keys.window = window;
    if (compress_ratio > 0) args.extra_keys.compress_ratio = compress_ratio;
    if (!tree.empty()) args.tree_mask = Packed(tree.data(), count, 1);
    args.out = Packed(out.data(), count, heads, shape_.kv_lora_rank);
    args.lse = Packed(lse.data(), count, heads);
    RunDecode(shape_, options, args, num_workers);
    all->out.insert(all->out.end(), out.begin(), out.end());
    all->lse.insert(all->lse.end(), lse.begin(), lse.end());
  }

  int64_t seq_len_, num_rows_;
  MlaShape shape_;
  FormatPages pages_[2];
  Guarded<bfloat16> q_;
  Guarded<int32_t> table_;
};

TEST_CASE("drafts verified together have the bits of decodes one by one",
          "[mla_decode][positions][long]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  const int64_t seq_len = GENERATE(4, 130, 1300);
  Tokens tokens(row.format, row.format, GENERATE(3, 20), seq_len, 4);
  for (const Target target : RunnableTargets()) {
    tokens.options.target = target;
    INFO(row.name << ", " << seq_len << " keys, on " << Name(target));
    for (const bool has_window : {false, true}) {
      tokens.window = has_window ? 100 : kNoWindow;
      tokens.compress_ratio = has_window ? 4 : 0;
      const MlaResult<float> together = tokens.Run(4, 1);
      REQUIRE(SameBits(tokens.Run(1, 1), together));
      REQUIRE(SameBits(tokens.Run(1, 3), together));
      REQUIRE(SameBits(tokens.Run(2, 5), together));
    }
  }
}

TEST_CASE("drafts of a tree have the bits of a chain, and whichever siblings came after them",
          "[mla_decode][positions][tree][long]") {
  const FormatRow row = GENERATE(from_range(kFormats));
  const int64_t seq_len = GENERATE(4, 130, 1300);
  Tokens tokens(row.format, row.format, GENERATE(3, 20), seq_len, 4);
  for (const Target target : RunnableTargets()) {
    tokens.options.target = target;
    INFO(row.name << ", " << seq_len << " keys, on " << Name(target));
    for (const bool has_window : {false, true}) {
      tokens.window = has_window ? 100 : kNoWindow;
      tokens.compress_ratio = has_window ? 4 : 0;
      tokens.tree = {};
      const MlaResult<float> one_by_one = tokens.Run(1, 1);
      tokens.tree = {0b1, 0b11, 0b111, 0b1111};
      REQUIRE(SameBits(tokens.Run(4, 3), one_by_one));
      tokens.tree = {0b1, 0b11, 0b101, 0b1011};
      MlaResult<float> all = tokens.Run(4, 3);
      const MlaResult<float> first = tokens.RunFirst(3, 2);
      all.out.resize(first.out.size());
      all.lse.resize(first.lse.size());
      REQUIRE(SameBits(first, all));
    }
  }
}

TEST_CASE("any number of heads has the same bits however many tokens come at once",
          "[mla_decode][positions][long]") {
  const int64_t num_heads = GENERATE(1, 2, 5, 6, 13, 16, 17, 29, 33, 45, 64, 128);
  const CacheFormat format = GENERATE(CacheFormat::kLatentBFloat16, CacheFormat::kLatentFloat16);
  Tokens tokens(format, format, num_heads, 400, 9);
  for (const Target target : RunnableTargets()) {
    tokens.options.target = target;
    INFO(num_heads << " heads on " << Name(target));
    const MlaResult<float> together = tokens.Run(9, 1);
    REQUIRE(SameBits(tokens.Run(1, 1), together));
    REQUIRE(SameBits(tokens.Run(4, 7), together));
  }
}

TEST_CASE("a prompt in chunks has the bits of one shot, and a prefix hit those of a cold start",
          "[mla_decode][positions][long]") {
  const int64_t chunk = GENERATE(1, 7, 64, 512);
  const int64_t prefix = GENERATE(0, 200);
  Tokens tokens(CacheFormat::kLatentBFloat16, CacheFormat::kLatentBFloat16, 6, 600 + prefix, 600);
  for (const Target target : RunnableTargets()) {
    tokens.options.target = target;
    INFO("chunks of " << chunk << " behind " << prefix << " on " << Name(target));
    REQUIRE(SameBits(tokens.Run(chunk, 2), tokens.Run(600, 1)));
  }
}

TEMPLATE_TEST_CASE("a prefill in chunks has the bits of one shot", "[prefill][positions]", float,
                   bfloat16) {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t chunk = GENERATE(1, 7, 64);
  const int64_t kv_heads = GENERATE(1, 4);
  CAPTURE(Name(target), chunk, kv_heads);
  constexpr int64_t kTokens = 150;
  PrefillProblem<TestType> problem({{4, kv_heads, 192, 128}, {kTokens}, {kTokens + 30}});
  problem.options.target = target;
  problem.options.window = GENERATE(kNoWindow, int64_t{90});
  problem.Run(1);
  const MlaResult<float> whole = problem.Result();
  const PrefillArgs all = problem.args;
  for (int64_t begin = 0; begin < kTokens; begin += chunk) {
    const int64_t count = (std::min)(chunk, kTokens - begin);
    const int32_t queries[] = {0, static_cast<int32_t>(count)};
    const int32_t keys[] = {0, static_cast<int32_t>(30 + begin + count)};
    PrefillArgs args = all;
    args.q.data += begin * all.q.stride[0] * static_cast<int64_t>(sizeof(TestType));
    args.out.data += begin * all.out.stride[0] * static_cast<int64_t>(sizeof(float));
    args.lse.data += begin * all.lse.stride[0];
    args.q.extent[0] = args.out.extent[0] = args.lse.extent[0] = count;
    args.k.extent[0] = args.v.extent[0] = keys[1];
    args.query_start_loc = Packed(queries, 2);
    args.kv_start_loc = Packed(keys, 2);
    std::vector<std::byte> plan_memory(1 << 20);
    const PrefillPlan* plan = nullptr;
    REQUIRE(PlanPrefill({4, kv_heads, 192, 128}, problem.options, args, 3,
                        {plan_memory.data(), plan_memory.size()}, &plan)
                .ok());
    std::vector<std::byte> workspace(PlanWorkspaceBytes(*plan));
    REQUIRE(RunPrefill(*plan, args, {workspace.data(), workspace.size()}, ThreadExecutor(3)).ok());
  }
  REQUIRE(SameBits(problem.Result(), whole));
}

}  // namespace
}  // namespace lathe::test
