// SPDX-License-Identifier: Apache-2.0
// Rows of float32, float16 and bfloat16 into one another: nearest even, NaN stays NaN, the same bits as
// the scalar codecs of base/types.h on every target. bfloat16 is rounded with integer operations, since
// the hardware instruction flushes subnormals.
#if defined(LATHE_SIMD_CONVERT_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_SIMD_CONVERT_INL_H_
#undef LATHE_SIMD_CONVERT_INL_H_
#else
#define LATHE_SIMD_CONVERT_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lathe/base/types.h"
#include "lathe/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

LATHE_INLINE VU RoundToBFloat16(VF v) {
  const U32 du;
  const VU bits = hn::BitCast(du, v);
  const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const VU rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
  const VU quiet = hn::Or(bits, hn::Set(du, 0x00400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);  // in the upper 16 bits
}

// Pairs of bfloat16 numbers as floats: those in the lower halves of words, and those in the upper halves.
LATHE_INLINE VF EvenFloats(VU pairs) { return hn::BitCast(F32(), hn::ShiftLeft<16>(pairs)); }
LATHE_INLINE VF OddFloats(VU pairs) {
  return hn::BitCast(F32(), hn::And(pairs, hn::Set(U32(), 0xFFFF0000u)));
}

// Highway emulates float16 where the hardware lacks it, and takes its NaN and infinities for numbers then.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)) || \
    (HWY_TARGET_IS_NEON && HWY_ARCH_ARM_A64)
constexpr bool kNativeFloat16 = true;
#else
constexpr bool kNativeFloat16 = false;
#endif

LATHE_INLINE VF LoadFloats(const float* from) { return hn::LoadU(F32(), from); }

LATHE_INLINE VF LoadFloats(const bfloat16* from) {
  if constexpr (kLanes == 8) {
    // One shuffle inside 128-bit blocks, in place of widening across them and shifting.
    const hn::Repartition<uint8_t, F32> du8;
    constexpr uint8_t kZero = 0x80;
    HWY_ALIGN static constexpr uint8_t kUpperHalves[32] = {
        kZero, kZero, 0, 1, kZero, kZero, 2,  3,  kZero, kZero, 4,  5,  kZero, kZero, 6,  7,
        kZero, kZero, 8, 9, kZero, kZero, 10, 11, kZero, kZero, 12, 13, kZero, kZero, 14, 15};
    const auto twice = hn::LoadDup128(du8, reinterpret_cast<const uint8_t*>(from));
    return hn::BitCast(F32(), hn::TableLookupBytesOr0(twice, hn::Load(du8, kUpperHalves)));
  }
  const auto bits = hn::LoadU(U16(), &from->bits);
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}

LATHE_INLINE VF LoadFloats(const float16* from) {
  if constexpr (kNativeFloat16) {
    const hn::Rebind<hwy::float16_t, F32> df16;
    return hn::PromoteTo(F32(), hn::BitCast(df16, hn::LoadU(U16(), &from->bits)));
  } else {
    HWY_ALIGN float lanes[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) lanes[i] = ToFloat(from[i]);
    return hn::Load(F32(), lanes);
  }
}

LATHE_INLINE void StoreFloats(VF v, float* to) { hn::StoreU(v, F32(), to); }

LATHE_INLINE void StoreFloats(VF v, bfloat16* to) {
  hn::StoreU(hn::TruncateTo(U16(), hn::ShiftRight<16>(RoundToBFloat16(v))), U16(), &to->bits);
}

LATHE_INLINE void StoreFloats(VF v, float16* to) {
  if constexpr (kNativeFloat16) {
    const hn::Rebind<hwy::float16_t, F32> df16;
    hn::StoreU(hn::BitCast(U16(), hn::DemoteTo(df16, v)), U16(), &to->bits);
  } else {
    HWY_ALIGN float lanes[kLanes];
    hn::Store(v, F32(), lanes);
    for (int64_t i = 0; i < kLanes; ++i) to[i] = FromFloat<float16>(lanes[i]);
  }
}

template <class From, class To>
void ConvertRow(const From* HWY_RESTRICT from, To* HWY_RESTRICT to, int64_t n) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(From));
  } else {
    int64_t i = 0;
    const int64_t whole = n / kLanes * kLanes;
    for (; i < whole; i += kLanes) StoreFloats(LoadFloats(from + i), to + i);
    for (; i < n; ++i) to[i] = FromFloat<To>(ToFloat(from[i]));
  }
}

template <class From, class To>
void ConvertBytes(const std::byte* from, std::byte* to, int64_t n) {
  ConvertRow(reinterpret_cast<const From*>(from), reinterpret_cast<To*>(to), n);
}

// A row of any dtype, given by a table of functions so that callers need no switch of their own.
using ConvertFn = void (*)(const std::byte* from, std::byte* to, int64_t n);
constexpr ConvertFn kConvert[3][3] = {
    {ConvertBytes<float, float>, ConvertBytes<float, float16>, ConvertBytes<float, bfloat16>},
    {ConvertBytes<float16, float>, ConvertBytes<float16, float16>, ConvertBytes<float16, bfloat16>},
    {ConvertBytes<bfloat16, float>, ConvertBytes<bfloat16, float16>,
     ConvertBytes<bfloat16, bfloat16>}};

LATHE_INLINE void Convert(DType from_type, const std::byte* from, DType to_type, std::byte* to,
                          int64_t n) {
  kConvert[static_cast<size_t>(from_type)][static_cast<size_t>(to_type)](from, to, n);
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
