// SPDX-License-Identifier: Apache-2.0
// Fused scoring and selection against logits and SelectTopk one after the other: the same lists.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <numeric>
#include <string>

#include "indexer/indexer_problem.h"
#include "lathe/indexer_topk.h"
#include "support/sizes.h"
#include "support/targets.h"

namespace lathe::test {
namespace {

// The lists of an indexer problem's rows, both ways.
template <class Index = int32_t>
class SelectProblem {
 public:
  SelectProblem(const IndexerCase& c, int64_t k, int64_t width, uint64_t seed = 1)
      : scores(c, seed),
        indices(static_cast<size_t>(scores.num_tokens() * width)),
        counts(static_cast<size_t>(scores.num_tokens())),
        width_(width) {
    options.k = k;
    Refresh();
  }
  // After a change of the problem's inputs.
  void Refresh() {
    args.inputs = scores.args.inputs;
    args.indices = Packed(indices.data(), scores.num_tokens(), width_);
    args.counts = Packed(counts.data(), scores.num_tokens());
  }

  Status TryRun(size_t num_workers) {
    const IndexerCase& c = scores.the_case();
    const Limits limits{0, scores.num_tokens(), scores.columns() - 5, num_workers};
    Sizes sizes;
    const Status sized = IndexerTopkSizes({c.heads, c.width}, options, limits, &sizes);
    if (!sized.ok()) return sized;
    const size_t bytes = sizes.workspace_bytes;
    Guarded<std::byte> workspace(bytes);
    const Status status =
        SelectIndexerTopk(args, options, {workspace.data(), bytes},
                          num_workers == 1 ? Executor{} : ThreadExecutor(num_workers));
    REQUIRE(workspace.IsFrontIntact());
    return status;
  }
  void Run(size_t num_workers) {
    indices.Poison();
    counts.Poison();
    const Status status = TryRun(num_workers);
    REQUIRE(std::string(Format(status).c_str()) == "ok");
    REQUIRE(indices.IsFrontIntact());
  }

  struct Lists {
    std::vector<Index> indices, counts;
  };
  // In two steps, on the same target.
  Lists InTwoSteps(const IndexView<1>& row_seq) {
    scores.options.target = options.target;
    scores.options.precision = options.precision;
    scores.Run();
    std::vector<int64_t> begins, ends;
    for (int64_t t = 0; t < scores.num_tokens(); ++t) {
      const auto [begin, end] = RangeOfRow(t);
      begins.push_back(begin);
      ends.push_back(end);
    }
    Lists lists{indices.Copy(), counts.Copy()};
    TopkArgs topk;
    topk.logits = scores.args.logits;
    topk.row_starts = Packed(static_cast<const int64_t*>(begins.data()), begins.size());
    topk.row_ends = Packed(static_cast<const int64_t*>(ends.data()), ends.size());
    topk.indices = Packed(lists.indices.data(), scores.num_tokens(), width_);
    topk.counts = Packed(lists.counts.data(), scores.num_tokens());
    topk.block_table = args.block_table;
    topk.block_size = args.block_size;
    topk.num_blocks = args.num_blocks;
    if (!args.block_table.empty()) topk.row_seq = row_seq;
    TopkOptions topk_options;
    topk_options.k = options.k;
    topk_options.index_base = options.index_base;
    topk_options.target = options.target;
    std::vector<std::byte> workspace(TopkWorkspaceFor(scores.columns(), options.k));
    REQUIRE(SelectTopk(topk, topk_options, {workspace.data(), workspace.size()}).ok());
    return lists;
  }
  void RequireSameLists(const IndexView<1>& row_seq = {},
                        const std::vector<size_t>& worker_counts = {1, 2, 3, 7}) {
    for (const Target target : RunnableTargets()) {
      INFO("target " << Name(target));
      options.target = target;
      const Lists expected = InTwoSteps(row_seq);
      for (const size_t workers : worker_counts) {
        INFO("workers " << workers);
        Run(workers);
        REQUIRE(SameBits(indices.Copy(), expected.indices));
        REQUIRE(SameBits(counts.Copy(), expected.counts));
      }
    }
  }

  IndexerProblem scores;
  IndexerTopkArgs args;
  IndexerTopkOptions options;
  Guarded<Index> indices, counts;

