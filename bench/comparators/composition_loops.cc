// SPDX-License-Identifier: Apache-2.0
#include "bench/comparators/composition_loops.h"

namespace lathe::bench::loops {
namespace {

inline float FromBits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

inline uint32_t ToBits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// exp(x) for x <= 0: 2^n * 2^f with f in [-1/2, 1/2], its Taylor series to 2e-7.
inline float Exp(float x) {
  const float t = (x < -87.0f ? -87.0f : x) * 1.44269504f;
  const auto n = static_cast<int32_t>(t - 0.5f);
  const float f = (t - static_cast<float>(n)) * 0.693147181f;
  float p = 1.0f / 720;
  p = p * f + 1.0f / 120;
  p = p * f + 1.0f / 24;
  p = p * f + 1.0f / 6;
  p = p * f + 0.5f;
  p = p * f + 1.0f;
  p = p * f + 1.0f;
  return p * FromBits(static_cast<uint32_t>(n + 127) << 23);
}

}  // namespace

void WidenBFloat16(const uint16_t* __restrict from, int64_t n, float* __restrict to) {
  for (int64_t i = 0; i < n; ++i) to[i] = FromBits(static_cast<uint32_t>(from[i]) << 16);
}

void WidenFloat16(const uint16_t* __restrict from, int64_t n, float* __restrict to) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = from[i];
    // The exponent's bias grows from 15 to 127, by a product so that subnormals come right.
    const float size = FromBits((bits & 0x7FFFu) << 13) * 0x1p112f;
    to[i] = FromBits(ToBits(size) | (bits & 0x8000u) << 16);
  }
}

void NarrowToBFloat16(const float* __restrict from, int64_t n, uint16_t* __restrict to) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = ToBits(from[i]);
    to[i] = static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
  }
}

float OnlineSoftmax(float* scores, int64_t visible, int64_t n, float scale, float* max, float* sum,
                    float* weights) {
  float highest = scores[0];
  for (int64_t i = 1; i < visible; ++i) highest = highest > scores[i] ? highest : scores[i];
  const float new_max = *max > highest * scale ? *max : highest * scale;
  const float factor = *max == new_max ? 1.0f : Exp(*max - new_max);
  float total = 0.0f;
  for (int64_t i = 0; i < visible; ++i) {
    const float w = Exp(scores[i] * scale - new_max);
    weights[i] = w;
    total += w;
  }
  for (int64_t i = visible; i < n; ++i) weights[i] = 0.0f;
  *max = new_max;
  *sum = *sum * factor + total;
  return factor;
}

void Scale(float factor, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

void AddScaled(const float* __restrict x, float factor, int64_t n, float* __restrict sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += factor * x[i];
}

}  // namespace lathe::bench::loops
