// SPDX-License-Identifier: Apache-2.0
// A compressor in adversarial memory: sequences that are fed to it in calls of any shape, with everything it may
// not read poisoned, and models of what it must leave behind.
#ifndef LATHE_TESTS_COMPRESSOR_COMPRESSOR_PROBLEM_H_
#define LATHE_TESTS_COMPRESSOR_COMPRESSOR_PROBLEM_H_

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "formats/format_pages.h"
#include "lathe/compressor.h"
#include "lathe/ref/compressor_ref.h"
#include "support/latent_write.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/sizes.h"
#include "support/strided.h"

namespace lathe::test {

struct CompressorCase {
  int64_t ratio = 4;
  bool overlap = true;
  int64_t head_dim = 72;  // whole vectors of some targets, and a rest
  CacheFormat format = CacheFormat::kLatentFloat32;
  DType kv_type = DType::kFloat32;
  DType score_type = DType::kFloat32;
  std::vector<int64_t> seq_lens = {41, 23};
  int64_t state_block_size = 4;
  int64_t ring_pages = 0;  // columns of the state's table; 0: one for every page
  int64_t cache_block_size = 3;
  int64_t row_gap = 0;  // between rows of kv and score
  bool has_transform = true;
  bool uses_slots = false;  // slot_mapping, not block_table
  ContextShard shard = {};

  int64_t width() const { return overlap ? 2 * head_dim : head_dim; }
  int64_t window() const { return overlap ? 2 * ratio : ratio; }
};

inline int64_t CeilDiv(int64_t n, int64_t d) { return (n + d - 1) / d; }

// Pages of B sequences with `pages` each, shuffled among one another and among pages of nobody.
inline std::vector<int64_t> ShuffledTable(int64_t num_seqs, int64_t pages, int64_t num_blocks,
                                          uint64_t seed) {
  std::vector<int64_t> ids(static_cast<size_t>(num_blocks));
  std::iota(ids.begin(), ids.end(), int64_t{0});
  Random random(seed);
  random.Shuffle(ids);
  ids.resize(static_cast<size_t>(num_seqs * pages));
  return ids;
}

class CompressorProblem {
 public:
  explicit CompressorProblem(const CompressorCase& the_case, uint64_t seed = 1)
      : c(the_case),
        num_seqs(static_cast<int64_t>(c.seq_lens.size())),
        longest(*std::max_element(c.seq_lens.begin(), c.seq_lens.end())),
        state_columns(c.ring_pages > 0 ? c.ring_pages : CeilDiv(longest, c.state_block_size)),
        cache_columns(CeilDiv(longest / c.ratio + 1, c.cache_block_size)),
        kv(Rows(c.kv_type)),
        score(Rows(c.score_type)),
        ape({c.ratio, c.width()}, {c.width() + 3, 1}),
        norm_weight(static_cast<size_t>(c.head_dim)),
        cos({longest, kRopePairs}, {2 * kRopePairs, 1}),
        sin({longest, kRopePairs}, {2 * kRopePairs, 1}),
        state(CacheFormat::kLatentFloat32, 2 * c.width(), num_seqs * state_columns + 3,
              c.state_block_size, 64),
        cache(c.format, c.head_dim, num_seqs * cache_columns + 2, c.cache_block_size, 64),
        state_table(ShuffledTable(num_seqs, state_columns, state.cache.num_blocks, 7)),
        cache_table(ShuffledTable(num_seqs, cache_columns, cache.cache.num_blocks, 8)),
        done(c.seq_lens.size(), 0) {
    options.ratio = c.ratio;
    options.overlap = c.overlap;
    options.shard = c.shard;
    Random random(seed);
    const int64_t rows = TokenRow(num_seqs);
    for (int64_t i = 0; i < rows * c.width(); ++i) {
      StoreElement(c.kv_type, kv.data() + i * Bytes(c.kv_type), random.Normal());
      StoreElement(c.score_type, score.data() + i * Bytes(c.score_type), 2.0f * random.Normal());
    }
    for (int64_t i = 0; i < c.ratio; ++i) {
      for (int64_t j = 0; j < c.width(); ++j) {
        ape.view().data[i * ape.view().stride[0] + j] = random.Normal();
      }
    }
    for (float& w : norm_weight) w = 1.0f + 0.25f * random.Normal();
    for (int64_t i = 0; i < longest; ++i) {
      for (int64_t j = 0; j < kRopePairs; ++j) {
        const double angle = static_cast<double>(i) * std::pow(0.3, static_cast<double>(j));
        cos.view().data[i * 2 * kRopePairs + j] = static_cast<float>(std::cos(angle));
        sin.view().data[i * 2 * kRopePairs + j] = static_cast<float>(std::sin(angle));
      }
    }
    if (!c.has_transform) return;
    transform.norm.kind = NormKind::kRms;
    transform.norm.weight = View<const float, 1>(Packed(norm_weight.data(), c.head_dim));
    transform.rope.cos = cos.view();
    transform.rope.sin = sin.view();
  }

