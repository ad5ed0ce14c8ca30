// SPDX-License-Identifier: Apache-2.0
// Prefill of prompts whose beginnings are cached, in chunks: what an engine does for a long prompt, with real tensors
// (tests/golden/mla_v3). Ten requests share one cached sequence, each up to another token of it, and bring their last
// tokens, 20 at most, as a prompt of their own:
//
//   chunk by chunk of the contexts   GatherLatentCache -> up-projection (plain loops here) -> RunPrefill, not causal
//   the prompts' own tokens                               up-projection                    -> RunPrefill, causal
//   MergeStates
//
// The golden queries are absorbed (already multiplied by W_UK), so keys here are [kv_c | k_pe], 576 columns for each
// head; where they are not, keys are [kv_c W_UK | k_pe], 192 columns. Values are kv_c W_UV, 32 columns in this model.
//
// Output (AVX3_ZEN4; the first error is bfloat16's, of cache, query, values and parts):
//   target avx3_zen4, 10 requests, 156 prompt tokens, contexts of 0 to 313 tokens in chunks of 128
//   bfloat16: max |out - golden| = 1.5e-02, max |lse - golden| = 1.0e-02 (good: below 2e-2)
//   float32:  max |out - golden| = 3.3e-06 (good: below 2e-5), max |lse - golden| = 9.5e-07 (1e-5)
#include <lathe/lathe.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "examples/support/mla_v3.h"
#include "examples/support/paged.h"

namespace {

using example::Check;
using Golden = example::MlaV3;

constexpr int64_t kBlockSize = 16, kChunk = 128, kLongestPrompt = 20;
constexpr int64_t kHeads = 16, kRank = 512, kRope = 64, kWidth = kRank + kRope, kVHeadDim = 32;

// Lengths of sequences and where they start in a tensor of all of them.
struct Ragged {
  explicit Ragged(std::vector<int32_t> lens) : lengths(std::move(lens)), starts(1) {
    for (const int32_t length : lengths) starts.push_back(starts.back() + length);
  }
  int64_t total() const { return starts.back(); }
  std::vector<int32_t> lengths, starts;
};

// Keys and values of every head.
template <class T>
struct KeysAndValues {
  std::vector<T> k, v;  // [S, H, 576], [S, H, 32]
};

// From rows [S, 576] of latent and rope columns: what an engine leaves to its matrix products.
template <class T>
KeysAndValues<T> UpProject(const Golden& golden, const std::vector<T>& latents) {
  KeysAndValues<T> up;
  for (size_t row = 0; row < latents.size() / kWidth; ++row) {
    const T* latent = &latents[row * kWidth];
    const float* w = golden.w_uv.values.data();
    for (int64_t head = 0; head < kHeads; ++head) {
      up.k.insert(up.k.end(), latent, latent + kWidth);
      for (int64_t column = 0; column < kVHeadDim; ++column, w += kRank) {
        double sum = 0.0;
        for (int64_t c = 0; c < kRank; ++c) sum += double{w[c]} * double{lathe::ToFloat(latent[c])};
        up.v.push_back(lathe::FromFloat<T>(static_cast<float>(sum)));
      }
    }
  }
  return up;
}

// The prompts' side of the calls: queries, and a partial result for each.
template <class T>
struct Prompts {
  Ragged lengths;
  std::vector<T> q;  // [T, H, 576]
};

struct Partial {
  std::vector<float> out, lse;  // [T, H, 32], [T, H]
};

template <class T>
Partial Attend(const Prompts<T>& prompts, const KeysAndValues<T>& keys, const Ragged& key_lengths,
               bool causal) {
  const int64_t num_tokens = prompts.lengths.total(), num_keys = key_lengths.total();
  const auto num_starts = key_lengths.starts.size();
  Partial partial{std::vector<float>(static_cast<size_t>(num_tokens * kHeads * kVHeadDim)),
                  std::vector<float>(static_cast<size_t>(num_tokens * kHeads))};
  const lathe::PrefillShape shape{kHeads, kHeads, kWidth, kVHeadDim};
  lathe::PrefillOptions options;
  options.softmax_scale = 0.07216878364870322f;  // 192^-0.5
  options.causal = causal;
  lathe::PrefillArgs args;
  args.q = lathe::Packed(prompts.q.data(), num_tokens, kHeads, kWidth);
  args.query_start_loc = lathe::Packed(prompts.lengths.starts.data(), num_starts);
  args.k = lathe::Packed(keys.k.data(), num_keys, kHeads, kWidth);
  args.v = lathe::Packed(keys.v.data(), num_keys, kHeads, kVHeadDim);
  args.kv_start_loc = lathe::Packed(key_lengths.starts.data(), num_starts);
  args.out = lathe::Packed(partial.out.data(), num_tokens, kHeads, kVHeadDim);
  args.lse = lathe::Packed(partial.lse.data(), num_tokens, kHeads);

  // Buffers of the largest call and a plan that all layers share, in an engine.
  lathe::Limits limits;
  limits.max_num_seqs = static_cast<int64_t>(num_starts) - 1;
  limits.max_num_tokens = num_tokens;
  limits.max_num_keys = kChunk;
  lathe::Sizes sizes;
  Check(lathe::PrefillSizes(shape, options, limits, &sizes));
  std::vector<std::byte> plan_memory(sizes.plan_bytes), workspace(sizes.workspace_bytes);
  const lathe::PrefillPlan* plan = nullptr;
  Check(
      lathe::PlanPrefill(shape, options, args, 1, {plan_memory.data(), plan_memory.size()}, &plan));
  Check(lathe::RunPrefill(*plan, args, {workspace.data(), workspace.size()}));
  return partial;
}

// A paged cache of one sequence, page i in place i, which every request's block table names.
template <class T>
struct Cache {
  explicit Cache(const Golden& golden) : num_tokens(golden.kv_c.shape[0]) {
    const int64_t num_blocks = (num_tokens + kBlockSize - 1) / kBlockSize;
    data.resize(static_cast<size_t>(num_blocks * kBlockSize * kWidth));
    for (int32_t page = 0; page < num_blocks; ++page) block_table.push_back(page);
    std::vector<int64_t> slot_mapping;
    for (int64_t i = 0; i < num_tokens; ++i) slot_mapping.push_back(i);
    lathe::LatentWriteArgs write;
    write.kv_c = lathe::Packed(golden.kv_c.values.data(), num_tokens, kRank);
    write.k_pe = lathe::Packed(golden.k_pe.values.data(), num_tokens, kRope);
    write.slot_mapping = lathe::Packed(slot_mapping.data(), num_tokens);
    write.cache = lathe::LatentPages(data.data(), num_blocks, kBlockSize, kWidth);
    Check(lathe::WriteLatentCache(write));
    pages = write.cache;
  }

