// SPDX-License-Identifier: Apache-2.0
// Decode and indexer on AMX: which calls use tiles, on fresh threads, and beside others that use tiles too.
#include "support/amx_emulator.h"

#if LATHE_HAVE_AMX

#include <atomic>
#include <cstdlib>
#include <memory>

#include "indexer/indexer_problem.h"
#include "support/mla_problem.h"

namespace lathe::test {
namespace {

const TargetInfo& AmxTarget() {
  for (const TargetInfo& info : Targets()) {
    if (info.target == Target::kAmxBf16) return info;
  }
  std::abort();
}

#define LATHE_NEEDS_AMX_TARGET() \
  if (!AmxTarget().runnable) SKIP(AmxTarget().reason)

// A problem with a plan, to be run where nothing may be asserted: on other threads.
struct PlannedDecode {
  explicit PlannedDecode(const MlaCase& c, Target target = Target::kAmxBf16) : problem(c) {
    problem.options.target = target;
    problem.out.Poison();
    problem.lse.Poison();
    REQUIRE(problem
                .TryPlanned(1,
                            [this](const MlaDecodePlan& made, Buffer memory) {
                              plan = &made;
                              workspace = memory;
                              return OkStatus();
                            })
                .ok());
  }
  bool Run() { return RunMlaDecode(*plan, problem.args, workspace).ok(); }

  MlaProblem<bfloat16> problem;
  const MlaDecodePlan* plan = nullptr;
  Buffer workspace = {};
};

const MlaCase kSmall{{20, 512, 64}, {150, 33}};

arch::TileConfig CurrentConfig() {
  arch::TileConfig config;
  std::memset(&config, 0xAA, sizeof(config));
  asm volatile("sttilecfg %0" : "=m"(config)::"memory");
  return config;
}

// The tile user next door: C (5 x 7) = ones, by its own shapes.
struct OtherTileUser {
  static constexpr int kRows = 5, kColumns = 7, kPairs = 3;

  static arch::TileConfig Config() {
    arch::TileConfig config = {};
    config.palette = 1;
    config.rows[0] = config.rows[1] = kRows;
    config.rows[2] = kPairs;
    config.row_bytes[0] = config.row_bytes[2] = kColumns * 4;
    config.row_bytes[1] = kPairs * 4;
    return config;
  }

  static bool Multiply() {
    bfloat16 ones[kRows * kColumns * 2];
    for (bfloat16& one : ones) one = FromFloat<bfloat16>(1.0f);
    float c[kRows * kColumns] = {};
    EmulatedAmxTile::Configure(Config());
    arch::AmxTile::Load<1>(ones, kPairs * 4);
    arch::AmxTile::Load<2>(ones, kColumns * 4);
    arch::AmxTile::Zero<0>();
    arch::AmxTile::MultiplyBFloat16<0, 1, 2>();
    arch::AmxTile::Store<0>(c, kColumns * 4);
    for (const float x : c) {
      if (x != 2.0f * kPairs) return false;
    }
    return true;
  }
};

TEST_CASE("amx_bf16 is the best target, and kAuto means it", "[amx][target]") {
  LATHE_NEEDS_AMX_TARGET();
  REQUIRE(BestTarget() == Target::kAmxBf16);
  REQUIRE(Targets().data[0].target == Target::kAmxBf16);
  REQUIRE(AmxTarget().native_bf16);
  MlaProblem<bfloat16> problem(kSmall);
  problem.Run();
  const MlaResult<float> by_itself = problem.Result();
  problem.options.target = Target::kAmxBf16;
  problem.Run();
  REQUIRE(SameBits(problem.Result(), by_itself));
}

TEST_CASE("tiles multiply bf16 for more than 5 query rows of a sequence",
          "[amx][mla_decode][emulated]") {
  LATHE_NEEDS_AMX_TARGET();
  if (HasRealAmx()) SKIP("nobody counts the CPU's own instructions");
  struct Case {
    int64_t num_heads, q_len;
    bool uses_tiles;
  };
  const auto [num_heads, q_len, uses_tiles] =
      GENERATE(Case{1, 1, false}, Case{5, 1, false}, Case{6, 1, true}, Case{2, 3, true},
               Case{128, 1, true}, Case{130, 1, true});
  CAPTURE(num_heads, q_len);
  MlaProblem<bfloat16> problem({{num_heads, 512, 64}, {40}, {q_len}});
  problem.options.target = Target::kAmxBf16;
  const uint64_t before = EmulatedInstructions();
  problem.Run();
  REQUIRE((EmulatedInstructions() > before) == uses_tiles);
  // Float32 products are never made on tiles.
  const uint64_t after = EmulatedInstructions();
  problem.options.precision = Precision::kFloat32;
  problem.Run();
  REQUIRE(EmulatedInstructions() == after);
}

TEST_CASE("tiles score the heads of an indexer from 6 on", "[amx][indexer][emulated]") {
  LATHE_NEEDS_AMX_TARGET();
  if (HasRealAmx()) SKIP("nobody counts the CPU's own instructions");
  const int64_t heads = GENERATE(1, 5, 6, 64);
  CAPTURE(heads);
  IndexerCase c;
  c.heads = heads;
  c.seq_lens = {67};
  IndexerProblem problem(c);
  problem.options.target = Target::kAmxBf16;
  problem.options.precision = Precision::kBFloat16;
  const uint64_t before = EmulatedInstructions();
  problem.Run();
  REQUIRE((EmulatedInstructions() > before) == (heads > 5));
  const uint64_t after = EmulatedInstructions();
  problem.options.precision = Precision::kFloat32;
  problem.Run();
  REQUIRE(EmulatedInstructions() == after);
}

TEST_CASE("index lists choose by the rows of a token", "[amx][mla_decode][emulated]") {
  LATHE_NEEDS_AMX_TARGET();
  if (HasRealAmx()) SKIP("nobody counts the CPU's own instructions");
  MlaProblem<bfloat16> problem({{5, 512, 64}, {40}, {4}});
  const Guarded<int32_t> indices(std::vector<int32_t>{3, 1, 30, -1, 2, 5, 7, 9});
  problem.args.keys.indices = Packed(indices.data(), 4, 2);
  problem.options.target = Target::kAmxBf16;
  const uint64_t before = EmulatedInstructions();
  problem.Run();
  REQUIRE(EmulatedInstructions() == before);
  problem.RequireMatchesReference();
}

TEST_CASE("AMX works on fresh threads", "[amx][mla_decode][A26]") {
  LATHE_NEEDS_AMX_TARGET();
  PlannedDecode expected(kSmall);
  // The first call of all on a new thread.
  bool ok = false;
  OnThreads(1, [&](size_t) { ok = expected.Run(); });
  REQUIRE(ok);
  expected.problem.RequireMatchesReference();
  constexpr size_t kThreads = 64;
  std::vector<std::unique_ptr<PlannedDecode>> calls;
  for (size_t i = 0; i < kThreads; ++i) calls.push_back(std::make_unique<PlannedDecode>(kSmall));
  std::atomic<size_t> done{0};
  Barrier barrier(kThreads);
  OnThreads(kThreads, [&](size_t i) {
    barrier.Wait();
    if (calls[i]->Run()) ++done;
  });
  REQUIRE(done == kThreads);
  for (const auto& call : calls) {
    REQUIRE(SameBits(call->problem.Result(), expected.problem.Result()));
  }
}

TEST_CASE("no tiles are left configured when a call returns", "[amx][mla_decode]") {
  LATHE_NEEDS_AMX_TARGET();
  const AmxEmulation emulation;
  PlannedDecode call(kSmall);
  REQUIRE(call.Run());
  const arch::TileConfig none = {}, after = CurrentConfig();
  REQUIRE(std::memcmp(&after, &none, sizeof(none)) == 0);
}

TEST_CASE("other users of tiles do not matter, before, between and beside", "[amx][mla_decode]") {
  LATHE_NEEDS_AMX_TARGET();
  const AmxEmulation emulation;
  PlannedDecode expected(kSmall);
  REQUIRE(expected.Run());
  const MlaResult<float> result = expected.problem.Result();

  // Its configuration and data are there when we come.
  PlannedDecode call(kSmall);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(OtherTileUser::Multiply());
    REQUIRE(call.Run());
    REQUIRE(SameBits(call.problem.Result(), result));
  }

