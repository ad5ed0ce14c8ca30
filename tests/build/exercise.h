// SPDX-License-Identifier: Apache-2.0
// Every operation once, tiny, on each target that can run: enough to tell that the code is there
// and computes. Accuracy and edge cases are the operations' own tests.
//
// Before including it, `ops` names the namespace whose functions are meant. No exceptions, no test
// framework: this compiles in every configuration that tests/build tries.
#ifndef LATHE_TESTS_BUILD_EXERCISE_H_
#define LATHE_TESTS_BUILD_EXERCISE_H_

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "lathe/lathe.h"

namespace {

constexpr int64_t kHeads = 2, kRank = 64, kRope = 16, kDim = kRank + kRope;
constexpr int64_t kKeys = 5, kBlockSize = 2, kBlocks = 3;

// Small multiples of 1/8: exact in every element type.
float Value(int64_t i) { return static_cast<float>(i * 37 % 11 - 5) / 8.0f; }

struct Problem {
  float kv_c[kKeys * kRank], k_pe[kKeys * kRope], q[kHeads * kDim];
  double expected[kHeads * kRank];

  Problem() {
    for (int64_t i = 0; i < kKeys * kRank; ++i) kv_c[i] = Value(i);
    for (int64_t i = 0; i < kKeys * kRope; ++i) k_pe[i] = Value(i + 3);
    for (int64_t i = 0; i < kHeads * kDim; ++i) q[i] = Value(i * 7 + 1);
    for (int64_t h = 0; h < kHeads; ++h) Attend(q + h * kDim, expected + h * kRank);
  }