  // lengths[b] tokens of request b from starts[b] on.
  std::vector<T> Gather(const std::vector<int32_t>& starts, const Ragged& lengths) const {
    std::vector<T> rows(static_cast<size_t>(lengths.total() * kWidth));
    lathe::LatentGatherArgs args;
    args.cache = pages;
    args.block_table = lathe::Packed(block_table.data(), starts.size(), block_table.size());
    args.block_table.stride[0] = 0;
    args.gather_lens = lathe::Packed(lengths.lengths.data(), starts.size());
    args.gather_starts = lathe::Packed(starts.data(), starts.size());
    args.out_start_loc = lathe::Packed(lengths.starts.data(), lengths.starts.size());
    args.out = lathe::Packed(rows.data(), lengths.total(), kWidth);
    Check(lathe::GatherLatentCache(args));
    return rows;
  }

  int64_t num_tokens;
  std::vector<T> data;
  std::vector<int32_t> block_table;
  lathe::PagedCache pages;
};

// Which tokens a request brings, and how many lie in front of them.
struct Request {
  int32_t context, prompt;
};

std::vector<Request> RequestsOf(const Golden& golden) {
  std::vector<Request> requests;
  for (const int32_t last : golden.rows.values) {
    const int32_t prompt = std::min(last + 1, static_cast<int32_t>(kLongestPrompt));
    requests.push_back({last + 1 - prompt, prompt});
  }
  return requests;
}

// The golden query stands at each prompt's end; what the tokens before it ask for is not known, and any would do.
template <class T>
Prompts<T> PromptsOf(const Golden& golden, const std::vector<Request>& requests) {
  std::vector<int32_t> lengths;
  for (const Request& request : requests) lengths.push_back(request.prompt);
  Prompts<T> prompts{Ragged(lengths), {}};
  for (size_t b = 0; b < requests.size(); ++b) {
    for (int32_t i = 0; i < requests[b].prompt; ++i) {
      const float* query = &golden.q.values[b * kHeads * kWidth];
      for (int64_t c = 0; c < kHeads * kWidth; ++c) {
        prompts.q.push_back(lathe::FromFloat<T>(query[c]));
      }
    }
  }
  return prompts;
}

struct Errors {
  double out = 0.0;
  double lse = 0.0;
};

Errors Compare(const Golden& golden, const Ragged& prompts, const Partial& result) {
  Errors errors;
  for (size_t b = 0; b < prompts.lengths.size(); ++b) {
    const auto row = static_cast<size_t>(prompts.starts[b + 1] - 1) * kHeads;
    for (size_t i = 0; i < kHeads; ++i) {
      const double lse = double{result.lse[row + i]} - golden.lse.values[b * kHeads + i];
      errors.lse = std::max(errors.lse, std::abs(lse));
    }
    for (size_t i = 0; i < kHeads * kVHeadDim; ++i) {
      const double out =
          double{result.out[row * kVHeadDim + i]} - golden.out.values[b * kHeads * kVHeadDim + i];
      errors.out = std::max(errors.out, std::abs(out));
    }
  }
  return errors;
}

template <class T>
Errors ChunkedPrefill(const Golden& golden, const std::vector<Request>& requests) {
  const Cache<T> cache(golden);
  const Prompts<T> prompts = PromptsOf<T>(golden, requests);
  std::vector<Partial> partials;
  int32_t longest = 0;
  for (const Request& request : requests) longest = std::max(longest, request.context);
  for (int32_t start = 0; start < longest; start += kChunk) {
    std::vector<int32_t> starts, lengths;  // requests with less context have no keys in this chunk
    for (const Request& request : requests) {
      starts.push_back(std::min(start, request.context));
      lengths.push_back(std::min(static_cast<int32_t>(kChunk), request.context - starts.back()));
    }
    const Ragged chunk(lengths);
    partials.push_back(
        Attend(prompts, UpProject(golden, cache.Gather(starts, chunk)), chunk, false));
  }
  // The prompts' own latents, which an engine has at hand, not in the cache alone.
  std::vector<int32_t> starts;
  for (const Request& request : requests) starts.push_back(request.context);
  partials.push_back(Attend(prompts, UpProject(golden, cache.Gather(starts, prompts.lengths)),
                            prompts.lengths, true));

  const int64_t num_tokens = prompts.lengths.total();
  std::vector<lathe::MergePart> parts;
  for (const Partial& partial : partials) {
    lathe::MergePart& part = parts.emplace_back();
    part.out = lathe::Packed(partial.out.data(), num_tokens, kHeads, kVHeadDim);
    part.lse = lathe::Packed(partial.lse.data(), num_tokens, kHeads);
  }
  Partial merged = partials.back();
  lathe::MergeStatesArgs merge;
  merge.parts = parts.data();
  merge.num_parts = parts.size();
  merge.out = lathe::Packed(merged.out.data(), num_tokens, kHeads, kVHeadDim);
  merge.lse = lathe::Packed(merged.lse.data(), num_tokens, kHeads);
  Check(lathe::MergeStates(merge));
  return Compare(golden, prompts.lengths, merged);
}

}  // namespace

