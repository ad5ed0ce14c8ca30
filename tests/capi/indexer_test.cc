// SPDX-License-Identifier: Apache-2.0
// Top-k, indexer logits and the two in one through C: the results and refusals of the C++ calls.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "capi/mirror.h"
#include "indexer/indexer_problem.h"
#include "support/sizes.h"
#include "support/targets.h"
#include "support/topk_problem.h"

namespace lathe::test {
namespace {

struct CInputs : Pinned {
  CKeySet keys;
  lathe_indexer_inputs c = Sized<lathe_indexer_inputs>();
  explicit CInputs(const IndexerInputs& of) : keys(of.keys) {
    c.q = Mirror(of.q);
    c.q_fp8 = Mirror(of.q_fp8);
    c.weights = Mirror(of.weights);
    c.query_start_loc = Mirror(of.query_start_loc);
    c.keys = &keys.c;
    c.candidate_blocks = Mirror(of.candidate_blocks);
    c.candidate_block_size = of.candidate_block_size;
  }
};

TEST_CASE("top-k through C selects what C++ selects", "[capi]") {
  TopkProblem<int64_t> problem(3, 200, 40, 43);
  problem.FillNormal(1);
  const std::vector<int32_t> starts = {0, 7, 150}, ends = {200, 60, 160}, lens = {198, 170, 9};
  const std::vector<int32_t> table = {4, 2, 0, 1, 7, 6, 5};
  const std::vector<int64_t> row_seq = {0, 0, 0};
  problem.args.row_starts = Packed(starts.data(), 3);
  problem.args.row_ends = Packed(ends.data(), 3);
  problem.args.row_lens = Packed(lens.data(), 3);
  problem.args.block_table = Packed(table.data(), 1, 7);
  problem.args.block_size = 32;
  problem.args.num_blocks = 8;
  problem.args.row_seq = Packed(row_seq.data(), 3);
  problem.options.append_newest = 3;
  problem.options.index_base = TopkIndexBase::kRowStart;
  problem.options.target = LATHE_GENERATE_TARGET();
  problem.Run();
  const auto indices = problem.indices.Copy();
  const auto counts = problem.counts.Copy();
  const auto values = problem.values.Copy();
  problem.indices.Poison();
  problem.counts.Poison();
  problem.values.Poison();

  auto options = Sized<lathe_topk_options>();
  options.k = 40;
  options.append_newest = 3;
  options.index_base = LATHE_TOPK_INDEX_BASE_ROW_START;
  options.target = static_cast<int32_t>(problem.options.target);
  auto limits = Sized<lathe_limits>();
  auto sizes = Sized<lathe_sizes>();
  limits.max_num_keys = 200;
  for (const size_t num_workers : {3, 0}) {
    limits.num_workers = num_workers;
    RequireOk([&](lathe_message* m) { return lathe_topk_sizes(&options, &limits, &sizes, m); });
    REQUIRE(sizes.plan_bytes == 0);
    REQUIRE(sizes.workspace_bytes == TopkWorkspaceFor(200, 40, num_workers == 0 ? 1 : 3));
  }
  REQUIRE(TopkWorkspaceFor(200, 40, 3) != TopkWorkspaceFor(200, 40));
  RequireInvalid([&](lathe_message* m) { return lathe_topk_sizes(&options, nullptr, &sizes, m); },
                 "limits must be given");
  std::vector<std::byte> workspace(sizes.workspace_bytes);
  auto c = Sized<lathe_topk_args>();
  c.logits = Mirror(problem.args.logits);
  c.row_starts = Mirror(problem.args.row_starts);
  c.row_ends = Mirror(problem.args.row_ends);
  c.row_lens = Mirror(problem.args.row_lens);
  c.indices = lathe_packed2(problem.indices.data(), LATHE_DTYPE_INT64, 3, 43);
  c.counts = lathe_packed1(problem.counts.data(), LATHE_DTYPE_INT64, 3);
  c.values = Mirror(problem.args.values);
  c.block_table = Mirror(problem.args.block_table);
  c.block_size = 32;
  c.num_blocks = 8;
  c.row_seq = Mirror(problem.args.row_seq);
  const auto select = [&](lathe_message* m) {
    return lathe_select_topk(&c, &options, {workspace.data(), workspace.size()}, nullptr, m);
  };
  RequireOk(select);
  REQUIRE(SameBits(problem.indices, indices));
  REQUIRE(SameBits(problem.counts, counts));
  REQUIRE(SameBits(problem.values, values));

  problem.options.k = options.k = -1;
  RequireMessage(select, LATHE_STATUS_INVALID_ARGUMENT,
                 Format(SelectTopk(problem.args, problem.options, {})).c_str());
  c.indices.dtype = LATHE_DTYPE_FLOAT32;
  RequireInvalid(select, "indices.dtype is 0, must be int32 or int64 here");
}

TEST_CASE("pools and holes in top-k through C", "[capi]") {
  TopkProblem<int32_t> problem(2, 30, 4, 12);
  problem.FillNormal(2);
  problem.options.pool_size = 3;
  const std::vector<int32_t> table = {0, 5, 1, 2, 3, 4, 6, 7, 8, 0, 5, 1, 2, 3, 4, 6, 7, 8};
  problem.args.block_table = Packed(table.data(), 2, 9);
  problem.args.block_size = 10;
  problem.args.num_blocks = 5;  // some ids are out of range
  problem.options.allow_holes = true;
  problem.Run();
  const auto indices = problem.indices.Copy();
  problem.indices.Poison();

  std::vector<std::byte> workspace(TopkWorkspaceFor(30, 4));
  auto c = Sized<lathe_topk_args>();
  c.logits = Mirror(problem.args.logits);
  c.indices = lathe_packed2(problem.indices.data(), LATHE_DTYPE_INT32, 2, 12);
  c.block_table = Mirror(problem.args.block_table);
  c.block_size = 10;
  c.num_blocks = 5;
  auto options = Sized<lathe_topk_options>();
  options.k = 4;
  options.pool_size = 3;
  options.allow_holes = 1;
  RequireOk([&](lathe_message* m) {
    return lathe_select_topk(&c, &options, {workspace.data(), workspace.size()}, nullptr, m);
  });
  REQUIRE(SameBits(problem.indices, indices));
  options.allow_holes = 0;
  REQUIRE(lathe_select_topk(&c, &options, {}, nullptr, nullptr) == LATHE_STATUS_INDEX_OUT_OF_RANGE);
  options.no_check_indices = 1;
  REQUIRE(lathe_select_topk(&c, &options, {}, nullptr, nullptr) == LATHE_STATUS_BUFFER_TOO_SMALL);
}

TEST_CASE("indexer logits and selections through C are those of C++", "[capi]") {
  const Target target = LATHE_GENERATE_TARGET();
  IndexerCase indexer_case;
  indexer_case.heads = 8;
  indexer_case.seq_lens = {100, 37};
  indexer_case.q_lens = GENERATE(std::vector<int64_t>{}, std::vector<int64_t>{2, 1});
  indexer_case.compress_ratio = GENERATE(1, 4);
  indexer_case.query = GENERATE(QueryType::kBFloat16, QueryType::kFp8);
  if (GENERATE(false, true)) {
    indexer_case.seq_lens = {100};
    indexer_case.q_lens = {};
    indexer_case.compress_ratio = 1;
    indexer_case.ranges = {{3, 90}, {0, 100}};
  }
  CAPTURE(Name(target), indexer_case.compress_ratio, indexer_case.ranges.size());
  IndexerProblem problem(indexer_case);
  problem.options.target = target;
  problem.options.fill = true;
  problem.Run();
  const auto logits = problem.logits.Copy();
  problem.logits.Poison();

  const CInputs inputs(problem.args.inputs);
  const int64_t rows = problem.num_tokens();
  auto options = Sized<lathe_indexer_logits_options>();
  options.target = static_cast<int32_t>(target);
  options.fill = 1;
  auto shape = Sized<lathe_indexer_shape>();
  shape.num_heads = 8;
  shape.head_dim = 128;
  auto limits = Sized<lathe_limits>();
  limits.max_num_tokens = rows;
  limits.max_num_keys = 100;
  auto sizes = Sized<lathe_sizes>();
  RequireOk([&](lathe_message* m) {
    return lathe_indexer_logits_sizes(&shape, &options, &limits, &sizes, m);
  });
  const IndexerShape cpp_shape{8, 128};
  const Limits cpp_limits{0, rows, 100, 1};
  REQUIRE(sizes.workspace_bytes ==
          WorkspaceFor(IndexerLogitsSizes, cpp_shape, problem.options, cpp_limits));
  std::vector<std::byte> workspace(sizes.workspace_bytes);
  auto c = Sized<lathe_indexer_logits_args>();
  c.inputs = &inputs.c;
  c.logits = Mirror(problem.args.logits);
  const auto compute = [&](lathe_message* m) {
    return lathe_compute_indexer_logits(&c, &options, {workspace.data(), workspace.size()}, nullptr,
                                        m);
  };
  RequireOk(compute);
  REQUIRE(SameBits(problem.logits, logits));

  IndexerTopkArgs args;
  IndexerTopkOptions topk_options;
  topk_options.k = 9;
  topk_options.target = target;
  args.inputs = problem.args.inputs;
  const auto places = static_cast<size_t>(rows * 9);
  std::vector<int32_t> expected(places), expected_counts(static_cast<size_t>(rows));
  std::vector<int32_t> got(places), counts(static_cast<size_t>(rows));
  args.indices = Packed(expected.data(), rows, 9);
  args.counts = Packed(expected_counts.data(), rows);
  const size_t bytes = WorkspaceFor(IndexerTopkSizes, cpp_shape, topk_options, cpp_limits);
  std::vector<std::byte> topk_workspace(bytes);
  REQUIRE(SelectIndexerTopk(args, topk_options, {topk_workspace.data(), bytes}).ok());

  auto c_options = Sized<lathe_indexer_topk_options>();
  c_options.k = 9;
  c_options.target = static_cast<int32_t>(target);
  const auto topk_sizes = [&](lathe_message* m) {
    return lathe_indexer_topk_sizes(&shape, &c_options, &limits, &sizes, m);
  };
  RequireOk(topk_sizes);
  REQUIRE(sizes.workspace_bytes == bytes);
  limits.num_workers = 3;
  RequireOk(topk_sizes);
  REQUIRE(sizes.workspace_bytes > bytes);
  auto c_args = Sized<lathe_indexer_topk_args>();
  c_args.inputs = &inputs.c;
  c_args.indices = lathe_packed2(got.data(), LATHE_DTYPE_INT32, rows, 9);
  c_args.counts = lathe_packed1(counts.data(), LATHE_DTYPE_INT32, rows);
  RequireOk([&](lathe_message* m) {
    return lathe_select_indexer_topk(&c_args, &c_options, {topk_workspace.data(), bytes}, nullptr,
                                     m);
  });
  REQUIRE(got == expected);
  REQUIRE(counts == expected_counts);

  // Slots of another cache's pages, some of whose ids are wrong: holes.
  const std::vector<int32_t> table = {7, 99, 3, 1, 0, 2, 5, 4, 99, 8, 3, 7, 1, 6};
  const std::vector<int64_t> row_seq(static_cast<size_t>(rows), 1);
  const auto num_seqs = static_cast<int64_t>(indexer_case.seq_lens.size());
  const bool is_ragged = problem.IsRagged();
  args.block_table = Packed(table.data(), is_ragged ? 2 : num_seqs, 7);
  args.block_size = 16;
  args.num_blocks = 9;
  if (is_ragged) args.row_seq = Packed(row_seq.data(), rows);
  topk_options.allow_holes = true;
  REQUIRE(SelectIndexerTopk(args, topk_options, {topk_workspace.data(), bytes}).ok());
  c_args.block_table = Mirror(args.block_table);
  c_args.block_size = 16;
  c_args.num_blocks = 9;
  c_args.row_seq = Mirror(args.row_seq);
  c_options.allow_holes = 1;
  got.assign(places, 77);
  RequireOk([&](lathe_message* m) {
    return lathe_select_indexer_topk(&c_args, &c_options, {topk_workspace.data(), bytes}, nullptr,
                                     m);
  });
  REQUIRE(got == expected);
  const auto code_of_topk = [&](int32_t allow_holes, int32_t no_check_indices) {
    c_options.allow_holes = allow_holes;
    c_options.no_check_indices = no_check_indices;
    return lathe_select_indexer_topk(&c_args, &c_options, {}, nullptr, nullptr);
  };
  REQUIRE(code_of_topk(0, 0) == LATHE_STATUS_INDEX_OUT_OF_RANGE);
  REQUIRE(code_of_topk(1, 0) == LATHE_STATUS_BUFFER_TOO_SMALL);
  REQUIRE(code_of_topk(0, 1) == LATHE_STATUS_BUFFER_TOO_SMALL);

  // Logits of some blocks of keys only.
  const std::vector<int32_t> blocks(static_cast<size_t>(rows), 1);
  problem.args.inputs.candidate_blocks = Packed(blocks.data(), rows, 1);
  problem.args.inputs.candidate_block_size = 5;
  problem.Run();
  const auto some_logits = problem.logits.Copy();
  problem.logits.Poison();
  const CInputs some_inputs(problem.args.inputs);
  c.inputs = &some_inputs.c;
  RequireOk(compute);
  REQUIRE(SameBits(problem.logits, some_logits));
  REQUIRE_FALSE(SameBits(some_logits, logits));
  c.inputs = &inputs.c;
  problem.args.inputs.candidate_blocks = {};
  problem.args.inputs.candidate_block_size = 0;

  // Every option, and the inputs that the cases above leave out, reach C++.
  const auto code = [&] {
    return lathe_compute_indexer_logits(&c, &options, {workspace.data(), workspace.size()}, nullptr,
                                        nullptr);
  };
  const auto topk_code = [&] {
    return lathe_select_indexer_topk(&c_args, &c_options, {topk_workspace.data(), bytes}, nullptr,
                                     nullptr);
  };
  options.precision = c_options.precision = 77;
  REQUIRE(code() == LATHE_STATUS_INVALID_ARGUMENT);
  REQUIRE(topk_code() == LATHE_STATUS_INVALID_ARGUMENT);
  options.precision = c_options.precision = LATHE_PRECISION_AUTO;
  c_options.index_base = 77;
  REQUIRE(topk_code() == LATHE_STATUS_INVALID_ARGUMENT);
  c_options.index_base = LATHE_TOPK_INDEX_BASE_COLUMN;
  if (!is_ragged) {
    const IndexView<2> pages = problem.args.inputs.keys.block_table;
    auto* first = const_cast<int32_t*>(static_cast<const int32_t*>(pages.data));
    REQUIRE_FALSE(pages.is_int64);
    *first += 1000;
    const auto code_without_workspace = [&] {
      return lathe_compute_indexer_logits(&c, &options, {}, nullptr, nullptr);
    };
    REQUIRE(code_without_workspace() == LATHE_STATUS_INDEX_OUT_OF_RANGE);
    options.no_check_indices = 1;
    REQUIRE(code_without_workspace() == LATHE_STATUS_BUFFER_TOO_SMALL);
    options.no_check_indices = 0;
    *first -= 1000;
  }
  RequireInvalid(
      [&](lathe_message* m) {
        lathe_key_set broken_keys = inputs.keys.c;
        broken_keys.row_kv_lens = lathe_packed1(counts.data(), LATHE_DTYPE_FLOAT32, rows);
        lathe_indexer_inputs broken = inputs.c;
        broken.keys = &broken_keys;
        c.inputs = &broken;
        const int32_t status = lathe_compute_indexer_logits(
            &c, &options, {workspace.data(), workspace.size()}, nullptr, m);
        c.inputs = &inputs.c;
        return status;
      },
      "inputs.keys.row_kv_lens.dtype is 0, must be int32 or int64 here");

  c.logits.rank = 3;
  RequireInvalid(compute, "logits.rank is 3, must be 2");
  c.logits = {};
  IndexerLogitsArgs broken;
  broken.inputs = problem.args.inputs;
  const Status status =
      ComputeIndexerLogits(broken, problem.options, {workspace.data(), workspace.size()});
  RequireMessage(compute, LATHE_STATUS_INVALID_ARGUMENT, Format(status).c_str());
}

}  // namespace
}  // namespace lathe::test