  void Attend(const float* query, double* out) const {
    double sum = 0;
    for (int64_t c = 0; c < kRank; ++c) out[c] = 0;
    for (int64_t t = 0; t < kKeys; ++t) {
      double score = 0;
      for (int64_t c = 0; c < kRank; ++c) score += double{query[c]} * double{kv_c[t * kRank + c]};
      for (int64_t c = 0; c < kRope; ++c)
        score += double{query[kRank + c]} * double{k_pe[t * kRope + c]};
      const double weight = std::exp(score / 8);
      sum += weight;
      for (int64_t c = 0; c < kRank; ++c) out[c] += weight * double{kv_c[t * kRank + c]};
    }
    for (int64_t c = 0; c < kRank; ++c) out[c] /= sum;
  }
};

bool Ok(const lathe::Status& status, const char* what) {
  if (!status.ok()) std::printf("%s: %s\n", what, lathe::Format(status).c_str());
  return status.ok();
}

// Memory for a call.
struct Memory {
  explicit Memory(size_t bytes) : buffer{std::malloc(bytes + 1), bytes} {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { std::free(buffer.data); }
  lathe::Buffer buffer;
};

bool Same(const float* got, const float* expected, int64_t n, const char* what) {
  for (int64_t i = 0; i < n; ++i) {
    if (got[i] == expected[i]) continue;
    std::printf("%s[%d] is %g, not %g\n", what, static_cast<int>(i), double{got[i]},
                double{expected[i]});
    return false;
  }
  return true;
}

bool Near(const float* got, const double* expected, double tolerance, const char* what) {
  for (int64_t i = 0; i < kHeads * kRank; ++i) {
    if (std::fabs(double{got[i]} - expected[i]) <= tolerance) continue;
    std::printf("%s[%d] is %g, not %g\n", what, static_cast<int>(i), double{got[i]}, expected[i]);
    return false;
  }
  return true;
}

// Rows come back from the cache, and from a copy of its pages.
bool ExercisePages(lathe::Target target, const lathe::LatentWriteArgs& write, const float* kv_c) {
  alignas(64) lathe::bfloat16 copies[kBlocks * kBlockSize * kDim] = {};
  const int32_t pairs[kBlocks][2] = {{0, 2}, {1, 1}, {2, 0}}, reversed[kBlocks] = {0, 2, 1};
  lathe::PageCopyArgs copy;
  copy.source = write.cache.data;
  copy.destination = reinterpret_cast<std::byte*>(copies);
  copy.num_source_blocks = copy.num_destination_blocks = kBlocks;
  copy.source_stride = copy.destination_stride = copy.page_bytes = write.cache.block_stride;
  copy.block_pairs = lathe::Packed(&pairs[0][0], kBlocks, 2);
  if (!Ok(ops::CopyCachePages(copy), "CopyCachePages") ||
      !Ok(ops::CopyCachesPages(&copy, 1), "CopyCachesPages")) {
    return false;
  }
  // To the slot that no token has, and back.
  const int32_t from_slots[2] = {2, 3}, to_slots[2] = {3, 2};
  lathe::RecordCopyArgs move;
  move.cache = lathe::LatentPages(copies, kBlocks, kBlockSize, kDim);
  move.width = kDim;
  move.src_slots = lathe::Packed(from_slots, 2);
  move.dst_slots = lathe::Packed(to_slots, 2);
  if (!Ok(ops::CopyCacheRecords(move), "CopyCacheRecords") ||
      !Ok(ops::CopyCachesRecords(&move, 1), "CopyCachesRecords")) {
    return false;
  }
  float rows[kKeys * kDim] = {};
  const int32_t seq_lens[1] = {kKeys}, starts[1] = {0};
  lathe::LatentGatherArgs gather;
  gather.cache = write.cache;
  gather.cache.data = copy.destination;
  gather.block_table = lathe::Packed(reversed, 1, kBlocks);
  gather.gather_lens = lathe::Packed(seq_lens, 1);
  gather.out_start_loc = lathe::Packed(starts, 1);
  gather.out = lathe::Packed(rows, kKeys, kDim);
  if (!Ok(ops::GatherLatentCache(gather, {target}), "GatherLatentCache")) return false;
  for (int64_t t = 0; t < kKeys; ++t) {
    if (!Same(rows + t * kDim, kv_c + t * kRank, kRank, "a gathered row")) return false;
  }
  return true;
}

bool ExerciseOn(lathe::Target target) {
  static const Problem problem;
  alignas(64) lathe::bfloat16 cache[kBlocks * kBlockSize * kDim] = {};
  const int64_t slots[kKeys] = {4, 5, 0, 1, 2};
  const int32_t block_table[kBlocks] = {2, 0, 1}, seq_lens[1] = {kKeys};

  lathe::LatentWriteArgs write;
  write.kv_c = lathe::Packed(problem.kv_c, kKeys, kRank);
  write.k_pe = lathe::Packed(problem.k_pe, kKeys, kRope);
  write.slot_mapping = lathe::Packed(slots, kKeys);
  write.cache = lathe::LatentPages(cache, kBlocks, kBlockSize, kDim);
  lathe::LatentWriteOptions write_options;
  write_options.target = target;
  if (!Ok(ops::WriteLatentCache(write, write_options), "WriteLatentCache") ||
      !Ok(ops::WriteLatentCaches(&write, 1, write_options), "WriteLatentCaches")) {
    return false;
  }

  float out[kHeads * kRank] = {}, lse[kHeads] = {};
  lathe::MlaShape shape;
  shape.num_heads = kHeads;
  shape.kv_lora_rank = kRank;
  shape.qk_rope_head_dim = kRope;
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 1.0f / 8;
  options.target = target;
  options.precision = lathe::Precision::kFloat32;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(problem.q, 1, kHeads, kDim);
  args.keys.cache = write.cache;
  args.keys.block_table = lathe::Packed(block_table, 1, kBlocks);
  args.keys.seq_lens = lathe::Packed(seq_lens, 1);
  args.out = lathe::Packed(out, 1, kHeads, kRank);
  args.lse = lathe::Packed(lse, 1, kHeads);

  lathe::Limits limits;
  limits.max_num_seqs = limits.max_num_tokens = 1;
  limits.max_num_keys = kKeys;
  lathe::Sizes sizes;
  if (!Ok(ops::MlaDecodeSizes(shape, options, limits, &sizes), "MlaDecodeSizes")) return false;
  const Memory plan_memory(sizes.plan_bytes), workspace(sizes.workspace_bytes);
  const lathe::MlaDecodePlan* plan = nullptr;
  if (!Ok(ops::PlanMlaDecode(shape, options, args, 1, plan_memory.buffer, &plan),
          "PlanMlaDecode") ||
      ops::PlanTarget(*plan) != target ||
      !Ok(ops::RunMlaDecode(*plan, args, workspace.buffer), "RunMlaDecode") ||
      !Near(out, problem.expected, 1e-5, "out") ||
      !Ok(ops::RunMlaDecodePart(*plan, args, workspace.buffer, 0, 1), "RunMlaDecodePart") ||
      !Ok(ops::RunMlaDecodeMerge(*plan, args, workspace.buffer, 0, 1), "RunMlaDecodeMerge") ||
      !Near(out, problem.expected, 1e-5, "out of a part")) {
    return false;
  }
  if (!ExercisePages(target, write, problem.kv_c)) return false;

  // Two equal halves make the same whole again.
  float merged[kHeads * kRank] = {};
  lathe::MergePart parts[2];
  for (lathe::MergePart& part : parts) {
    part.out = lathe::Packed(out, 1, kHeads, kRank);
    part.lse = lathe::Packed(lse, 1, kHeads);
  }
  lathe::MergeStatesArgs merge;
  merge.parts = parts;
  merge.num_parts = 2;
  merge.out = lathe::Packed(merged, 1, kHeads, kRank);
  lathe::MergeStatesOptions merge_options;
  merge_options.target = target;
  return Ok(ops::MergeStates(merge, merge_options), "MergeStates") &&
         Near(merged, problem.expected, 1e-5, "merged");
}

// The best two of five.
bool ExerciseTopk(lathe::Target target) {
  const float scores[5] = {1, 4, 2, 4, 3};
  int32_t indices[2] = {};
  lathe::TopkArgs args;
  args.logits = lathe::Packed(scores, 1, 5);
  args.indices = lathe::Packed(indices, 1, 2);
  lathe::TopkOptions options;
  options.k = 2;
  options.target = target;
  lathe::Sizes sizes;
  if (!Ok(ops::TopkSizes(options, {1, 1, 5, 1}, &sizes), "TopkSizes")) return false;
  const Memory workspace(sizes.workspace_bytes);
  return Ok(ops::SelectTopk(args, options, workspace.buffer), "SelectTopk") && indices[0] == 1 &&
         indices[1] == 3;
}

}  // namespace

#include "tests/build/exercise_models.h"

namespace {

// Whether all targets that can run pass, and there is one.
[[maybe_unused]] bool Exercise() {
  int passed = 0, failed = 0, best = 0;
  for (const lathe::TargetInfo& info : ops::Targets()) {
    const bool ok = info.runnable && ExerciseOn(info.target) && ExerciseTopk(info.target) &&
                    ExerciseIndexer(info.target) && ExerciseV4(info.target) &&
                    ExercisePrefill(info.target);
    std::printf("%-10s %s%s\n", info.name, info.runnable ? (ok ? "ok" : "FAILED") : "- ",
                info.reason);
    passed += ok;
    failed += info.runnable && !ok;
    best += info.runnable && info.target == ops::BestTarget();
  }
  ops::DeclineAmx();  // too late, so nothing changes
  return passed > 0 && failed == 0 && best == 1;
}

}  // namespace

#endif  // LATHE_TESTS_BUILD_EXERCISE_H_
