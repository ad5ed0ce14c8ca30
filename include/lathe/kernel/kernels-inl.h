// SPDX-License-Identifier: Apache-2.0
// All kernels of one target, and the table that names them. Included once per target pass by
// dispatch/foreach_target.h; the files below are included from here only, in this order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "lathe/arch/x86_amx.h"
#include "lathe/base/arena.h"
#include "lathe/base/row_transform.h"
#include "lathe/cache/code_tables.h"
#include "lathe/cache/formats.h"
#include "lathe/kernel/indexer/visibility.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/visibility.h"
#include "lathe/kernel/topk/row.h"

HWY_BEFORE_NAMESPACE();
namespace lathe {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// clang-format off
#include "lathe/simd/vector-inl.h"
#include "lathe/simd/convert-inl.h"
#include "lathe/kernel/rows/row_transform-inl.h"
#include "lathe/cache/token_row-inl.h"
#include "lathe/cache/decode-inl.h"
#include "lathe/cache/quantize-inl.h"
#include "lathe/cache/formats-inl.h"
#include "lathe/kernel/cache/latent_write-inl.h"
#include "lathe/kernel/cache/latent_gather-inl.h"
#include "lathe/kernel/rows/query_prep-inl.h"
#include "lathe/kernel/attend/merge-inl.h"
#include "lathe/kernel/topk/select-inl.h"
#include "lathe/kernel/topk/write-inl.h"
#include "lathe/simd/exp2-inl.h"
#include "lathe/kernel/score/four_words-inl.h"
#include "lathe/kernel/compressor/compress-inl.h"
#include "lathe/kernel/score/arithmetic-inl.h"
#include "lathe/kernel/score/key_words-inl.h"
#include "lathe/kernel/score/score-inl.h"
#include "lathe/kernel/attend/softmax-inl.h"
#include "lathe/kernel/attend/accumulate-inl.h"
#include "lathe/kernel/keys/key_cursor-inl.h"
#include "lathe/kernel/keys/row_source-inl.h"
#include "lathe/kernel/keys/set_of_keys-inl.h"
#include "lathe/kernel/attend/engine-inl.h"
#if HWY_TARGET == LATHE_TILE_TARGET
#include "lathe/simd/transpose-inl.h"
#include "lathe/kernel/score/tile_multiply-inl.h"
#include "lathe/kernel/score/tile_scores-inl.h"
#include "lathe/kernel/attend/tile_engine-inl.h"
#endif
#include "lathe/kernel/attend/epilogue-inl.h"
#include "lathe/kernel/attend/finite-inl.h"
#include "lathe/kernel/attend/attend-inl.h"
#include "lathe/kernel/indexer/heads-inl.h"
#if HWY_TARGET == LATHE_TILE_TARGET
#include "lathe/kernel/indexer/tile_heads-inl.h"
#endif
#include "lathe/kernel/indexer/logits-inl.h"
#include "lathe/kernel/indexer/topk-inl.h"
// clang-format on

template <class Engine>
constexpr void AddEngine(detail::KernelTable& table) {
  using A = typename Engine::Arithmetic;
  constexpr auto kIndex = static_cast<size_t>(A::kEngine);
  table.attend_scratch_bytes[kIndex] = AttendScratchBytes<Engine>;
  table.attend[kIndex] = Attend<Engine>;
  table.fold[kIndex] = Fold<A>;
  table.indexer_scratch_bytes[kIndex] = IndexerScratchBytes<RegisterHeads<A>>;
  table.index_logits[kIndex] = IndexLogits<RegisterHeads<A>>;
  table.indexer_topk_scratch_bytes[kIndex] = IndexerTopkScratchBytes<RegisterHeads<A>>;
  table.index_topk[kIndex] = IndexTopk<RegisterHeads<A>>;
}

constexpr detail::KernelTable MakeKernels() {
  detail::KernelTable table;
  table.write_latents = WriteLatents;
  table.gather_latents = GatherLatents;
  table.merge = Merge;
  table.prepare_queries = PrepareQueryRows;
  table.select_topk = SelectTopk;
  table.select_topk_part = SelectTopkPart;
  table.merge_topk_parts = MergeTopkParts;
  table.merge_index_topk = MergeIndexTopk;
  table.list_index_keys = ListIndexKeys;
  table.compress = CompressEntries;
  table.pool_columns = PoolColumns;
  table.finish_entries = FinishEntries;
  table.save_states = SaveStates;
  table.merge_compressed = MergeCompressedEntries;
  AddEngine<RegisterEngine<FloatArithmetic>>(table);
#if HWY_NATIVE_DOT_BF16
  AddEngine<RegisterEngine<BFloat16Arithmetic>>(table);
  table.native_bf16 = true;
#endif
  return table;
}

inline const detail::KernelTable& Kernels() {
  static constexpr detail::KernelTable kTable = MakeKernels();
  return kTable;
}

#if HWY_TARGET == LATHE_TILE_TARGET

// Query rows of a sequence up to which registers beat tiles, which always compute 16 rows. It must
// be the sequence's own number: were it that of a task, cutting row blocks would change results.
constexpr int64_t kMaxRegisterRows = 5;

template <class Tile>
void AttendOnTiles(const AttendCall& call, const AttendTask& task, void* scratch) {
#if HWY_NATIVE_DOT_BF16
  const int64_t rows = (call.is_per_token ? 1 : task.q_len) * call.unit_heads;
  if (rows <= kMaxRegisterRows) {
    return Attend<RegisterEngine<BFloat16Arithmetic>>(call, task, scratch);
  }
#endif
  Attend<TileEngine<Tile>>(call, task, scratch);
}

template <class Tile>
size_t AttendOnTilesScratchBytes(const detail::AttendShape& shape, int64_t max_rows) {
  size_t bytes = AttendScratchBytes<TileEngine<Tile>>(shape, max_rows);
#if HWY_NATIVE_DOT_BF16
  bytes =
      (std::max)(bytes, AttendScratchBytes<RegisterEngine<BFloat16Arithmetic>>(shape, max_rows));
#endif
  return bytes;
}

template <class Heads>
struct HeadsTag {
  using Type = Heads;
};

// f(HeadsTag<Heads>): an indexer's heads are what rows are to attention, so the same number of them decides.
template <class Tile, class F>
auto VisitHeads(int64_t num_heads, const F& f) {
#if HWY_NATIVE_DOT_BF16
  if (num_heads <= kMaxRegisterRows) return f(HeadsTag<RegisterHeads<BFloat16Arithmetic>>());
#else
  (void)num_heads;
#endif
  return f(HeadsTag<TileHeads<Tile>>());
}

template <class Tile>
void IndexLogitsOnTiles(const IndexerCall& call, const IndexerTask& task, void* scratch) {
  VisitHeads<Tile>(call.num_heads, [&](auto heads) {
    IndexLogits<typename decltype(heads)::Type>(call, task, scratch);
  });
}

template <class Tile>
size_t IndexerOnTilesScratchBytes(int64_t num_heads, int64_t width, int64_t max_rows) {
  return VisitHeads<Tile>(num_heads, [&](auto heads) {
    return IndexerScratchBytes<typename decltype(heads)::Type>(num_heads, width, max_rows);
  });
}

template <class Tile>
void IndexTopkOnTiles(const IndexerTopkCall& call, const IndexerTask& task, void* scratch,
                      TopkCandidates* part) {
  VisitHeads<Tile>(call.scores.num_heads, [&](auto heads) {
    IndexTopk<typename decltype(heads)::Type>(call, task, scratch, part);
  });
}

template <class Tile>
size_t IndexerTopkOnTilesScratchBytes(int64_t num_heads, int64_t width, int64_t max_rows,
                                      int64_t max_keys, int64_t k) {
  return VisitHeads<Tile>(num_heads, [&](auto heads) {
    return IndexerTopkScratchBytes<typename decltype(heads)::Type>(num_heads, width, max_rows,
                                                                   max_keys, k);
  });
}

// The kernels of this target, with bf16 products on tiles.
constexpr detail::KernelTable MakeTileKernels() {
  detail::KernelTable table = MakeKernels();
  constexpr auto kIndex = static_cast<size_t>(detail::Engine::kBFloat16);
  table.native_bf16 = true;
  table.attend_scratch_bytes[kIndex] = AttendOnTilesScratchBytes<LATHE_TILE>;
  table.attend[kIndex] = AttendOnTiles<LATHE_TILE>;
  table.fold[kIndex] = Fold<BFloat16Arithmetic>;
  table.indexer_scratch_bytes[kIndex] = IndexerOnTilesScratchBytes<LATHE_TILE>;
  table.index_logits[kIndex] = IndexLogitsOnTiles<LATHE_TILE>;
  table.indexer_topk_scratch_bytes[kIndex] = IndexerTopkOnTilesScratchBytes<LATHE_TILE>;
  table.index_topk[kIndex] = IndexTopkOnTiles<LATHE_TILE>;
  return table;
}

inline const detail::KernelTable& TileKernels() {
  static constexpr detail::KernelTable kTable = MakeTileKernels();
  return kTable;
}

#endif  // HWY_TARGET == LATHE_TILE_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace lathe
HWY_AFTER_NAMESPACE();
