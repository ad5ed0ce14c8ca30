// SPDX-License-Identifier: Apache-2.0
// Arena: carves aligned pieces out of a caller's buffer. The same carving code, run over no buffer
// at all, counts the bytes it needs, so that a size query can never drift from the use.
#ifndef LATHE_BASE_ARENA_H_
#define LATHE_BASE_ARENA_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/config.h"

namespace lathe {

class Arena {
 public:
  // A cache line, and the widest vector any target loads.
  static constexpr size_t kAlign = 64;

  // Bytes of a piece that others shall follow on lines of their own.
  LATHE_INLINE static constexpr size_t RoundUp(size_t bytes) noexcept {
    return (bytes + kAlign - 1) / kAlign * kAlign;
  }

  // Counting mode: Take() returns null and only bytes() is of interest.
  LATHE_INLINE constexpr Arena() noexcept = default;

  // `data` need not be aligned; bytes() includes the worst-case padding of an unaligned start.
  LATHE_INLINE explicit Arena(void* data) noexcept
      : base_(static_cast<std::byte*>(data) +
              (kAlign - reinterpret_cast<uintptr_t>(data) % kAlign) % kAlign) {}

  template <class T>
  LATHE_INLINE T* Take(size_t count) noexcept {
    static_assert(alignof(T) <= kAlign, "arena pieces are 64-byte aligned");
    std::byte* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += RoundUp(count * sizeof(T));
    return reinterpret_cast<T*>(piece);
  }

  // What a buffer must hold so that everything taken so far fits, wherever it starts.
  LATHE_INLINE constexpr size_t bytes() const noexcept {
    return used_ == 0 ? 0 : used_ + kAlign - 1;
  }

 private:
  std::byte* base_ = nullptr;
  size_t used_ = 0;
};

}  // namespace lathe

#endif  // LATHE_BASE_ARENA_H_
