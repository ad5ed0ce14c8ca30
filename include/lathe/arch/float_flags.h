// SPDX-License-Identifier: Apache-2.0
// The sticky flags of floating-point exceptions (inexact, overflow, invalid, ...) of the calling thread.
#ifndef LATHE_ARCH_FLOAT_FLAGS_H_
#define LATHE_ARCH_FLOAT_FLAGS_H_

#include <cstdint>

#include "lathe/base/config.h"

#if defined(__SSE2__) || defined(_M_X64)
#include <xmmintrin.h>
#elif !(defined(__aarch64__) && defined(__GNUC__))
#include <cfenv>
#endif

namespace lathe::arch {

// Puts the flags back at the end of its scope as they were at its beginning: arithmetic raises them, and the
// caller may be watching for its own. By hand, because <cfenv> takes the x87 unit's flags along, which nothing here
// raises and whose environment costs some hundred cycles to load; these are two short instructions, and a
// third where a flag has been raised.
class KeepFloatFlags {
 public:
#if defined(__SSE2__) || defined(_M_X64)
  LATHE_INLINE KeepFloatFlags() : before_(_mm_getcsr()) {}
  // Modes lie in the same register; they stay as they are now.
  LATHE_INLINE ~KeepFloatFlags() {
    constexpr uint32_t kFlags = 0x3F;
    const uint32_t now = _mm_getcsr();
    if (((now ^ before_) & kFlags) != 0) _mm_setcsr((now & ~kFlags) | (before_ & kFlags));
  }
#elif defined(__aarch64__) && defined(__GNUC__)
  LATHE_INLINE KeepFloatFlags() : before_(Read()) {}
  LATHE_INLINE ~KeepFloatFlags() {
    if (Read() != before_) asm volatile("msr fpsr, %0" ::"r"(before_) : "memory");
  }
#else
  LATHE_INLINE KeepFloatFlags() { std::fegetexceptflag(&before_, FE_ALL_EXCEPT); }
  LATHE_INLINE ~KeepFloatFlags() { std::fesetexceptflag(&before_, FE_ALL_EXCEPT); }
#endif

  KeepFloatFlags(const KeepFloatFlags&) = delete;
  KeepFloatFlags& operator=(const KeepFloatFlags&) = delete;

 private:
#if defined(__SSE2__) || defined(_M_X64)
  uint32_t before_;
#elif defined(__aarch64__) && defined(__GNUC__)
  LATHE_INLINE static uint64_t Read() {
    uint64_t fpsr;
    asm volatile("mrs %0, fpsr" : "=r"(fpsr)::"memory");
    return fpsr;
  }

  uint64_t before_;
#else
  std::fexcept_t before_;
#endif
};

}  // namespace lathe::arch

#endif  // LATHE_ARCH_FLOAT_FLAGS_H_
