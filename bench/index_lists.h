// SPDX-License-Identifier: Apache-2.0
// Index lists as a top-k leaves them: K different keys of a context in ascending order, another random choice
// for every token and turn.
#ifndef LATHE_BENCH_INDEX_LISTS_H_
#define LATHE_BENCH_INDEX_LISTS_H_

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "bench/tensor.h"
#include "lathe/base/view.h"

namespace lathe::bench {

class IndexLists {
 public:
  // topk <= context.
  IndexLists(int64_t turns, int64_t tokens, int64_t topk, int64_t context)
      : turns_(turns), tokens_(tokens), topk_(topk) {
    entries_.reserve(static_cast<size_t>(turns * tokens * topk));
    Random random(4);
    for (int64_t i = 0; i < turns * tokens; ++i) Append(random, context);
  }

  // [tokens, topk]; turns past the last begin again.
  IndexView<2> Turn(int64_t turn) const {
    return Packed(entries_.data() + turn % turns_ * tokens_ * topk_, tokens_, topk_);
  }

 private:
  // R. W. Floyd's sampling: each choice of topk_ keys is equally likely.
  void Append(Random& random, int64_t context) {
    std::unordered_set<int64_t> chosen;
    for (int64_t last = context - topk_; last < context; ++last) {
      if (!chosen.insert(random.Below(last + 1)).second) chosen.insert(last);
    }
    const auto begin = static_cast<std::ptrdiff_t>(entries_.size());
    for (const int64_t key : chosen) entries_.push_back(static_cast<int32_t>(key));
    std::sort(entries_.begin() + begin, entries_.end());
  }

  int64_t turns_, tokens_, topk_;
  std::vector<int32_t> entries_;
};

}  // namespace lathe::bench

#endif  // LATHE_BENCH_INDEX_LISTS_H_
