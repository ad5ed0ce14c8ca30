// SPDX-License-Identifier: Apache-2.0
// The latent caches of a model's layers: one block table for all, as engines keep them, pages of 64
// tokens (or what the spec says) in shuffled order. Going from layer to layer is how a cold row gets to data that no cache
// holds.
#ifndef LATHE_BENCH_LAYERED_CACHE_H_
#define LATHE_BENCH_LAYERED_CACHE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "bench/decode_check.h"
#include "bench/harness.h"
#include "bench/huge_buffer.h"
#include "bench/tensor.h"
#include "lathe/base/keys.h"
#include "lathe/cache/formats.h"
#include "lathe/mla_decode.h"
#include "lathe/ref/attention_ref.h"

namespace lathe::bench {

constexpr int64_t kBlockSize = 64;
// DeepSeek's.
constexpr int64_t kKvLoraRank = 512;
constexpr int64_t kRopeDim = 64;
constexpr int64_t kHeadDim = kKvLoraRank + kRopeDim;

// The row width of a format, DeepSeek's where it has any.
inline int64_t WidthOf(CacheFormat format) {
  return FixedWidth(format) != 0 ? FixedWidth(format) : kHeadDim;
}

struct CacheSpec {
  NamedFormat format = kFloat32Format;
  int64_t keys = 0;   // of each sequence
  int64_t batch = 0;  // sequences
  int64_t layers = 0;
  int64_t head_dim = kHeadDim;
  int64_t kv_lora_rank = kKvLoraRank;
  int64_t block_size = kBlockSize;

  bool operator==(const CacheSpec& other) const {
    const auto all = [](const CacheSpec& s) {
      return std::tie(s.format.format, s.keys, s.batch, s.layers, s.head_dim, s.kv_lora_rank,
                      s.block_size);
    };
    return all(*this) == all(other);
  }
  MlaShape shape(int64_t heads) const { return {heads, kv_lora_rank, head_dim - kv_lora_rank}; }
  int64_t blocks_per_seq() const { return (keys + block_size - 1) / block_size; }
  int64_t record_bytes() const;  // of the first part of a page
  int64_t token_bytes() const;   // of all parts
  int64_t layer_bytes() const;
  int64_t bytes() const { return layers * layer_bytes(); }
};

MlaDecodeOptions OptionsOf(Target target);

class LayeredCache {
 public:
  // Random keys, written by lathe itself with all threads. Throws std::bad_alloc, RowError.
  LayeredCache(const CacheSpec& spec, Harness& harness);

  const CacheSpec& spec() const { return spec_; }
  // All keys of a layer; layers past the last begin again.
  KeySet Keys(int64_t layer) const;
  PagedCache Pages(int64_t layer) const;
  IndexView<2> block_table() const {
    return Packed(block_table_.data(), spec_.batch, blocks_per_seq_);
  }
  const std::byte* Layer(int64_t layer) const {
    return memory_.data() + layer % spec_.layers * layer_bytes_;
  }
  int64_t layer_bytes() const { return layer_bytes_; }

  // The reference of CheckedReference() for layer 0; computed once, for every row that uses this cache.
  const ref::AttentionResult& Reference(const DecodeCall& call);
  // The same, if the sequences had their first `keys` keys only. Computed each time.
  ref::AttentionResult Reference(const DecodeCall& call, int64_t keys) const;

 private:
  void Write(Harness& harness);
  int64_t PageBytes() const { return spec_.block_size * spec_.token_bytes(); }

  CacheSpec spec_;
  int64_t blocks_per_seq_;
  int64_t layer_bytes_;
  HugeBuffer memory_;
  std::vector<int32_t> block_table_;
  std::vector<int32_t> seq_lens_;
  std::optional<ref::AttentionResult> reference_;
};

// Of layers of `layer_bytes` enough that a call finds nothing of its own left from the last time around.
int64_t ColdLayers(int64_t layer_bytes, const Machine& machine);

// The cache of the last row, kept because the next one often wants the same.
using CacheSlot = std::shared_ptr<std::unique_ptr<LayeredCache>>;
inline CacheSlot MakeCacheSlot() { return std::make_shared<std::unique_ptr<LayeredCache>>(); }

LayeredCache& Provide(const CacheSlot& slot, const CacheSpec& spec, Harness& harness);

}  // namespace lathe::bench

#endif  // LATHE_BENCH_LAYERED_CACHE_H_
