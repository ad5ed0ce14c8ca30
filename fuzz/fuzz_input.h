// SPDX-License-Identifier: Apache-2.0
// From the fuzzer's bytes to arguments: mostly small and right, here and there absurd. Every array lies in
// memory of exactly the size that its extents and strides span, with unmapped pages around it, so whatever
// an operation accepts it must be able to run, and whatever it refuses it must leave alone.
#ifndef LATHE_FUZZ_FUZZ_INPUT_H_
#define LATHE_FUZZ_FUZZ_INPUT_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <vector>

#include "lathe/cache/formats.h"
#include "lathe/lathe.h"
#include "support/memory.h"
#include "support/random.h"

// Ends the process as a crash does, so that the fuzzer keeps the input.
#define LATHE_FUZZ_REQUIRE(condition, ...)                                         \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                                           \
      std::fputc('\n', stderr);                                                    \
      std::abort();                                                                \
    }                                                                              \
  } while (false)

namespace lathe::fuzz {

// Decisions, a byte or two each; all zeros where the bytes have run out.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), end_(data + size) {}

  int64_t Int(int64_t least, int64_t most) {
    const auto range = static_cast<uint64_t>(most - least) + 1;
    uint64_t bits = Byte();
    if (range > 256) bits = bits << 8 | Byte();
    return least + static_cast<int64_t>(bits % range);
  }
  bool Flip() { return Int(0, 1) == 1; }
  // Once in n times; never where the bytes have run out.
  bool Chance(int64_t n) { return Int(0, n - 1) == n - 1; }
  template <class T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Int(0, static_cast<int64_t>(values.size()) - 1)];
  }
  // `usual`, or now and then what nobody expects; never, once `Calm` has been called.
  int64_t Odd(int64_t usual) {
    if (is_calm_ || !Chance(64)) return usual;
    return Pick<int64_t>({-1, 0, 1, usual - 1, usual + 1, 2 * usual, -usual, INT32_MIN, INT32_MAX,
                          int64_t{1} << 32, int64_t{1} << 62, INT64_MAX, INT64_MIN});
  }
  bool Absurd(int64_t n) { return !is_calm_ && Chance(n); }
  // Half of all inputs are right throughout: they are for the comparison with the references.
  void DecideMood() { is_calm_ = Flip(); }
  void Calm() { is_calm_ = true; }
  bool is_calm() const { return is_calm_; }
  test::Random Numbers() { return test::Random(static_cast<uint64_t>(Int(0, 65535)) + 1); }

 private:
  uint64_t Byte() { return data_ < end_ ? *data_++ : 0; }

  const uint8_t* data_;
  const uint8_t* end_;
  bool is_calm_ = false;
};

// Elements from the first to past the last that extents and strides reach; -1: more than there is room for.
inline int64_t SpanOf(const int64_t* extent, const int64_t* stride, size_t rank) {
  constexpr int64_t kMost = 1 << 18;
  __int128 last = 0, count = 1;
  for (size_t i = 0; i < rank; ++i) {
    if (extent[i] <= 0) return 0;
    count *= extent[i];
    if (count > kMost) return -1;
    // A negative stride has to be refused, so that memory for it is not needed.
    if (stride[i] > 0) last += static_cast<__int128>(extent[i] - 1) * stride[i];
  }
  return last < kMost ? static_cast<int64_t>(last) + 1 : -1;
}

template <size_t R>
In<R> ReadOnly(const AnyView<std::byte, R>& view) {
  In<R> in;
  in.data = view.data;
  in.dtype = view.dtype;
  std::copy(view.extent, view.extent + R, in.extent);
  std::copy(view.stride, view.stride + R, in.stride);
  return in;
}

// The arrays of one call.
class Arrays {
 public:
  explicit Arrays(Input& in) : in_(in) {}

  // Whether all arrays that were asked for lie in memory. If not, only the caller's claims are wrong.
  bool fit() const { return fit_; }

  // Memory for `bytes` bytes, poisoned.
  std::byte* Take(int64_t bytes) {
    if (bytes < 0 || bytes > (1 << 22)) {
      fit_ = false;
      bytes = 0;
    }
    buffers_.emplace_back(static_cast<size_t>(bytes));
    return buffers_.back().data();
  }

