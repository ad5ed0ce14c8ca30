// SPDX-License-Identifier: Apache-2.0
// One CompressTokens: which tokens are whose, which rows of the state it reads and writes. Shared by the
// checks and the kernels, so that the ones cover what the others touch.
#ifndef LATHE_KERNEL_COMPRESSOR_BATCH_H_
#define LATHE_KERNEL_COMPRESSOR_BATCH_H_

#include <algorithm>
#include <cstdint>

#include "lathe/base/config.h"
#include "lathe/compressor.h"

namespace lathe::detail {
namespace {

// An entry that is written: its boundary token, that token's sequence, and its slot (of no use for partials).
struct CompressedEntry {
  int64_t token = 0;
  int64_t seq = 0;
  int64_t slot = 0;
};

struct CompressCall {
  CompressorArgs args = {};
  CompressorOptions options = {};
  const CompressedEntry* entries = nullptr;
  // [rows, 3, D] maximum, sum, weighted sum: the workspace's, or partials.
  View<float, 3> stats = {};
};

// Tokens [begin, end) of a sequence; the first is at `position`. That of an empty one is 0.
struct SeqTokens {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t position = 0;

  LATHE_INLINE constexpr int64_t count() const { return end - begin; }
  LATHE_INLINE constexpr int64_t end_position() const { return position + count(); }
};

LATHE_INLINE SeqTokens TokensOf(const CompressorArgs& args, int64_t seq) {
  SeqTokens tokens{seq, seq + 1, 0};
  if (!args.query_start_loc.empty()) {
    tokens.begin = args.query_start_loc(seq);
    tokens.end = args.query_start_loc(seq + 1);
  }
  if (tokens.count() > 0) tokens.position = args.positions(tokens.begin);
  return tokens;
}

// The sequence of a token.
LATHE_INLINE int64_t SeqOf(const CompressorArgs& args, int64_t token) {
  if (args.query_start_loc.empty()) return token;
  // The first token of `seq` is not past `token`, that of `end` is.
  int64_t seq = 0, end = args.query_start_loc.extent[0] - 1;
  while (end - seq > 1) {
    const int64_t middle = seq + (end - seq) / 2;
    if (args.query_start_loc(middle) <= token) {
      seq = middle;
    } else {
      end = middle;
    }
  }
  return seq;
}

// Rows of an entry.
LATHE_INLINE constexpr int64_t PoolWindow(const CompressorOptions& options) {
  return options.overlap ? 2 * options.ratio : options.ratio;
}

// The first token of a sequence that is saved: from it on, the ring still holds all when they are in, unless less is
// asked for.
LATHE_INLINE int64_t FirstSavedPosition(const CompressorArgs& args,
                                        const CompressorOptions& options, const SeqTokens& tokens) {
  const int64_t end = tokens.end_position();
  const int64_t ring = args.state_block_table.extent[1] * args.state.block_size;
  const int64_t lost = LocalLength(options.shard, end) - ring;
  int64_t first = lost <= 0 ? 0 : GlobalPosition(options.shard, lost);
  if (options.state_tokens > 0) first = (std::max)(first, end - options.state_tokens);
  return (std::max)(first, tokens.position);
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_KERNEL_COMPRESSOR_BATCH_H_
