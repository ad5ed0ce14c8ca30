// SPDX-License-Identifier: Apache-2.0
// Key caches of an indexer: the bytes of known keys, where they lie, scales for every amax,
// refusals.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "formats/format_pages.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

constexpr int64_t kWidth = 128;
constexpr CacheFormat kPlain[] = {CacheFormat::kLatentFloat32, CacheFormat::kLatentFloat16,
                                  CacheFormat::kLatentBFloat16};

struct Keys {
  explicit Keys(int64_t n) : values(static_cast<size_t>(n * kWidth)), num_keys(n) {
    std::fill(values.begin(), values.end(), 0.0f);
  }
  float& At(int64_t key, int64_t c) { return values[static_cast<size_t>(key * kWidth + c)]; }

  LatentWriteArgs Args(const FormatPages& pages, const std::vector<int32_t>& slots) const {
    LatentWriteArgs args;
    args.kv_c = Packed(static_cast<const float*>(values.data()), num_keys, kWidth);
    args.slot_mapping = Packed(slots.data(), slots.size());
    args.cache = pages.cache;
    return args;
  }

  Guarded<float> values;
  int64_t num_keys;
};

void Write(const LatentWriteArgs& args, Target target, bool power_of_two = false) {
  LatentWriteOptions options;
  options.target = target;
  options.power_of_two_scales = power_of_two;
  const Status status = WriteLatentCache(args, options, ThreadExecutor(2));
  INFO(Format(status).c_str());
  REQUIRE(status.ok());
}

// A page of 64 keys: 8192 bytes of codes, then 256 of scales.
TEST_CASE("fp8 keys and their scales lie in two parts of a page", "[formats][indexer]") {
  const bool power_of_two = GENERATE(false, true);
  Keys keys(2);
  keys.At(0, 3) = 448.0f;
  keys.At(0, 127) = -1.0f;
  keys.At(1, 0) = 896.0f;  // a scale of 2
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    FormatPages pages(CacheFormat::kIndexerFp8, kWidth, 2, 64, 64);
    std::vector<std::byte> expected = pages.bytes.Copy();
    const size_t page = 64 * 132 + 64;
    const auto put_scale = [&expected](size_t at, float scale) {
      std::memcpy(&expected[at], &scale, sizeof(scale));
    };
    std::fill_n(expected.begin() + page + 5 * 128, 128, std::byte{0});
    expected[page + 5 * 128 + 3] = std::byte{0x7E};
    expected[page + 5 * 128 + 127] = std::byte{0xB8};
    put_scale(page + 8192 + 5 * 4, 1.0f);
    std::fill_n(expected.begin() + 63 * 128, 128, std::byte{0});
    expected[63 * 128] = std::byte{0x7E};
    put_scale(8192 + 63 * 4, 2.0f);
    Write(keys.Args(pages, {64 + 5, 63}), target, power_of_two);
    REQUIRE(SameBits(pages.bytes.Copy(), expected));
  }
}

// A page of 4 keys: 256 bytes of codes, then 16 of scales.
TEST_CASE("mxfp4 keys and their scales lie in two parts of a page", "[formats][indexer]") {
  Keys keys(1);
  keys.At(0, 0) = 6.0f;  // codes 7, 9, ... of scale 1
  keys.At(0, 1) = -0.5f;
  keys.At(0, 33) = 6.1f;  // rounded up to a scale of 2
  keys.At(0, 96) = std::numeric_limits<float>::infinity();
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    FormatPages pages(CacheFormat::kIndexerMxfp4, kWidth, 1, 4);
    std::vector<std::byte> expected = pages.bytes.Copy();
    std::fill_n(expected.begin() + 2 * 64, 64, std::byte{0});
    expected[2 * 64] = std::byte{0x97};
    expected[2 * 64 + 16] = std::byte{0x50};  // 3.05 -> 3
    const uint8_t scales[4] = {127, 128, 1, 255};
    std::memcpy(&expected[256 + 2 * 4], scales, 4);
    Write(keys.Args(pages, {2}), target);
    REQUIRE(SameBits(pages.bytes.Copy(), expected));
  }
}

std::vector<float> Amaxes() {
  std::vector<float> amaxes;
  const auto add = [&amaxes](float x) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    for (const float y : {std::nextafter(x, 0.0f), x, std::nextafter(x, kInf)}) {
      if (std::isfinite(y)) amaxes.push_back(y);
    }
  };
  add(0.0f);
  add(1e-4f);
  for (int e = -149; e < 128; ++e) {
    add(std::ldexp(1.0f, e));
    add(std::ldexp(448.0f, e));
    add(std::ldexp(6.0f, e));
  }
  for (uint32_t bits = 0; bits < detail::kFloatInfinity; bits += 50021) {
    amaxes.push_back(detail::FloatOf(bits));
  }
  return amaxes;
}

// The smallest power of two, of exponent >= least, whose `largest` multiple reaches amax.
int Exponent(double amax, double largest, int least) {
  int e = least;
  while (largest * std::ldexp(1.0, e) < amax) ++e;
  return e;
}

