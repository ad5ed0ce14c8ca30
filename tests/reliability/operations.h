// SPDX-License-Identifier: Apache-2.0
// Every operation once, on data large enough to be cut among workers, as a function from an executor to the
// bytes that it leaves behind.
#ifndef LATHE_TESTS_RELIABILITY_OPERATIONS_H_
#define LATHE_TESTS_RELIABILITY_OPERATIONS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compressor/compressor_problem.h"
#include "formats/format_pages.h"
#include "indexer/indexer_problem.h"
#include "prefill/prefill_problem.h"
#include "query_prep/query_problem.h"
#include "sliding_window/v4_problem.h"
#include "support/merge_problem.h"
#include "support/require_ok.h"
#include "support/topk_problem.h"

namespace lathe::test {

struct Operation {
  std::string name;
  std::function<std::vector<std::byte>(const Executor&)> run;
};

template <class... Buffers>
std::vector<std::byte> BytesOf(const Buffers&... buffers) {
  std::vector<std::byte> bytes;
  const auto append = [&bytes](const auto& buffer) {
    const auto* data = reinterpret_cast<const std::byte*>(buffer.data());
    bytes.insert(bytes.end(), data, data + buffer.size() * sizeof(*buffer.data()));
  };
  (append(buffers), ...);
  return bytes;
}

inline Operation DecodeOf(CacheFormat format, Target target) {
  const auto problem = std::make_shared<MlaProblem<bfloat16>>(
      MlaCase{ShapeOf(format, 5), {700, 0, 129, 3}, {1, 1, 3, 1}, 16});
  const auto pages = std::make_shared<FormatPages>(MoveInto(*problem, format, 0.5f));
  problem->options.target = target;
  return {std::string("decode over ") + NameOf(format), [problem, pages](const Executor& executor) {
            problem->Run(executor.num_workers, executor);
            return BytesOf(problem->out, problem->lse);
          }};
}

inline Operation SlidingWindow(Target target) {
  const auto problem = std::make_shared<V4Problem<bfloat16>>(V4Case{{4, 512, 0}, {300, 40}});
  problem->Move(CacheFormat::kFp8Ds4, CacheFormat::kBf16Ds4);
  const auto angles = std::make_shared<Angles>(400, 64);
  problem->args.out_rope = angles->rope;
  problem->options.target = target;
  return {"a window beside compressed keys", [problem, angles](const Executor& executor) {
            problem->Run(executor.num_workers, executor);
            return BytesOf(problem->out, problem->lse);
          }};
}

inline Operation PrefillOf(Target target) {
  PrefillCase c;
  c.shape = {4, 2, 192, 128};
  c.q_lens = {40, 0, 3};
  c.kv_lens = {300, 7, 3};
  const auto problem = std::make_shared<PrefillProblem<bfloat16>>(c);
  problem->options.target = target;
  return {"prefill", [problem](const Executor& executor) {
            problem->RunPlanned(executor.num_workers,
                                [&](const PrefillPlan& plan, Buffer workspace) {
                                  RequireOk(RunPrefill(plan, problem->args, workspace, executor));
                                });
            return BytesOf(problem->out, problem->lse);
          }};
}

inline std::shared_ptr<IndexerProblem> MakeIndexer(CacheFormat format) {
  IndexerCase c;
  c.format = format;
  c.heads = 8;
  c.seq_lens = {700, 0, 90};
  c.q_lens = {2, 1, 3};
  c.query = QueryType::kFp8;
  return std::make_shared<IndexerProblem>(c);
}

inline Operation IndexerLogitsOf(CacheFormat format, Target target) {
  const auto problem = MakeIndexer(format);
  problem->options.target = target;
  return {std::string("logits over ") + NameOf(format), [problem](const Executor& executor) {
            const size_t bytes =
                WorkspaceFor(IndexerLogitsSizes, IndexerShape{8, 128}, problem->options,
                             Limits{0, problem->num_tokens(), 0, executor.num_workers});
            Guarded<std::byte> workspace(bytes);
            problem->logits.Poison();
            RequireOk(ComputeIndexerLogits(problem->args, problem->options,
                                           {workspace.data(), bytes}, executor));
            return BytesOf(problem->logits);
          }};
}

inline Operation IndexerTopkOf(CacheFormat format, Target target) {
  const auto problem = MakeIndexer(format);
  return {std::string("selection over ") + NameOf(format),
          [problem, target](const Executor& executor) {
            constexpr int64_t kBest = 50;
            Guarded<int32_t> indices(static_cast<size_t>(problem->num_tokens() * kBest));
            IndexerTopkArgs args;
            args.inputs = problem->args.inputs;
            args.indices = Packed(indices.data(), problem->num_tokens(), kBest);
            IndexerTopkOptions options;
            options.k = kBest;
            options.target = target;
            const size_t bytes =
                WorkspaceFor(IndexerTopkSizes, IndexerShape{8, 128}, options,
                             Limits{0, problem->num_tokens(), 700, executor.num_workers});
            Guarded<std::byte> workspace(bytes);
            RequireOk(SelectIndexerTopk(args, options, {workspace.data(), bytes}, executor));
            return BytesOf(indices);
          }};
}

inline Operation TopkOf(Target target) {
  const auto problem = std::make_shared<TopkProblem<>>(2, 20000, 500);
  problem->FillNormal(3);
  problem->options.target = target;
  return {"top-k", [problem](const Executor& executor) {
            problem->Run(executor);
            return BytesOf(problem->indices, problem->counts, problem->values);
          }};
}

inline Operation QueryPreparation(Target target) {
  QueryCase c;
  c.num_tokens = 40;
  const auto problem = std::make_shared<QueryProblem>(c);
  problem->options.target = target;
  problem->AskForCodes();
  problem->GiveWeights();
  return {"query preparation", [problem](const Executor& executor) {
            problem->Run(executor);
            return BytesOf(problem->codes, problem->q_scales, problem->weights_out);
          }};
}

inline Operation Merging(Target target) {
  MergeCase c;
  c.num_tokens = 30;
  c.num_parts = 3;
  const auto problem = std::make_shared<MergeProblem<bfloat16>>(c);
  return {"merging", [problem, target](const Executor& executor) {
            problem->out.Poison();
            problem->lse.Poison();
            RequireOk(MergeStates(problem->args, {target}, executor));
            return BytesOf(problem->out, problem->lse);
          }};
}

// Pages of 200 tokens in shuffled slots, and what is read out of them.
struct WrittenPages {
  static constexpr int64_t kTokens = 200, kPageTokens = 16, kPages = 14;

