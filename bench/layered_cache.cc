// SPDX-License-Identifier: Apache-2.0
#include "bench/layered_cache.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lathe/cache/formats.h"
#include "lathe/latent_cache.h"

namespace lathe::bench {
int64_t CacheSpec::record_bytes() const { return RecordBytes(format.format, head_dim); }
int64_t CacheSpec::token_bytes() const { return record_bytes() + SideBytes(format.format); }
int64_t CacheSpec::layer_bytes() const {
  return batch * blocks_per_seq() * block_size * token_bytes();
}

MlaDecodeOptions OptionsOf(Target target) {
  MlaDecodeOptions options;
  options.softmax_scale = 1.0f / std::sqrt(192.0f);  // DeepSeek's, without YaRN
  options.target = target;
  return options;
}

LayeredCache::LayeredCache(const CacheSpec& spec, Harness& harness)
    : spec_(spec),
      blocks_per_seq_(spec.blocks_per_seq()),
      layer_bytes_(spec.layer_bytes()),
      memory_(static_cast<size_t>(spec.bytes())),
      block_table_(static_cast<size_t>(spec.batch * blocks_per_seq_)),
      seq_lens_(static_cast<size_t>(spec.batch), static_cast<int32_t>(spec.keys)) {
  std::iota(block_table_.begin(), block_table_.end(), 0);
  Random(1).Shuffle(block_table_);
  Write(harness);
}

void LayeredCache::Write(Harness& harness) {
  // A period that is no multiple of a page: all pages differ.
  constexpr int64_t kDistinctKeys = 4093;
  Tensor<2> source(DType::kFloat32, {kDistinctKeys, spec_.head_dim});
  source.Fill(Random(2));
  const int64_t num_blocks = spec_.layers * spec_.batch * blocks_per_seq_;
  LatentWriteArgs args;
  args.cache = {memory_.data(),   spec_.format.format, num_blocks,
                spec_.block_size, PageBytes(),         spec_.record_bytes()};
  std::vector<int64_t> slots(kDistinctKeys);
  std::iota(slots.begin(), slots.end(), int64_t{0});
  Team& team = harness.team(harness.all_threads());
  for (int64_t end = num_blocks * spec_.block_size; slots[0] < end;) {
    const int64_t count = std::min(kDistinctKeys, end - slots[0]);
    args.kv_c = Columns(source.View(0, count), 0, spec_.kv_lora_rank);
    if (spec_.head_dim > spec_.kv_lora_rank) {
      args.k_pe = Columns(source.View(0, count), spec_.kv_lora_rank, spec_.head_dim);
    }
    args.slot_mapping = Packed(static_cast<const int64_t*>(slots.data()), count);
    Require(WriteLatentCache(args, {}, team.executor()));
    for (int64_t& slot : slots) slot += kDistinctKeys;
  }
}

PagedCache LayeredCache::Pages(int64_t layer) const {
  return {Layer(layer),     spec_.format.format, spec_.batch * blocks_per_seq_,
          spec_.block_size, PageBytes(),         spec_.record_bytes()};
}

KeySet LayeredCache::Keys(int64_t layer) const {
  KeySet keys;
  keys.cache = Pages(layer);
  keys.block_table = block_table();
  keys.seq_lens = Packed(seq_lens_.data(), spec_.batch);
  return keys;
}

const ref::AttentionResult& LayeredCache::Reference(const DecodeCall& call) {
  if (!reference_) reference_ = Reference(call, spec_.keys);
  return *reference_;
}

ref::AttentionResult LayeredCache::Reference(const DecodeCall& call, int64_t keys) const {
  MlaDecodeArgs args;
  args.keys = Keys(0);
  const auto seq_len = static_cast<int32_t>(keys);
  args.keys.seq_lens = Packed(&seq_len, 1);
  return CheckedReference(call, args);
}

int64_t ColdLayers(int64_t layer_bytes, const Machine& machine) {
  const auto enough = static_cast<int64_t>(4 * machine.all_llc_bytes);
  return layer_bytes >= enough ? 1 : enough / layer_bytes + 2;
}

LayeredCache& Provide(const CacheSlot& slot, const CacheSpec& spec, Harness& harness) {
  std::unique_ptr<LayeredCache>& cache = *slot;
  if (cache == nullptr || !(cache->spec() == spec)) {
    cache = nullptr;  // before the next one is allocated
    cache = std::make_unique<LayeredCache>(spec, harness);
  }
  return *cache;
}

}  // namespace lathe::bench
