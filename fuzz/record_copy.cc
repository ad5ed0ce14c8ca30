// SPDX-License-Identifier: Apache-2.0
// Copies of records inside a cache of any format, against a loop of memmove.
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  fuzz::Input in(data, size);
  in.DecideMood();
  fuzz::Arrays arrays(in);
  constexpr CacheFormat kFormats[] = {
#define LATHE_FORMAT(enumerator, number, ...) CacheFormat::enumerator,
#include "lathe/cache/formats.def"
#undef LATHE_FORMAT
  };
  const CacheFormat format = kFormats[in.Int(0, std::size(kFormats) - 1)];
  const int64_t width = FixedWidth(format) != 0 ? FixedWidth(format) : in.Int(1, 40);
  const int64_t num_blocks = in.Int(1, 5), block_size = in.Int(1, 5);
  RecordCopyArgs args;
  args.cache = arrays.Cache(format, width, num_blocks, block_size);
  test::Random random = in.Numbers();
  for (std::byte& byte : arrays.last()) byte = static_cast<std::byte>(random.Below(256));
  const size_t bytes = arrays.last().size();
  args.width = in.Odd(width);
  const int64_t num_slots = num_blocks * block_size, pairs = in.Int(0, 12);
  const bool skips = in.Flip();
  args.src_slots = arrays.Indices<1>({pairs}, [&] { return in.Int(0, num_slots - 1); });
  args.dst_slots =
      arrays.Indices<1>({pairs}, [&] { return in.Int(skips ? -2 : 0, num_slots - 1); });
  if (!arrays.fit()) return 0;

  std::vector<std::byte> expected;
  if (args.cache.data != nullptr) expected.assign(args.cache.data, args.cache.data + bytes);
  const auto workers = static_cast<size_t>(in.Int(1, 4));
  const Executor executor{nullptr, workers, [](void*, size_t n, Executor::TaskFn fn, void* arg) {
                            for (size_t i = n; i-- > 0;) fn(arg, i);
                          }};
  const bool is_one_of_many = in.Flip();
  if (!fuzz::RunAccepted(in, arrays, [&] {
        return is_one_of_many ? CopyCachesRecords(&args, 1, executor)
                              : CopyCacheRecords(args, executor);
      }))
    return 0;
  const MutablePagedCache& cache = args.cache;
  const auto part_of = [&](int64_t slot, int64_t offset, int64_t stride) {
    return expected.data() + slot / cache.block_size * cache.block_stride + offset +
           slot % cache.block_size * stride;
  };
  for (int64_t i = 0; i < args.dst_slots.extent[0]; ++i) {
    const int64_t from = args.src_slots(i), to = args.dst_slots(i);
    if (to < 0) continue;
    const auto move = [&](int64_t offset, int64_t stride, int64_t count) {
      if (count > 0)
        std::memmove(part_of(to, offset, stride), part_of(from, offset, stride),
                     static_cast<size_t>(count));
    };
    move(0, cache.row_stride, RecordBytes(cache.format, args.width));
    const int64_t side = SideBytes(cache.format);
    move(cache.block_size * cache.row_stride, side, side);
  }
  LATHE_FUZZ_REQUIRE(
      expected.empty() || std::equal(expected.begin(), expected.end(), args.cache.data),
      "other bytes than a loop of memmove leaves");
  return 0;
}
