// SPDX-License-Identifier: Apache-2.0
// From C structs to C++ ones: struct sizes, the path of the field that is refused, views. What fields a struct
// has stands in convert.h.
#ifndef LATHE_CAPI_CONVERSION_H_
#define LATHE_CAPI_CONVERSION_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <type_traits>

#include "lathe/base/keys.h"
#include "lathe/base/status.h"
#include "lathe/base/view.h"
#include "lathe/capi/common.h"

namespace lathe::capi {

// What a tensor must hold that becomes a view of one fixed type.
struct FixedType {
  int32_t dtype;
  const char* rule;
};
template <class T>
constexpr FixedType kFixedType = {LATHE_DTYPE_FLOAT32, "be float32 here"};
template <>
inline constexpr FixedType kFixedType<float8_e4m3fn> = {LATHE_DTYPE_UINT8,
                                                        "be uint8 here (codes of float8_e4m3fn)"};
template <>
inline constexpr FixedType kFixedType<uint64_t> = {LATHE_DTYPE_UINT64, "be uint64 here"};

// Converts one call's arguments and keeps the first refusal. Each C struct that may grow has a function
// Convert(const From&, To*, Conversion&), which names its fields by LATHE_C_FIELDS; those call Set, by type.
class Conversion {
 public:
  // `workspace`: for arrays of structs.
  explicit Conversion(lathe_buffer workspace = {}) noexcept : workspace_(workspace) {}

  bool ok() const noexcept { return status_.ok(); }

  // Refuses the field that the path leads to.
  void Refuse(const Status& status) noexcept {
    if (!ok()) return;
    status_ = status;
    size_t length = 0;
    for (size_t i = 0; i < depth_ && i < kMaxDepth; ++i) {
      const int written = std::snprintf(argument_ + length, sizeof(argument_) - length, "%s%s",
                                        i == 0 ? "" : ".", path_[i]);
      if (written > 0) length += static_cast<size_t>(written);
      if (length >= sizeof(argument_)) break;
    }
    // An entry that has no fields of its own: the dot that parts it from its array's name is the list's.
    if (depth_ == 0 && status_.field[0] == '.') ++status_.field;
    status_.list = list_;
    status_.entry = entry_;
  }

  // The code, and the text for `message`.
  int32_t Finish(lathe_message* message) noexcept {
    status_.argument = argument_;
    return Report(status_, message);
  }
  static int32_t Report(const Status& status, lathe_message* message) noexcept {
    if (message != nullptr) {
      const StatusText text = Format(status);
      static_assert(sizeof(text.text) == sizeof(message->text));
      std::memcpy(message->text, text.text, sizeof(text.text));
    }
    return static_cast<int32_t>(status.code);
  }

  template <class From, class To>
  void Field(const char* name, const From& from, To* to) noexcept {
    if (!ok()) return;
    Push(name);
    Set(from, to);
    --depth_;
  }
  // 0 leaves the default.
  template <class From, class To>
  void FieldOrDefault(const char* name, const From& from, To* to) noexcept {
    if (from != 0) Field(name, from, to);
  }
  // A struct at the top of a call; null: defaults.
  template <class From, class To>
  void Struct(const char* name, const From* from, To* to) noexcept {
    if (ok() && from != nullptr) Field(name, from, to);
  }
  template <class From, class To>
  void RequiredStruct(const char* name, const From* from, To* to) noexcept {
    if (IsGiven(name, from)) Field(name, from, to);
  }
  // The arguments, whose fields are called by their own names.
  template <class From, class To>
  void Args(const From* from, To* to) noexcept {
    From known{};
    if (IsGiven("args", from) && Check("args", from, &known)) Convert(known, to, *this);
  }
  // What `from` means to this build, for the names of a call.
  template <class From>
  bool Check(const char* name, const From* from, From* known) noexcept {
    if (!ok()) return false;
    Push(name);
    const bool is_read = Read(from, known);
    --depth_;
    return is_read;
  }
  // `count` structs side by side become as many in the workspace; null where refused.
  template <class To, class From>
  To* Array(const char* name, const From* from, size_t count) noexcept;

