// SPDX-License-Identifier: Apache-2.0
// Writes with a transform: the bytes of preparing rows first and writing them then, for every format.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>
#include <string>

#include "formats/format_pages.h"
#include "lathe/latent_cache.h"
#include "lathe/query_prep.h"
#include "support/require_ok.h"
#include "support/row_transform.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

constexpr int64_t kTokens = 40;

// Tokens of two parts; every third one is not written and has no position.
struct Tokens {
  Tokens(DType type, int64_t c_width, int64_t pe_width)
      : kv_c(type, {kTokens, c_width}),
        k_pe(type, {kTokens, pe_width}),
        slots(static_cast<size_t>(kTokens)),
        positions(static_cast<size_t>(kTokens)) {
    Random random(11);
    for (size_t i = 0; i < kv_c.size(); ++i) kv_c.Set(i, 3.0f * random.Normal());
    for (size_t i = 0; i < k_pe.size(); ++i) k_pe.Set(i, 3.0f * random.Normal());
    for (int64_t i = 0; i < kTokens; ++i) {
      const bool is_written = i % 3 != 1;
      slots[static_cast<size_t>(i)] = is_written ? kTokens - 1 - i : -1;
      positions[static_cast<size_t>(i)] = is_written ? static_cast<int32_t>(i % kNumPositions) : 99;
    }
  }

  LatentWriteArgs Args(const FormatPages& pages) const {
    LatentWriteArgs args;
    args.kv_c = kv_c.in();
    if (k_pe.size() > 0) args.k_pe = k_pe.in();
    args.slot_mapping = Packed(slots.data(), slots.size());
    args.positions = Packed(positions.data(), positions.size());
    args.cache = pages.cache;
    return args;
  }

  AnyTensor<2> kv_c, k_pe;
  Guarded<int64_t> slots;
  Guarded<int32_t> positions;
};

// One part, transformed by itself.
AnyTensor<2> Prepare(const AnyTensor<2>& rows, const RowTransform& transform, Target target) {
  const int64_t width = rows.in().extent[1];
  AnyTensor<2> out(DType::kFloat32, {kTokens, width});
  const auto as_queries = [](auto to, const auto& from) {
    to.data = from.data;
    to.dtype = from.dtype;
    to.extent[0] = from.extent[0];
    to.extent[1] = 1;
    to.extent[2] = from.extent[1];
    to.stride[0] = to.stride[1] = from.stride[0];
    to.stride[2] = 1;
    return to;
  };
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < kTokens; ++i) positions.push_back(i % kNumPositions);
  QueryPrepArgs args;
  args.q = as_queries(In<3>(), rows.in());
  args.out = as_queries(Out<3>(), out.out());
  args.transform = transform;
  args.positions = Packed(static_cast<const int64_t*>(positions.data()), positions.size());
  QueryPrepOptions options;
  options.target = target;
  RequireOk(PrepareQueries(args, options));
  return out;
}

// Which norm and how much rope rows of a width get here.
TransformCase CaseFor(int64_t width) {
  TransformCase c;
  if (width == 128) {  // keys of DeepSeek-V3.2's indexer
    c = {NormKind::kLayer, true, true, 64, false, true};
    c.hadamard = true;
  } else {
    c = {NormKind::kRms, width != 512, false, 64};
  }
  return c;
}

TEST_CASE("a whole row is transformed as a query is", "[latent_cache][row_transform]") {
  const Target target = LATHE_GENERATE_TARGET();
  const bool round = GENERATE(false, true);
  for (const FormatRow& format : kFormats) {
    for (const DType type : kDTypes) {
      CAPTURE(Name(target), format.name, Name(type), round);
      const int64_t width = WidthOf(format.format);
      TransformCase c = CaseFor(width);
      c.round_to_bfloat16 = round;
      c.type = type;
      const TransformTables tables(c, width);
      const Tokens tokens(type, width, 0);
      FormatPages fused(format.format, width, 10, 4, 64, 0.03f);
      FormatPages apart(format.format, width, 10, 4, 64, 0.03f);
      LatentWriteOptions options;
      options.target = target;
      LatentWriteArgs args = tokens.Args(fused);
      args.transform = tables.transform;
      RequireOk(WriteLatentCache(args, options, ThreadExecutor(3)));

      const AnyTensor<2> rows = Prepare(tokens.kv_c, tables.transform, target);
      args = tokens.Args(apart);
      args.kv_c = rows.in();
      RequireOk(WriteLatentCache(args, options));
      REQUIRE(SameBits(fused.bytes.Copy(), apart.bytes.Copy()));
      REQUIRE(fused.bytes.IsFrontIntact());
    }
  }
}