  // A row-major array of `extents`, rows some elements apart if `pads`, any of it absurd here and there.
  template <class V, size_t R>
  V Make(const int64_t (&extents)[R], size_t element_bytes, bool pads, V view) {
    int64_t stride = 1;
    for (size_t i = R; i-- > 0;) {
      view.extent[i] = in_.Odd(extents[i]);
      view.stride[i] = in_.Odd(stride);
      stride *= extents[i] > 0 ? extents[i] : 1;
      if (pads && i + 1 == R && R > 1) stride += in_.Int(0, 3);
    }
    const int64_t span = SpanOf(view.extent, view.stride, R);
    if (span < 0) fit_ = false;
    std::byte* data = Take((span < 0 ? 0 : span) * static_cast<int64_t>(element_bytes));
    if (in_.Absurd(64)) data = nullptr;
    // Refused wherever elements have to be aligned.
    if (in_.Absurd(64) && element_bytes > 1 && data != nullptr) data -= 1;
    view.data = reinterpret_cast<decltype(view.data)>(data);
    return view;
  }

  // Random numbers of any float type.
  template <size_t R>
  AnyView<std::byte, R> Floats(const int64_t (&extents)[R], DType dtype) {
    AnyView<std::byte, R> view;
    view.dtype = in_.Absurd(128) ? static_cast<DType>(9) : dtype;
    view = Make(extents, SizeOf(dtype), true, view);
    FillFloats(buffers_.back(), dtype);
    return view;
  }
  template <size_t R>
  In<R> FloatInput(const int64_t (&extents)[R], DType dtype) {
    return ReadOnly(Floats(extents, dtype));
  }
  template <size_t R>
  View<float, R> Float32(const int64_t (&extents)[R]) {
    const View<float, R> view = Make(extents, sizeof(float), true, View<float, R>{});
    FillFloats(buffers_.back(), DType::kFloat32);
    return view;
  }

  // Integers f() each, absurd here and there; of either width.
  template <size_t R, class F>
  IndexView<R> Indices(const int64_t (&extents)[R], const F& f) {
    if (in_.Flip()) return IndicesOf<int64_t>(extents, f);
    return IndicesOf<int32_t>(extents, f);
  }
  template <size_t R>
  MutableIndexView<R> IndexOutput(const int64_t (&extents)[R]) {
    if (in_.Flip()) return Make(extents, sizeof(int64_t), true, View<int64_t, R>{});
    return Make(extents, sizeof(int32_t), true, View<int32_t, R>{});
  }

  // Pages of a format, with random bytes or numbers in them.
  MutablePagedCache Cache(CacheFormat format, int64_t width, int64_t num_blocks,
                          int64_t block_size) {
    MutablePagedCache cache;
    cache.format = in_.Absurd(128) ? static_cast<CacheFormat>(99) : format;
    const int64_t record = RecordBytes(format, width);
    const auto align = static_cast<int64_t>(RecordAlignment(format));
    cache.num_blocks = in_.Odd(num_blocks);
    cache.block_size = in_.Odd(block_size);
    cache.row_stride = in_.Odd(record + in_.Int(0, 2) * align);
    const int64_t page = block_size * (cache.row_stride + SideBytes(format));
    cache.block_stride = in_.Odd(page + in_.Int(0, 2) * align);
    if (HasTensorScale(format)) {
      cache.scale =
          in_.Absurd(32) ? in_.Pick({0.0f, -1.0f, NAN, INFINITY}) : in_.Pick({1.0f, 0.5f, 0.03f});
    }
    const int64_t extent[] = {cache.num_blocks, cache.block_size, 1};
    const int64_t stride[] = {cache.block_stride, cache.row_stride, 1};
    const int64_t span = SpanOf(extent, stride, 3);
    if (span < 0 || page < 0 || page > (1 << 20)) fit_ = false;
    cache.data = Take(span <= 0 ? 0 : span - 1 + (page < 0 || page > (1 << 20) ? 0 : page));
    if (in_.Absurd(64)) cache.data = nullptr;
    return cache;
  }

  // The same, with records of random numbers in all slots, unless that is refused.
  MutablePagedCache FilledCache(CacheFormat format, int64_t width, int64_t num_blocks,
                                int64_t block_size) {
    const MutablePagedCache cache = Cache(format, width, num_blocks, block_size);
    test::Random random = in_.Numbers();
    if (!fit_) return cache;
    std::vector<float> rows(static_cast<size_t>(num_blocks * block_size * width));
    for (float& x : rows) x = static_cast<float>(random.Below(33) - 16) / 8.0f;
    std::vector<int64_t> slots;
    for (int64_t slot = 0; slot < num_blocks * block_size; ++slot) slots.push_back(slot);
    LatentWriteArgs write;
    write.kv_c = Packed(static_cast<const float*>(rows.data()), num_blocks * block_size, width);
    write.slot_mapping = Packed(static_cast<const int64_t*>(slots.data()), slots.size());
    write.cache = cache;
    LATHE_FUZZ_REQUIRE(WriteLatentCache(write).ok() || !in_.is_calm(), "records are refused");
    return cache;
  }