  // Row of position 0 of a sequence among those of all.
  int64_t TokenRow(int64_t seq) const {
    return std::accumulate(c.seq_lens.begin(), c.seq_lens.begin() + seq, int64_t{0});
  }
  std::byte* Element(std::vector<std::byte>& rows, DType type, int64_t seq, int64_t position,
                     int64_t column) const {
    return rows.data() + ((TokenRow(seq) + position) * c.width() + column) * Bytes(type);
  }
  void SetKv(int64_t seq, int64_t position, int64_t column, float value) {
    StoreElement(c.kv_type, Element(kv, c.kv_type, seq, position, column), value);
  }
  void SetScore(int64_t seq, int64_t position, int64_t column, float value) {
    StoreElement(c.score_type, Element(score, c.score_type, seq, position, column), value);
  }

  // The next counts[b] tokens of each sequence b, all in one call.
  Status Step(const std::vector<int64_t>& counts, const Executor& executor = {}) {
    const int64_t num_tokens = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t stride = c.width() + c.row_gap;
    Guarded<std::byte> call_kv(CallBytes(num_tokens, stride, c.kv_type));
    Guarded<std::byte> call_score(CallBytes(num_tokens, stride, c.score_type));
    std::vector<int64_t> starts{0}, positions, slots;
    int64_t num_entries = 0;
    for (int64_t b = 0; b < num_seqs; ++b) {
      const int64_t count = counts[static_cast<size_t>(b)];
      for (int64_t i = 0; i < count; ++i) {
        const int64_t p = done[static_cast<size_t>(b)] + i;
        const auto row = static_cast<int64_t>(positions.size());
        std::memcpy(call_kv.data() + row * stride * Bytes(c.kv_type),
                    Element(kv, c.kv_type, b, p, 0),
                    static_cast<size_t>(c.width() * Bytes(c.kv_type)));
        std::memcpy(call_score.data() + row * stride * Bytes(c.score_type),
                    Element(score, c.score_type, b, p, 0),
                    static_cast<size_t>(c.width() * Bytes(c.score_type)));
        positions.push_back(p);
        const bool is_boundary = p % c.ratio == c.ratio - 1;
        slots.push_back(is_boundary ? EntrySlot(b, p / c.ratio) : int64_t{1} << 60);
        num_entries += is_boundary ? 1 : 0;
      }
      starts.push_back(static_cast<int64_t>(positions.size()));
    }
    Guarded<int32_t> call_positions{std::vector<int32_t>(positions.begin(), positions.end())};
    Guarded<int64_t> call_starts{starts}, call_slots{slots};
    Guarded<int64_t> call_state_table{state_table};
    Guarded<int32_t> call_cache_table{std::vector<int32_t>(cache_table.begin(), cache_table.end())};
    args = {};
    args.kv = Tokens(call_kv, c.kv_type, num_tokens, stride);
    args.score = Tokens(call_score, c.score_type, num_tokens, stride);
    args.ape = ape.view();
    args.positions = Packed(call_positions.data(), num_tokens);
    args.query_start_loc = Packed(call_starts.data(), num_seqs + 1);
    args.state = state.cache;
    args.state_block_table = Packed(call_state_table.data(), num_seqs, state_columns);
    const bool wants_partials = c.shard.world > 1 || always_partials;
    Guarded<float> call_partials(static_cast<size_t>(num_entries * 3 * c.head_dim));
    if (wants_partials) {
      args.partials =
          Packed(num_entries > 0 ? call_partials.data() : nullptr, num_entries, 3, c.head_dim);
    } else {
      args.transform = transform;
      args.cache = cache.cache;
      if (c.uses_slots) {
        args.slot_mapping = Packed(call_slots.data(), num_tokens);
      } else {
        args.block_table = Packed(call_cache_table.data(), num_seqs, cache_columns);
      }
    }
    Guarded<std::byte> workspace(
        num_tokens == 0 ? 0 : CompressorWorkspaceFor(options, num_tokens, num_seqs, c.head_dim));
    if (break_call) break_call(args);
    const Status status =
        CompressTokens(args, options, {workspace.data(), workspace.size()}, executor);
    if (!status.ok()) return status;
    for (size_t b = 0; b < done.size(); ++b) done[b] += counts[b];
    if (wants_partials) {
      partials.insert(partials.end(), call_partials.begin(), call_partials.end());
    }
    return status;
  }
  void Feed(const std::vector<int64_t>& counts, const Executor& executor = {}) {
    const Status status = Step(counts, executor);
    INFO(Format(status).c_str());
    REQUIRE(status.ok());
  }
  // Everything that is left, in one call.
  void FeedRest(const Executor& executor = {}) {
    std::vector<int64_t> counts;
    for (size_t b = 0; b < done.size(); ++b) counts.push_back(c.seq_lens[b] - done[b]);
    Feed(counts, executor);
  }
  // One token of each sequence that has one left, call after call.
  void FeedByToken(const Executor& executor = {}) {
    for (int64_t i = 0; i < longest; ++i) {
      std::vector<int64_t> counts;
      for (size_t b = 0; b < done.size(); ++b) counts.push_back(done[b] < c.seq_lens[b] ? 1 : 0);
      Feed(counts, executor);
    }
  }
  // Calls of up to `most` tokens of each sequence.
  void FeedInChunks(uint64_t seed, int64_t most, const Executor& executor = {}) {
    Random random(seed);
    while (done != c.seq_lens) {
      std::vector<int64_t> counts;
      for (size_t b = 0; b < done.size(); ++b) {
        counts.push_back(std::min(random.Below(most + 1), c.seq_lens[b] - done[b]));
      }
      Feed(counts, executor);
    }
  }