 private:
  // From what the reference says.
  Slots RangeOfRow(int64_t t) const {
    const IndexerInputs& in = scores.args.inputs;
    int64_t b = 0;
    for (const auto [begin, end] : ref::RowsOfSequences(scores.num_tokens(), in.query_start_loc,
                                                        ref::IsOneSequence(in.keys))) {
      if (t >= begin && t < end) {
        const std::vector<int64_t> seen =
            ref::VisibleKeys(in.keys, true, {}, b, end - begin, t - begin, t);
        return seen.empty() ? Slots{0, 0} : Slots{seen.front(), seen.back() + 1};
      }
      ++b;
    }
    return {0, 0};
  }

  int64_t width_;
};

TEST_CASE("scoring with selection gives the lists of the two steps", "[indexer][topk]") {
  const int64_t k = GENERATE(0, 1, 7, 64, 200, 512, 2048, 2051);
  CAPTURE(k);
  IndexerCase c;
  c.heads = 8;
  c.seq_lens = {k, k + 1, 3000, 0, 1, 2 * k + 3};
  c.q_lens = {1, 2, 3, 1, 2, 1};
  SelectProblem<> problem(c, k, k + 3);
  problem.RequireSameLists();
}

TEST_CASE("workers share a long row", "[indexer][topk][long]") {
  const int64_t k = GENERATE(1, 100, 2048);
  const CacheFormat format =
      GENERATE(CacheFormat::kIndexerFp8, CacheFormat::kIndexerMxfp4, CacheFormat::kLatentBFloat16);
  const bool has_company = GENERATE(false, true);
  CAPTURE(k, NameOf(format), has_company);
  IndexerCase c;
  c.format = format;
  c.seq_lens = {5003};
  if (has_company) c.seq_lens = {40, 5003, 100, 2049, 2500};
  SelectProblem<int64_t> problem(c, k, k);
  problem.RequireSameLists({}, {1, 2, 3, 7, 16, 61});
}

TEST_CASE("scoring with selection asks for threads once, or twice for rows in parts",
          "[indexer][topk]") {
  const bool has_parts = GENERATE(false, true);
  IndexerCase c;
  c.heads = 64;
  c.seq_lens = has_parts ? std::vector<int64_t>{900, 70, 4000} : std::vector<int64_t>(64, 900);
  SelectProblem<> problem(c, 64, 64);
  Sizes sizes;
  const Limits limits{0, problem.scores.num_tokens(), 4000, 16};
  REQUIRE(IndexerTopkSizes({c.heads, c.width}, problem.options, limits, &sizes).ok());
  std::vector<std::byte> workspace(sizes.workspace_bytes);
  int times = 0;
  auto pool = [&times](size_t num_tasks, const auto& body) {
    ++times;
    for (size_t task = 0; task < num_tasks; ++task) body(task);
  };
  REQUIRE(SelectIndexerTopk(problem.args, problem.options, {workspace.data(), workspace.size()},
                            CallableExecutor(pool, 16))
              .ok());
  REQUIRE(times == (has_parts ? 2 : 1));
}

// Each part of a row tells the others how good its best are: the worse the parts are alike, the less that says.
TEST_CASE("the best keys of a long row lie together, or are spread evenly",
          "[indexer][topk][long]") {
  const int64_t k = GENERATE(1, 60, 1000);
  const int64_t run =
      GENERATE(1, 100, 700, 5003);  // the best keys, the next best, ... in runs of so many
  const bool is_last = GENERATE(false, true);  // the best come last
  CAPTURE(k, run, is_last);
  IndexerCase c;
  c.heads = 64;
  c.seq_lens = {5003};
  SelectProblem<> problem(c, k, k);
  IndexerProblem& scores = problem.scores;
  scores.Run();
  // Keys by rank; as every fourth of them is a copy of the one before it, there are equal ones, too.
  const auto n = static_cast<size_t>(c.seq_lens[0]);
  std::vector<int64_t> by_rank(n), place(n);
  std::iota(by_rank.begin(), by_rank.end(), 0);
  std::sort(by_rank.begin(), by_rank.end(),
            [&](int64_t a, int64_t b) { return scores.Logit(0, a) > scores.Logit(0, b); });
  for (size_t rank = 3; rank < n; rank += 4) by_rank[rank] = by_rank[rank - 1];
  std::iota(place.begin(), place.end(), 0);
  if (is_last) std::reverse(place.begin(), place.end());
  if (run < c.seq_lens[0]) {
    std::stable_sort(place.begin(), place.end(), [run](int64_t a, int64_t b) {
      return a / run * 7919 % 64 < b / run * 7919 % 64;
    });
  }
  struct Key {
    std::byte record[128], side[4];
  };
  std::vector<Key> keys(n);
  for (size_t i = 0; i < n; ++i) {
    const int64_t slot = scores.SlotOf(0, by_rank[i]);
    std::memcpy(keys[i].record, scores.pages.Record(slot), sizeof(keys[i].record));
    std::memcpy(keys[i].side, scores.pages.Side(slot), sizeof(keys[i].side));
  }
  for (size_t i = 0; i < n; ++i) {
    const int64_t slot = scores.SlotOf(0, place[i]);
    std::memcpy(scores.pages.Record(slot), keys[i].record, sizeof(keys[i].record));
    std::memcpy(scores.pages.Side(slot), keys[i].side, sizeof(keys[i].side));
  }
  problem.RequireSameLists({}, {1, 2, 16, 256});
}

TEST_CASE("many rows of a sequence are selected side by side", "[indexer][topk]") {
  IndexerCase c;
  c.heads = 16;
  c.seq_lens = {900};
  c.q_lens = {150};
  SelectProblem<> problem(c, 64, 64);
  problem.RequireSameLists();
}

TEST_CASE("keys of compressed tokens are selected", "[indexer][topk]") {
  IndexerCase c;
  c.heads = 4;
  c.compress_ratio = 4;
  c.seq_lens = {3, 4, 400, 4001};
  c.q_lens = {1, 1, 4, 2};
  SelectProblem<> problem(c, 60, 60);
  problem.RequireSameLists();
}

TEST_CASE("ragged rows are selected, counted from slot 0 or the row's start", "[indexer][topk]") {
  const TopkIndexBase base = GENERATE(TopkIndexBase::kColumn, TopkIndexBase::kRowStart);
  IndexerCase c;
  c.heads = 5;
  c.block_size = 16;
  c.seq_lens = {2000};
  c.ranges = {{0, 2000}, {5, 5}, {100, 150}, {300, 351}, {1000, 2000}, {1, 1999}};
  SelectProblem<> problem(c, 50, 50);
  problem.options.index_base = base;
  problem.RequireSameLists();
}

TEST_CASE("selected keys become slots of another cache", "[indexer][topk]") {
  IndexerCase c;
  c.heads = 4;
  c.seq_lens = {300, 20};
  c.q_lens = {2, 1};
  SelectProblem<> problem(c, 30, 30);
  std::vector<int32_t> table(2 * 44, -1);
  for (size_t page = 0; page < 44; ++page) {
    table[page] = static_cast<int32_t>((page * 13 + 5) % 97);
    table[44 + page] = static_cast<int32_t>(96 - page);
  }
  problem.args.block_table = Packed(static_cast<const int32_t*>(table.data()), 2, 44);
  problem.args.block_size = 7;
  problem.args.num_blocks = 97;
  const int32_t row_seq[3] = {0, 0, 1};
  problem.RequireSameLists(Packed(row_seq, 3));
  REQUIRE(problem.indices[2 * 30] == 96 * 7);

  SECTION("ragged, with a sequence for each row") {
    IndexerCase ragged = c;
    ragged.seq_lens = {290};
    ragged.q_lens = {};
    ragged.ranges = {{0, 290}, {3, 20}, {100, 200}};
    SelectProblem<> rows(ragged, 30, 30);
    const int32_t seqs[3] = {1, 0, 1};
    rows.args.block_table = problem.args.block_table;
    rows.args.block_size = 7;
    rows.args.num_blocks = 97;
    rows.args.row_seq = Packed(seqs, 3);
    rows.RequireSameLists(rows.args.row_seq);
  }
}

// V4 keeps a ring for the last keys, and attends within a window.
TEST_CASE("keys of a window are selected, counted from key 0 or the window's first",
          "[indexer][topk]") {
  IndexerCase c;
  c.heads = 5;
  c.seq_lens = {700, 80, 3};
  c.q_lens = {3, 2, 1};
  SelectProblem<> problem(c, 50, 50);
  problem.scores.args.inputs.keys.window = GENERATE(1, 49, 130);
  problem.options.index_base = GENERATE(TopkIndexBase::kColumn, TopkIndexBase::kRowStart);
  problem.Refresh();
  problem.RequireSameLists();
}

// Copies of keys have equal logits, to the bit, wherever they are: the lower key wins.
TEST_CASE("of equal keys the lower ones are selected", "[indexer][topk]") {
  IndexerCase c;
  c.heads = 64;
  c.block_size = 16;
  c.seq_lens = {4100};
  SelectProblem<> problem(c, 1500, 1500);
  for (int64_t key = 1; key < 4100; ++key) {
    const int64_t from = problem.scores.SlotOf(0, key % 3), to = problem.scores.SlotOf(0, key);
    std::memcpy(problem.scores.pages.Record(to), problem.scores.pages.Record(from), 128);
    std::memcpy(problem.scores.pages.Side(to), problem.scores.pages.Side(from), 4);
  }
  problem.RequireSameLists();
  for (size_t i = 1; i < 1300; ++i) REQUIRE(problem.indices[i] > problem.indices[i - 1]);
}

TEST_CASE("keys that are NaN are selected last", "[indexer][topk]") {
  IndexerCase c;
  c.heads = 64;
  c.seq_lens = {3000};
  const int64_t k = GENERATE(500, 2000);
  SelectProblem<> problem(c, k, k);
  for (int64_t key = 0; key < 3000; ++key) {
    if (key % 3 == 0) continue;
    std::memset(problem.scores.pages.Side(problem.scores.SlotOf(0, key)), kPoison, 4);
  }
  problem.RequireSameLists();
  size_t nans = 0;
  for (size_t i = 0; i < static_cast<size_t>(k); ++i) nans += problem.indices[i] % 3 != 0;
  REQUIRE(nans == static_cast<size_t>(k > 1000 ? k - 1000 : 0));
}

// Without a choice there is nothing to score: queries and keys may be anything.
TEST_CASE("rows of at most k keys are not scored", "[indexer][topk]") {
  IndexerCase c;
  c.seq_lens = {100, 0, 17};
  SelectProblem<> problem(c, 100, 100);
  problem.scores.weights.Poison();
  problem.Run(2);
  for (int32_t i = 0; i < 100; ++i) {
    REQUIRE(problem.indices[static_cast<size_t>(i)] == i);
    REQUIRE(problem.indices[static_cast<size_t>(100 + i)] == -1);
    REQUIRE(problem.indices[static_cast<size_t>(200 + i)] == (i < 17 ? i : -1));
  }
  IndexerTopkOptions options;
  options.k = 100;
  REQUIRE(WorkspaceFor(IndexerTopkSizes, IndexerShape{64, 128}, options, Limits{0, 3, 100, 8}) ==
          0);
}

TEST_CASE("scoring with selection refuses", "[indexer][topk][validation]") {
  using Problem = SelectProblem<>;
  struct Row {
    const char* message;
    void (*break_it)(Problem& p);
  };
  const Row rows[] = {
      {"invalid argument: options.k is -1, must be at least 0",
       [](Problem& p) { p.options.k = -1; }},
      {"invalid argument: options.precision is 9, must be a known Precision",
       [](Problem& p) { p.options.precision = static_cast<Precision>(9); }},
      {"invalid argument: indices.extent[1] is 6, must be at least k * pool_size + append_newest "
       "= 7",
       [](Problem& p) { p.args.indices.extent[1] = 6; }},
      {"invalid argument: indices.data must not be null",
       [](Problem& p) { p.args.indices.data = nullptr; }},
      {"invalid argument: counts.extent[0] is 2, must be 3",
       [](Problem& p) { p.args.counts.extent[0] = 2; }},
      {"invalid argument: inputs.q.extent[1] is 4, must be 5",
       [](Problem& p) { p.args.inputs.q.extent[1] = 4; }},
      {"invalid argument: inputs.keys.seq_lens[1] is -1, must be at least 0",
       [](Problem& p) { p.scores.seq_lens[1] = -1; }},
      {"invalid argument: inputs.candidate_blocks must not be given",
       [](Problem& p) {
         p.args.inputs.candidate_blocks = p.args.inputs.keys.block_table;
         p.args.inputs.candidate_blocks.extent[0] = 3;
         p.args.inputs.candidate_blocks.stride[0] = 0;
         p.args.inputs.candidate_block_size = 1;
       }},
      {"invalid argument: inputs.weights must not overlap indices",
       [](Problem& p) {
         p.args.inputs.weights.data = reinterpret_cast<const float*>(p.indices.data());
       }},
      {"invalid argument: row_seq must not be given beside inputs.keys.block_table",
       [](Problem& p) { p.args.row_seq = p.args.inputs.query_start_loc; }},
      {"invalid argument: block_size is 0, must be at least 1",
       [](Problem& p) { p.args.block_table = p.args.inputs.keys.block_table; }},
      {"invalid argument: block_table.extent[0] is 1, must be 2",
       [](Problem& p) {
         p.args.block_table = p.args.inputs.keys.block_table;
         p.args.block_table.extent[0] = 1;
         p.args.block_size = p.args.num_blocks = 64;
       }},
      {"index out of range: block_table.extent[1] is 3, must cover, with block_size, the keys of "
       "every row, 29",
       [](Problem& p) {
         p.args.block_table = p.args.inputs.keys.block_table;
         p.args.block_size = 8;
         p.args.num_blocks = 64;
       }},
      {"index out of range: block_table[0] is 2, must be within 0 and num_blocks - 1 = 1",
       [](Problem& p) {
         static constexpr int32_t kTable[4] = {2, 0, 0, 1};
         p.args.block_table = Packed(kTable, 2, 2);
         p.args.block_size = 16;
         p.args.num_blocks = 2;
       }},
  };
  for (const Row& row : rows) {
    INFO("expected: " << row.message);
    IndexerCase c;
    c.heads = 5;
    c.block_size = 16;
    c.seq_lens = {30, 9};
    c.q_lens = {2, 1};
    Problem problem(c, 7, 7);
    problem.Run(1);
    problem.indices.Poison();
    const std::vector<int32_t> before = problem.indices.Copy();
    row.break_it(problem);
    std::vector<std::byte> workspace(10 << 20);
    const Status status =
        SelectIndexerTopk(problem.args, problem.options, {workspace.data(), workspace.size()});
    REQUIRE(std::string(Format(status).c_str()) == row.message);
    REQUIRE(SameBits(problem.indices.Copy(), before));
  }
}

TEST_CASE("scoring with selection refuses small workspaces", "[indexer][topk][validation]") {
  IndexerCase c;
  c.seq_lens = {30};
  SelectProblem<> problem(c, 7, 7);
  IndexerTopkOptions options;
  options.k = 7;
  const IndexerShape shape{64, 128};
  const size_t bytes = WorkspaceFor(IndexerTopkSizes, shape, options, Limits{0, 1, 30, 1});
  std::vector<std::byte> workspace(bytes);
  const Status status =
      SelectIndexerTopk(problem.args, problem.options, {workspace.data(), bytes - 1});
  REQUIRE(std::string(Format(status).c_str()) == "buffer too small: workspace.bytes is " +
                                                     std::to_string(bytes - 1) +
                                                     ", must be at least " + std::to_string(bytes));
  Sizes sizes;
  const auto message = [&](int64_t num_heads, const Limits& limits) {
    return std::string(Format(IndexerTopkSizes({num_heads, 128}, options, limits, &sizes)).c_str());
  };
  REQUIRE(message(0, {0, 1, 30, 1}) ==
          "invalid argument: shape.num_heads is 0, must be at least 1");
  REQUIRE(message(64, {0, 1, -1, 1}) ==
          "invalid argument: limits.max_num_keys is -1, must be at least 0");
  REQUIRE(message(64, {0, 1, 30, 0}) ==
          "invalid argument: limits.num_workers is 0, must be at least 1");
  options.k = -1;
  REQUIRE(message(64, {0, 1, 30, 1}) == "invalid argument: options.k is -1, must be at least 0");
}

}  // namespace
}  // namespace lathe::test
