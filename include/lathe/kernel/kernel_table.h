// SPDX-License-Identifier: Apache-2.0
// What one target offers to the dispatch layer: a table of functions over plain structs. Everything
// here has been validated by the caller; kernels check nothing.
#ifndef LATHE_KERNEL_KERNEL_TABLE_H_
#define LATHE_KERNEL_KERNEL_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/base/keys.h"
#include "lathe/base/lse.h"
#include "lathe/base/rope.h"
#include "lathe/base/types.h"
#include "lathe/base/view.h"
#include "lathe/kernel/attend/leaves.h"
#include "lathe/kernel/compressor/batch.h"
#include "lathe/kernel/keys/key_rows.h"
#include "lathe/kernel/keys/visibility.h"
#include "lathe/kernel/score/transforms.h"
#include "lathe/kernel/topk/row.h"
#include "lathe/latent_cache.h"
#include "lathe/merge_states.h"
#include "lathe/query_prep.h"

namespace lathe::detail {
namespace {

// Leaves (kernel/attend/leaves.h) hold a multiple of so many keys: what one step of any engine's P x V sums over.
constexpr int64_t kStepKeys = 32;
// Query rows a task holds at most, and the fewest that a block is cut into (the widest register group of the score
// kernel).
constexpr int64_t kMaxBlockRows = 128;
constexpr int64_t kRowGroup = 32;

// KeySets that a row's one softmax runs over.
constexpr int kMaxKeySets = 2;

// Which element type the products take.
enum class Engine : uint8_t { kFloat32, kBFloat16 };
constexpr size_t kNumEngines = 2;

// Columns of the rows that a call reads.
struct AttendShape {
  int64_t qk_dim = 0;  // D
  int64_t v_dim = 0;   // Dv
  int64_t own_v_dim =
      0;  // Dv where values have rows of their own; 0: they are the first columns of keys
};

// One RunMlaDecode or RunPrefill, the same for all of its tasks.
struct AttendCall : AttendShape {
  int64_t unit_heads = 0;  // heads that attend over the same keys
  // Heads whose number decides about a row's arithmetic, wherever it is the model's: those of the unit, or so many that
  // rows fill registers and tiles where tokens are what there is many of.
  int64_t bits_heads = 0;
  int64_t leaf_keys = 0;   // of a leaf
  int64_t max_leaves = 0;  // of a row block
  Causality causality = {};
  int64_t residual_keys = 0;  // rows with at most so many keys get back what rounding takes of P

  In<3> q[2] = {};  // [T, H, D], or parts of it, the columns of one after those of the other
  KeyRows keys[kMaxKeySets] = {};
  int num_key_sets = 1;
  bool is_per_token = false;  // a task's rows belong to one token: some set is an index list
  float scale_log2[kMaxKeySets] = {};  // softmax_scale * log2(e) * tensor scale: scores live in the
                                       // exp2 domain
  // With transforms of scores: softmax_scale * tensor scale, after which scale_log2 is log2(e).
  ScoreTransforms transforms = {};
  float score_scale[kMaxKeySets] = {};
  float value_scale[kMaxKeySets] = {1.0f, 1.0f};  // tensor scales over out_scale
  float out_scale = 1.0f;  // the value scale that accumulated rows still lack

  View<const float, 1> attn_sink = {};
  Rope out_rope = {};
  IndexView<1> positions = {};  // [T], or of tokens at the end of keys[0].seq_lens
  Out<3> out = {};
  View<float, 2> lse = {};
  LsePolicy lse_policy = {};

