// SPDX-License-Identifier: Apache-2.0
// Status: how every lathe call reports. No exceptions, no allocation, nothing formatted until
// asked.
#ifndef LATHE_BASE_STATUS_H_
#define LATHE_BASE_STATUS_H_

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <type_traits>

#include "lathe/base/config.h"

namespace lathe {

// Headers of operations list what is refused; these rules, the same for all operations, say by which code.
enum class StatusCode : uint8_t {
  kOk = 0,
  // An argument breaks a rule of its own or towards another one: null or misaligned data, extents, strides and types
  // that do not fit, overlaps, numbers below their least (a length below 0, too), unknown enumerators.
  kInvalidArgument,
  // Plan memory or workspace. The status's integer is what was given, its bound what is needed.
  kBufferTooSmall,
  // What an index array holds leads outside of what it indexes: block ids, slots, positions, sequences, and lengths
  // that a block table does not cover.
  kIndexOutOfRange,
  // The plan was made for other extents, types or lengths.
  kStalePlan,
  // The forced target is not compiled in, or this CPU cannot run it.
  kTargetUnavailable,
};

LATHE_INLINE constexpr const char* Name(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kBufferTooSmall:
      return "buffer too small";
    case StatusCode::kIndexOutOfRange:
      return "index out of range";
    case StatusCode::kStalePlan:
      return "stale plan";
    case StatusCode::kTargetUnavailable:
      return "target unavailable";
  }
  return "unknown";
}

// The result of a call: a code and, on refusal, which argument had which value against which rule.
// All strings have static storage, so a Status is copied freely and outlives the call.
//   list       the array of structs that `argument` is a member of, "parts", or ""
//   entry      which of its structs; meaningful where `list` is not ""
//   argument   name as the caller wrote it, "keys.seq_lens"
//   field      part of it that is meant, ".stride", or ""
//   index      element of that, or -1 when it is meant as a whole
//   value      what was given; `kind` says whether an integer, a real, a name or nothing is quoted
//   rule       what was expected, "be at most block_table.extent[1] * block_size ="
//   bound      the number that ends the rule; meaningful where `has_bound`
//   wanted     the name that ends the rule, "kLatentFloat32", or ""
//   reason     why, where the rule alone does not say, or ""
// Refusals happen before the first byte of any output is written.
//
// Refusals are made by chaining:
//   return Invalid("keys.window").Is(window).Must("be at least", 0);
struct [[nodiscard]] Status {
  enum class Kind : uint8_t { kNone, kInteger, kReal, kName };

  StatusCode code = StatusCode::kOk;
  Kind kind = Kind::kNone;
  bool has_bound = false;
  const char* list = "";
  int64_t entry = 0;
  const char* argument = "";
  const char* field = "";
  int64_t index = -1;
  int64_t integer = 0;
  double real = 0.0;
  const char* name = "";
  const char* rule = "";
  int64_t bound = 0;
  const char* wanted = "";
  const char* reason = "";

  LATHE_INLINE constexpr bool ok() const noexcept { return code == StatusCode::kOk; }

  // The argument is a member of entry `number` of `structs`: Invalid("lse").Of("parts", 3).
  LATHE_INLINE constexpr Status Of(const char* structs, int64_t number) const noexcept {
    Status s = *this;
    s.list = structs;
    s.entry = number;
    return s;
  }
  LATHE_INLINE constexpr Status At(int64_t element) const noexcept {
    Status s = *this;
    s.index = element;
    return s;
  }
  // An integer, an enumerator's number, or a real.
  template <class T>
  LATHE_INLINE constexpr Status Is(T value) const noexcept {
    Status s = *this;
    if constexpr (std::is_floating_point_v<T>) {
      s.kind = Kind::kReal;
      s.real = static_cast<double>(value);
    } else {
      s.kind = Kind::kInteger;
      s.integer = static_cast<int64_t>(value);
    }
    return s;
  }
  LATHE_INLINE constexpr Status IsNamed(const char* value) const noexcept {
    Status s = *this;
    s.kind = Kind::kName;
    s.name = value;
    return s;
  }
  LATHE_INLINE constexpr Status Must(const char* expectation) const noexcept {
    Status s = *this;
    s.rule = expectation;
    return s;
  }
  template <class Integer>
  LATHE_INLINE constexpr Status Must(const char* expectation, Integer limit) const noexcept {
    Status s = Must(expectation);
    s.has_bound = true;
    s.bound = static_cast<int64_t>(limit);
    return s;
  }
  LATHE_INLINE constexpr Status MustName(const char* expectation,
                                         const char* value) const noexcept {
    Status s = Must(expectation);
    s.wanted = value;
    return s;
  }
  LATHE_INLINE constexpr Status Because(const char* why) const noexcept {
    Status s = *this;
    s.reason = why;
    return s;
  }
};

LATHE_INLINE constexpr Status OkStatus() noexcept { return Status{}; }

LATHE_INLINE constexpr Status Refuse(StatusCode code, const char* argument,
                                     const char* field = "") noexcept {
  Status s;
  s.code = code;
  s.argument = argument;
  s.field = field;
  return s;
}

LATHE_INLINE constexpr Status Invalid(const char* argument, const char* field = "") noexcept {
  return Refuse(StatusCode::kInvalidArgument, argument, field);
}
LATHE_INLINE constexpr Status OutOfRange(const char* argument, const char* field = "") noexcept {
  return Refuse(StatusCode::kIndexOutOfRange, argument, field);
}

// The message of a Status, in a buffer of its own.
struct StatusText {
  char text[320];
  LATHE_INLINE const char* c_str() const noexcept { return text; }
};

// "index out of range: keys.seq_lens[3] is 70000, must be at most block_table.extent[1] *
// block_size = 65536"; "ok" for success.
LATHE_INLINE StatusText Format(const Status& s) noexcept {
  StatusText out;
  if (s.ok()) {
    std::snprintf(out.text, sizeof(out.text), "ok");
    return out;
  }
  char entry[24] = "", index[24] = "", value[56] = "", bound[24] = "";
  if (s.list[0] != '\0') std::snprintf(entry, sizeof(entry), "[%" PRId64 "].", s.entry);
  if (s.index >= 0) std::snprintf(index, sizeof(index), "[%" PRId64 "]", s.index);
  if (s.kind == Status::Kind::kInteger)
    std::snprintf(value, sizeof(value), " is %" PRId64 ",", s.integer);
  if (s.kind == Status::Kind::kReal) std::snprintf(value, sizeof(value), " is %.9g,", s.real);
  if (s.kind == Status::Kind::kName) std::snprintf(value, sizeof(value), " is %s,", s.name);
  if (s.has_bound) std::snprintf(bound, sizeof(bound), " %" PRId64, s.bound);
  std::snprintf(out.text, sizeof(out.text), "%s: %s%s%s%s%s%s must %s%s%s%s%s%s", Name(s.code),
                s.list, entry, s.argument, s.field, index, value, s.rule, bound,
                s.wanted[0] != '\0' ? " " : "", s.wanted, s.reason[0] != '\0' ? ": " : "",
                s.reason);
  return out;
}

}  // namespace lathe

#endif  // LATHE_BASE_STATUS_H_
