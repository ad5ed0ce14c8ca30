// SPDX-License-Identifier: Apache-2.0
// MlaDecodeArgs as the host code walks through them: rows of a sequence, one or two key sets, their pages.
#ifndef LATHE_HOST_ATTEND_MLA_DECODE_ARGS_H_
#define LATHE_HOST_ATTEND_MLA_DECODE_ARGS_H_

#include "lathe/host/batch.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/keys/visibility.h"
#include "lathe/mla_decode.h"

namespace lathe {
namespace detail {
namespace LATHE_ABI {

inline bool UsesPages(const KeySet& keys) {
  return !keys.has_indices() || keys.index_space == IndexSpace::kLogical;
}

inline BatchSize BatchOf(const MlaDecodeArgs& args) {
  const int64_t num_tokens = args.out.extent[0];
  return {num_tokens,
          args.query_start_loc.empty() ? num_tokens : args.query_start_loc.extent[0] - 1};
}

inline QueryRows RowsOf(const MlaDecodeArgs& args, int64_t b) {
  return RowsOf(args.query_start_loc, b);
}

inline Causality CausalityOf(const MlaDecodeOptions& options, const MlaDecodeArgs& args) {
  return {options.causal, args.tree_mask};
}

// What messages call the members of a key set.
struct KeyNames {
  const char* cache;
  const char* block_table;
  const char* wraps;
  const char* seq_lens;
  const char* compress_ratio;
  const char* row_kv_lens;
  const char* window;
  const char* indices;
  const char* topk_length;
  const char* index_space;
  // Rules that name another member.
  const char* at_most_covered;
  const char* within_blocks;
  const char* within_list;
  const char* not_without_list;
};
#define LATHE_KEY_NAMES(set)                                                                       \
  {                                                                                                \
    set ".cache", set ".block_table", set ".wraps", set ".seq_lens", set ".compress_ratio",        \
        set ".row_kv_lens", set ".window", set ".indices", set ".topk_length", set ".index_space", \
        "be at most " set ".block_table.extent[1] * " set ".cache.block_size =",                   \
        "be within 0 and " set ".cache.num_blocks - 1 =",                                          \
        "be within 0 and " set ".indices.extent[1] =", "not be given without " set ".indices"      \
  }
inline constexpr KeyNames kKeyNames[kMaxKeySets] = {LATHE_KEY_NAMES("keys"),
                                                    LATHE_KEY_NAMES("extra_keys")};
#undef LATHE_KEY_NAMES

struct NamedKeys {
  int number;
  const KeySet& keys;
  const KeyNames& names;
};

// The key sets that a call gives, to be iterated over.
class KeySetsOf {
 public:
  explicit KeySetsOf(const MlaDecodeArgs& args)
      : args_(args), count_(args.extra_keys.is_given() ? 2 : 1) {}

  struct Iterator {
    const MlaDecodeArgs& args;
    int number;
    NamedKeys operator*() const {
      return {number, number == 0 ? args.keys : args.extra_keys, kKeyNames[number]};
    }
    Iterator& operator++() {
      ++number;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return number != other.number; }
  };
  Iterator begin() const { return {args_, 0}; }
  Iterator end() const { return {args_, count_}; }

 private:
  const MlaDecodeArgs& args_;
  int count_;
};

inline bool IsPerToken(const MlaDecodeArgs& args) {
  return args.keys.has_indices() || (args.extra_keys.is_given() && args.extra_keys.has_indices());
}

// Pages [begin, end) of sequence b that hold keys some row may see.
inline KeyRange PagesOf(const MlaDecodeArgs& args, const KeySet& keys, const Causality& causality,
                        int64_t b) {
  const QueryRows rows = RowsOf(args, b);
  const int64_t seq_len = keys.seq_lens(b), block_size = keys.cache.block_size;
  if (rows.q_len == 0) return {};
  KeyRange range = {0, seq_len / keys.compress_ratio};
  if (!keys.has_indices()) {
    range =
        VisibleKeysOfRows(keys, causality, {seq_len, rows.q_len, 0, rows.token_begin}, rows.q_len);
  }
  if (NumKeys(range) == 0) return {};
  return {range.begin / block_size, (range.end - 1) / block_size + 1};
}

}  // namespace LATHE_ABI
}  // namespace detail
}  // namespace lathe

#endif  // LATHE_HOST_ATTEND_MLA_DECODE_ARGS_H_