TEST_CASE("with k_pe the norm acts on kv_c and the rope on k_pe", "[latent_cache][row_transform]") {
  const Target target = LATHE_GENERATE_TARGET();
  const bool round = GENERATE(false, true);
  for (const FormatRow& format : kFormats) {
    const int64_t width = WidthOf(format.format), rank = width - 64;
    CAPTURE(Name(target), format.name, round);
    TransformCase norm_only = {NormKind::kRms, true}, rope_only;
    rope_only.rope_dim = 64;
    norm_only.round_to_bfloat16 = rope_only.round_to_bfloat16 = round;
    const TransformTables norm(norm_only, rank), rope(rope_only, 64);
    const Tokens tokens(DType::kBFloat16, rank, 64);
    FormatPages fused(format.format, width, 10, 4, 64), apart(format.format, width, 10, 4, 64);
    LatentWriteOptions options;
    options.target = target;
    LatentWriteArgs args = tokens.Args(fused);
    args.transform = norm.transform;
    args.transform.rope = rope.transform.rope;
    RequireOk(WriteLatentCache(args, options, ThreadExecutor(2)));

    const AnyTensor<2> kv_c = Prepare(tokens.kv_c, norm.transform, target);
    const AnyTensor<2> k_pe = Prepare(tokens.k_pe, rope.transform, target);
    args = tokens.Args(apart);
    args.kv_c = kv_c.in();
    args.k_pe = k_pe.in();
    RequireOk(WriteLatentCache(args, options));
    REQUIRE(SameBits(fused.bytes.Copy(), apart.bytes.Copy()));
  }
}

TEST_CASE("indexer keys are written with a transform", "[latent_cache][row_transform]") {
  const Target target = LATHE_GENERATE_TARGET();
  const bool power_of_two = GENERATE(false, true);
  for (const CacheFormat format :
       {CacheFormat::kIndexerFp8, CacheFormat::kIndexerMxfp4, CacheFormat::kLatentBFloat16}) {
    const TransformTables tables(CaseFor(128), 128);
    const Tokens tokens(DType::kBFloat16, 128, 0);
    FormatPages fused(format, 128, 10, 4), apart(format, 128, 10, 4);
    const AnyTensor<2> rows = Prepare(tokens.kv_c, tables.transform, target);
    LatentWriteArgs args;
    args.kv_c = tokens.kv_c.in();
    args.slot_mapping = tokens.Args(fused).slot_mapping;
    args.cache = fused.cache;
    args.transform = tables.transform;
    args.positions = tokens.Args(fused).positions;
    const LatentWriteOptions options{target, power_of_two};
    RequireOk(WriteLatentCache(args, options));
    args.kv_c = rows.in();
    args.cache = apart.cache;
    args.transform = {};
    args.positions = {};
    RequireOk(WriteLatentCache(args, options));
    CAPTURE(Name(target), NameOf(format));
    REQUIRE(SameBits(fused.bytes.Copy(), apart.bytes.Copy()));
  }
}

// Each layer has weights and tables of its own.
TEST_CASE("layers are written with their transforms", "[latent_cache][row_transform]") {
  const Tokens tokens(DType::kFloat32, 512, 0);
  const TransformTables first(CaseFor(512), 512), second({NormKind::kRms, true, false, 32}, 512, 9);
  FormatPages pages[3] = {{CacheFormat::kFp8Ds4, 512, 10, 4},
                          {CacheFormat::kBf16Ds4, 512, 10, 4},
                          {CacheFormat::kFp8Ds4, 512, 10, 4}};
  LatentWriteArgs layers[3] = {tokens.Args(pages[0]), tokens.Args(pages[1]), tokens.Args(pages[2])};
  layers[0].transform = first.transform;
  layers[1].transform = second.transform;
  RequireOk(WriteLatentCaches(layers, 3, {}, ThreadExecutor(7)));
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<std::byte> together = pages[i].bytes.Copy();
    pages[i].bytes.Poison();
    RequireOk(WriteLatentCache(layers[i]));
    REQUIRE(SameBits(pages[i].bytes.Copy(), together));
  }
}