  int64_t EntrySlot(int64_t seq, int64_t entry) const {
    const auto page = static_cast<size_t>(seq * cache_columns + entry / c.cache_block_size);
    return cache_table[page] * c.cache_block_size + entry % c.cache_block_size;
  }
  std::vector<double> Entry(int64_t seq, int64_t entry) const {
    return cache.Row(EntrySlot(seq, entry), c.head_dim);
  }
  std::vector<double> Expected(int64_t seq, int64_t entry) const {
    return ref::CompressedRow(Whole(), options, TokenRow(seq), entry * c.ratio + c.ratio - 1);
  }
  // The arguments of a call with all tokens of all sequences, as far as the reference needs them.
  CompressorArgs Whole() const {
    CompressorArgs whole;
    whole.kv = Tokens(kv, c.kv_type, TokenRow(num_seqs), c.width());
    whole.score = Tokens(score, c.score_type, TokenRow(num_seqs), c.width());
    whole.ape = View<const float, 2>{ape_data(), {c.ratio, c.width()}, {c.width() + 3, 1}};
    whole.transform = transform;
    return whole;
  }

  // Entries of all tokens that were fed are within float32's bound of the reference, and nothing else in the cache
  // has changed.
  void RequireEntries() {
    std::vector<std::byte> touched(cache.bytes.size(), static_cast<std::byte>(kPoison));
    for (int64_t seq = 0; seq < num_seqs; ++seq) {
      for (int64_t e = 0; e < done[static_cast<size_t>(seq)] / c.ratio; ++e) {
        CAPTURE(seq, e);
        RequireRow(Entry(seq, e), Expected(seq, e));
        CopyRecord(EntrySlot(seq, e), touched);
      }
    }
    REQUIRE(SameBits(touched, cache.bytes));
  }
  static void RequireRow(const std::vector<double>& row, const std::vector<double>& expected) {
    REQUIRE(row.size() == expected.size());
    double largest = 0.0;
    for (const double x : expected) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < row.size(); ++i) {
      CAPTURE(i);
      REQUIRE(std::abs(row[i] - expected[i]) <= 1e-5 * largest);
    }
  }

