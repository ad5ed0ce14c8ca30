// SPDX-License-Identifier: Apache-2.0
// What a composition needs besides matrix products, as plain loops for the compiler to vectorise.
// This file's implementation is compiled for the machine it is built on, so it shares no inline
// function with the rest of the program.
#ifndef LATHE_BENCH_COMPARATORS_COMPOSITION_LOOPS_H_
#define LATHE_BENCH_COMPARATORS_COMPOSITION_LOOPS_H_

#include <cstddef>
#include <cstdint>

namespace lathe::bench::loops {

void WidenBFloat16(const uint16_t* from, int64_t n, float* to);
void WidenFloat16(const uint16_t* from, int64_t n, float* to);  // finite values
void NarrowToBFloat16(const float* from, int64_t n, uint16_t* to);

// One row of a chunk of online softmax: weights[i] = exp(scale * scores[i] - max) for i < visible,
// 0 up to n. Keeps *max and *sum, the sum of exp(scale * score - max), over all chunks so far, and
// returns what earlier sums must be multiplied by. The first chunk starts from *max = kNoMax and
// *sum = 0. Overwrites scores; `weights` may be `scores`.
constexpr float kNoMax = -1e30f;
float OnlineSoftmax(float* scores, int64_t visible, int64_t n, float scale, float* max, float* sum,
                    float* weights);

void Scale(float factor, int64_t n, float* x);                        // x *= factor
void AddScaled(const float* x, float factor, int64_t n, float* sum);  // sum += factor * x

}  // namespace lathe::bench::loops

#endif  // LATHE_BENCH_COMPARATORS_COMPOSITION_LOOPS_H_
