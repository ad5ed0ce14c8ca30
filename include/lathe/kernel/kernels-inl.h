// SPDX-License-Identifier: Apache-2.0
// The kernels of one target: the table of its operations. Included once for each target by dispatch/pass.h.
#if defined(LATHE_KERNEL_KERNELS_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_KERNELS_INL_H_
#undef LATHE_KERNEL_KERNELS_INL_H_
#else
#define LATHE_KERNEL_KERNELS_INL_H_
#endif

#include <cstddef>

#include "lathe/kernel/attend/attend-inl.h"
#include "lathe/kernel/attend/engine-inl.h"
#include "lathe/kernel/attend/epilogue-inl.h"
#include "lathe/kernel/attend/merge-inl.h"
#include "lathe/kernel/cache/latent_gather-inl.h"
#include "lathe/kernel/cache/latent_write-inl.h"
#include "lathe/kernel/compressor/compress-inl.h"
#include "lathe/kernel/indexer/heads-inl.h"
#include "lathe/kernel/indexer/logits-inl.h"
#include "lathe/kernel/indexer/topk-inl.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/on_tiles-inl.h"
#include "lathe/kernel/rows/query_prep-inl.h"
#include "lathe/kernel/score/arithmetic-inl.h"
#include "lathe/kernel/topk/select-inl.h"
#include "lathe/kernel/topk/write-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

template <class Engine>
constexpr void AddEngine(detail::KernelTable& table) {
  using A = typename Engine::Arithmetic;
  constexpr auto kIndex = static_cast<size_t>(A::kEngine);
  table.attend_leaf_keys[kIndex] = [](int64_t) { return Engine::kTileKeys; };
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
  table.drop_hopeless = DropHopeless;
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

// The kernels of this target, with bf16 products on tiles.
constexpr detail::KernelTable MakeTileKernels() {
  detail::KernelTable table = MakeKernels();
  constexpr auto kIndex = static_cast<size_t>(detail::Engine::kBFloat16);
  table.native_bf16 = true;
  table.attend_leaf_keys[kIndex] = LeafKeysOnTiles<LATHE_TILE>;
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

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