  // On other threads at the same time: neither sees the other.
  constexpr size_t kThreads = 4;
  std::vector<std::unique_ptr<PlannedDecode>> calls;
  for (size_t i = 0; i < kThreads; ++i) calls.push_back(std::make_unique<PlannedDecode>(kSmall));
  std::atomic<size_t> failed{0};
  Barrier barrier(2 * kThreads);
  OnThreads(2 * kThreads, [&](size_t i) {
    barrier.Wait();
    for (int round = 0; round < 3; ++round) {
      const bool ok = i % 2 == 0 ? calls[i / 2]->Run() : OtherTileUser::Multiply();
      if (!ok) ++failed;
    }
    if (i % 2 != 0) arch::AmxTile::Release();
  });
  REQUIRE(failed == 0);
  for (const auto& other : calls) REQUIRE(SameBits(other->problem.Result(), result));
}

TEST_CASE("how rows are cut into blocks does not change bits on tiles", "[amx][mla_decode]") {
  LATHE_NEEDS_AMX_TARGET();
  // Blocks of 128 rows, or of 32 and 64 where workers would be idle; the last one partial.
  const int64_t num_heads = GENERATE(33, 72, 130);
  CAPTURE(num_heads);
  MlaProblem<bfloat16> problem({{num_heads, 512, 64}, {500}});
  problem.options.target = Target::kAmxBf16;
  problem.Run();
  const MlaResult<float> serial = problem.Result();
  problem.RequireMatchesReference();
  for (const size_t num_workers : {size_t{2}, size_t{7}, size_t{40}}) {
    CAPTURE(num_workers);
    problem.Run(num_workers);
    REQUIRE(SameBits(problem.Result(), serial));
  }
}

TEST_CASE("keys of any stride are read where they lie", "[amx][mla_decode]") {
  LATHE_NEEDS_AMX_TARGET();
  // Pages of 16 and more: tiles read the cache; smaller and odd ones: copies. Widths of whole steps
  // of 32 columns, and not.
  const int64_t block_size = GENERATE(1, 8, 16, 17, 32, 48, 61);
  const MlaShape shape =
      GENERATE(MlaShape{17, 512, 64}, MlaShape{17, 64, 16}, MlaShape{17, 256, 64},
               MlaShape{17, 1024, 64}, MlaShape{17, 100, 7});
  CAPTURE(block_size, shape.kv_lora_rank, shape.qk_rope_head_dim);
  MlaCase c{shape, {70, 15}, {}, block_size};
  c.row_gap = block_size % 3;
  MlaProblem<bfloat16> problem(c);
  problem.options.target = Target::kAmxBf16;
  problem.Run();
  problem.RequireMatchesReference();
}

}  // namespace
}  // namespace lathe::test

#endif  // LATHE_HAVE_AMX
