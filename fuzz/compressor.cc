// SPDX-License-Identifier: Apache-2.0
// Compression of tokens: what is accepted runs within its arrays, and any division of the tokens into calls
// and workers gives the same bits.
#include "fuzz_input.h"

namespace lathe::fuzz {
namespace {

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
  p.num_tokens = in.Int(0, 20);
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
  const int64_t cache_page = in.Int(1, 5), pages = 20 / cache_page + 1;
  args.cache = arrays.Cache(format, d, pages, cache_page);
  page = 0;
  args.block_table = arrays.Indices<2>({1, pages}, [&] { return page < pages ? page++ : 0; });
  if (in.Flip()) args.transform.norm.kind = NormKind::kRms;
  args.transform.norm.eps = 1e-3f;
  return p;
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
  const size_t bytes =
      CompressorWorkspaceBytes(p.options, p.num_tokens, 1,
                               p.args.cache.format == CacheFormat::kLatentFloat32 ? p.width : 1024);
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

  // The same tokens in two calls, into the same cache and state: not a bit changes but in rows of the state that
  // no later call needs, which a longer call does not save.
  const auto& cache = p.args.cache;
  const auto cache_bytes =
      static_cast<size_t>((cache.num_blocks - 1) * cache.block_stride +
                          cache.block_size * (cache.row_stride + SideBytes(cache.format)));
  const std::vector<std::byte> whole(cache.data, cache.data + cache_bytes);
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
    const Status status = CompressTokens(args, p.options, {workspace, bytes});
    LATHE_FUZZ_REQUIRE(status.ok(), "%s", Format(status).c_str());
  }
  LATHE_FUZZ_REQUIRE(std::memcmp(whole.data(), cache.data, cache_bytes) == 0, "cut at %d",
                     static_cast<int>(cut));
  return 0;
}
