// SPDX-License-Identifier: Apache-2.0
// The floating-point environment of the calling thread: modes (rounding, what becomes of denormals, what
// traps) and the flags of exceptions that have occurred.
#ifndef LATHE_TESTS_SUPPORT_FLOAT_MODES_H_
#define LATHE_TESTS_SUPPORT_FLOAT_MODES_H_

#include <cfenv>
#include <vector>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace lathe::test {

struct FloatModes {
  const char* name;
  int rounding;
  unsigned flush;  // bits of MXCSR

  // The flags of exceptions are not part of it.
  static unsigned Current() {
#if defined(__SSE2__)
    constexpr unsigned kFlags = 0x3F;
    return _mm_getcsr() & ~kFlags;
#else
    return static_cast<unsigned>(std::fegetround());
#endif
  }
  // Returns what to restore.
  unsigned Enter() const {
    const unsigned before = Current();
    std::fesetround(rounding);
#if defined(__SSE2__)
    _mm_setcsr(_mm_getcsr() | flush);
#endif
    return before;
  }
  static void Restore(unsigned before) {
#if defined(__SSE2__)
    std::fesetround(FE_TONEAREST);
    _mm_setcsr(before);
#else
    std::fesetround(static_cast<int>(before));
#endif
  }
  // Current() once these have been entered.
  unsigned bits(unsigned before) const {
    const unsigned now = Enter();
    const unsigned entered = Current();
    Restore(now);
    return before == now ? entered : 0;
  }
};

// What exceptions have occurred, as bits that mean nothing else.
inline unsigned FloatFlags() {
#if defined(__SSE2__)
  constexpr unsigned kFlags = 0x3F;
  return _mm_getcsr() & kFlags;
#else
  return static_cast<unsigned>(std::fetestexcept(FE_ALL_EXCEPT));
#endif
}
// Sets the flags to these, and no others.
inline void SetFloatFlags(unsigned flags) {
#if defined(__SSE2__)
  constexpr unsigned kFlags = 0x3F;
  _mm_setcsr((_mm_getcsr() & ~kFlags) | flags);
#else
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(static_cast<int>(flags));
#endif
}
// None, all, and one that arithmetic in range raises or not.
inline std::vector<unsigned> SomeFloatFlags() {
#if defined(__SSE2__)
  return {0, 0x3F, 0x20, 0x01};
#else
  return {0, FE_ALL_EXCEPT, FE_INEXACT, FE_INVALID};
#endif
}

// The last one flushes denormals and rounds to nearest.
inline std::vector<FloatModes> AllFloatModes() {
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
  return {{"rounding up", FE_UPWARD, 0},
          {"rounding down, flushing", FE_DOWNWARD, kFlushToZero},
          {"rounding towards zero", FE_TOWARDZERO, kDenormalsAreZero},
          {"flushing", FE_TONEAREST, kFlushToZero | kDenormalsAreZero}};
}

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_FLOAT_MODES_H_
