// SPDX-License-Identifier: Apache-2.0
// The compressor through C: the bytes and the refusals of the C++ calls.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <numeric>
#include <vector>

#include "capi/mirror.h"
#include "compressor/compressor_problem.h"
#include "support/sizes.h"
#include "support/targets.h"

namespace lathe::test {
namespace {

constexpr int64_t kTokens = 26, kRatio = 4, kHeadDim = 128;

CompressorCase Case() {
  CompressorCase c;
  c.seq_lens = {kTokens};
  c.head_dim = kHeadDim;
  c.format = CacheFormat::kIndexerFp8;  // whose scales depend on an option
  return c;
}

// One call with all tokens of a sequence, in both languages.
struct Call {
  explicit Call(Target target, bool uses_slots = false) : problem(Case()) {
    std::iota(positions.begin(), positions.end(), 0);
    args = problem.Whole();
    args.positions = Packed(positions.data(), kTokens);
    args.query_start_loc = Packed(starts.data(), 2);
    args.state = problem.state.cache;
    args.state_block_table =
        Packed(std::as_const(problem.state_table).data(), 1, problem.state_columns);
    args.cache = problem.cache.cache;
    for (int64_t p = 0; p < kTokens; ++p) slots.push_back(problem.EntrySlot(0, p / kRatio));
    if (uses_slots) {
      args.slot_mapping = Packed(std::as_const(slots).data(), kTokens);
    } else {
      args.block_table =
          Packed(std::as_const(problem.cache_table).data(), 1, problem.cache_columns);
    }
    options.ratio = kRatio;
    options.overlap = true;
    options.power_of_two_scales = true;
    options.state_tokens = 9;
    options.target = target;
    workspace.resize(CompressorWorkspaceFor(options, kTokens, 1, kHeadDim));
  }
  Status Compress() { return CompressTokens(args, options, {workspace.data(), workspace.size()}); }
  int32_t CompressInC(lathe_message* message) {
    const CTransform transform(args.transform);
    const lathe_paged_cache state = Mirror(args.state), cache = Mirror(args.cache);
    auto c = Sized<lathe_compressor_args>();
    c.kv = Mirror(args.kv);
    c.score = Mirror(args.score);
    c.ape = Mirror(args.ape);
    c.positions = Mirror(args.positions);
    c.query_start_loc = Mirror(args.query_start_loc);
    c.state = &state;
    c.state_block_table = Mirror(args.state_block_table);
    if (!args.transform.is_identity()) c.transform = &transform.c;
    if (args.cache.block_size > 0) c.cache = &cache;
    c.block_table = Mirror(args.block_table);
    c.slot_mapping = Mirror(args.slot_mapping);
    c.partials = Mirror(args.partials);
    auto shard = Sized<lathe_context_shard>();
    shard.world = options.shard.world;
    shard.rank = options.shard.rank;
    shard.interleave = options.shard.interleave;
    auto c_options = Sized<lathe_compressor_options>();
    c_options.ratio = options.ratio;
    c_options.overlap = options.overlap;
    c_options.power_of_two_scales = options.power_of_two_scales;
    c_options.shard = options.shard.world > 1 ? &shard : nullptr;
    c_options.state_tokens = options.state_tokens;
    c_options.target = static_cast<int32_t>(options.target);
    auto shape = Sized<lathe_compressor_shape>();
    shape.head_dim = kHeadDim;
    auto limits = Sized<lathe_limits>();
    limits.max_num_seqs = 1;
    limits.max_num_tokens = kTokens;
    auto sizes = Sized<lathe_sizes>();
    RequireOk([&](lathe_message* m) {
      return lathe_compressor_sizes(&shape, &c_options, &limits, &sizes, m);
    });
    REQUIRE(sizes.workspace_bytes == workspace.size());
    return lathe_compress_tokens(&c, &c_options, {workspace.data(), workspace.size()}, nullptr,
                                 message);
  }
  // The rank's partials instead of entries.
  void AskForPartials(const ContextShard& shard) {
    options.shard = shard;
    args.cache = {};
    args.block_table = {};
    args.transform = {};
    partials.resize(static_cast<size_t>(kTokens / kRatio * 3 * kHeadDim));
    args.partials = Packed(partials.data(), kTokens / kRatio, 3, kHeadDim);
  }

