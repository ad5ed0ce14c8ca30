// SPDX-License-Identifier: Apache-2.0
// The two arithmetics of the register-blocked engines. Everything above them (packing, tiles, softmax,
// masks, folding) is written once over these few operations:
//
//   word        4 bytes of a row: one float, or a pair of bfloat16. Scores multiply words with words.
//   MulAdd      acc += word . word, one float32 result per lane
//   step        tokens that P x V takes at once: 1, or 2 (bf16 dots sum over pairs of tokens)
//   LoadValues  kValueVectors vectors of value columns of one step, from rows of a type for which
//               ReadsValues() is true; their column order is that of O
//   P           one word per step and row: a float, or the bfloat16 weights of two tokens
//   residual    what packing lost of a weight: nothing, or the bits below bfloat16
//   scales      that columns of a row share (cache/formats.h): in the row, or left to scores and weights, so that the row
//               is exact
#if defined(LATHE_KERNEL_SCORE_ARITHMETIC_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_SCORE_ARITHMETIC_INL_H_
#undef LATHE_KERNEL_SCORE_ARITHMETIC_INL_H_
#else
#define LATHE_KERNEL_SCORE_ARITHMETIC_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lathe/kernel/kernel_table.h"
#include "lathe/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

constexpr int kValueVectors = kRegisters == 32 ? 4 : 2;

struct FloatArithmetic {
  using Element = float;
  static constexpr detail::Engine kEngine = detail::Engine::kFloat32;
  static constexpr int64_t kWordElements = 1;
  static constexpr int64_t kStepTokens = 1;
  static constexpr bool kHasResidual = false;
  static constexpr bool kLeavesScales = false;

  static LATHE_INLINE VF MulAdd(VU a, VU b, VF acc) {
    return hn::MulAdd(hn::BitCast(F32(), a), hn::BitCast(F32(), b), acc);
  }

#if HWY_TARGET_IS_NEON && HWY_ARCH_ARM_A64 && !HWY_COMPILER_MSVC
  // In assembly: of a broadcast with several uses compilers make a dup (GCC 12, Clang 19), and of one
  // before a bfdot in any case, also in vbfdotq_laneq_f32. It would run on the pipes of the products.
  template <int kLane>
  static LATHE_INLINE VF MulAddLane(VU a, VU b, VF acc) {
    __asm__("fmla %0.4s, %1.4s, %2.s[%3]" : "+w"(acc.raw) : "w"(a.raw), "w"(b.raw), "i"(kLane));
    return acc;
  }
#endif

  template <class Stored>
  static constexpr bool ReadsValues() {
    return std::is_same_v<Stored, float> || std::is_same_v<Stored, float16> ||
           std::is_same_v<Stored, bfloat16>;
  }

  template <class Stored>
  static LATHE_INLINE void LoadValues(const std::byte* const* rows, int64_t column, VU* x) {
    const auto* row = reinterpret_cast<const Stored*>(rows[0]) + column;
    LATHE_UNROLL
    for (int j = 0; j < kValueVectors; ++j) x[j] = hn::BitCast(U32(), LoadFloats(row + j * kLanes));
  }

  // The weights of one step, from the probabilities of its tokens.
  static LATHE_INLINE VU PackWeights(const VF* p) { return hn::BitCast(U32(), p[0]); }

  static float Weight(const uint32_t* p, int64_t stride, int64_t token, int64_t row) {
    float weight;
    std::memcpy(&weight, p + token * stride + row, sizeof(weight));
    return weight;
  }

  // Where value column c lies in a row of O, which keeps runs of kColumnRun columns together.
  static constexpr size_t kColumnRun = static_cast<size_t>(kLanes);
  static constexpr int64_t Position(int64_t c) { return c; }
};

struct BFloat16Arithmetic {
  using Element = bfloat16;
  static constexpr detail::Engine kEngine = detail::Engine::kBFloat16;
  static constexpr int64_t kWordElements = 2;
  static constexpr int64_t kStepTokens = 2;
  static constexpr bool kHasResidual = true;
  static constexpr bool kLeavesScales = true;

  // Native dots leave sum1 alone; on other targets, where only products on tiles may be taken, it would hold half of
  // the sum.
  static LATHE_INLINE VF MulAdd(VU a, VU b, VF acc) {
    const hn::Repartition<hwy::bfloat16_t, F32> dbf;
    VF sum1 = hn::Zero(F32());
    return hn::ReorderWidenMulAccumulate(F32(), hn::BitCast(dbf, a), hn::BitCast(dbf, b), acc,
                                         sum1);
  }

#if HWY_TARGET_IS_NEON && HWY_ARCH_ARM_A64 && !HWY_COMPILER_MSVC
  template <int kLane>
  static LATHE_INLINE VF MulAddLane(VU a, VU b, VF acc) {
#if HWY_NATIVE_DOT_BF16
    __asm__("bfdot %0.4s, %1.8h, %2.2h[%3]" : "+w"(acc.raw) : "w"(a.raw), "w"(b.raw), "i"(kLane));
    return acc;
#else
    return MulAdd(a, hn::Broadcast<kLane>(b), acc);
#endif
  }
#endif

  template <class Stored>
  static constexpr bool ReadsValues() {
    return std::is_same_v<Stored, bfloat16>;
  }

  // Two rows become pairs of the same column by interleaving inside 128-bit blocks: one unpack a vector,
  // no memory pass. That leaves the columns of O in the order of Position().
  template <class Stored>
  static LATHE_INLINE void LoadValues(const std::byte* const* rows, int64_t column, VU* x) {
    const hn::Repartition<uint16_t, F32> du16;
    const auto* row0 = reinterpret_cast<const uint16_t*>(rows[0]) + column;
    const auto* row1 = reinterpret_cast<const uint16_t*>(rows[1]) + column;
    LATHE_UNROLL
    for (int j = 0; j < kValueVectors; j += 2) {
      const auto v0 = hn::LoadU(du16, row0 + j * kLanes);
      const auto v1 = hn::LoadU(du16, row1 + j * kLanes);
      x[j] = hn::BitCast(U32(), hn::InterleaveLower(du16, v0, v1));
      x[j + 1] = hn::BitCast(U32(), hn::InterleaveUpper(du16, v0, v1));
    }
  }

  // No weight is subnormal (Exp2), so that hardware which would flush it rounds like RoundToBFloat16.
  static LATHE_INLINE VU PackWeights(const VF* p) {
    const hn::Repartition<hwy::bfloat16_t, F32> dbf;
    const hn::Repartition<uint16_t, F32> du16;
    const auto rounded = hn::BitCast(du16, hn::OrderedDemote2To(dbf, p[0], p[1]));
    return hn::BitCast(U32(), hn::InterleaveWholeLower(
                                  du16, rounded, hn::ConcatUpperUpper(du16, rounded, rounded)));
  }

  static LATHE_INLINE VF Residual(VF p) { return hn::Sub(p, OddFloats(RoundToBFloat16(p))); }

  static float Weight(const uint32_t* p, int64_t stride, int64_t token, int64_t row) {
    const uint32_t pair = p[token / 2 * stride + row];
    return ToFloat(bfloat16{static_cast<uint16_t>(token % 2 == 0 ? pair : pair >> 16)});
  }

  static constexpr size_t kColumnRun = 4;
  static constexpr int64_t Position(int64_t c) {
    const int64_t in_group = c % (2 * kLanes);
    return c - in_group + (in_group / 4 % 2) * kLanes + in_group / 8 * 4 + in_group % 4;
  }
};

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
