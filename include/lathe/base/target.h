// SPDX-License-Identifier: Apache-2.0
// Targets: the instruction sets one binary carries, which of them this machine can run, and why not.
#ifndef LATHE_BASE_TARGET_H_
#define LATHE_BASE_TARGET_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/config.h"

namespace lathe {

enum class Target : uint8_t {
  kAuto = 0,  // the best that is compiled in and runnable
#define LATHE_TARGET(enumerator, number, name, highway) enumerator = number,
#include "lathe/base/targets.def"
#undef LATHE_TARGET
};

// "auto", "avx2", "avx3_zen4", ...; "unknown" for a value that is none of these.
LATHE_INLINE constexpr const char* Name(Target target) noexcept {
  switch (target) {
    case Target::kAuto:
      return "auto";
#define LATHE_TARGET(enumerator, number, name, highway) \
  case Target::enumerator:                              \
    return name;
#include "lathe/base/targets.def"
#undef LATHE_TARGET
  }
  return "unknown";
}

struct TargetInfo {
  Target target = Target::kAuto;
  const char* name = "";
  bool compiled = false;     // this binary has it
  bool runnable = false;     // and this machine can run it
  bool native_bf16 = false;  // bf16 dot products in hardware: bfloat16 caches take the bf16 engine
  const char* reason = "";   // why it is not runnable, or ""
};

struct TargetList {
  const TargetInfo* data = nullptr;
  size_t size = 0;
  LATHE_INLINE const TargetInfo* begin() const noexcept { return data; }
  LATHE_INLINE const TargetInfo* end() const noexcept { return data + size; }
};

// Every target lathe knows, best first. The list has static storage. Thread-safe; the first call
// asks the CPU, later ones do not.
LATHE_API TargetList Targets() noexcept;

// The target that kAuto means on this machine.
LATHE_API Target BestTarget() noexcept;

// Keeps this module from asking the operating system for AMX tiles, whose permission is the whole process's and
// for good (docs/dispatch.md#amx): amx_bf16 is not runnable then. To be called before anything else of lathe; returns
// whether no permission was asked for, which is so, too, where there are no tiles. Thread-safe.
LATHE_API bool DeclineAmx() noexcept;

}  // namespace lathe

#endif  // LATHE_BASE_TARGET_H_