  // What is in all arrays; equal before and after what was refused.
  std::vector<std::vector<std::byte>> Contents() const {
    std::vector<std::vector<std::byte>> contents;
    for (const test::Guarded<std::byte>& buffer : buffers_) contents.push_back(buffer.Copy());
    return contents;
  }
  bool AreFrontsIntact() const {
    for (const test::Guarded<std::byte>& buffer : buffers_) {
      if (!buffer.IsFrontIntact()) return false;
    }
    return true;
  }

  void FillFloats(test::Guarded<std::byte>& buffer, DType dtype) {
    test::Random random = in_.Numbers();
    const size_t bytes = SizeOf(dtype);
    for (size_t at = 0; at + bytes <= buffer.size(); at += bytes) {
      // Eighths: exact in every type.
      Store(dtype, static_cast<float>(random.Below(33) - 16) / 8.0f, &buffer[at]);
    }
  }
  test::Guarded<std::byte>& last() { return buffers_.back(); }

  static void Store(DType dtype, float x, std::byte* to) {
    if (dtype == DType::kFloat32) std::memcpy(to, &x, sizeof(x));
    const uint16_t bits =
        dtype == DType::kFloat16 ? FromFloat<float16>(x).bits : FromFloat<bfloat16>(x).bits;
    if (dtype != DType::kFloat32) std::memcpy(to, &bits, sizeof(bits));
  }

 private:
  template <class T, size_t R, class F>
  IndexView<R> IndicesOf(const int64_t (&extents)[R], const F& f) {
    const View<T, R> view = Make(extents, sizeof(T), R > 1, View<T, R>{});
    test::Guarded<std::byte>& buffer = buffers_.back();
    for (size_t at = 0; at + sizeof(T) <= buffer.size(); at += sizeof(T)) {
      const auto value = static_cast<T>(in_.Odd(f()));
      std::memcpy(&buffer[at], &value, sizeof(T));
    }
    return view;
  }

  Input& in_;
  std::deque<test::Guarded<std::byte>> buffers_;
  bool fit_ = true;
};

// Runs `call` over the arrays. Returns whether it was accepted; what is refused must have written nothing,
// and a call that is right throughout must not be refused.
template <class Call>
bool RunAccepted(const Input& in, const Arrays& arrays, const Call& call) {
  const auto before = arrays.Contents();
  const Status status = call();
  LATHE_FUZZ_REQUIRE(arrays.AreFrontsIntact(), "written before a buffer");
  if (status.ok()) return true;
  LATHE_FUZZ_REQUIRE(!in.is_calm(), "%s", Format(status).c_str());
  LATHE_FUZZ_REQUIRE(before == arrays.Contents(), "written though refused: %s",
                     Format(status).c_str());
  return false;
}

// The parts of a region of `num_workers` threads, one after another, leave the bits of the whole call, which has
// been run. The last array is the workspace.
template <class Part, class Merge>
void RunInParts(const Arrays& arrays, size_t num_workers, const Part& part, const Merge& merge) {
  auto whole = arrays.Contents();
  for (size_t ith = num_workers; ith-- > 0;) LATHE_FUZZ_REQUIRE(part(ith).ok(), "a part refuses");
  for (size_t ith = 0; ith < num_workers; ++ith) {
    LATHE_FUZZ_REQUIRE(merge(ith).ok(), "a merge refuses");
  }
  auto in_parts = arrays.Contents();
  whole.pop_back();
  in_parts.pop_back();
  LATHE_FUZZ_REQUIRE(whole == in_parts, "parts give other bits than the whole");
}

// A target that runs here and has no bfloat16 products: results are held to float32 bounds.
inline Target TargetOf(Input& in) {
  std::vector<Target> targets;
  for (const TargetInfo& info : Targets()) {
    if (info.runnable && !info.native_bf16) targets.push_back(info.target);
  }
  return targets[static_cast<size_t>(in.Int(0, static_cast<int64_t>(targets.size()) - 1))];
}

inline DType DTypeOf(Input& in) {
  return in.Pick({DType::kFloat32, DType::kBFloat16, DType::kFloat16});
}

// `value` of `dtype` for `expected`, among terms as large as `largest`.
inline void RequireNear(double value, double expected, double largest, DType dtype) {
  double tolerance = 1e-4 * (std::abs(expected) > largest ? std::abs(expected) : largest) + 1e-6;
  if (dtype != DType::kFloat32) tolerance += std::abs(expected) / 128;
  const bool near = std::isfinite(expected) ? std::abs(value - expected) <= tolerance
                                            : std::isnan(expected) == std::isnan(value) &&
                                                  (std::isnan(expected) || value == expected);
  LATHE_FUZZ_REQUIRE(near, "%.9g instead of %.9g", value, expected);
}

}  // namespace lathe::fuzz

#endif  // LATHE_FUZZ_FUZZ_INPUT_H_