  bool IsGiven(const char* name, const void* pointer) noexcept {
    if (ok() && pointer == nullptr) RefuseNamed(name, Invalid("").Must("be given"));
    return ok();
  }
  void RefuseNamed(const char* name, const Status& status) noexcept {
    Push(name);
    Refuse(status);
    --depth_;
  }

  // What a struct that may grow means to this build: the fields both know, zero in the others.
  template <class From>
  bool Read(const From* from, From* known) noexcept {
    size_t size = 0;
    std::memcpy(&size, from, sizeof(size));
    if (size < sizeof(size)) {
      RefuseNamed("struct_size", Invalid("").Is(size).Must("be the struct's size"));
      return false;
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(from);
    for (size_t i = sizeof(From); i < size; ++i) {
      if (bytes[i] == 0) continue;
      RefuseNamed(
          "struct_size",
          Invalid("")
              .Is(size)
              .Must("be at most", sizeof(From))
              .Because("the fields past it are not zero, and this library does not know them"));
      return false;
    }
    std::memcpy(known, from, size < sizeof(From) ? size : sizeof(From));
    return true;
  }

 private:
  static constexpr size_t kMaxDepth = 4;

  void Push(const char* name) noexcept {
    if (depth_ < kMaxDepth) path_[depth_] = name;
    ++depth_;
  }

  template <class To>
  std::enable_if_t<std::is_integral_v<To> && !std::is_same_v<To, bool>> Set(To from,
                                                                            To* to) noexcept {
    *to = from;
  }
  void Set(float from, float* to) noexcept { *to = from; }
  void Set(int32_t from, bool* to) noexcept { *to = from != 0; }
  // Whether it is one of the enum's values is the operation's to say, once it fits.
  template <class To>
  std::enable_if_t<std::is_enum_v<To>> Set(int32_t from, To* to) noexcept {
    static_assert(sizeof(To) == 1);
    if (from < 0 || from > 255) return Refuse(Invalid("").Is(from).Must("be one of its enum"));
    *to = static_cast<To>(from);
  }

  template <class Byte, size_t R>
  void Set(const lathe_tensor& from, AnyView<Byte, R>* to) noexcept {
    if (!SetShape(from, to)) return;
    if (from.dtype < 0 || SizeOf(static_cast<DType>(from.dtype & 255)) == 0 || from.dtype > 255) {
      return Refuse(
          Invalid("", ".dtype").Is(from.dtype).Must("be float32, float16 or bfloat16 here"));
    }
    to->dtype = static_cast<DType>(from.dtype);
    to->data = static_cast<Byte*>(from.data);
  }
  template <class T, size_t R>
  void Set(const lathe_tensor& from, View<T, R>* to) noexcept {
    constexpr FixedType kFixed = kFixedType<std::remove_const_t<T>>;
    static_assert(kFixed.dtype != LATHE_DTYPE_FLOAT32 || std::is_same_v<const T, const float>);
    if (!SetShape(from, to)) return;
    if (from.dtype != kFixed.dtype) {
      return Refuse(Invalid("", ".dtype").Is(from.dtype).Must(kFixed.rule));
    }
    to->data = static_cast<T*>(from.data);
  }
  template <class Void, size_t R>
  void Set(const lathe_tensor& from, AnyIndexView<Void, R>* to) noexcept {
    if (!SetShape(from, to)) return;
    if (from.dtype != LATHE_DTYPE_INT32 && from.dtype != LATHE_DTYPE_INT64) {
      return Refuse(Invalid("", ".dtype").Is(from.dtype).Must("be int32 or int64 here"));
    }
    to->is_int64 = from.dtype == LATHE_DTYPE_INT64;
    to->data = from.data;
  }
  void Set(const lathe_buffer& from, Buffer* to) noexcept { *to = {from.data, from.bytes}; }

  // A struct inside of another: its fields' path starts with its name.
  template <class From, class To>
  void Set(const From* const& from, To* to) noexcept {
    From known{};
    if (from != nullptr && Read(from, &known)) Convert(known, to, *this);
  }
  template <class From, class To>
  auto Set(const From& from, To* to) noexcept -> decltype(Convert(from, to, *this)) {
    Convert(from, to, *this);
  }

  // Number i of an array of structs that lie as far apart as the first one is long.
  template <class From, class To>
  void Entry(const From* first, size_t i, To* to) noexcept {
    const size_t size = first->struct_size;
    const auto* entry =
        reinterpret_cast<const From*>(reinterpret_cast<const std::byte*>(first) + i * size);
    From known{};
    if (entry->struct_size != size) {
      RefuseNamed("struct_size",
                  Invalid("").Is(entry->struct_size).Must("be that of the first =", size));
    } else if (Read(entry, &known)) {
      Convert(known, to, *this);
    }
  }
  template <class To>
  void Entry(const lathe_tensor* first, size_t i, To* to) noexcept {
    Set(first[i], to);
  }

  // False for a tensor that is not given or whose rank is refused.
  template <class AnyShape>
  bool SetShape(const lathe_tensor& from, AnyShape* to) noexcept {
    constexpr auto kRank = std::extent_v<decltype(to->extent)>;
    if (from.rank == 0) return false;
    if (from.rank != static_cast<int32_t>(kRank)) {
      Refuse(Invalid("", ".rank").Is(from.rank).Must("be", kRank));
      return false;
    }
    std::memcpy(to->extent, from.extent, sizeof(to->extent));
    std::memcpy(to->stride, from.stride, sizeof(to->stride));
    return true;
  }

  lathe_buffer workspace_;
  Status status_ = {};
  const char* path_[kMaxDepth] = {};
  size_t depth_ = 0;
  const char* list_ = "";
  int64_t entry_ = 0;
  char argument_[96] = "";
};

// Memory that one entry of an array takes: enough for every struct that comes in arrays, now and later.
constexpr size_t kArrayEntryBytes = 1024;
constexpr size_t kArrayAlignment = 16;

template <class To, class From>
To* Conversion::Array(const char* name, const From* from, size_t count) noexcept {
  static_assert(sizeof(To) <= kArrayEntryBytes && alignof(To) <= kArrayAlignment);
  if (count == 0) return nullptr;  // the operation says whether it may be
  if (!IsGiven(name, from)) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(workspace_.data);
  const size_t offset = (kArrayAlignment - address % kArrayAlignment) % kArrayAlignment;
  if (workspace_.data == nullptr || workspace_.bytes < offset ||
      (workspace_.bytes - offset) / sizeof(To) < count) {
    status_ = lathe::Refuse(StatusCode::kBufferTooSmall, "", ".bytes")
                  .Is(workspace_.bytes)
                  .Must("be at least", lathe_array_workspace_bytes(count));
    std::snprintf(argument_, sizeof(argument_), "workspace");
    return nullptr;
  }
  auto* to = reinterpret_cast<To*>(static_cast<std::byte*>(workspace_.data) + offset);
  list_ = name;
  for (size_t i = 0; i < count && ok(); ++i) {
    entry_ = static_cast<int64_t>(i);
    ::new (static_cast<void*>(to + i)) To{};
    Entry(from, i, to + i);
  }
  list_ = "";
  return ok() ? to : nullptr;
}

// Options of both sides that base/score_transforms.def lists.
template <class From, class To>
void ConvertScoreTransforms(const From& from, To* to) noexcept {
#define LATHE_SCORE_TRANSFORM(option, functor) to->option = from.option;
#include "lathe/base/score_transforms.def"
#undef LATHE_SCORE_TRANSFORM
}

}  // namespace lathe::capi

#endif  // LATHE_CAPI_CONVERSION_H_
