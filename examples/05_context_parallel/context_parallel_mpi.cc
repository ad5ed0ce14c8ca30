// SPDX-License-Identifier: Apache-2.0
// Context parallelism: N MPI ranks share each sequence's keys, every rank attends over its own, and the partial
// results are merged by their lse. Token p belongs to rank (p / interleave) mod N, which keeps its tokens in order
// in pages of its own. Three sequences of which one is shorter than a rank's share, two query rows each (as with
// speculation): row i of a sequence sees the keys up to its global position, of which a rank has a number that only
// row_kv_lens can tell.
//
//   write    all tokens go through WriteLatentCache; those of other ranks have slot -1
//   attend   RunMlaDecode without the sink; a row without a local key gets out = 0, lse = -inf
//   merge    out and lse of all ranks are gathered, MergeStates applies the sink, once
//
// Each rank compares the merged result with decode over the whole cache.
//
// Output of mpirun -n 3:
//   3 ranks, interleave 1: max |out - whole| = 1.8e-07, max |lse - whole| = 4.8e-07 (good: below 1e-5)
//   ...
#include <lathe/easy.h>
#include <lathe/lathe.h>
#include <lathe/v4_metadata.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr lathe::MlaShape kShape{16, 512, 64};
constexpr int64_t kSeqs = 3, kQueries = 2, kRows = kSeqs * kQueries, kBlockSize = 16;
constexpr int64_t kLens[kSeqs] = {333, 3, 128};
constexpr int64_t kTokens = 333 + 3 + 128, kTableColumns = (333 + kBlockSize - 1) / kBlockSize;

void Check(const lathe::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", lathe::Format(status).c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

std::vector<float> Waves(int64_t n, double step) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(std::sin(step * static_cast<double>(i + 1)));
  }
  return x;
}

// The same on every rank: latents of all tokens, sequence after sequence, queries, sinks.
struct Model {
  std::vector<float> kv_c = Waves(kTokens * kShape.kv_lora_rank, 0.7);
  std::vector<float> k_pe = Waves(kTokens * kShape.qk_rope_head_dim, 0.3);
  std::vector<float> q = Waves(kRows * kShape.num_heads * kShape.head_dim(), 1.1);
  std::vector<float> sink = Waves(kShape.num_heads, 2.0);
};

struct Result {
  std::vector<float> out = std::vector<float>(kRows * kShape.num_heads * kShape.kv_lora_rank);
  std::vector<float> lse = std::vector<float>(kRows * kShape.num_heads);
};

lathe::View<float, 3> OutOf(float* data) {
  return lathe::Packed(data, kRows, kShape.num_heads, kShape.kv_lora_rank);
}
lathe::View<float, 2> LseOf(float* data) { return lathe::Packed(data, kRows, kShape.num_heads); }