  CompressorProblem problem;
  std::vector<int64_t> positions = std::vector<int64_t>(kTokens);
  std::vector<int64_t> starts = {0, kTokens}, slots;
  std::vector<float> partials;
  std::vector<std::byte> workspace;
  CompressorArgs args;
  CompressorOptions options;
};

TEST_CASE("compression through C gives the bytes of C++", "[capi]") {
  const Target target = LATHE_GENERATE_TARGET();
  const bool uses_slots = GENERATE(false, true);
  CAPTURE(Name(target), uses_slots);
  Call cpp(target, uses_slots), c(target, uses_slots);
  REQUIRE(cpp.Compress().ok());
  RequireOk([&](lathe_message* m) { return c.CompressInC(m); });
  REQUIRE(SameBits(c.problem.cache.bytes, cpp.problem.cache.bytes));
  REQUIRE(SameBits(c.problem.state.bytes, cpp.problem.state.bytes));
  RequireInvalid(
      [](lathe_message* m) {
        return lathe_compressor_sizes(nullptr, nullptr, nullptr, nullptr, m);
      },
      "shape must be given");

  c.positions[3] = 9;
  RequireMessage([&](lathe_message* m) { return c.CompressInC(m); },
                 static_cast<int32_t>(c.Compress().code), Format(c.Compress()).c_str());
}

TEST_CASE("partials of ranks and their merge through C give the bits of C++", "[capi]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  std::vector<std::vector<float>> parts;
  for (const int64_t rank : {0, 1}) {
    Call cpp(target), c(target);
    cpp.AskForPartials({2, rank, 3});
    c.AskForPartials({2, rank, 3});
    const Status status = cpp.Compress();
    INFO(Format(status).c_str());
    REQUIRE(status.ok());
    RequireOk([&](lathe_message* m) { return c.CompressInC(m); });
    REQUIRE(SameBits(c.partials, cpp.partials));
    parts.push_back(c.partials);
  }

  const int64_t num_entries = kTokens / kRatio;
  Call cpp(target), in_c(target);
  std::vector<int64_t> positions, slots;
  for (int64_t e = 0; e < num_entries; ++e) {
    positions.push_back(e * kRatio + kRatio - 1);
    slots.push_back(cpp.problem.EntrySlot(0, e));
  }
  std::vector<View<const float, 3>> views;
  std::vector<lathe_tensor> tensors;
  for (const std::vector<float>& part : parts) {
    views.push_back(Packed(part.data(), num_entries, 3, kHeadDim));
    tensors.push_back(Mirror(views.back()));
  }
  CompressedMergeArgs args;
  args.parts = views.data();
  args.num_parts = views.size();
  args.positions = Packed(std::as_const(positions).data(), num_entries);
  args.slot_mapping = Packed(std::as_const(slots).data(), num_entries);
  args.transform = cpp.problem.transform;
  args.cache = cpp.problem.cache.cache;
  const Status status = MergeCompressed(args, {target, kRatio, true});
  INFO(Format(status).c_str());
  REQUIRE(status.ok());

  const CTransform transform(in_c.problem.transform);
  const lathe_paged_cache cache = Mirror(in_c.problem.cache.cache);
  std::vector<std::byte> memory(lathe_array_workspace_bytes(tensors.size()));
  auto c = Sized<lathe_compressed_merge_args>();
  c.parts = tensors.data();
  c.num_parts = tensors.size();
  c.positions = Mirror(args.positions);
  c.slot_mapping = Mirror(args.slot_mapping);
  c.transform = &transform.c;
  c.cache = &cache;
  auto options = Sized<lathe_compressed_merge_options>();
  options.ratio = kRatio;
  options.power_of_two_scales = 1;
  options.target = static_cast<int32_t>(target);
  const auto merge = [&](lathe_message* m) {
    return lathe_merge_compressed(&c, &options, {memory.data(), memory.size()}, nullptr, m);
  };
  RequireOk(merge);
  REQUIRE(SameBits(in_c.problem.cache.bytes, cpp.problem.cache.bytes));

  tensors[1].dtype = LATHE_DTYPE_FLOAT16;
  RequireInvalid(merge, "parts[1].dtype is 1, must be float32 here");
}

}  // namespace
}  // namespace lathe::test
