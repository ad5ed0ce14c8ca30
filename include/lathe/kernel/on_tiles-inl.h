// SPDX-License-Identifier: Apache-2.0
// Operations of a target that has tiles: which calls run on them, and which in registers all the same.
#if defined(LATHE_KERNEL_ON_TILES_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_ON_TILES_INL_H_
#undef LATHE_KERNEL_ON_TILES_INL_H_
#else
#define LATHE_KERNEL_ON_TILES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lathe/kernel/attend/attend-inl.h"
#include "lathe/kernel/attend/engine-inl.h"
#include "lathe/kernel/attend/tile_engine-inl.h"
#include "lathe/kernel/indexer/logits-inl.h"
#include "lathe/kernel/indexer/tile_heads-inl.h"
#include "lathe/kernel/indexer/topk-inl.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/score/arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using detail::AttendCall;
using detail::AttendTask;
using detail::IndexerCall;
using detail::IndexerTask;
using detail::IndexerTopkCall;
using detail::TopkPart;

// Heads up to which registers beat tiles, which always compute 16 rows. Heads, not rows: how many tokens a call has must
// not change a row's bits.
constexpr int64_t kMaxRegisterHeads = 5;

// f(EngineTag<Engine>) for the engine of so many heads.
template <class Engine>
struct EngineTag {
  using Type = Engine;
};
template <class Tile, class F>
auto VisitEngine(int64_t bits_heads, const F& f) {
#if HWY_NATIVE_DOT_BF16
  if (bits_heads <= kMaxRegisterHeads) return f(EngineTag<RegisterEngine<BFloat16Arithmetic>>());
#else
  (void)bits_heads;
#endif
  return f(EngineTag<TileEngine<Tile>>());
}

template <class Tile>
void AttendOnTiles(const AttendCall& call, const AttendTask& task, void* scratch) {
  VisitEngine<Tile>(call.bits_heads, [&](auto engine) {
    Attend<typename decltype(engine)::Type>(call, task, scratch);
  });
}

template <class Tile>
int64_t LeafKeysOnTiles(int64_t bits_heads) {
  return VisitEngine<Tile>(bits_heads,
                           [](auto engine) { return decltype(engine)::Type::kTileKeys; });
}

template <class Tile>
size_t AttendOnTilesScratchBytes(const detail::AttendShape& shape, int64_t max_rows,
                                 int64_t max_leaves) {
  size_t bytes = AttendScratchBytes<TileEngine<Tile>>(shape, max_rows, max_leaves);
#if HWY_NATIVE_DOT_BF16
  bytes = (std::max)(
      bytes, AttendScratchBytes<RegisterEngine<BFloat16Arithmetic>>(shape, max_rows, max_leaves));
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
  if (num_heads <= kMaxRegisterHeads) return f(HeadsTag<RegisterHeads<BFloat16Arithmetic>>());
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
                      TopkPart* part) {
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

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