  explicit WrittenPages(CacheFormat format)
      : width(WidthOf(format)),
        rows(static_cast<size_t>(kTokens * width)),
        slots(static_cast<size_t>(kTokens)),
        pages(format, width, kPages, kPageTokens, 64, 0.5f),
        copies(format, width, kPages, kPageTokens, 64, 0.5f),
        gathered(rows.size()) {
    Random random(4);
    for (float& x : rows) x = random.Normal();
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int64_t>(i * 37 % 224);
  }
  void Write(Target target, const Executor& executor) {
    pages.bytes.Poison();
    LatentWriteArgs args;
    args.kv_c = Packed(static_cast<const float*>(rows.data()), kTokens, width);
    args.slot_mapping = Packed(static_cast<const int64_t*>(slots.data()), kTokens);
    args.cache = pages.cache;
    LatentWriteOptions options;
    options.target = target;
    RequireOk(WriteLatentCache(args, options, executor));
  }
  void Copy(const Executor& executor) {
    copies.bytes.Poison();
    int32_t pairs[kPages][2];
    for (int32_t i = 0; i < kPages; ++i) {
      pairs[i][0] = i;
      pairs[i][1] = i * 5 % 14;
    }
    PageCopyArgs args;
    args.source = pages.bytes.data();
    args.destination = copies.bytes.data();
    args.num_source_blocks = args.num_destination_blocks = kPages;
    args.source_stride = args.destination_stride = pages.cache.block_stride;
    args.page_bytes = PayloadBytes(pages.cache.format, width, kPageTokens);
    args.block_pairs = Packed(&pairs[0][0], kPages, 2);
    RequireOk(CopyCachePages(args, executor));
  }
  void CopyRecords(const Executor& executor) {
    int64_t from[kTokens], to[kTokens];
    for (int64_t i = 0; i < kTokens; ++i) {
      from[i] = i * 3 % 200 + 20;
      to[i] = i;
    }
    RecordCopyArgs args;
    args.cache = copies.cache;
    args.width = width;
    args.src_slots = Packed(from, kTokens);
    args.dst_slots = Packed(to, kTokens);
    RequireOk(CopyCacheRecords(args, executor));
  }
  void Gather(Target target, const Executor& executor) {
    gathered.Poison();
    int32_t table[kPages];
    for (int32_t i = 0; i < kPages; ++i) table[i] = i;
    const int32_t seq_lens[] = {kTokens}, starts[] = {0};
    LatentGatherArgs args;
    args.cache = pages.cache;
    args.block_table = Packed(table, 1, kPages);
    args.gather_lens = Packed(seq_lens, 1);
    args.out_start_loc = Packed(starts, 1);
    args.out = Packed(gathered.data(), kTokens, width);
    RequireOk(GatherLatentCache(args, {target}, executor));
  }

