// SPDX-License-Identifier: Apache-2.0
// Where records go: every width, stride, page layout and slot width; not one byte elsewhere.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/latent_write.h"
#include "support/targets.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

void RequireWrites(const WriteCase& c, Target target = Target::kAuto) {
  WriteProblem problem(c);
  problem.options.target = target;
  problem.Run();
  problem.RequireAsExpected();
  problem.Reset();
  problem.UseInt32Slots();
  problem.Run();
  problem.RequireAsExpected();
}

TEST_CASE("records of every width are written whole", "[latent_cache]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  for (const DType cache_type : kDTypes) {
    for (int64_t width = 1; width <= 130; ++width) {
      CAPTURE(Name(cache_type), width);
      WriteCase c;
      c.c_type = kDTypes[width % 3];
      c.cache_type = cache_type;
      c.c_width = width;
      c.pe_width = 0;
      c.slots = {3, 0, 11};
      RequireWrites(c, target);
      c.pe_type = kDTypes[(width / 3) % 3];  // the rope part starts wherever the latent ends
      c.pe_width = 131 - width;
      RequireWrites(c, target);
    }
  }
}

TEST_CASE("kv_c and k_pe may be of different types", "[latent_cache]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const DType c_type : kDTypes) {
    for (const DType pe_type : kDTypes) {
      for (const DType cache_type : kDTypes) {
        CAPTURE(Name(target), Name(c_type), Name(pe_type), Name(cache_type));
        WriteCase c;
        c.c_type = c_type;
        c.pe_type = pe_type;
        c.cache_type = cache_type;
        c.slots = {5, 6, 0};
        RequireWrites(c, target);
      }
    }
  }
}

TEST_CASE("source rows may be strided and more than are written", "[latent_cache]") {
  for (const DType cache_type : kDTypes) {
    WriteCase c;
    c.cache_type = cache_type;
    c.c_type = DType::kBFloat16;
    c.c_width = 37;
    c.pe_width = 11;
    c.c_stride = 53;
    c.pe_stride = 12;
    c.source_rows = 9;
    c.slots = {10, 1, 4};
    RequireWrites(c);
  }
}

TEST_CASE("kv_c and k_pe may be slices of one tensor", "[latent_cache]") {
  WriteCase c;
  c.c_width = 576;
  c.pe_width = 0;
  c.slots = {2, 9};
  WriteProblem problem(c);
  const std::vector<std::byte> expected = problem.Expected();
  const In<2> joined = problem.args.kv_c;
  problem.args.kv_c.extent[1] = 512;
  problem.args.k_pe = joined;
  problem.args.k_pe.extent[1] = 64;
  problem.args.k_pe.data += 512 * sizeof(float);
  problem.Run();
  REQUIRE(SameBits(problem.cache, expected));
}

TEST_CASE("gaps between rows and pages keep their bytes", "[latent_cache]") {
  const int64_t block_size = GENERATE(1, 3, 16, 61, 64);
  for (const DType cache_type : kDTypes) {
    CAPTURE(block_size, Name(cache_type));
    WriteCase c;
    c.cache_type = cache_type;
    c.c_width = 21;
    c.pe_width = 6;
    c.block_size = block_size;
    c.slots = {3 * block_size - 1, block_size, 0, 2 * block_size};
    if (block_size == 1) c.slots = {2, 1, 0};
    c.row_stride = 29;
    c.block_stride = block_size * 29 + 5;
    RequireWrites(c);
    // Interleaved: slot 0 of every page first, then slot 1.
    c.block_stride = 28;
    c.row_stride = 3 * 28;
    RequireWrites(c);
  }
}