int main() {
  const Golden golden = example::ReadMlaV3();
  const std::vector<Request> requests = RequestsOf(golden);
  int num_tokens = 0, longest = 0;
  for (const Request& request : requests) {
    num_tokens += request.prompt;
    longest = std::max(longest, request.context);
  }
  std::printf(
      "target %s, %d requests, %d prompt tokens, contexts of 0 to %d tokens in chunks of %d\n",
      lathe::Name(lathe::BestTarget()), static_cast<int>(requests.size()), num_tokens, longest,
      static_cast<int>(kChunk));
  const Errors bf16 = ChunkedPrefill<lathe::bfloat16>(golden, requests);
  std::printf("bfloat16: max |out - golden| = %.1e, max |lse - golden| = %.1e (good: below 2e-2)\n",
              bf16.out, bf16.lse);
  const Errors f32 = ChunkedPrefill<float>(golden, requests);
  std::printf(
      "float32:  max |out - golden| = %.1e (good: below 2e-5), max |lse - golden| = %.1e (1e-5)\n",
      f32.out, f32.lse);
  const bool is_right = bf16.out < 2e-2 && bf16.lse < 2e-2 && f32.out < 2e-5 && f32.lse < 1e-5;
  if (!is_right) std::fprintf(stderr, "the errors are too large\n");
  return is_right ? 0 : 1;
}
