// SPDX-License-Identifier: Apache-2.0
// Adversarial memory: buffers that end (or begin) at an unmapped page and start out poisoned.
#ifndef LATHE_TESTS_SUPPORT_MEMORY_H_
#define LATHE_TESTS_SUPPORT_MEMORY_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace lathe::test {

// All bits set: NaN in float, bfloat16, float16 and e4m3; -1 in an index array.
constexpr int kPoison = 0xFF;

// `count` elements of T whose last byte is followed by an unmapped page and whose mapping is
// preceded by one. Between the front guard and the first element lie canary bytes, checked at
// destruction by the owner through IsFrontIntact().
template <class T>
class Guarded {
 public:
  explicit Guarded(size_t count) : count_(count) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = count * sizeof(T);
    const size_t body = (bytes + page - 1) / page * page;
    mapped_ = body + 2 * page;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED) std::abort();
    if (body > 0 && mprotect(base_ + page, body, PROT_READ | PROT_WRITE) != 0) std::abort();
    front_ = base_ + page;
    data_ = reinterpret_cast<T*>(front_ + (body - bytes));
    if (body > 0) std::memset(front_, kPoison, body);
  }
  Guarded(const std::vector<T>& values) : Guarded(values.size()) {
    if (!values.empty()) std::memcpy(data_, values.data(), values.size() * sizeof(T));
  }
  Guarded(Guarded&& other) noexcept { *this = std::move(other); }
  Guarded& operator=(Guarded&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(mapped_, other.mapped_);
    std::swap(front_, other.front_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Guarded() {
    if (base_ != nullptr) munmap(base_, mapped_);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + count_; }

  // Nothing has written before the first element.
  bool IsFrontIntact() const {
    for (const std::byte* p = front_; p < reinterpret_cast<const std::byte*>(data_); ++p) {
      if (*p != static_cast<std::byte>(kPoison)) return false;
    }
    return true;
  }
  // `count` elements that end where they did, poisoned; cheaper than a new mapping.
  void Resize(size_t count) {
    std::byte* end = reinterpret_cast<std::byte*>(data_ + count_);
    if (count * sizeof(T) > static_cast<size_t>(end - front_)) {
      *this = Guarded(count);
      return;
    }
    count_ = count;
    data_ = reinterpret_cast<T*>(end - count * sizeof(T));
    Poison();
  }
  void Poison() {
    if (count_ > 0) std::memset(static_cast<void*>(data_), kPoison, count_ * sizeof(T));
  }
  std::vector<T> Copy() const { return std::vector<T>(data_, data_ + count_); }

 private:
  std::byte* base_ = nullptr;
  size_t mapped_ = 0;
  std::byte* front_ = nullptr;
  T* data_ = nullptr;
  size_t count_ = 0;
};

// Address space without memory: pages come into being when touched. For offsets past 2^31 and 2^32.
class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes) : bytes_(bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) std::abort();
    data_ = static_cast<std::byte*>(p);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  ~SparseMemory() { munmap(data_, bytes_); }
  std::byte* data() { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

// Equal including the bits of NaNs and signs of zeros.
template <class A, class B>
bool SameBits(const A& a, const B& b) {
  return a.size() == b.size() &&
         (a.size() == 0 || std::memcmp(a.data(), b.data(), a.size() * sizeof(*a.data())) == 0);
}

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_MEMORY_H_