TEST_CASE("scales of an indexer's keys follow the rules for every amax", "[formats][indexer]") {
  const std::vector<float> amaxes = Amaxes();
  constexpr size_t kKeys = 256;
  Keys keys(kKeys);
  std::vector<int32_t> slots(kKeys);
  for (size_t i = 0; i < kKeys; ++i) slots[i] = static_cast<int32_t>(i);
  FormatPages fp8(CacheFormat::kIndexerFp8, kWidth, 4, 64), pow2(fp8.cache.format, kWidth, 4, 64);
  FormatPages mxfp4(CacheFormat::kIndexerMxfp4, kWidth, 4, 64);
  const Target target = LATHE_GENERATE_TARGET();
  INFO("target " << Name(target));
  int64_t wrong = 0;
  for (size_t first = 0; first < amaxes.size(); first += kKeys) {
    const size_t n = std::min(kKeys, amaxes.size() - first);
    for (size_t i = 0; i < n; ++i) {
      const float amax = amaxes[first + i];
      const auto key = static_cast<int64_t>(i);
      for (int64_t c = 0; c < kWidth; ++c) keys.At(key, c) = amax / 3;
      for (int64_t tile = 0; tile < 4; ++tile) {
        keys.At(key, tile * 32 + (key + tile) % 32) = (key + tile) % 2 == 0 ? amax : -amax;
      }
    }
    Write(keys.Args(fp8, slots), target);
    Write(keys.Args(pow2, slots), target, true);
    Write(keys.Args(mxfp4, slots), target);
    for (size_t i = 0; i < n; ++i) {
      const auto key = static_cast<int64_t>(i);
      const float amax = std::max(amaxes[first + i], 1e-4f);
      wrong += detail::LoadAs<float>(fp8.Side(key)) != amax / 448.0f;
      const int e = Exponent(double{amax}, 448.0, -60);
      wrong += detail::LoadAs<float>(pow2.Side(key)) != std::ldexp(1.0f, e);
      const int byte = Exponent(double{amaxes[first + i]}, 6.0, -126) + 127;
      for (int tile = 0; tile < 4; ++tile) {
        wrong += std::to_integer<int>(mxfp4.Side(key)[tile]) != byte;
      }
    }
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("plain keys of any width", "[formats][indexer]") {
  const CacheFormat format = GENERATE(from_range(std::begin(kPlain), std::end(kPlain)));
  const int64_t width = GENERATE(1, 64, 100, 128);
  CAPTURE(NameOf(format), width);
  FormatPages pages(format, width, 1, 3);
  std::vector<float16> k(static_cast<size_t>(2 * width));
  Random random(7);
  for (float16& x : k) x = FromFloat<float16>(random.Normal());
  const int32_t slots[2] = {2, 0};
  LatentWriteArgs args;
  args.kv_c = Packed(static_cast<const float16*>(k.data()), 2, width);
  args.slot_mapping = Packed(slots, 2);
  args.cache = pages.cache;
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    pages.bytes.Poison();
    Write(args, target);
    for (int64_t i = 0; i < 2; ++i) {
      const std::vector<double> row = pages.Row(slots[i], width);
      for (int64_t c = 0; c < width; ++c) {
        const float x = ToFloat(k[static_cast<size_t>(i * width + c)]);
        const bool is_bfloat16 = format == CacheFormat::kLatentBFloat16;
        REQUIRE(row[static_cast<size_t>(c)] ==
                double{is_bfloat16 ? ToFloat(FromFloat<bfloat16>(x)) : x});
      }
    }
    REQUIRE(std::isnan(pages.Row(1, width)[0]));
  }
}

TEST_CASE("an indexer write refuses", "[formats][indexer][validation]") {
  struct Row {
    const char* message;
    void (*break_it)(LatentWriteArgs& args);
  };
  using Args = LatentWriteArgs;
  const Row rows[] = {
      {"invalid argument: kv_c.extent[1] is 0, must be at least 1", [](Args& a) { a.kv_c = {}; }},
      {"invalid argument: kv_c.data must not be null", [](Args& a) { a.kv_c.data = nullptr; }},
      {"invalid argument: kv_c.extent[0] is 1, must be at least slot_mapping.extent[0] = 2",
       [](Args& a) { a.kv_c.extent[0] = 1; }},
      {"invalid argument: kv_c.stride[0] is 127, must be at least a row's width, 128",
       [](Args& a) { a.kv_c.stride[0] = 127; }},
      {"invalid argument: kv_c must not overlap cache",
       [](Args& a) { a.kv_c.data = a.cache.data; }},
      {"invalid argument: cache.format is kIndexerFp8, must be one for the width in use; this "
       "one's is 128: k_pe is not given, and the record is as wide as kv_c alone",
       [](Args& a) { a.kv_c.extent[1] = 64; }},
      {"invalid argument: cache.row_stride is 127, must be at least a record's bytes, 128",
       [](Args& a) { a.cache.row_stride = 127; }},
      {"invalid argument: cache.row_stride is 130, must be a multiple of 4",
       [](Args& a) {
         a.cache.row_stride = 130;
         a.cache.block_stride = 1000;
       }},
      {"invalid argument: cache.block_stride is 527, must be at least a page's bytes, 528",
       [](Args& a) { a.cache.block_stride = 527; }},
      {"invalid argument: cache.data must be aligned to 4", [](Args& a) { a.cache.data += 2; }},
  };
  const Keys keys(2);
  const std::vector<int32_t> slots{1, 6};
  for (const Row& row : rows) {
    INFO("expected: " << row.message);
    FormatPages pages(CacheFormat::kIndexerFp8, kWidth, 2, 4);
    const std::vector<std::byte> before = pages.bytes.Copy();
    LatentWriteArgs args = keys.Args(pages, slots);
    row.break_it(args);
    const Status status = WriteLatentCache(args);
    REQUIRE_FALSE(status.ok());
    REQUIRE(std::string(Format(status).c_str()) == row.message);
    REQUIRE(SameBits(pages.bytes.Copy(), before));
  }
  FormatPages pages(CacheFormat::kIndexerFp8, kWidth, 1, 4);
  const Status status = WriteLatentCache(keys.Args(pages, slots));
  REQUIRE(std::string(Format(status).c_str()) ==
          "index out of range: slot_mapping[1] is 6, must be below cache.num_blocks * "
          "cache.block_size = 4");
}

}  // namespace
}  // namespace lathe::test
