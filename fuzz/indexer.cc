// SPDX-License-Identifier: Apache-2.0
// Logits of an indexer against the reference, and scoring with selection against the two steps.
#include "fuzz_input.h"
#include "lathe/ref/indexer_ref.h"

namespace lathe::fuzz {
namespace {

constexpr int64_t kLongest = 150;

// Rows with bounds of their own over the slots of the cache.
void MakeBounds(Input& in, Arrays& arrays, int64_t tokens, int64_t num_keys, KeySet& keys) {
  keys.row_starts = arrays.Indices<1>({tokens}, [&] { return in.Int(-2, num_keys + 2); });
  keys.row_kv_lens = arrays.Indices<1>({tokens}, [&] { return in.Int(-2, num_keys + 2); });
}

void MakePaged(Input& in, Arrays& arrays, int64_t num_blocks, int64_t block_size,
               const std::vector<int64_t>& starts, IndexerInputs& inputs) {
  const auto seqs = static_cast<int64_t>(starts.size()) - 1;
  KeySet& keys = inputs.keys;
  keys.block_table = arrays.Indices<2>({seqs, (kLongest + block_size - 1) / block_size},
                                       [&] { return in.Int(0, num_blocks - 1); });
  keys.seq_lens = arrays.Indices<1>({seqs}, [&] { return in.Int(0, kLongest); });
  size_t i = 0;
  inputs.query_start_loc =
      arrays.Indices<1>({seqs + 1}, [&] { return i < starts.size() ? starts[i++] : 0; });
  if (in.Chance(4)) MakeBounds(in, arrays, starts.back(), kLongest, keys);
  if (in.Chance(4)) keys.row_starts = {};
  keys.compress_ratio = in.Odd(in.Pick<int64_t>({1, 1, 4, 3}));
  if (in.Chance(4)) keys.window = in.Odd(in.Int(1, kLongest));
  keys.wraps = in.Chance(4);
}

IndexerInputs MakeInputs(Input& in, Arrays& arrays) {
  IndexerInputs inputs;
  std::vector<int64_t> starts{0};
  for (int64_t b = in.Int(0, 3); b > 0; --b) starts.push_back(starts.back() + in.Int(0, 3));
  const int64_t tokens = starts.back(), heads = in.Int(1, 5);
  const CacheFormat format =
      in.Pick({CacheFormat::kIndexerFp8, CacheFormat::kIndexerMxfp4, CacheFormat::kLatentFloat32,
               CacheFormat::kLatentBFloat16, CacheFormat::kLatentFp8E4m3});
  const int64_t width = FixedWidth(format) != 0 ? FixedWidth(format) : in.Int(1, 70);
  const int64_t num_blocks = in.Int(1, 20), block_size = in.Int(1, 9);
  if (in.Flip()) {
    inputs.q = arrays.FloatInput<3>({tokens, heads, width}, DTypeOf(in));
  } else {
    inputs.q_fp8 = arrays.Make<View<float8_e4m3fn, 3>, 3>({tokens, heads, width}, 1, true, {});
    test::Random random = in.Numbers();
    for (std::byte& byte : arrays.last())
      byte = static_cast<std::byte>(random.Below(0x48) + (random.Below(2) << 7));
  }
  inputs.weights = arrays.Float32<2>({tokens, heads});
  inputs.keys.cache = arrays.FilledCache(format, width, num_blocks, block_size);
  if (in.Chance(3)) {
    MakeBounds(in, arrays, tokens, num_blocks * block_size, inputs.keys);
  } else {
    MakePaged(in, arrays, num_blocks, block_size, starts, inputs);
  }
  return inputs;
}

void CompareLogits(const IndexerLogitsArgs& args, bool fill) {
  const int64_t columns = args.logits.extent[1];
  const std::vector<double> expected = ref::IndexerLogits(args.inputs, columns);
  for (int64_t t = 0; t < args.logits.extent[0]; ++t) {
    // Terms cancel: as large as theirs is an error. Keys are at most 2 in size.
    const ref::IndexerRow row = ref::IndexerRowAt(args.inputs, t);
    double largest = 0;
    for (size_t h = 0; h < row.q.size(); ++h) {
      for (const double q : row.q[h]) largest += 2 * std::abs(q * row.weights[h]);
    }
    for (int64_t s = 0; s < columns; ++s) {
      const double wanted = expected[static_cast<size_t>(t * columns + s)];
      const auto got = static_cast<double>(args.logits.data[t * args.logits.stride[0] + s]);
      if (fill || std::isfinite(wanted)) RequireNear(got, wanted, largest, DType::kFloat32);
    }
  }
}

// The lists of SelectIndexerTopk are those of SelectTopk over the logits.
void CompareLists(Input& in, Arrays& arrays, const IndexerLogitsArgs& scored, Target target) {
  const IndexerInputs& inputs = scored.inputs;
  const int64_t tokens = scored.logits.extent[0], columns = scored.logits.extent[1];
  IndexerTopkOptions options;
  options.target = target;
  options.k = in.Int(0, 40);
  std::vector<int32_t> fused(static_cast<size_t>(tokens * options.k) + 1), apart(fused.size());
  IndexerTopkArgs args;
  args.inputs = inputs;
  args.indices = Packed(fused.data(), tokens, options.k);
  const int64_t width = inputs.q_fp8.extent[2] != 0 ? inputs.q_fp8.extent[2] : inputs.q.extent[2];
  const auto workers = static_cast<size_t>(in.Int(1, 3));
  if (tokens == 0) return;
  Sizes sizes;
  Status status = IndexerTopkSizes({inputs.weights.extent[1], width}, options,
                                   {tokens, tokens, columns, workers}, &sizes);
  LATHE_FUZZ_REQUIRE(status.ok(), "%s", Format(status).c_str());
  const size_t bytes = sizes.workspace_bytes;
  std::byte* workspace = arrays.Take(static_cast<int64_t>(bytes));
  const Executor executor{nullptr, workers, [](void*, size_t n, Executor::TaskFn fn, void* arg) {
                            for (size_t i = 0; i < n; ++i) fn(arg, i);
                          }};
  status = SelectIndexerTopk(args, options, {workspace, bytes}, executor);
  LATHE_FUZZ_REQUIRE(status.ok(), "%s", Format(status).c_str());

  // What a row does not see has been filled with -inf, which ranks above NaN: seen keys alone are given.
  std::vector<int64_t> begins, ends;
  int64_t b = 0;
  for (const auto [first, last] :
       ref::RowsOfSequences(tokens, inputs.query_start_loc, ref::IsOneSequence(inputs.keys))) {
    for (int64_t t = first; t < last; ++t) {
      const std::vector<int64_t> seen =
          ref::VisibleKeys(inputs.keys, true, {}, b, last - first, t - first, t);
      begins.push_back(seen.empty() ? 0 : seen.front());
      ends.push_back(seen.empty() ? 0 : seen.back() + 1);
    }
    ++b;
  }
  TopkArgs topk;
  topk.logits = scored.logits;
  topk.row_starts = Packed(begins.data(), tokens);
  topk.row_ends = Packed(ends.data(), tokens);
  topk.indices = Packed(apart.data(), tokens, options.k);
  TopkOptions topk_options;
  topk_options.k = options.k;
  status = TopkSizes(topk_options, {tokens, tokens, columns, 1}, &sizes);
  LATHE_FUZZ_REQUIRE(status.ok(), "%s", Format(status).c_str());
  const size_t topk_bytes = sizes.workspace_bytes;
  std::vector<std::byte> memory(topk_bytes + 1);
  status = SelectTopk(topk, topk_options, {memory.data(), topk_bytes});
  LATHE_FUZZ_REQUIRE(status.ok(), "%s", Format(status).c_str());
  LATHE_FUZZ_REQUIRE(fused == apart, "lists differ");
}

}  // namespace
}  // namespace lathe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  fuzz::Input in(data, size);
  in.DecideMood();
  fuzz::Arrays arrays(in);
  IndexerLogitsArgs args;
  args.inputs = fuzz::MakeInputs(in, arrays);
  const int64_t tokens = args.inputs.weights.extent[0], heads = args.inputs.weights.extent[1];
  const int64_t slots =
      args.inputs.keys.cache.num_blocks * (args.inputs.keys.cache.block_size & 15);
  args.logits = arrays.Float32<2>(
      {tokens < 0 ? 0 : tokens, slots > fuzz::kLongest && slots < 1000 ? slots : fuzz::kLongest});
  IndexerLogitsOptions options;
  options.fill = in.Flip();
  const Target target = fuzz::TargetOf(in);
  options.target = in.Absurd(64) ? static_cast<Target>(in.Int(0, 255)) : target;
  if (in.Absurd(64)) options.precision = static_cast<Precision>(in.Int(0, 255));
  if (!arrays.fit()) return 0;
  const int64_t width =
      args.inputs.q_fp8.extent[2] != 0 ? args.inputs.q_fp8.extent[2] : args.inputs.q.extent[2];
  Sizes sizes{0, 1 << 20};  // where what is absurd is refused
  (void)IndexerLogitsSizes({heads, width}, options, {0, tokens, 0, 1}, &sizes).ok();
  const size_t bytes = sizes.workspace_bytes;
  if (bytes > (1 << 22)) return 0;
  std::byte* workspace = arrays.Take(static_cast<int64_t>(bytes));
  if (!fuzz::RunAccepted(in, arrays, [&] {
        return ComputeIndexerLogits(args, options, {workspace, bytes});
      }))
    return 0;
  if (args.inputs.keys.seq_lens.extent[0] > 0 && args.inputs.keys.compress_ratio > 1000) return 0;
  fuzz::CompareLogits(args, options.fill);
  if (options.target == target && options.precision == Precision::kAuto) {
    fuzz::CompareLists(in, arrays, args, target);
  }
  return 0;
}