  int64_t width;
  Guarded<float> rows;
  Guarded<int64_t> slots;
  FormatPages pages, copies;
  Guarded<float> gathered;
};

inline Operation PagesOf(CacheFormat format, Target target) {
  const auto problem = std::make_shared<WrittenPages>(format);
  return {std::string("write, copy and gather of ") + NameOf(format),
          [problem, target](const Executor& executor) {
            problem->Write(target, executor);
            problem->Copy(executor);
            problem->CopyRecords(executor);
            problem->Gather(target, executor);
            return BytesOf(problem->pages.bytes, problem->copies.bytes, problem->gathered);
          }};
}

inline Operation Compression(Target target) {
  return {"compression", [target](const Executor& executor) {
            CompressorCase c;
            c.seq_lens = {300, 41};
            c.ratio = 4;
            c.overlap = true;
            CompressorProblem problem(c);
            problem.options.target = target;
            RequireOk(problem.Step({300, 41}, executor));
            return BytesOf(problem.state.bytes, problem.cache.bytes);
          }};
}

inline std::vector<Operation> Operations(Target target) {
  std::vector<Operation> operations;
  for (const CacheFormat format :
       {CacheFormat::kLatentFloat32, CacheFormat::kLatentFloat16, CacheFormat::kLatentBFloat16,
        CacheFormat::kLatentFp8E4m3, CacheFormat::kFp8DsMla, CacheFormat::kNvfp4DsMla}) {
    operations.push_back(DecodeOf(format, target));
  }
  operations.push_back(SlidingWindow(target));
  operations.push_back(PrefillOf(target));
  for (const CacheFormat format :
       {CacheFormat::kIndexerFp8, CacheFormat::kIndexerMxfp4, CacheFormat::kLatentBFloat16}) {
    operations.push_back(IndexerLogitsOf(format, target));
    operations.push_back(IndexerTopkOf(format, target));
  }
  operations.push_back(TopkOf(target));
  operations.push_back(QueryPreparation(target));
  operations.push_back(Merging(target));
  for (const FormatRow& row : kFormats) operations.push_back(PagesOf(row.format, target));
  operations.push_back(Compression(target));
  return operations;
}

}  // namespace lathe::test

#endif  // LATHE_TESTS_RELIABILITY_OPERATIONS_H_
