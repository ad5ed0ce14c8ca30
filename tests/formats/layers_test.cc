// SPDX-License-Identifier: Apache-2.0
// Many layers in one call, and what a write refuses before it touches a byte.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "formats/format_pages.h"

namespace lathe::test {
namespace {

// A layer of its own format, width, page size and number of tokens.
struct Layer {
  Layer(CacheFormat format, int64_t num_tokens, int64_t block_size, uint32_t seed)
      : width(ShapeOf(format, 1).head_dim()),
        rows(static_cast<size_t>(num_tokens * width)),
        pages(format, width, num_tokens / block_size + 2, block_size, 64, 0.5f) {
    Random random(seed, 1);
    for (float& x : rows) x = random.Normal();
    for (int64_t i = 0; i < num_tokens; ++i) {
      slots.push_back(i % 7 == 3 ? -1 : static_cast<int32_t>(num_tokens - i));
    }
    args.kv_c = Packed(static_cast<const float*>(rows.data()), num_tokens, width);
    args.slot_mapping = Packed(static_cast<const int32_t*>(slots.data()), num_tokens);
    args.cache = pages.cache;
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  int64_t width;
  Guarded<float> rows;
  FormatPages pages;
  std::vector<int32_t> slots;
  LatentWriteArgs args;
};

std::vector<std::unique_ptr<Layer>> MakeLayers() {
  std::vector<std::unique_ptr<Layer>> layers;
  int64_t num_tokens = 0;
  for (const FormatRow& row : kFormats) {
    // 0, 1, ... many tokens; ranges of 32 begin and end inside layers and span several.
    layers.push_back(std::make_unique<Layer>(row.format, num_tokens, 1 + num_tokens % 5,
                                             static_cast<uint32_t>(num_tokens)));
    num_tokens = num_tokens * 2 + 1;
    if (num_tokens > 200) num_tokens = 3;
  }
  return layers;
}

TEST_CASE("many layers in one call are so many single calls", "[formats]") {
  const Target target = LATHE_GENERATE_TARGET();
  const bool power_of_two = GENERATE(false, true);
  const size_t num_workers = GENERATE(1, 3);
  CAPTURE(Name(target), power_of_two, num_workers);
  LatentWriteOptions options;
  options.target = target;
  options.power_of_two_scales = power_of_two;
  const auto single = MakeLayers(), together = MakeLayers();
  std::vector<LatentWriteArgs> args;
  for (const auto& layer : together) args.push_back(layer->args);
  for (const auto& layer : single) REQUIRE(WriteLatentCache(layer->args, options).ok());
  REQUIRE(WriteLatentCaches(args.data(), args.size(), options, ThreadExecutor(num_workers)).ok());
  for (size_t i = 0; i < args.size(); ++i) {
    CAPTURE(i);
    REQUIRE(SameBits(together[i]->pages.bytes, single[i]->pages.bytes));
  }
}

TEST_CASE("layers may interleave in one block of memory", "[formats]") {
  // Page 0 of layer 0, page 0 of layer 1, page 1 of layer 0, ...
  FormatPages both(CacheFormat::kFp8Ds4, 512, 6, 4, 0);
  std::vector<float> rows(3 * 512, 2.0f);
  const int64_t slots[3] = {0, 5, 11};
  LatentWriteArgs layers[2];
  for (int64_t i = 0; i < 2; ++i) {
    LatentWriteArgs& args = layers[i];
    args.kv_c = Packed(static_cast<const float*>(rows.data()), 3, 512);
    args.slot_mapping = Packed(slots, 3);
    args.cache = both.cache;
    args.cache.data += i * both.cache.block_stride;
    args.cache.block_stride *= 2;
    args.cache.num_blocks = 3;
  }
  REQUIRE(WriteLatentCaches(layers, 2).ok());
  for (const int64_t slot : {0, 4, 9, 13, 19, 23}) {
    REQUIRE(both.Row(slot, 512)[511] == 2.0);
  }
}

TEST_CASE("no layers are no work, and a missing list is refused", "[formats]") {
  REQUIRE(WriteLatentCaches(nullptr, 0).ok());
  const Status status = WriteLatentCaches(nullptr, 1);
  REQUIRE(std::string(Format(status).c_str()) == "invalid argument: layers must not be null");
}

struct Refusal {
  CacheFormat format;
  const char* message;
  void (*break_it)(LatentWriteArgs& args);
};

TEST_CASE("what a layer's write refuses, all layers are spared", "[formats]") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  static_assert(kNan != kNan && kInf > 0);
  const std::vector<Refusal> refusals{
      {CacheFormat::kFp8DsMla, "cache.row_stride is 652, must be at least a record's bytes, 656",
       [](LatentWriteArgs& a) { a.cache.row_stride = 652; }},
      {CacheFormat::kFp8DsMla, "cache.row_stride is 658, must be a multiple of 4",
       [](LatentWriteArgs& a) {
         a.cache.row_stride = 658;
         a.cache.block_stride = 4 * 660;
       }},
      {CacheFormat::kFp8DsMla, "cache.data must be aligned to 4",
       [](LatentWriteArgs& a) { a.cache.data += 2; }},
      {CacheFormat::kFp8DsMla, "cache.block_stride is 2690, must be a multiple of 4",
       [](LatentWriteArgs& a) { a.cache.block_stride = 2690; }},
      {CacheFormat::kFp8Ds4, "cache.block_stride is 2334, must be at least a page's bytes, 2336",
       [](LatentWriteArgs& a) { a.cache.block_stride = 4 * 584 - 2; }},
      {CacheFormat::kFp8Ds4, "cache.row_stride is 574, must be at least a record's bytes, 576",
       [](LatentWriteArgs& a) { a.cache.row_stride = 574; }},
      {CacheFormat::kFp8Ds4, "cache.data must be aligned to 2",
       [](LatentWriteArgs& a) { a.cache.data += 1; }},
      {CacheFormat::kLatentFp8E4m3, "cache.scale is 0, must be finite and above 0",
       [](LatentWriteArgs& a) { a.cache.scale = 0.0f; }},
      {CacheFormat::kLatentFp8E5m2, "cache.scale is -1, must be finite and above 0",
       [](LatentWriteArgs& a) { a.cache.scale = -1.0f; }},
      {CacheFormat::kLatentFp8E4m3Fnuz, "cache.scale is nan, must be finite and above 0",
       [](LatentWriteArgs& a) { a.cache.scale = kNan; }},
      {CacheFormat::kLatentFp8E4m3, "cache.scale is inf, must be finite and above 0",
       [](LatentWriteArgs& a) { a.cache.scale = kInf; }},
      {CacheFormat::kFp8DsMla,
       "cache.format is kFp8DsMla, must be one for the width in use; this one's is 576: k_pe is "
       "not given, and "
       "the record is as wide as kv_c alone",
       [](LatentWriteArgs& a) { a.kv_c.extent[1] = 512; }},
      {CacheFormat::kDs41Fp8,
       "cache.format is kDs41Fp8, must be one for the width in use; this one's is 512: k_pe is not "
       "given, and "
       "the record is as wide as kv_c alone",
       [](LatentWriteArgs& a) { a.kv_c.extent[1] = 448; }},
      {CacheFormat::kNvfp4DsMla, "cache.format is 99, must be a known CacheFormat",
       [](LatentWriteArgs& a) { a.cache.format = static_cast<CacheFormat>(99); }},
      {CacheFormat::kDs41Fp4, "kv_c must not overlap cache",
       [](LatentWriteArgs& a) { a.kv_c.data = a.cache.data; }},
  };
  for (const Refusal& refusal : refusals) {
    INFO("expected: " << refusal.message);
    Layer good(CacheFormat::kLatentBFloat16, 5, 4, 1), bad(refusal.format, 9, 4, 2);
    REQUIRE(WriteLatentCache(bad.args).ok());
    bad.pages.bytes.Poison();
    refusal.break_it(bad.args);
    const LatentWriteArgs layers[2] = {good.args, bad.args};
    const Status status = WriteLatentCaches(layers, 2);
    REQUIRE_FALSE(status.ok());
    const std::string message = Format(status).c_str();
    REQUIRE(message.substr(message.find(": ") + 2) == refusal.message);
    for (const Layer* layer : {&good, &bad}) {
      for (const std::byte b : layer->pages.bytes) {
        if (b != std::byte{0xFF}) REQUIRE(b == std::byte{0xFF});
      }
    }
  }
}

TEST_CASE("one layer's source in another layer's cache is refused", "[formats]") {
  Layer first(CacheFormat::kLatentFloat32, 5, 4, 1), second(CacheFormat::kLatentFloat32, 5, 4, 2);
  second.args.kv_c.data = first.pages.bytes.data();
  const LatentWriteArgs layers[2] = {first.args, second.args};
  const Status status = WriteLatentCaches(layers, 2);
  REQUIRE(std::string(Format(status).c_str()) == "invalid argument: kv_c must not overlap cache");
}

}  // namespace
}  // namespace lathe::test
