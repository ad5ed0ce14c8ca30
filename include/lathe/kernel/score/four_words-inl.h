// SPDX-License-Identifier: Apache-2.0
// Four neighbouring words of a key or of weights, which one after the other become the factor of all lanes.
// Arm's products take one lane of a vector as that factor, so four words cost one load; x86's take a
// broadcast from memory, so there they cost none of their own.
#if defined(LATHE_KERNEL_SCORE_FOUR_WORDS_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_SCORE_FOUR_WORDS_INL_H_
#undef LATHE_KERNEL_SCORE_FOUR_WORDS_INL_H_
#else
#define LATHE_KERNEL_SCORE_FOUR_WORDS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lathe/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

#if HWY_TARGET_IS_NEON && HWY_ARCH_ARM_A64 && !HWY_COMPILER_MSVC

class FourWords {
 public:
  explicit LATHE_INLINE FourWords(const void* from)
      : words_(hn::LoadU(U32(), static_cast<const uint32_t*>(from))) {}

  // acc += a . word i, 0 .. 3, which is a constant once loops are unrolled.
  template <class A>
  LATHE_INLINE VF MulAdd(VU a, int i, VF acc) const {
    switch (i) {
      case 0:
        return A::template MulAddLane<0>(a, words_, acc);
      case 1:
        return A::template MulAddLane<1>(a, words_, acc);
      case 2:
        return A::template MulAddLane<2>(a, words_, acc);
      default:
        return A::template MulAddLane<3>(a, words_, acc);
    }
  }

 private:
  VU words_;
};

#else

class FourWords {
 public:
  explicit LATHE_INLINE FourWords(const void* from) : from_(static_cast<const std::byte*>(from)) {}

  template <class A>
  LATHE_INLINE VF MulAdd(VU a, int i, VF acc) const {
    uint32_t word;
    std::memcpy(&word, from_ + i * static_cast<int>(sizeof(word)), sizeof(word));
    return A::MulAdd(a, hn::Set(U32(), word), acc);
  }

 private:
  const std::byte* from_;
};

#endif

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