// What `shard` owns: a cache with its tokens, and attention over these. The whole is a shard of a world of one.
Result Attend(const Model& model, const lathe::ContextShard& shard, bool with_sink) {
  std::vector<int64_t> slots, block_table(kSeqs * kTableColumns), seq_lens, row_kv_lens;
  for (size_t i = 0; i < block_table.size(); ++i) {
    block_table[i] = static_cast<int64_t>(block_table.size() - 1 - i);
  }
  for (int64_t seq = 0; seq < kSeqs; ++seq) {
    for (int64_t position = 0; position < kLens[seq]; ++position) {
      const int64_t local = lathe::LocalPosition(shard, position);
      const auto page = static_cast<size_t>(seq * kTableColumns + local / kBlockSize);
      slots.push_back(lathe::OwnsPosition(shard, position)
                          ? block_table[page] * kBlockSize + local % kBlockSize
                          : -1);
    }
    seq_lens.push_back(lathe::LocalLength(shard, kLens[seq]));
    for (int64_t i = 0; i < kQueries; ++i) {
      row_kv_lens.push_back(lathe::LocalLength(shard, lathe::RowKeys(kLens[seq], kQueries, i)));
    }
  }
  const auto num_blocks = static_cast<int64_t>(block_table.size());
  std::vector<float> cache(static_cast<size_t>(num_blocks * kBlockSize * kShape.head_dim()));
  lathe::LatentWriteArgs write;
  write.kv_c = lathe::Packed(model.kv_c.data(), kTokens, kShape.kv_lora_rank);
  write.k_pe = lathe::Packed(model.k_pe.data(), kTokens, kShape.qk_rope_head_dim);
  write.slot_mapping = lathe::Packed(slots.data(), kTokens);
  write.cache = lathe::LatentPages(cache.data(), num_blocks, kBlockSize, kShape.head_dim());
  Check(lathe::WriteLatentCache(write));

  const std::vector<int64_t> query_start_loc = {0, 2, 4, 6};
  Result result;
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 0.0721688f;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(model.q.data(), kRows, kShape.num_heads, kShape.head_dim());
  args.query_start_loc = lathe::Packed(query_start_loc.data(), kSeqs + 1);
  args.keys.cache = write.cache;
  args.keys.block_table = lathe::Packed(block_table.data(), kSeqs, kTableColumns);
  args.keys.seq_lens = lathe::Packed(seq_lens.data(), kSeqs);
  args.keys.row_kv_lens = lathe::Packed(row_kv_lens.data(), kRows);
  if (with_sink) args.attn_sink = lathe::Packed(model.sink.data(), kShape.num_heads);
  args.out = OutOf(result.out.data());
  args.lse = LseOf(result.lse.data());
  Check(lathe::easy::MlaDecode(kShape, options, args));
  return result;
}

std::vector<float> Gather(const std::vector<float>& local, int world) {
  std::vector<float> all(local.size() * static_cast<size_t>(world));
  const int count = static_cast<int>(local.size());
  MPI_Allgather(local.data(), count, MPI_FLOAT, all.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
  return all;
}

Result Merge(const Model& model, const Result& local, int world) {
  std::vector<float> out = Gather(local.out, world), lse = Gather(local.lse, world);
  std::vector<lathe::MergePart> parts(static_cast<size_t>(world));
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    parts[rank].out = OutOf(out.data() + rank * local.out.size());
    parts[rank].lse = LseOf(lse.data() + rank * local.lse.size());
  }
  Result merged;
  lathe::MergeStatesArgs args;
  args.parts = parts.data();
  args.num_parts = parts.size();
  args.attn_sink = lathe::Packed(model.sink.data(), kShape.num_heads);
  args.out = OutOf(merged.out.data());
  args.lse = LseOf(merged.lse.data());
  Check(lathe::MergeStates(args));
  return merged;
}

float Difference(const std::vector<float>& a, const std::vector<float>& b) {
  float most = 0.0f;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return difference;
    most = std::max(most, difference);
  }
  return most;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int world = 1, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const Model model;
  const Result whole = Attend(model, {1, 0, 1}, true);
  int is_right = 1;
  for (const int64_t interleave : {1, 16, 64}) {
    const Result local = Attend(model, {world, rank, interleave}, false);
    const Result merged = Merge(model, local, world);
    const float out = Difference(merged.out, whole.out), lse = Difference(merged.lse, whole.lse);
    if (rank == 0) {
      std::printf(
          "%d ranks, interleave %d: max |out - whole| = %.1e, max |lse - whole| = %.1e "
          "(good: below 1e-5)\n",
          world, static_cast<int>(interleave), double{out}, double{lse});
    }
    is_right = is_right && out < 1e-5f && lse < 1e-5f;
  }
  int all_are_right = 0;
  MPI_Allreduce(&is_right, &all_are_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Finalize();
  if (all_are_right == 0) std::fprintf(stderr, "rank %d: the results differ\n", rank);
  return all_are_right == 1 ? 0 : 1;
}