TEST_CASE("A4: skipped tokens change nothing", "[latent_cache][A4]") {
  const Target target = LATHE_GENERATE_TARGET();
  const DType cache_type = GENERATE(from_range(kDTypes));
  CAPTURE(Name(target), Name(cache_type));
  WriteCase c;
  c.cache_type = cache_type;
  c.slots = {5, -1, -1};
  WriteProblem problem(c);
  problem.options.target = target;
  for (int64_t token = 0; token < 3; ++token) {
    for (const In<2>* part : {&problem.args.kv_c, &problem.args.k_pe}) {
      for (int64_t i = 0; i < part->extent[1]; ++i) {
        auto* element = const_cast<std::byte*>(part->data) +
                        (token * part->stride[0] + i) * static_cast<int64_t>(sizeof(float));
        StoreElement(DType::kFloat32, element,
                     token == 0 ? 1.0f : std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
  problem.Run();
  problem.RequireAsExpected();
  const auto bytes = static_cast<int64_t>(SizeOf(cache_type));
  for (int64_t i = 0; i < 576; ++i) {
    REQUIRE(LoadElement(cache_type, problem.cache.data() + (5 * 576 + i) * bytes) == 1.0f);
  }
  REQUIRE(problem.cache[0] == std::byte{WriteProblem::kCanary});
  REQUIRE(problem.cache[problem.cache.size() - 1] == std::byte{WriteProblem::kCanary});

  for (const int64_t skip : {int64_t{-1}, int64_t{-2147483648}}) {
    for (size_t i = 0; i < 3; ++i)
      problem.slots64[i] = problem.slots32[i] = static_cast<int32_t>(skip);
    for (int width = 0; width < 2; ++width) {
      problem.Reset();
      problem.Run();
      REQUIRE(problem.IsUntouched());
      problem.UseInt32Slots();
    }
  }
  problem.slots64[0] = problem.slots64[1] = problem.slots64[2] =
      std::numeric_limits<int64_t>::min();
  problem.args.slot_mapping = Packed(problem.slots64.data(), 3);
  problem.Reset();
  problem.Run();
  REQUIRE(problem.IsUntouched());
}

TEST_CASE("no tokens: nothing happens", "[latent_cache]") {
  REQUIRE(WriteLatentCache(LatentWriteArgs{}).ok());
  // A step without tokens, over buffers with room for some.
  WriteProblem problem(WriteCase{});
  problem.args.slot_mapping = Packed(static_cast<const int64_t*>(nullptr), 0);
  problem.Run();
  REQUIRE(problem.IsUntouched());
}

TEST_CASE("A5: records past 2^31 and 2^32 elements", "[latent_cache][A5]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  constexpr int64_t kPageBytes = 64 * 576 * 2;
  constexpr int64_t kBlocks[] = {58254, 58255, 116509};
  SparseMemory memory(static_cast<size_t>(116510 * kPageBytes));
  WriteCase c;
  c.slots.clear();
  for (const int64_t block : kBlocks) c.slots.push_back(block * 64 + 63 * (block & 1));
  WriteProblem problem(c);
  problem.args.cache.data = memory.data();
  problem.args.cache.num_blocks = 116510;
  problem.args.cache.block_size = 64;
  problem.args.cache.block_stride = kPageBytes;
  problem.options.target = target;
  problem.Run();
  for (int64_t token = 0; token < 3; ++token) {
    const int64_t slot = c.slots[static_cast<size_t>(token)];
    const std::byte* record = memory.data() + slot * 1152;
    size_t num_wrong = 0;
    for (int64_t i = 0; i < 576; ++i) {
      const In<2>& part = i < 512 ? problem.args.kv_c : problem.args.k_pe;
      const int64_t at = token * part.stride[0] + (i < 512 ? i : i - 512);
      bfloat16 written;
      std::memcpy(&written, record + 2 * i, 2);
      const float value = LoadElement(part.dtype, part.data + 4 * at);
      if (written.bits != FromFloat<bfloat16>(value).bits) ++num_wrong;
    }
    REQUIRE(num_wrong == 0);
    // Nothing where the offset would be had it wrapped in 32 bits, signed or not, or beside it.
    const std::byte zeros[1152] = {};
    for (const int64_t wrap : {int64_t{1} << 32, int64_t{1} << 33}) {
      if (slot * 1152 < wrap) continue;
      REQUIRE(std::memcmp(memory.data() + slot * 1152 % wrap, zeros, 1152) == 0);
    }
    REQUIRE(std::memcmp(record - 1152, zeros, 1152) == 0);
  }
}

TEST_CASE("two tokens with one slot leave one of the two records", "[latent_cache]") {
  WriteCase c;
  c.slots = {6, 6};
  WriteProblem problem(c);
  problem.Run();
  const std::vector<std::byte> both = problem.cache.Copy();
  std::vector<std::vector<std::byte>> alone;
  for (size_t skipped = 0; skipped < 2; ++skipped) {
    problem.slots64[skipped] = -1;
    problem.slots64[1 - skipped] = 6;
    problem.Reset();
    problem.Run();
    problem.RequireAsExpected();
    alone.push_back(problem.cache.Copy());
  }
  REQUIRE(alone[0] != alone[1]);
  REQUIRE((both == alone[0] || both == alone[1]));
}

TEST_CASE("the number of threads changes no byte", "[latent_cache][A27]") {
  WriteCase c;
  c.c_width = 19;
  c.pe_width = 5;
  c.block_size = 7;
  c.num_blocks = 6000;
  c.slots.clear();
  for (int64_t i = 0; i < 40000; ++i) c.slots.push_back(i % 11 == 3 ? -1 : i * 4217 % 42000);
  WriteProblem problem(c);
  ThreadPerTask pool;
  for (const size_t num_workers : {1u, 2u, 3u, 16u, 1000u}) {
    CAPTURE(num_workers);
    problem.Reset();
    problem.Run(CallableExecutor(pool, num_workers));
    problem.RequireAsExpected();
  }
  problem.args.slot_mapping.extent[0] = 1;
  problem.Reset();
  problem.Run(CallableExecutor(pool, 1000));
  problem.RequireAsExpected();
}

}  // namespace
}  // namespace lathe::test