struct Refusal {
  const char* message;
  void (*break_it)(LatentWriteArgs& args, std::byte* cache);
};

TEST_CASE("a write refuses wrong transforms", "[latent_cache][validation]") {
  const Refusal refusals[] = {
      {"invalid argument: transform.norm.weight.extent[0] is 511, must be 512",
       [](LatentWriteArgs& args, std::byte*) { args.transform.norm.weight.extent[0] = 511; }},
      {"invalid argument: transform.rope.cos.extent[1] is 33, must be at most half of the row's "
       "width, 32",
       [](LatentWriteArgs& args, std::byte*) {
         Rope& rope = args.transform.rope;
         rope.cos.extent[1] = rope.sin.extent[1] = 33;
         rope.cos.extent[0] = rope.sin.extent[0] = 10;
       }},
      {"invalid argument: transform.hadamard must not be asked for with k_pe",
       [](LatentWriteArgs& args, std::byte*) { args.transform.hadamard = true; }},
      {"invalid argument: transform.hadamard must not be asked for unless the row's width is a "
       "power of two; it is 576",
       [](LatentWriteArgs& args, std::byte*) {
         args.kv_c.extent[1] = args.kv_c.stride[0] = 576;
         args.kv_c.extent[0] = 1;
         args.slot_mapping.extent[0] = 1;
         args.k_pe = {};
         args.transform.norm = {};
         args.transform.hadamard = true;
       }},
      {"index out of range: positions[2] is 11, must be below the rope's cos.extent[0] = 11",
       [](LatentWriteArgs& args, std::byte*) {
         static constexpr int64_t kPositions[] = {0, 99, 11, 0};
         args.positions = Packed(kPositions, 4);
         args.slot_mapping.extent[0] = 4;
       }},
      {"invalid argument: positions.extent[0] is 39, must be at least the number of rows, 40",
       [](LatentWriteArgs& args, std::byte*) { args.positions.extent[0] = 39; }},
      {"invalid argument: positions must not overlap cache",
       [](LatentWriteArgs& args, std::byte* cache) {
         std::memset(cache, 0, 400);
         args.positions.data = cache;
       }},
      {"invalid argument: transform must not overlap cache",
       [](LatentWriteArgs& args, std::byte* cache) { args.transform.norm.weight.data = cache; }},
      {"invalid argument: transform must not be given with records of more columns than 4096",
       [](LatentWriteArgs& args, std::byte*) {
         args.k_pe = {};
         args.slot_mapping.extent[0] = 1;
         args.kv_c.extent[0] = 1;
         args.kv_c.extent[1] = 4097;
         args.cache.num_blocks = args.cache.block_size = 1;
         args.cache.row_stride = args.cache.block_stride = 4097 * 2;
         static constexpr int64_t kSlot = 0;
         args.slot_mapping = Packed(&kSlot, 1);
       }},
  };
  const TransformTables tables({NormKind::kRms, true, false, 64}, 512);
  const Tokens tokens(DType::kFloat32, 512, 64);
  for (const Refusal& refusal : refusals) {
    INFO("expected: " << refusal.message);
    FormatPages pages(CacheFormat::kLatentBFloat16, 576, 10, 4);
    LatentWriteArgs args = tokens.Args(pages);
    args.transform = tables.transform;
    RequireOk(WriteLatentCache(args));
    refusal.break_it(args, pages.bytes.data());
    const std::vector<std::byte> before = pages.bytes.Copy();
    const Status status = WriteLatentCache(args);
    REQUIRE(std::string(Format(status).c_str()) == refusal.message);
    REQUIRE(SameBits(pages.bytes.Copy(), before));
  }
}

}  // namespace
}  // namespace lathe::test