  float* partials = nullptr;
};

// Rows [row_begin, row_begin + num_rows) of the q_len * unit_heads query rows of one sequence that share keys
// (token-major: row r is head head_begin + r % unit_heads of query r / unit_heads) against runs of leaves, one of each
// set. A set's leaves hold keys of the sequence, or entries of an index list (then all rows belong to one token).
struct AttendTask {
  int64_t seq = 0;
  int64_t head_begin = 0;
  int64_t token_begin = 0;  // first query row of the sequence, in [0, T)
  int64_t q_len = 0;
  int64_t row_begin = 0;
  int64_t num_rows = 0;
  KeyRange keys[kMaxKeySets] = {};    // from the first to the last that some row sees
  KeyRange leaves[kMaxKeySets] = {};  // of those of `keys`
  // Where in AttendCall::partials the pieces of the runs go, one after another, or -1: all leaves are here, write out and
  // lse.
  int64_t partial = -1;
  int64_t work = 0;  // about rows * keys
};

LATHE_INLINE QueryPlace PlaceOfQuery(const AttendCall& call, const AttendTask& task, int set,
                                     int64_t i) {
  return {call.keys[set].SeqLen(task.seq), task.q_len, i, task.token_begin + i};
}

LATHE_INLINE int64_t NumKeys(const KeyRange (&keys)[kMaxKeySets]) {
  int64_t num_keys = 0;
  for (const KeyRange& range : keys) num_keys += NumKeys(range);
  return num_keys;
}

// A partial result of n rows: O [PartialRows(n)][v_stride], then m, then l, float32. O is unnormalised,
// m the row maximum (exp2 domain), l the sum. Rows of O have whole vectors, and lie a line further apart: at
// 2048 bytes the rows of a tile would all fall into two sets of L1. Engines write O in whole tiles, and states of some
// rows more.
LATHE_INLINE constexpr int64_t PartialColumns(int64_t v_dim) { return (v_dim + 63) / 64 * 64; }
LATHE_INLINE constexpr int64_t PartialStride(int64_t v_dim) { return PartialColumns(v_dim) + 16; }
LATHE_INLINE constexpr int64_t PartialRows(int64_t num_rows) { return (num_rows + 15) / 16 * 16; }
LATHE_INLINE constexpr int64_t PartialStates(int64_t num_rows) {
  return PartialRows(num_rows) + 32;
}
LATHE_INLINE constexpr int64_t PartialFloats(int64_t num_rows, int64_t v_dim) {
  return PartialRows(num_rows) * PartialStride(v_dim) + 2 * PartialStates(num_rows);
}

// One piece that a task has left in AttendCall::partials.
struct LeafSpan {
  int set = 0;
  int64_t leaf = 0;  // its first
  int64_t partial = 0;
};

// Rows [row_first, row_last) of the task's row block, whose pieces are `spans`, by set and leaf: fold, write out and
// lse.
struct FoldTask {
  AttendTask task = {};
  const LeafSpan* spans = nullptr;
  int64_t num_spans = 0;
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

// One ComputeIndexerLogits.
struct IndexerCall {
  int64_t num_heads = 0;
  int64_t width = 0;
  float scale = 1.0f;  // of the whole cache
  In<3> q = {};        // or, where it is empty,
  View<const float8_e4m3fn, 3> q_fp8 = {};
  View<const float, 2> weights = {};
  KeyRows keys = {};
  IndexView<2> candidate_blocks = {};
  int64_t candidate_block_size = 0;
  View<float, 2> logits = {};
  bool fill = false;
};

// Rows [row_begin, row_begin + num_rows) of a sequence's q_len (one, if there are candidate blocks) against
// the keys [key_begin, key_end), as far as each sees them. Of the cells to fill, the first task of the rows
// owns those before, the last task those after its keys.
struct IndexerTask {
  int64_t seq = 0;
  int64_t token_begin = 0;  // first row of the sequence, in [0, T)
  int64_t q_len = 0;
  int64_t row_begin = 0;
  int64_t num_rows = 0;
  int64_t key_begin = 0;
  int64_t key_end = 0;
  bool is_first = false;
  bool is_last = false;
};

// Query i of a task's sequence.
LATHE_INLINE QueryPlace PlaceOfQuery(const KeyRows& keys, const IndexerTask& task, int64_t i) {
  return {keys.SeqLen(task.seq), task.q_len, i, task.token_begin + i};
}

// One SelectIndexerTopk: the call to SelectTopk that it stands for, without scores.
struct IndexerTopkCall {
  IndexerCall scores = {};
  TopkArgs out = {};
  TopkOptions options = {};
  int64_t max_keys = 0;  // of a row
};

// Columns that one item of KernelTable::pool_columns pools: whole cache lines of rows of any type.
constexpr int64_t kPoolColumns = 64;
LATHE_INLINE constexpr int64_t NumPoolBlocks(int64_t head_dim) {
  return (head_dim + kPoolColumns - 1) / kPoolColumns;
}

struct KernelTable {
  bool native_bf16 = false;  // has the kBFloat16 engine
  int64_t (*attend_leaf_keys[kNumEngines])(int64_t bits_heads) = {};
  size_t (*attend_scratch_bytes[kNumEngines])(const AttendShape&, int64_t max_rows,
                                              int64_t max_leaves) = {};
  void (*attend[kNumEngines])(const AttendCall&, const AttendTask&, void* scratch) = {};
  void (*fold[kNumEngines])(const AttendCall&, const FoldTask&) = {};
  size_t (*indexer_scratch_bytes[kNumEngines])(int64_t num_heads, int64_t width,
                                               int64_t max_rows) = {};
  void (*index_logits[kNumEngines])(const IndexerCall&, const IndexerTask&, void* scratch) = {};
  size_t (*indexer_topk_scratch_bytes[kNumEngines])(int64_t num_heads, int64_t width,
                                                    int64_t max_rows, int64_t max_keys,
                                                    int64_t k) = {};
  // `part`: null, or what becomes of a range of one row's keys.
  void (*index_topk[kNumEngines])(const IndexerTopkCall&, const IndexerTask&, void* scratch,
                                  TopkPart* part) = {};
  // When all parts of a row are done: thins out one of them; when all of these are, writes the row.
  void (*drop_hopeless)(TopkPart* parts, int64_t num_parts, int64_t k, int64_t part) = nullptr;
  void (*merge_index_topk)(const IndexerTopkCall&, const IndexerTask&, const TopkPart* parts,
                           int64_t num_parts) = nullptr;
  void (*list_index_keys)(const IndexerTopkCall&, const IndexerTask&) = nullptr;
  void (*write_latents)(const LatentWriteArgs&, bool power_of_two_scales, int64_t token_begin,
                        int64_t token_end) = nullptr;
  void (*gather_latents)(const LatentGatherArgs&, const GatherTask&) = nullptr;
  void (*merge)(const MergeStatesArgs&, const LsePolicy&, int64_t row_begin,
                int64_t row_end) = nullptr;  // of T * H
  void (*prepare_queries)(const QueryPrepArgs&, const QueryPrepOptions&, int64_t row_begin,
                          int64_t row_end) = nullptr;  // of T * H
  void (*select_topk)(const TopkArgs&, const TopkOptions&, int64_t row,
                      TopkCandidates scratch) = nullptr;
  // Columns [begin, end) of the row's own.
  void (*select_topk_part)(const TopkArgs&, const TopkOptions&, int64_t row, int64_t begin,
                           int64_t end, TopkCandidates scratch, TopkCandidates* out) = nullptr;
  void (*merge_topk_parts)(const TopkArgs&, const TopkOptions&, int64_t row,
                           const TopkCandidates* parts, int64_t num_parts,
                           TopkCandidates scratch) = nullptr;
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

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_KERNEL_KERNEL_TABLE_H_
