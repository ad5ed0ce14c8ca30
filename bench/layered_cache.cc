// SPDX-License-Identifier: Apache-2.0
#include "bench/layered_cache.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lathe/cache/formats.h"
#include "lathe/latent_cache.h"

namespace lathe::bench {
namespace {

int64_t Blocks(int64_t keys) { return (keys + kBlockSize - 1) / kBlockSize; }
int64_t BlockBytes(CacheFormat format) { return kBlockSize * RecordBytes(format, kHeadDim); }

}  // namespace

int64_t CacheSpec::layer_bytes() const { return batch * Blocks(keys) * BlockBytes(format.format); }

MlaShape ShapeOf(int64_t heads) { return {heads, kKvLoraRank, kRopeDim}; }

MlaDecodeOptions OptionsOf(Target target) {
  MlaDecodeOptions options;
  options.softmax_scale = 1.0f / std::sqrt(192.0f);  // DeepSeek's, without YaRN
  options.target = target;
  return options;
}

LayeredCache::LayeredCache(const CacheSpec& spec, Harness& harness)
    : spec_(spec),
      blocks_per_seq_(Blocks(spec.keys)),
      layer_bytes_(spec.layer_bytes()),
      memory_(static_cast<size_t>(spec.layers * layer_bytes_)),
      block_table_(static_cast<size_t>(spec.batch * blocks_per_seq_)),
      seq_lens_(static_cast<size_t>(spec.batch), static_cast<int32_t>(spec.keys)) {
  std::iota(block_table_.begin(), block_table_.end(), 0);
  Random(1).Shuffle(block_table_);
  Write(harness);
}

void LayeredCache::Write(Harness& harness) {
  // A period that is no multiple of a page: all pages differ.
  constexpr int64_t kDistinctKeys = 4093;
  Tensor<2> source(DType::kFloat32, {kDistinctKeys, kHeadDim});
  source.Fill(Random(2));
  const int64_t num_blocks = spec_.layers * spec_.batch * blocks_per_seq_;
  const int64_t record = RecordBytes(spec_.format.format, kHeadDim);
  LatentWriteArgs args;
  args.cache = {memory_.data(), spec_.format.format, num_blocks,
                kBlockSize,     kBlockSize * record, record};
  std::vector<int64_t> slots(kDistinctKeys);
  std::iota(slots.begin(), slots.end(), int64_t{0});
  Team& team = harness.team(harness.all_threads());
  for (int64_t end = num_blocks * kBlockSize; slots[0] < end;) {
    const int64_t count = std::min(kDistinctKeys, end - slots[0]);
    args.kv_c = Columns(source.View(0, count), 0, kKvLoraRank);
    args.k_pe = Columns(source.View(0, count), kKvLoraRank, kHeadDim);
    args.slot_mapping = Packed(static_cast<const int64_t*>(slots.data()), count);
    Require(WriteLatentCache(args, {}, team.executor()));
    for (int64_t& slot : slots) slot += kDistinctKeys;
  }
}

KeySet LayeredCache::Keys(int64_t layer) const {
  const int64_t record = RecordBytes(spec_.format.format, kHeadDim);
  KeySet keys;
  keys.cache = {Layer(layer), spec_.format.format, spec_.batch * blocks_per_seq_,
                kBlockSize,   kBlockSize * record, record};
  keys.block_table = Packed(block_table_.data(), spec_.batch, blocks_per_seq_);
  keys.seq_lens = Packed(seq_lens_.data(), spec_.batch);
  return keys;
}

const ref::AttentionResult& LayeredCache::Reference() {
  if (!reference_.out.empty()) return reference_;
  Tensor<3> q(spec_.format.activations, {1, kCheckedHeads, kHeadDim});
  for (int64_t i = 0; i < kCheckedHeads; ++i) {
    q.Fill(CheckedQuery(i), i * kHeadDim, (i + 1) * kHeadDim);
  }
  MlaDecodeArgs args;
  args.q = Input(q.View());
  args.out.extent[0] = 1;
  args.keys = Keys(0);
  const int64_t last = spec_.batch - 1;
  args.keys.block_table = Packed(block_table_.data() + last * blocks_per_seq_, 1, blocks_per_seq_);
  args.keys.seq_lens = Packed(seq_lens_.data() + last, 1);
  reference_ = ref::MlaDecode(ShapeOf(kCheckedHeads), OptionsOf(Target::kAuto), args);
  return reference_;
}

}  // namespace lathe::bench
