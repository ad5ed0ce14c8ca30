// SPDX-License-Identifier: Apache-2.0
// A latent write in adversarial memory and its scalar model: the whole cache, byte for byte.
#ifndef LATHE_TESTS_SUPPORT_LATENT_WRITE_H_
#define LATHE_TESTS_SUPPORT_LATENT_WRITE_H_

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "lathe/latent_cache.h"
#include "support/memory.h"

namespace lathe::test {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

constexpr CacheFormat PlainFormat(DType dtype) {
  return dtype == DType::kFloat32   ? CacheFormat::kLatentFloat32
         : dtype == DType::kFloat16 ? CacheFormat::kLatentFloat16
                                    : CacheFormat::kLatentBFloat16;
}

// One element of a type known at run time, through the scalar codecs.
inline float LoadElement(DType dtype, const std::byte* from) {
  const auto load = [from](auto x) {
    std::memcpy(&x, from, sizeof(x));
    return ToFloat(x);
  };
  return dtype == DType::kFloat32   ? load(float{})
         : dtype == DType::kFloat16 ? load(float16{})
                                    : load(bfloat16{});
}
inline void StoreElement(DType dtype, std::byte* to, float value) {
  const auto store = [to](auto x) { std::memcpy(to, &x, sizeof(x)); };
  if (dtype == DType::kFloat32) store(value);
  if (dtype == DType::kFloat16) store(FromFloat<float16>(value));
  if (dtype == DType::kBFloat16) store(FromFloat<bfloat16>(value));
}

// Strides in elements, 0 = dense.
struct WriteCase {
  DType c_type = DType::kFloat32;
  DType pe_type = DType::kFloat32;
  DType cache_type = DType::kBFloat16;
  int64_t c_width = 512;
  int64_t pe_width = 64;  // 0: k_pe is not given
  int64_t c_stride = 0;
  int64_t pe_stride = 0;
  int64_t source_rows = 0;  // 0 = as many as slots
  int64_t num_blocks = 3;
  int64_t block_size = 4;
  int64_t row_stride = 0;
  int64_t block_stride = 0;
  std::vector<int64_t> slots = {7};
};

class WriteProblem {
 public:
  static constexpr int kCanary = 0xA5;

  explicit WriteProblem(const WriteCase& c, uint32_t seed = 1)
      : kv_c(0), k_pe(0), slots64(c.slots), slots32(c.slots.size()), cache(0), random_(seed) {
    const int64_t rows = std::max(c.source_rows, static_cast<int64_t>(c.slots.size()));
    args.kv_c = Fill(kv_c, c.c_type, rows, c.c_width, c.c_stride);
    if (c.pe_width > 0) args.k_pe = Fill(k_pe, c.pe_type, rows, c.pe_width, c.pe_stride);
    for (size_t i = 0; i < c.slots.size(); ++i) slots32[i] = static_cast<int32_t>(c.slots[i]);
    args.slot_mapping = Packed(slots64.data(), c.slots.size());

    const auto bytes = static_cast<int64_t>(SizeOf(c.cache_type));
    const int64_t width = c.c_width + c.pe_width;
    MutablePagedCache& pages = args.cache;
    pages.format = PlainFormat(c.cache_type);
    pages.num_blocks = c.num_blocks;
    pages.block_size = c.block_size;
    pages.row_stride = bytes * (c.row_stride > 0 ? c.row_stride : width);
    pages.block_stride =
        c.block_stride > 0 ? bytes * c.block_stride : c.block_size * pages.row_stride;
    cache = Guarded<std::byte>(static_cast<size_t>((c.num_blocks - 1) * pages.block_stride +
                                                   (c.block_size - 1) * pages.row_stride +
                                                   width * bytes));
    pages.data = cache.data();
    Reset();
    cache_type_ = c.cache_type;
  }

  void Reset() { std::memset(cache.data(), kCanary, cache.size()); }
  bool IsUntouched() const {
    return std::all_of(cache.begin(), cache.end(),
                       [](std::byte b) { return b == static_cast<std::byte>(kCanary); });
  }
  void UseInt32Slots() { args.slot_mapping = Packed(slots32.data(), slots32.size()); }

  // The cache as it must be afterwards, if slots do not repeat.
  std::vector<std::byte> Expected() const {
    std::vector<std::byte> bytes(cache.size(), static_cast<std::byte>(kCanary));
    for (int64_t token = 0; token < args.slot_mapping.extent[0]; ++token) {
      const int64_t slot = args.slot_mapping(token);
      if (slot < 0) continue;
      std::byte* record = bytes.data() + slot / args.cache.block_size * args.cache.block_stride +
                          slot % args.cache.block_size * args.cache.row_stride;
      for (const In<2>* part : {&args.kv_c, &args.k_pe}) {
        for (int64_t c = 0; c < part->extent[1]; ++c, record += SizeOf(cache_type_)) {
          const auto at = static_cast<size_t>(token * part->stride[0] + c) * SizeOf(part->dtype);
          StoreElement(cache_type_, record, LoadElement(part->dtype, part->data + at));
        }
      }
    }
    return bytes;
  }

  void Run(const Executor& executor = {}) {
    const Status status = WriteLatentCache(args, options, executor);
    INFO(Format(status).c_str());
    REQUIRE(status.ok());
  }
  void RequireAsExpected() const {
    const std::vector<std::byte> expected = Expected();
    REQUIRE(cache.size() == expected.size());
    const auto [have, want] = std::mismatch(cache.begin(), cache.end(), expected.begin());
    INFO("byte " << have - cache.begin());
    REQUIRE(want == expected.end());
    REQUIRE(cache.IsFrontIntact());
  }

  LatentWriteArgs args;
  LatentWriteOptions options;
  Guarded<std::byte> kv_c, k_pe;
  Guarded<int64_t> slots64;
  Guarded<int32_t> slots32;
  Guarded<std::byte> cache;

 private:
  // Rows of finite values of all magnitudes, subnormal ones too; what lies between rows is NaN.
  In<2> Fill(Guarded<std::byte>& memory, DType dtype, int64_t rows, int64_t width, int64_t stride) {
    if (stride == 0) stride = width;
    const size_t bytes = SizeOf(dtype);
    memory = Guarded<std::byte>(static_cast<size_t>((rows - 1) * stride + width) * bytes);
    std::uniform_int_distribution<int> exponent(-28, 15);
    std::uniform_real_distribution<float> mantissa(-2.0f, 2.0f);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < width; ++c) {
        StoreElement(dtype, memory.data() + static_cast<size_t>(row * stride + c) * bytes,
                     std::ldexp(mantissa(random_), exponent(random_)));
      }
    }
    In<2> view;
    view.data = memory.data();
    view.dtype = dtype;
    view.extent[0] = rows;
    view.extent[1] = width;
    view.stride[0] = stride;
    view.stride[1] = 1;
    return view;
  }

  std::mt19937 random_;
  DType cache_type_ = DType::kFloat32;
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_LATENT_WRITE_H_
