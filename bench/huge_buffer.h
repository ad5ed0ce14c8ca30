// SPDX-License-Identifier: Apache-2.0
// Zeroed memory in 2 MiB pages where the system grants them: with 4 KiB pages a cold row measures
// the TLB as much as the kernel.
#ifndef LATHE_BENCH_HUGE_BUFFER_H_
#define LATHE_BENCH_HUGE_BUFFER_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace lathe::bench {

class HugeBuffer {
 public:
  HugeBuffer() = default;
  // Throws std::bad_alloc.
  explicit HugeBuffer(size_t bytes) : bytes_(bytes), mapped_(bytes + kPage) {
    map_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) throw std::bad_alloc();
    const size_t past_page = reinterpret_cast<uintptr_t>(map_) % kPage;
    data_ = static_cast<std::byte*>(map_) + (kPage - past_page) % kPage;
#if defined(MADV_HUGEPAGE)
    madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
  }
  HugeBuffer(HugeBuffer&& other) noexcept { Swap(other); }
  HugeBuffer& operator=(HugeBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~HugeBuffer() {
    if (data_ != nullptr) munmap(map_, mapped_);
  }

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  static constexpr size_t kPage = size_t{2} << 20;

  void Swap(HugeBuffer& other) noexcept {
    std::swap(map_, other.map_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_, other.mapped_);
  }

  void* map_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  size_t mapped_ = 0;
};

}  // namespace lathe::bench

#endif  // LATHE_BENCH_HUGE_BUFFER_H_
