// SPDX-License-Identifier: Apache-2.0
// Compression of tokens: what is accepted runs within its arrays and agrees with the reference; any division of the
// tokens into calls and workers gives the same bits, and so do partials that are merged.
#include "fuzz_input.h"
#include "lathe/ref/attention_ref.h"
#include "lathe/ref/compressor_ref.h"
#include "row_transform.h"

namespace lathe::fuzz {
namespace {

constexpr int64_t kMostTokens = 20;

// A sequence's tokens and what becomes of them.
struct Problem {
  CompressorOptions options;
  CompressorArgs args;
  int64_t num_tokens = 0;
  int64_t width = 0;
};

Problem Make(Input& in, Arrays& arrays) {
  Problem p;
  p.options.target = in.Absurd(64) ? static_cast<Target>(in.Int(0, 255)) : TargetOf(in);
  const int64_t ratio = in.Int(1, 5);
  p.options.ratio = in.Odd(ratio);
  p.options.overlap = in.Flip();
  p.options.power_of_two_scales = in.Flip();
  const int64_t window = p.options.overlap ? 2 * ratio : ratio;
  const CacheFormat format = in.Pick({CacheFormat::kLatentFloat32, CacheFormat::kLatentBFloat16,
                                      CacheFormat::kIndexerFp8, CacheFormat::kIndexerMxfp4});
  const int64_t d = FixedWidth(format) != 0 ? FixedWidth(format) : in.Int(1, 40);
  p.width = p.options.overlap ? 2 * d : d;
  p.num_tokens = in.Int(0, kMostTokens);
  CompressorArgs& args = p.args;
  args.kv = arrays.FloatInput<2>({p.num_tokens, p.width}, DTypeOf(in));
  args.score = arrays.FloatInput<2>({p.num_tokens, p.width}, DTypeOf(in));
  args.ape = arrays.Float32<2>({ratio, p.width});
  int64_t position = 0;
  args.positions = arrays.Indices<1>({p.num_tokens}, [&] { return position++; });
  const int64_t num_tokens = p.num_tokens;
  bool is_first = true;
  args.query_start_loc = arrays.Indices<1>({2}, [&] {
    const int64_t start = is_first ? 0 : num_tokens;
    is_first = false;
    return start;
  });
  const int64_t state_page = in.Int(1, 6),
                columns = (window + state_page - 1) / state_page + in.Int(0, 2);
  args.state = arrays.Cache(CacheFormat::kLatentFloat32, 2 * p.width, columns, state_page);
  int64_t page = 0;
  args.state_block_table =
      arrays.Indices<2>({1, columns}, [&] { return page < columns ? page++ : 0; });
  const int64_t cache_page = in.Int(1, 5), pages = kMostTokens / cache_page + 1;
  args.cache = arrays.Cache(format, d, pages, cache_page);
  page = 0;
  args.block_table = arrays.Indices<2>({1, pages}, [&] { return page < pages ? page++ : 0; });
  args.transform = MakeTransform(in, arrays, d, d, kMostTokens);
  return p;
}

// The memory of a cache from its first record to its last.
size_t CacheBytes(const MutablePagedCache& cache) {
  return static_cast<size_t>((cache.num_blocks - 1) * cache.block_stride +
                             cache.block_size * (cache.row_stride + SideBytes(cache.format)));
}

// Every entry, where it is stored as it is.
void Compare(const Problem& p) {
  const MutablePagedCache& cache = p.args.cache;
  if (cache.format != CacheFormat::kLatentFloat32) return;
  const int64_t d = p.options.overlap ? p.width / 2 : p.width;
  for (int64_t entry = 0; entry < p.num_tokens / p.options.ratio; ++entry) {
    const std::vector<double> expected =
        ref::CompressedRow(p.args, p.options, 0, (entry + 1) * p.options.ratio - 1);
    const auto got = ref::DecodeRow(cache, entry / cache.block_size, entry % cache.block_size, d);
    double largest = 1.0;
    for (const double x : expected) largest = std::fmax(largest, std::abs(x));
    for (size_t c = 0; c < expected.size(); ++c) {
      RequireNear(got[c], expected[c], largest, DType::kFloat32);
    }
  }
}

// The same tokens in two calls, into the same cache and state: not a bit changes but in rows of the state that
// no later call needs, which a longer call does not save.
void CompressInTwo(Input& in, const Problem& p, Buffer workspace) {
  const int64_t cut = in.Int(1, p.num_tokens - 1);
  for (int part = 0; part < 2; ++part) {
    CompressorArgs args = p.args;
    const int64_t begin = part == 0 ? 0 : cut, count = part == 0 ? cut : p.num_tokens - cut;
    args.kv.data += begin * args.kv.stride[0] * static_cast<int64_t>(SizeOf(args.kv.dtype));
    args.score.data +=
        begin * args.score.stride[0] * static_cast<int64_t>(SizeOf(args.score.dtype));
    args.kv.extent[0] = args.score.extent[0] = count;
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < count; ++i) positions.push_back(begin + i);
    args.positions = Packed(static_cast<const int64_t*>(positions.data()), count);
    const int32_t starts[2] = {0, static_cast<int32_t>(count)};
    args.query_start_loc = Packed(starts, 2);
    const Status status = CompressTokens(args, p.options, workspace);
    LATHE_FUZZ_REQUIRE(status.ok(), "%s", Format(status).c_str());
  }
}

void CompressByPartials(const Problem& p, Buffer workspace) {
  const int64_t ratio = p.options.ratio, entries = p.num_tokens / ratio;
  const int64_t d = p.options.overlap ? p.width / 2 : p.width;
  std::vector<float> partials(static_cast<size_t>(entries * 3 * d) + 1);
  CompressorArgs args = p.args;
  args.transform = {};
  args.cache = {};
  args.block_table = {};
  args.partials = Packed(partials.data(), entries, 3, d);
  Status status = CompressTokens(args, p.options, workspace);
  LATHE_FUZZ_REQUIRE(status.ok(), "%s", Format(status).c_str());
  std::vector<int64_t> positions, slots;
  for (int64_t e = 0; e < entries; ++e) {
    positions.push_back(e * ratio);
    slots.push_back(e);  // pages are in order
  }
  const View<const float, 3> part =
      Packed(static_cast<const float*>(partials.data()), entries, 3, d);
  CompressedMergeArgs merge;
  merge.parts = &part;
  merge.num_parts = 1;
  merge.positions = Packed(static_cast<const int64_t*>(positions.data()), entries);
  merge.slot_mapping = Packed(static_cast<const int64_t*>(slots.data()), entries);
  merge.transform = p.args.transform;
  merge.cache = p.args.cache;
  CompressedMergeOptions options;
  options.target = p.options.target;
  options.ratio = ratio;
  options.power_of_two_scales = p.options.power_of_two_scales;
  status = MergeCompressed(merge, options);
  LATHE_FUZZ_REQUIRE(status.ok(), "%s", Format(status).c_str());
}

}  // namespace
}  // namespace lathe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  fuzz::Input in(data, size);
  in.DecideMood();
  fuzz::Arrays arrays(in);
  const fuzz::Problem p = fuzz::Make(in, arrays);
  if (!arrays.fit()) return 0;
  const bool is_plain = p.args.cache.format == CacheFormat::kLatentFloat32;
  Sizes sizes;  // 0 where what is absurd is refused
  (void)CompressorSizes({is_plain ? p.width : 1024}, p.options, {1, p.num_tokens, 0, 1}, &sizes)
      .ok();
  const size_t bytes = sizes.workspace_bytes;
  if (bytes > (1 << 22)) return 0;
  std::byte* workspace = arrays.Take(static_cast<int64_t>(bytes));
  const auto workers = static_cast<size_t>(in.Int(1, 4));
  const Executor executor{nullptr, workers, [](void*, size_t n, Executor::TaskFn fn, void* arg) {
                            for (size_t i = n; i-- > 0;) fn(arg, i);
                          }};
  if (!fuzz::RunAccepted(in, arrays, [&] {
        return CompressTokens(p.args, p.options, {workspace, bytes}, executor);
      }))
    return 0;
  if (!in.is_calm() || p.num_tokens < 2) return 0;
  fuzz::Compare(p);

  const MutablePagedCache& cache = p.args.cache;
  const size_t cache_bytes = fuzz::CacheBytes(cache);
  const std::vector<std::byte> whole(cache.data, cache.data + cache_bytes);
  const auto require_same = [&](const char* what) {
    LATHE_FUZZ_REQUIRE(std::memcmp(whole.data(), cache.data, cache_bytes) == 0, "%s", what);
    std::memset(cache.data, test::kPoison, cache_bytes);
  };
  std::memset(cache.data, test::kPoison, cache_bytes);
  fuzz::CompressInTwo(in, p, {workspace, bytes});
  require_same("tokens in two calls");
  if (p.num_tokens < p.options.ratio) return 0;
  fuzz::CompressByPartials(p, {workspace, bytes});
  require_same("partials, merged");
  return 0;
}
