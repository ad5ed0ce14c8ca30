// SPDX-License-Identifier: Apache-2.0
// What one target offers to the dispatch layer: a table of functions over plain structs. Everything
// here has been validated by the caller; kernels check nothing.
#ifndef LATHE_KERNEL_KERNEL_TABLE_H_
#define LATHE_KERNEL_KERNEL_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/keys.h"
#include "lathe/base/lse.h"
#include "lathe/base/types.h"
#include "lathe/base/view.h"
#include "lathe/kernel/compress_batch.h"
#include "lathe/latent_cache.h"
#include "lathe/merge_states.h"
#include "lathe/query_prep.h"

namespace lathe {
namespace detail {

// Splits of a key range are a multiple of this: whole tiles of the kernels (of most targets).
constexpr int64_t kSplitUnit = 128;
// Query rows a task holds at most, and the multiple at which row blocks may be cut without changing any
// row's arithmetic (the widest register group of the score kernel).
constexpr int64_t kMaxBlockRows = 128;
constexpr int64_t kRowGroup = 32;

// Which element type the products take.
enum class Engine : uint8_t { kFloat32, kBFloat16 };
constexpr size_t kNumEngines = 2;

// One RunMlaDecode, the same for all of its tasks.
struct AttendCall {
  int64_t num_heads = 0;
  int64_t qk_dim = 0;  // D, columns of a key row
  int64_t v_dim = 0;   // Dv, columns of the value
  float scale_log2 =
      0.0f;  // softmax_scale * log2(e) * tensor scale: scores live in the exp2 domain
  float value_scale = 1.0f;  // tensor scale of the cache, put on the output
  bool causal = true;
  int64_t residual_keys = 0;  // rows with at most so many keys get back what rounding takes of P

  In<3> q_nope = {};  // [T, H, D], or [T, H, kv_lora_rank] with
  In<3> q_pe = {};    // [T, H, qk_rope_head_dim]
  KeySet keys = {};

  View<const float, 1> attn_sink = {};
  Out<3> out = {};
  View<float, 2> lse = {};
  LsePolicy lse_policy = {};

  float* partials = nullptr;
};

// Rows [row_begin, row_begin + num_rows) of one sequence's q_len * H query rows (token-major: row r is
// head r % H of query r / H) against `num_splits` consecutive key splits. A split is `split_keys` keys of
// the sequence's range [key_begin, key_end): positions, or entries of an index list (then all rows
// belong to one token).
struct AttendTask {
  int64_t seq = 0;
  int64_t token_begin = 0;  // first query row of the sequence, in [0, T)
  int64_t q_len = 0;
  int64_t row_begin = 0;
  int64_t num_rows = 0;
  int64_t key_begin = 0;
  int64_t key_end = 0;
  int64_t split_keys = 0;
  int64_t first_split = 0;
  int64_t num_splits = 0;
  int64_t partial = -1;  // where in AttendCall::partials to store the result, or -1: all splits are
                         // here, write out and lse
};

// A partial result of n rows: O [n][v_stride], then m [n], then l [n], float32. O is unnormalised,
// m the row maximum (exp2 domain), l the sum.
constexpr int64_t PartialStride(int64_t v_dim) { return (v_dim + 63) / 64 * 64; }
constexpr int64_t PartialFloats(int64_t num_rows, int64_t v_dim) {
  return (num_rows * (PartialStride(v_dim) + 2) + 15) / 16 * 16;
}

// Rows [row_first, row_last) of the task's row block, whose `num_splits` partials of `task.num_rows` rows
// lie one after another from task.partial on: fold in split order, write out and lse.
struct FoldTask {
  AttendTask task = {};
  int64_t row_first = 0;
  int64_t row_last = 0;
};

// Rows [row, row + count) of a gather's out: tokens of sequence `seq` from `position` on.
struct GatherTask {
  int64_t seq = 0;
  int64_t position = 0;
  int64_t row = 0;
  int64_t count = 0;
};

// Columns that one item of KernelTable::pool_columns pools: whole cache lines of rows of any type.
constexpr int64_t kPoolColumns = 64;
constexpr int64_t NumPoolBlocks(int64_t head_dim) {
  return (head_dim + kPoolColumns - 1) / kPoolColumns;
}

struct KernelTable {
  bool native_bf16 = false;  // has the kBFloat16 engine
  size_t (*attend_scratch_bytes[kNumEngines])(int64_t qk_dim, int64_t v_dim, int64_t max_rows) = {};
  void (*attend[kNumEngines])(const AttendCall&, const AttendTask&, void* scratch) = {};
  void (*fold[kNumEngines])(const AttendCall&, const FoldTask&) = {};
  void (*write_latents)(const LatentWriteArgs&, bool power_of_two_scales, int64_t token_begin,
                        int64_t token_end) = nullptr;
  void (*gather_latents)(const LatentGatherArgs&, const GatherTask&) = nullptr;
  void (*merge)(const MergeStatesArgs&, int64_t row_begin, int64_t row_end) = nullptr;  // of T * H
  void (*prepare_queries)(const QueryPrepArgs&, const QueryPrepOptions&, int64_t row_begin,
                          int64_t row_end) = nullptr;  // of T * H
  // Entries [begin, end), pooled into row `stats_row` of call.stats one after another and written.
  void (*compress)(const CompressCall& call, int64_t begin, int64_t end,
                   int64_t stats_row) = nullptr;
  // Column blocks [begin, end) of all entries', pooled into the row of stats with the entry's number.
  void (*pool_columns)(const CompressCall& call, int64_t begin, int64_t end) = nullptr;
  // Entries that are pooled, written.
  void (*finish_entries)(const CompressCall& call, int64_t begin, int64_t end) = nullptr;
  void (*save_states)(const CompressCall& call, int64_t token_begin, int64_t token_end) = nullptr;
  void (*merge_compressed)(const CompressedMergeArgs& args, const CompressedMergeOptions& options,
                           int64_t begin, int64_t end) = nullptr;
};

}  // namespace detail
}  // namespace lathe

#endif  // LATHE_KERNEL_KERNEL_TABLE_H_
