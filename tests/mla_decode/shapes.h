// SPDX-License-Identifier: Apache-2.0
// The sizes that decode tests share. Each list has the sizes that models use, and those around the
// kernels' own steps: vectors of 4, 8 and 16 rows, tiles of 128 keys, blocks of 128 rows.
#ifndef LATHE_TESTS_MLA_DECODE_SHAPES_H_
#define LATHE_TESTS_MLA_DECODE_SHAPES_H_

#include <cstdint>
#include <vector>

#include "lathe/mla_decode.h"

namespace lathe::test {

inline const std::vector<int64_t> kHeadCounts{1,  2,  3,  4,  5,  7,  8,  9,  12, 13,  16,
                                              17, 20, 28, 31, 32, 33, 48, 64, 96, 128, 130};

inline const std::vector<int64_t> kBlockSizes{1, 16, 61, 64};

inline const std::vector<int64_t> kSeqLens{0,   1,   2,   63,   64,   65,   127,
                                           128, 129, 300, 1023, 1024, 1025, 2500};

// {1, kv_lora_rank, qk_rope_head_dim}: those with a fast path, others in place, others by way of a
// copy.
inline const std::vector<MlaShape> kRowShapes{
    {1, 512, 64}, {1, 512, 0},  {1, 256, 64},  {1, 1024, 64},  // fast paths
    {1, 64, 16},  {1, 64, 0},   {1, 448, 128}, {1, 128, 0},    // generic, multiples of 16 and 64
    {1, 72, 8},   {1, 100, 7},  {1, 1, 0},     {1, 33, 31},   {1, 2, 1},  // generic, odd
    {1, 511, 65}, {1, 513, 63}, {1, 512, 63},  {1, 64, 8},    {1, 48, 16}};

}  // namespace lathe::test

#endif  // LATHE_TESTS_MLA_DECODE_SHAPES_H_