  // The state, if each row was saved when its token came, and a row it must hold for that.
  std::vector<std::byte> ExpectedState() const {
    std::vector<std::byte> bytes(state.bytes.size(), static_cast<std::byte>(kPoison));
    for (int64_t seq = 0; seq < num_seqs; ++seq) {
      for (int64_t p = 0; p < done[static_cast<size_t>(seq)]; ++p) SaveRow(seq, p, bytes);
    }
    return bytes;
  }
  void SaveRow(int64_t seq, int64_t position, std::vector<std::byte>& bytes) const {
    if (!OwnsPosition(c.shard, position)) return;
    const int64_t local = LocalPosition(c.shard, position);
    const int64_t page = local / c.state_block_size % state_columns;
    const int64_t block = state_table[static_cast<size_t>(seq * state_columns + page)];
    std::byte* row = bytes.data() + block * state.cache.block_stride +
                     local % c.state_block_size * state.cache.row_stride;
    for (int64_t i = 0; i < c.width(); ++i) {
      const int64_t at = (TokenRow(seq) + position) * c.width() + i;
      const float x = LoadElement(c.kv_type, kv.data() + at * Bytes(c.kv_type));
      const float s = LoadElement(c.score_type, score.data() + at * Bytes(c.score_type)) +
                      ape_data()[position % c.ratio * (c.width() + 3) + i];
      std::memcpy(row + 4 * i, &x, 4);
      std::memcpy(row + 4 * (c.width() + i), &s, 4);
    }
  }

  static constexpr int64_t kRopePairs = 8;

  CompressorCase c;
  int64_t num_seqs, longest, state_columns, cache_columns;
  std::vector<std::byte> kv, score;
  Strided<float, 2> ape;
  Guarded<float> norm_weight;
  Strided<float, 2> cos, sin;
  FormatPages state, cache;
  std::vector<int64_t> state_table, cache_table;
  std::vector<int64_t> done;  // tokens fed
  CompressorOptions options;
  CompressorArgs args;
  RowTransform transform;
  bool always_partials = false;
  std::vector<float> partials;  // [entries, 3, D] of all calls
  void (*break_call)(CompressorArgs& args) = nullptr;

 private:
  static int64_t Bytes(DType type) { return static_cast<int64_t>(SizeOf(type)); }
  std::vector<std::byte> Rows(DType type) const {
    return std::vector<std::byte>(
        static_cast<size_t>(TokenRow(num_seqs) * c.width() * Bytes(type)));
  }
  static size_t CallBytes(int64_t rows, int64_t stride, DType type) {
    return static_cast<size_t>(std::max<int64_t>(rows * stride, 0) * Bytes(type));
  }
  template <class Buffer>
  In<2> Tokens(const Buffer& bytes, DType type, int64_t rows, int64_t stride) const {
    In<2> view;
    view.data = bytes.data();
    view.dtype = type;
    view.extent[0] = rows;
    view.extent[1] = c.width();
    view.stride[0] = stride;
    view.stride[1] = 1;
    return view;
  }
  const float* ape_data() const { return const_cast<Strided<float, 2>&>(ape).view().data; }
  void CopyRecord(int64_t slot, std::vector<std::byte>& to) {
    const auto copy = [&](const std::byte* from, int64_t n) {
      std::memcpy(to.data() + (from - cache.bytes.data()), from, static_cast<size_t>(n));
    };
    copy(cache.Record(slot), RecordBytes(c.format, c.head_dim));
    if (SideBytes(c.format) > 0) copy(cache.Side(slot), SideBytes(c.format));
  }
};

}  // namespace lathe::test

#endif  // LATHE_TESTS_COMPRESSOR_COMPRESSOR_PROBLEM_H_
