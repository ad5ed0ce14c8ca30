// SPDX-License-Identifier: Apache-2.0
// A stand-in for the engine: just enough of its vocabulary to compile and test the provider. In the engine its own
// header takes this one's place.
#ifndef LATHE_EXAMPLES_VLLM_CPP_HOST_VT_H_
#define LATHE_EXAMPLES_VLLM_CPP_HOST_VT_H_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace vt {

enum class DType { kF32, kF16, kBF16, kI8, kI32, kI64 };

// Non-owning; strides in elements.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  int64_t shape[4] = {};
  int64_t stride[4] = {};
};

// Runs body(ith, nth) on nth threads, the caller is thread 0; rethrows the first exception.
class ThreadPool {
 public:
  explicit ThreadPool(size_t num_threads) : num_threads_(num_threads) {}
  size_t num_threads() const { return num_threads_; }

  void Run(const std::function<void(size_t, size_t)>& body) {
    std::exception_ptr first;
    std::mutex mutex;
    const auto guarded = [&](size_t ith) {
      try {
        body(ith, num_threads_);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!first) first = std::current_exception();
      }
    };
    std::vector<std::thread> threads;
    for (size_t ith = 1; ith < num_threads_; ++ith) threads.emplace_back(guarded, ith);
    guarded(0);
    for (std::thread& thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
  }

 private:
  size_t num_threads_;
};

// First argument of every op.
struct Queue {
  ThreadPool* pool = nullptr;
};

struct WindowSize {
  int64_t left = 0;  // keys before the query's own
  int64_t right = 0;
};

struct MlaDecodeAttentionArgs {
  float scale = 0.0f;
  int64_t num_kv_splits = 0;  // a hint
  int64_t max_seq_len = 0;    // a hint
  std::optional<WindowSize> window_size;
  const Tensor* topk_indices = nullptr;  // int32 [B, k], positions
  const Tensor* valid_counts = nullptr;  // int32 [B]
  const Tensor* attn_sink = nullptr;     // f32 [H]
};

// One line of the table of kernels: of all that support a call, the highest priority wins.
struct OpProvider {
  const char* op;
  const char* name;
  int priority;
  void* fn;
};

}  // namespace vt

#endif  // LATHE_EXAMPLES_VLLM_CPP_HOST_VT_H_
