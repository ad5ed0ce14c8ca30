// SPDX-License-Identifier: Apache-2.0
// Logits and top-k in one: tiles of logits go from the scorer into the candidates of their rows, whose floors
// rise as they are found.
//
//   IndexerScorer   tile of keys -> logits of each row    (indexer_logits-inl.h)
//   SelectRange     logits that reach the row's floor -> candidates of the row    (topk-inl.h)
//   in the end      the row's list; or, of a range of a row that workers share, its k best, to be merged
#if defined(LATHE_KERNEL_INDEXER_TOPK_INL_H_) == defined(LATHE_TARGET_TOGGLE)
#ifdef LATHE_KERNEL_INDEXER_TOPK_INL_H_
#undef LATHE_KERNEL_INDEXER_TOPK_INL_H_
#else
#define LATHE_KERNEL_INDEXER_TOPK_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lathe/base/arena.h"
#include "lathe/kernel/indexer/logits-inl.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/visibility.h"
#include "lathe/kernel/topk/row.h"
#include "lathe/kernel/topk/select-inl.h"
#include "lathe/kernel/topk/write-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::HWY_NAMESPACE {
namespace {

using detail::IndexerCall;
using detail::IndexerTask;
using detail::IndexerTopkCall;
using detail::KeyRange;

// Candidates of a row are thinned out when there are so many; few, so that those of all rows stay in L2.
constexpr int64_t IndexerCandidates(int64_t max_keys, int64_t k) {
  constexpr int64_t kMore = 1024;
  return (std::min)(max_keys, 2 * k + kMore);
}

// write(args, row, t) for row r of a task.
template <class Write>
void WriteKeyList(const IndexerTopkCall& call, const IndexerTask& task, int64_t r,
                  const Write& write) {
  const KeyRange keys = KeysOf(call.scores.keys, task, r);
  TopkRow row;
  row.begin = keys.begin;
  row.end = keys.end;
  row.origin = call.options.index_base == TopkIndexBase::kRowStart ? keys.begin : 0;
  row.length = row.tail_begin = keys.end - row.origin;
  TopkArgs args = call.out;
  const View<const int64_t, 1> seq{&task.seq, {args.indices.extent[0]}, {0}};
  if (!call.scores.keys.block_table.empty()) args.row_seq = seq;
  write(args, row, task.token_begin + task.row_begin + r);
}

inline void WriteSelected(const IndexerTopkCall& call, const IndexerTask& task, int64_t r,
                          const TopkCandidates& c) {
  WriteKeyList(call, task, r, [&](const TopkArgs& args, const TopkRow& row, int64_t t) {
    WriteCandidates(args, call.options, row, t, c);
  });
}

// All keys of a row that has at most k, or none.
inline void WriteUnscored(const IndexerTopkCall& call, const IndexerTask& task, int64_t r) {
  WriteKeyList(call, task, r, [&](const TopkArgs& args, const TopkRow& row, int64_t t) {
    const int64_t n = (std::min)(row.num_columns(), call.options.k);
    WriteTopk(args, call.options, row, t, n, [](int64_t i) { return i; });
  });
}

template <class Heads>
class IndexerSelector {
 public:
  IndexerSelector(Arena& arena, int64_t num_heads, int64_t width, int64_t max_rows,
                  int64_t capacity)
      : scorer_(arena, num_heads, width, max_rows), stride_(capacity + TopkCandidates::kSlack) {
    all_ = detail::CarveTopkCandidates(arena, max_rows * stride_);
    rows_ = arena.Take<TopkCandidates>(static_cast<size_t>(max_rows));
    floors_ = arena.Take<int32_t>(static_cast<size_t>(max_rows));
  }

  // `part`: null, or has room for k: then the task is a range of the keys of one row.
  void Run(const IndexerTopkCall& call, const IndexerTask& task, TopkPart* part) {
    const IndexerCall& scores = call.scores;
    const int64_t k = call.options.k;
    const int64_t token = task.token_begin + task.row_begin;
    const auto source = scorer_.Source(scores);
    bool has_scored = false;
    scorer_.Pack(scores, token, task.num_rows, source, [&](int64_t r) {
      rows_[r] = {all_.keys + r * stride_, all_.indices + r * stride_, 0,
                  stride_ - TopkCandidates::kSlack};
      floors_[r] = kNoFloor;
      const KeyRange keys = KeysOf(call.scores.keys, task, r);
      if (keys.end - keys.begin <= k || k == 0) {
        WriteUnscored(call, task, r);
        return KeyRange{};
      }
      has_scored = true;
      return keys;
    });
    if (!has_scored) return;
    scorer_.Score(scores, task.seq, source, task.key_begin, task.key_end,
                  [&](int64_t r, int64_t key, int64_t n, const float* logits) {
                    SelectRange(logits, n, key - scorer_.range(r).begin, k, &floors_[r], &rows_[r]);
                  });
    for (int64_t r = 0; r < task.num_rows; ++r) {
      const KeyRange keys = scorer_.range(r);
      if (keys.begin == keys.end) continue;
      if (rows_[r].count > k) KeepBest(k, &floors_[r], &rows_[r]);
      if (part != nullptr) {
        MergeCandidates(1, k, &part->best, [&](int64_t) { return rows_[r]; });
        SetBars(k, part);
      } else {
        WriteSelected(call, task, r, rows_[r]);
      }
    }
  }

 private:
  IndexerScorer<Heads> scorer_;
  int64_t stride_;
  TopkCandidates all_;
  TopkCandidates* rows_;
  int32_t* floors_;
};

template <class Heads>
void IndexTopk(const IndexerTopkCall& call, const IndexerTask& task, void* scratch,
               TopkPart* part) {
  Arena arena(scratch);
  IndexerSelector<Heads> selector(arena, call.scores.num_heads, call.scores.width, task.num_rows,
                                  IndexerCandidates(call.max_keys, call.options.k));
  selector.Run(call, task, part);
}

template <class Heads>
size_t IndexerTopkScratchBytes(int64_t num_heads, int64_t width, int64_t max_rows, int64_t max_keys,
                               int64_t k) {
  Arena counting;
  IndexerSelector<Heads> selector(counting, num_heads, width, max_rows,
                                  IndexerCandidates(max_keys, k));
  return counting.bytes();
}

// The one row of the task from the ranges that it was cut into; the first one has room for all.
inline void MergeIndexTopk(const IndexerTopkCall& call, const IndexerTask& task,
                           const TopkPart* parts, int64_t num_parts) {
  TopkCandidates all = parts[0].best;
  MergeCandidates(num_parts, call.options.k, &all,
                  [parts](int64_t part) { return parts[part].best; });
  WriteSelected(call, task, 0, all);
}

inline void ListIndexKeys(const IndexerTopkCall& call, const IndexerTask& task) {
  for (int64_t r = 0; r < task.num_rows; ++r) WriteUnscored(call, task, r);
}

}  // namespace
}  // namespace lathe::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once for each target
