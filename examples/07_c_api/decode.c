// SPDX-License-Identifier: Apache-2.0
// The C interface: write the latents of two sequences into a paged cache, plan, decode one token of each, compare
// with the same attention in double. Memory is the caller's all along.
//
// Output (AVX3_ZEN4; target and error differ between machines):
//   lathe 0.1.0, best target avx3_zen4
//   a refusal reads: invalid argument: options.softmax_scale is 0, must be finite and above 0 (it has no
//   default)
//   2 sequences, 4 heads, 37 and 5 keys: max |out - expected| = 6.6e-07 (good: below 1e-5)
#include <lathe/capi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kSeqs = 2, kHeads = 4, kRank = 64, kRope = 16, kWidth = kRank + kRope };
enum { kBlocks = 8, kBlockSize = 8, kTableColumns = 5, kTokens = 37 + 5 };

static const int32_t block_table[kSeqs * kTableColumns] = {3, 0, 7, 5, 2, 4, -1, -1, -1, -1};
static const int32_t seq_lens[kSeqs] = {37, 5};
static float kv_c[kTokens * kRank], k_pe[kTokens * kRope], cache[kBlocks * kBlockSize * kWidth];
static float q[kSeqs * kHeads * kWidth], out[kSeqs * kHeads * kRank], lse[kSeqs * kHeads];

static void fill(float* x, int n, float step) {
  for (int i = 0; i < n; ++i) x[i] = sinf(step * (float)(i + 1));
}

static void check(int32_t status, const lathe_message* message) {
  if (status == LATHE_STATUS_OK) return;
  fprintf(stderr, "%s\n", message->text);
  exit(1);
}

// The largest error of one head's output. `first` is the sequence's first row of kv_c and k_pe.
static double error_of_head(int row, int first, int num_keys, double scale) {
  double sum = 0.0, values[kRank] = {0.0}, error = 0.0;
  for (int key = first; key < first + num_keys; ++key) {
    double score = 0.0;
    for (int c = 0; c < kRank; ++c) score += (double)q[row * kWidth + c] * kv_c[key * kRank + c];
    for (int c = 0; c < kRope; ++c) {
      score += (double)q[row * kWidth + kRank + c] * k_pe[key * kRope + c];
    }
    const double weight = exp(scale * score);
    sum += weight;
    for (int c = 0; c < kRank; ++c) values[c] += weight * kv_c[key * kRank + c];
  }
  for (int c = 0; c < kRank; ++c) error = fmax(error, fabs(values[c] / sum - out[row * kRank + c]));
  return fmax(error, fabs(log(sum) - lse[row]));
}

int main(void) {
  lathe_message message;
  int32_t major, minor, patch;
  lathe_version(&major, &minor, &patch);
  lathe_target_info best = {.struct_size = sizeof best};
  for (size_t i = 0; i < lathe_num_targets() && best.target != lathe_best_target(); ++i) {
    check(lathe_get_target(i, &best, &message), &message);
  }
  printf("lathe %d.%d.%d, best target %s\n", major, minor, patch, best.name);

  // Each token goes to block * block_size + offset.
  fill(kv_c, kTokens * kRank, 0.7f);
  fill(k_pe, kTokens * kRope, 0.3f);
  fill(q, kSeqs * kHeads * kWidth, 0.9f);
  int64_t slots[kTokens];
  for (int seq = 0, token = 0; seq < kSeqs; ++seq) {
    for (int i = 0; i < seq_lens[seq]; ++i) {
      slots[token++] =
          block_table[seq * kTableColumns + i / kBlockSize] * kBlockSize + i % kBlockSize;
    }
  }
  const lathe_paged_cache pages = {.struct_size = sizeof pages,
                                   .data = cache,
                                   .format = LATHE_FORMAT_LATENT_FLOAT32,
                                   .num_blocks = kBlocks,
                                   .block_size = kBlockSize,
                                   .block_stride = kBlockSize * kWidth * (int)sizeof(float),
                                   .row_stride = kWidth * sizeof(float)};
  const lathe_latent_write_args write = {
      .struct_size = sizeof write,
      .kv_c = lathe_packed2(kv_c, LATHE_DTYPE_FLOAT32, kTokens, kRank),
      .k_pe = lathe_packed2(k_pe, LATHE_DTYPE_FLOAT32, kTokens, kRope),
      .slot_mapping = lathe_packed1(slots, LATHE_DTYPE_INT64, kTokens),
      .cache = &pages};
  check(lathe_write_latent_cache(&write, NULL, NULL, &message), &message);

  const lathe_mla_shape shape = {sizeof shape, kHeads, kRank, kRope};
  lathe_mla_decode_options options = {.struct_size = sizeof options};
  const lathe_key_set keys = {
      .struct_size = sizeof keys,
      .cache = &pages,
      .block_table = lathe_packed2(block_table, LATHE_DTYPE_INT32, kSeqs, kTableColumns),
      .seq_lens = lathe_packed1(seq_lens, LATHE_DTYPE_INT32, kSeqs)};
  const lathe_mla_decode_args args = {
      .struct_size = sizeof args,
      .q = lathe_packed3(q, LATHE_DTYPE_FLOAT32, kSeqs, kHeads, kWidth),
      .keys = &keys,
      .out = lathe_packed3(out, LATHE_DTYPE_FLOAT32, kSeqs, kHeads, kRank),
      .lse = lathe_packed2(lse, LATHE_DTYPE_FLOAT32, kSeqs, kHeads)};
  const lathe_limits limits = {sizeof limits, kSeqs, kSeqs, 37, 1};
  lathe_sizes sizes = {.struct_size = sizeof sizes};

  if (lathe_mla_decode_sizes(&shape, &options, &limits, &sizes, &message) == LATHE_STATUS_OK) {
    return 1;  // the scale is missing
  }
  printf("a refusal reads: %s\n", message.text);
  options.softmax_scale = 0.11f;

  // Buffers once, at start-up; a plan once per step; a run per layer.
  check(lathe_mla_decode_sizes(&shape, &options, &limits, &sizes, &message), &message);
  const lathe_buffer plan_memory = {malloc(sizes.plan_bytes), sizes.plan_bytes};
  const lathe_buffer workspace = {malloc(sizes.workspace_bytes), sizes.workspace_bytes};
  const lathe_mla_decode_plan* plan = NULL;
  check(lathe_plan_mla_decode(&shape, &options, &args, 1, plan_memory, &plan, &message), &message);
  check(lathe_run_mla_decode(plan, &args, workspace, NULL, &message), &message);

  double error = 0.0;
  for (int row = 0; row < kSeqs * kHeads; ++row) {
    const int seq = row / kHeads;
    const double scale = (double)options.softmax_scale;
    error = fmax(error, error_of_head(row, seq == 0 ? 0 : seq_lens[0], seq_lens[seq], scale));
  }
  printf("%d sequences, %d heads, %d and %d keys: max |out - expected| = %.1e (good: below 1e-5)\n",
         kSeqs, kHeads, seq_lens[0], seq_lens[1], error);
  free(plan_memory.data);
  free(workspace.data);
  return error < 1e-5 ? 0 : 1;
}
