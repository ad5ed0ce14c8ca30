// SPDX-License-Identifier: Apache-2.0
// Copies of pages, inside one cache and between two, against a loop of memmove.
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  fuzz::Input in(data, size);
  in.DecideMood();
  fuzz::Arrays arrays(in);
  const int64_t from_blocks = in.Int(1, 6), to_blocks = in.Int(1, 6), bytes = in.Int(1, 300);
  const bool is_one_cache = in.Flip();
  PageCopyArgs args;
  args.page_bytes = in.Odd(bytes);
  args.num_source_blocks = in.Odd(from_blocks);
  args.source_stride = in.Odd(bytes + in.Int(0, 3));
  args.num_destination_blocks = is_one_cache ? args.num_source_blocks : in.Odd(to_blocks);
  args.destination_stride = is_one_cache ? args.source_stride : in.Odd(bytes + in.Int(0, 3));
  const auto take = [&](int64_t num_blocks, int64_t stride) {
    const int64_t extent[] = {num_blocks, args.page_bytes}, strides[] = {stride, 1};
    std::byte* memory = arrays.Take(fuzz::SpanOf(extent, strides, 2));
    test::Random random = in.Numbers();
    for (std::byte& byte : arrays.last()) byte = static_cast<std::byte>(random.Below(256));
    return in.Absurd(64) ? nullptr : memory;
  };
  args.source = take(args.num_source_blocks, args.source_stride);
  args.destination = is_one_cache ? const_cast<std::byte*>(args.source)
                                  : take(args.num_destination_blocks, args.destination_stride);
  bool is_source = false;
  args.block_pairs = arrays.Indices<2>({in.Int(0, 8), 2}, [&] {
    is_source = !is_source;
    return in.Int(0, (is_source || is_one_cache ? from_blocks : to_blocks) - 1);
  });
  // Padding between pairs takes numbers of its own: a page that both caches have.
  if (in.is_calm() && !is_one_cache && from_blocks != to_blocks) return 0;
  if (!arrays.fit()) return 0;

  const int64_t extent[] = {args.num_destination_blocks, args.page_bytes};
  const int64_t strides[] = {args.destination_stride, 1};
  const int64_t span = args.destination == nullptr ? 0 : fuzz::SpanOf(extent, strides, 2);
  std::vector<std::byte> expected(args.destination, args.destination + span);
  const auto workers = static_cast<size_t>(in.Int(1, 4));
  const Executor executor{nullptr, workers, [](void*, size_t n, Executor::TaskFn fn, void* arg) {
                            for (size_t i = n; i-- > 0;) fn(arg, i);
                          }};
  const bool is_one_of_many = in.Flip();
  if (!fuzz::RunAccepted(in, arrays, [&] {
        return is_one_of_many ? CopyCachesPages(&args, 1, executor)
                              : CopyCachePages(args, executor);
      }))
    return 0;
  for (int64_t i = 0; args.page_bytes > 0 && i < args.block_pairs.extent[0]; ++i) {
    const std::byte* source = is_one_cache ? expected.data() : args.source;
    std::memmove(expected.data() + args.block_pairs(i, 1) * args.destination_stride,
                 source + args.block_pairs(i, 0) * args.source_stride,
                 static_cast<size_t>(args.page_bytes));
  }
  LATHE_FUZZ_REQUIRE(std::equal(expected.begin(), expected.end(), args.destination),
                     "other bytes than a loop of memmove leaves");
  return 0;
}
