// SPDX-License-Identifier: Apache-2.0
// The rest of exercise.h, whose helpers and `ops` it uses: what models after DeepSeek-V3 add, and prefill.
#ifndef LATHE_TESTS_BUILD_EXERCISE_MODELS_H_
#define LATHE_TESTS_BUILD_EXERCISE_MODELS_H_

namespace {

// An indexer's queries and keys in fp8, scored and selected in two steps and in one.
bool ExerciseIndexer(lathe::Target target) {
  constexpr int64_t kIndexHeads = 2, kWidth = 128, kRecord = kWidth + 4;
  float q[kIndexHeads * kWidth], k[kKeys * kWidth], weights[kIndexHeads] = {1, 0.5f};
  for (int64_t i = 0; i < kIndexHeads * kWidth; ++i) q[i] = Value(i + 2);
  for (int64_t i = 0; i < kKeys * kWidth; ++i) k[i] = Value(i * 3 + i / kWidth);
  lathe::float8_e4m3fn codes[kIndexHeads * kWidth];
  lathe::QueryPrepArgs prepare;
  prepare.q = lathe::Packed(static_cast<const float*>(q), 1, kIndexHeads, kWidth);
  prepare.codes = lathe::Packed(codes, 1, kIndexHeads, kWidth);
  prepare.weights = lathe::Packed(static_cast<const float*>(weights), 1, kIndexHeads);
  prepare.weights_out = lathe::Packed(weights, 1, kIndexHeads);
  lathe::QueryPrepOptions prepare_options;
  prepare_options.target = target;

  alignas(64) std::byte pages[kBlocks * kBlockSize * kRecord] = {};
  const int32_t slots[kKeys] = {4, 5, 0, 1, 2}, block_table[kBlocks] = {2, 0, 1};
  const int32_t seq_lens[1] = {kKeys};
  lathe::LatentWriteArgs write;
  write.kv_c = lathe::Packed(static_cast<const float*>(k), kKeys, kWidth);
  write.slot_mapping = lathe::Packed(slots, kKeys);
  write.cache.data = pages;
  write.cache.format = lathe::CacheFormat::kIndexerFp8;
  write.cache.num_blocks = kBlocks;
  write.cache.block_size = kBlockSize;
  write.cache.row_stride = kWidth;
  write.cache.block_stride = kBlockSize * kRecord;
  lathe::LatentWriteOptions write_options;
  write_options.target = target;
  if (!Ok(ops::PrepareQueries(prepare, prepare_options), "PrepareQueries") ||
      !Ok(ops::WriteLatentCache(write, write_options), "WriteLatentCache")) {
    return false;
  }

  float logits[kKeys] = {};
  lathe::IndexerLogitsArgs score;
  score.inputs.q_fp8 = prepare.codes;
  score.inputs.weights = prepare.weights_out;
  score.inputs.keys.cache = write.cache;
  score.inputs.keys.block_table = lathe::Packed(block_table, 1, kBlocks);
  score.inputs.keys.seq_lens = lathe::Packed(seq_lens, 1);
  score.logits = lathe::Packed(logits, 1, kKeys);
  lathe::IndexerLogitsOptions score_options;
  score_options.target = target;
  const lathe::IndexerShape shape{kIndexHeads, kWidth};
  const lathe::Limits limits{1, 1, kKeys, 1};
  lathe::Sizes sizes;
  if (!Ok(ops::IndexerLogitsSizes(shape, score_options, limits, &sizes), "IndexerLogitsSizes")) {
    return false;
  }
  const Memory workspace(sizes.workspace_bytes);
  if (!Ok(ops::ComputeIndexerLogits(score, score_options, workspace.buffer),
          "ComputeIndexerLogits")) {
    return false;
  }
  for (int64_t t = 0; t < kKeys; ++t) {
    double expected = 0;
    for (int64_t h = 0; h < kIndexHeads; ++h) {
      double dot = 0;
      for (int64_t c = 0; c < kWidth; ++c)
        dot += double{q[h * kWidth + c]} * double{k[t * kWidth + c]};
      expected += dot > 0 ? dot / static_cast<double>(h + 1) : 0.0;
    }
    if (std::fabs(double{logits[t]} - expected) > 0.25) {  // codes of 3 bits of mantissa
      std::printf("logit %d is %g, not %g\n", static_cast<int>(t), double{logits[t]}, expected);
      return false;
    }
  }

  int32_t apart[2] = {}, fused[2] = {};
  lathe::TopkArgs topk;
  topk.logits = score.logits;
  topk.indices = lathe::Packed(apart, 1, 2);
  lathe::TopkOptions topk_options;
  topk_options.k = 2;
  topk_options.target = target;
  if (!Ok(ops::TopkSizes(topk_options, limits, &sizes), "TopkSizes")) return false;
  const Memory topk_memory(sizes.workspace_bytes);
  lathe::IndexerTopkArgs select;
  select.inputs = score.inputs;
  select.indices = lathe::Packed(fused, 1, 2);
  lathe::IndexerTopkOptions select_options;
  select_options.k = 2;
  select_options.target = target;
  if (!Ok(ops::IndexerTopkSizes(shape, select_options, limits, &sizes), "IndexerTopkSizes")) {
    return false;
  }
  const Memory select_memory(sizes.workspace_bytes);
  return Ok(ops::SelectTopk(topk, topk_options, topk_memory.buffer), "SelectTopk") &&
         Ok(ops::SelectIndexerTopk(select, select_options, select_memory.buffer),
            "SelectIndexerTopk") &&
         apart[0] == fused[0] && apart[1] == fused[1];
}

// A compressor whose entries are tokens, through partial results and not; then a window of three tokens
// beside the entries of all five, as a layer of DeepSeek-V4.
bool ExerciseV4(lathe::Target target) {
  constexpr int64_t kStateRows = 8;
  float tokens[kKeys * kRank], scores[kKeys * kRank] = {}, ape[kRank] = {};
  for (int64_t i = 0; i < kKeys * kRank; ++i) tokens[i] = Value(i * 5 + 2);
  float state[kStateRows * 2 * kRank] = {}, entries[kKeys * kRank] = {};
  float partials[kKeys * 3 * kRank] = {};
  const int32_t positions[kKeys] = {0, 1, 2, 3, 4}, query_start_loc[2] = {0, kKeys}, zero[1] = {0};
  lathe::CompressorArgs compress;
  compress.kv = lathe::Packed(static_cast<const float*>(tokens), kKeys, kRank);
  compress.score = lathe::Packed(static_cast<const float*>(scores), kKeys, kRank);
  compress.ape = lathe::Packed(static_cast<const float*>(ape), 1, kRank);
  compress.positions = lathe::Packed(positions, kKeys);
  compress.query_start_loc = lathe::Packed(query_start_loc, 2);
  compress.state = lathe::LatentPages(state, 1, kStateRows, 2 * kRank);
  compress.state_block_table = lathe::Packed(zero, 1, 1);
  compress.cache = lathe::LatentPages(entries, 1, kKeys, kRank);
  compress.slot_mapping = lathe::Packed(positions, kKeys);
  lathe::CompressorOptions compress_options;
  compress_options.target = target;
  compress_options.ratio = 1;
  lathe::Sizes sizes;
  if (!Ok(ops::CompressorSizes({kRank}, compress_options, {1, kKeys, 0, 1}, &sizes),
          "CompressorSizes")) {
    return false;
  }
  const Memory compress_memory(sizes.workspace_bytes);
  if (!Ok(ops::CompressTokens(compress, compress_options, compress_memory.buffer),
          "CompressTokens") ||
      !Same(entries, tokens, kKeys * kRank, "entries")) {
    return false;
  }
  lathe::CompressorArgs part = compress;
  part.cache = {};
  part.slot_mapping = {};
  part.partials = lathe::Packed(partials, kKeys, 3, kRank);
  const lathe::View<const float, 3> parts[1] = {part.partials};
  lathe::CompressedMergeArgs merge;
  merge.parts = parts;
  merge.num_parts = 1;
  merge.positions = compress.positions;
  merge.slot_mapping = compress.slot_mapping;
  merge.cache = compress.cache;
  lathe::CompressedMergeOptions merge_options;
  merge_options.target = target;
  merge_options.ratio = 1;
  if (!Ok(ops::CompressTokens(part, compress_options, compress_memory.buffer), "CompressTokens") ||
      !Ok(ops::MergeCompressed(merge, merge_options), "MergeCompressed") ||
      !Same(entries, tokens, kKeys * kRank, "merged entries")) {
    return false;
  }

  const int32_t seq_lens[1] = {kKeys};
  float q[kHeads * kRank], out[kHeads * kRank] = {}, cos[kKeys] = {1, 1, 1, 1, 1}, sin[kKeys] = {};
  for (int64_t i = 0; i < kHeads * kRank; ++i) q[i] = Value(i + 1);
  lathe::MlaShape shape;
  shape.num_heads = kHeads;
  shape.kv_lora_rank = kRank;
  shape.qk_rope_head_dim = 0;
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 1.0f / 8;
  options.target = target;
  options.precision = lathe::Precision::kFloat32;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(static_cast<const float*>(q), 1, kHeads, kRank);
  args.keys =
      lathe::WindowKeys(compress.cache, lathe::Packed(zero, 1, 1), lathe::Packed(seq_lens, 1), 3);
  args.extra_keys = lathe::CompressedKeys(compress.cache, lathe::Packed(zero, 1, 1),
                                          lathe::Packed(seq_lens, 1), 1);
  args.out_rope.cos = lathe::Packed(static_cast<const float*>(cos), kKeys, 1);
  args.out_rope.sin = lathe::Packed(static_cast<const float*>(sin), kKeys, 1);
  args.out_rope.inverse = true;
  args.out = lathe::Packed(out, 1, kHeads, kRank);
  const Memory plan_memory(1 << 16);
  const lathe::MlaDecodePlan* plan = nullptr;
  if (!Ok(ops::PlanMlaDecode(shape, options, args, 1, plan_memory.buffer, &plan), "PlanMlaDecode"))
    return false;
  const Memory workspace(ops::PlanWorkspaceBytes(*plan));
  if (!Ok(ops::RunMlaDecode(*plan, args, workspace.buffer), "RunMlaDecode")) return false;
  double expected[kHeads * kRank] = {};
  for (int64_t h = 0; h < kHeads; ++h) {
    double sum = 0;
    for (int64_t t = 0; t < kKeys; ++t) {
      double score = 0;
      for (int64_t c = 0; c < kRank; ++c)
        score += double{q[h * kRank + c]} * double{tokens[t * kRank + c]};
      // Tokens 2 to 4 stand in the window as well.
      const double weight = std::exp(score / 8) * (t >= 2 ? 2 : 1);
      sum += weight;
      for (int64_t c = 0; c < kRank; ++c)
        expected[h * kRank + c] += weight * double{tokens[t * kRank + c]};
    }
    for (int64_t c = 0; c < kRank; ++c) expected[h * kRank + c] /= sum;
  }
  return Near(out, expected, 1e-5, "out of two caches");
}

// The five keys again, up-projected: two heads, values of their own.
bool ExercisePrefill(lathe::Target target) {
  float q[kHeads * kRank], k[kKeys * kHeads * kRank], v[kKeys * kHeads * kRank];
  for (int64_t i = 0; i < kHeads * kRank; ++i) q[i] = Value(i + 4);
  for (int64_t i = 0; i < kKeys * kHeads * kRank; ++i) k[i] = Value(i * 3 + 1);
  for (int64_t i = 0; i < kKeys * kHeads * kRank; ++i) v[i] = Value(i * 5 + 2);
  const int32_t query_start_loc[2] = {0, 1}, kv_start_loc[2] = {0, kKeys};
  float out[kHeads * kRank] = {};
  lathe::PrefillShape shape;
  shape.num_heads = kHeads;
  shape.qk_head_dim = shape.v_head_dim = kRank;
  lathe::PrefillOptions options;
  options.softmax_scale = 1.0f / 8;
  options.target = target;
  lathe::PrefillArgs args;
  args.q = lathe::Packed(static_cast<const float*>(q), 1, kHeads, kRank);
  args.k = lathe::Packed(static_cast<const float*>(k), kKeys, kHeads, kRank);
  args.v = lathe::Packed(static_cast<const float*>(v), kKeys, kHeads, kRank);
  args.query_start_loc = lathe::Packed(query_start_loc, 2);
  args.kv_start_loc = lathe::Packed(kv_start_loc, 2);
  args.out = lathe::Packed(out, 1, kHeads, kRank);
  lathe::Limits limits;
  limits.max_num_seqs = limits.max_num_tokens = 1;
  limits.max_num_keys = kKeys;
  lathe::Sizes sizes;
  if (!Ok(ops::PrefillSizes(shape, options, limits, &sizes), "PrefillSizes")) return false;
  const Memory plan_memory(sizes.plan_bytes), workspace(sizes.workspace_bytes);
  const lathe::PrefillPlan* plan = nullptr;
  if (!Ok(ops::PlanPrefill(shape, options, args, 1, plan_memory.buffer, &plan), "PlanPrefill") ||
      ops::PlanTarget(*plan) != target || ops::PlanWorkspaceBytes(*plan) > sizes.workspace_bytes ||
      !Ok(ops::RunPrefill(*plan, args, workspace.buffer), "RunPrefill")) {
    return false;
  }
  double expected[kHeads * kRank] = {};
  for (int64_t h = 0; h < kHeads; ++h) {
    double sum = 0;
    for (int64_t t = 0; t < kKeys; ++t) {
      const int64_t row = (t * kHeads + h) * kRank;
      double score = 0;
      for (int64_t c = 0; c < kRank; ++c) score += double{q[h * kRank + c]} * double{k[row + c]};
      const double weight = std::exp(score / 8);
      sum += weight;
      for (int64_t c = 0; c < kRank; ++c) expected[h * kRank + c] += weight * double{v[row + c]};
    }
    for (int64_t c = 0; c < kRank; ++c) expected[h * kRank + c] /= sum;
  }
  return Near(out, expected, 1e-5, "out of a prefill") &&
         Ok(ops::RunPrefillPart(*plan, args, workspace.buffer, 0, 1), "RunPrefillPart") &&
         Ok(ops::RunPrefillMerge(*plan, args, workspace.buffer, 0, 1), "RunPrefillMerge") &&
         Near(out, expected, 1e-5, "out of a part of a prefill");
}

}  // namespace

#endif  // LATHE_TESTS_BUILD_EXERCISE_MODELS_H_
