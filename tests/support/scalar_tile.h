// SPDX-License-Identifier: Apache-2.0
// A tile policy (arch/x86_amx.h) in plain C++, for any machine: TDPBF16PS as the manual defines it,
// except that subnormal numbers are kept. Products of bfloat16 are exact in float, so a product and
// an addition round as a fused one does.
#ifndef LATHE_TESTS_SUPPORT_SCALAR_TILE_H_
#define LATHE_TESTS_SUPPORT_SCALAR_TILE_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "lathe/arch/x86_amx.h"

namespace lathe::test {

struct ScalarTile {
  static void Configure(const arch::TileConfig& config) {
    Get().config = config;
    std::memset(Get().data, 0, sizeof(Get().data));
  }
  static void Release() { Configure({}); }

  template <int kTile>
  static void Zero() {
    RequireTile(kTile);
    std::memset(Get().data[kTile], 0, sizeof(Get().data[kTile]));
  }
  template <int kTile>
  static void Load(const void* from, int64_t stride) {
    Zero<kTile>();
    for (int r = 0; r < Get().config.rows[kTile]; ++r) {
      std::memcpy(Get().data[kTile][r], static_cast<const char*>(from) + r * stride,
                  Get().config.row_bytes[kTile]);
    }
  }
  template <int kTile>
  static void LoadStreamed(const void* from, int64_t stride) {
    Load<kTile>(from, stride);
  }
  template <int kTile>
  static void Store(void* to, int64_t stride) {
    RequireTile(kTile);
    for (int r = 0; r < Get().config.rows[kTile]; ++r) {
      std::memcpy(static_cast<char*>(to) + r * stride, Get().data[kTile][r],
                  Get().config.row_bytes[kTile]);
    }
  }
  template <int kC, int kA, int kB>
  static void MultiplyBFloat16() {
    static_assert(kC != kA && kC != kB && kA != kB, "the instruction wants three tiles");
    const arch::TileConfig& config = Get().config;
    if (config.rows[kC] != config.rows[kA] || config.row_bytes[kC] != config.row_bytes[kB] ||
        config.row_bytes[kA] / 4 != config.rows[kB] || config.rows[kB] == 0) {
      std::abort();
    }
    for (int m = 0; m < config.rows[kC]; ++m) {
      float even[16] = {}, odd[16] = {}, sums[16];
      for (int k = 0; k < config.rows[kB]; ++k) {
        const uint32_t a = Word(kA, m, k);
        for (int n = 0; n < 16; ++n) {
          const uint32_t b = Word(kB, k, n);
          even[n] += Low(a) * Low(b);
          odd[n] += High(a) * High(b);
        }
      }
      std::memcpy(sums, Get().data[kC][m], sizeof(sums));
      for (int n = 0; n < config.row_bytes[kC] / 4; ++n) sums[n] += even[n] + odd[n];
      std::memcpy(Get().data[kC][m], sums, sizeof(sums));
    }
  }

 private:
  struct State {
    arch::TileConfig config = {};
    uint8_t data[8][16][64] = {};
  };
  static State& Get() {
    static thread_local State state;
    return state;
  }
  // The instruction would be illegal.
  static void RequireTile(int tile) {
    if (Get().config.palette != 1 || Get().config.rows[tile] == 0) std::abort();
  }
  static uint32_t Word(int tile, int row, int column) {
    uint32_t word;
    std::memcpy(&word, Get().data[tile][row] + column * 4, sizeof(word));
    return word;
  }
  static float AsFloat(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  static float Low(uint32_t pair) { return AsFloat(pair << 16); }
  static float High(uint32_t pair) { return AsFloat(pair & 0xFFFF0000u); }
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_SCALAR_TILE_H_
