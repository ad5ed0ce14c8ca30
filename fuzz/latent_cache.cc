// SPDX-License-Identifier: Apache-2.0
// Writing records of every format and gathering them again, against the scalar codecs of the formats.
#include "fuzz_input.h"
#include "lathe/ref/attention_ref.h"
#include "row_transform.h"

namespace lathe::fuzz {
namespace {

CacheFormat FormatOf(Input& in) {
  return in.Pick({
#define LATHE_FORMAT(enumerator, number, type) CacheFormat::enumerator,
#include "lathe/cache/formats.def"
#undef LATHE_FORMAT
  });
}

// Every slot that is written twice, by a later token, or none of the kind: 0 or more.
bool Repeats(const IndexView<1>& slots) {
  for (int64_t i = 0; i < slots.extent[0]; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      if (slots(i) >= 0 && slots(i) == slots(j)) return true;
    }
  }
  return false;
}

// By either of the operations that write.
enum class Writer { kOne, kMany };

Status Write(Writer writer, const LatentWriteArgs& args, const LatentWriteOptions& options) {
  if (writer == Writer::kOne) return WriteLatentCache(args, options);
  return WriteLatentCaches(&args, 1, options);
}

// Decoded rows are near to what was written, by the precision of the format.
void CompareWritten(const LatentWriteArgs& args) {
  const PagedCache cache = args.cache;
  const int64_t kv_width = args.kv_c.extent[1], width = kv_width + args.k_pe.extent[1];
  for (int64_t i = 0; i < args.slot_mapping.extent[0]; ++i) {
    const int64_t slot = args.slot_mapping(i);
    if (slot < 0) continue;
    const auto row = ref::DecodeRow(cache, slot / cache.block_size, slot % cache.block_size, width);
    for (int64_t c = 0; c < width; ++c) {
      const double x =
          c < kv_width ? ref::At(args.kv_c, i, c) : ref::At(args.k_pe, i, c - kv_width);
      const double limit =
          HasTensorScale(cache.format) ? 240.0 * static_cast<double>(cache.scale) : 1e9;
      if (std::abs(x) > limit) continue;
      // Eighths up to 2 in size: codes of four bits are off by a sixth of the tile's largest, one step.
      const double got = row[static_cast<size_t>(c)];
      LATHE_FUZZ_REQUIRE(std::abs(got - x) <= 0.51, "column %d: %g for %g", static_cast<int>(c),
                         got, x);
    }
  }
}

void CompareGathered(const LatentGatherArgs& args) {
  const int64_t width = args.out.extent[1];
  for (int64_t b = 0; b < args.gather_lens.extent[0]; ++b) {
    int64_t start = args.gather_starts.empty() ? 0 : args.gather_starts(b),
            count = args.gather_lens(b);
    if (args.last_n > 0 && args.last_n < count) {
      start += count - args.last_n;
      count = args.last_n;
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t page = (start + i) / args.cache.block_size,
                    slot = (start + i) % args.cache.block_size;
      const auto expected = ref::DecodeRow(args.cache, args.block_table(b, page), slot, width);
      for (int64_t c = 0; c < width; ++c) {
        const double got = ref::At(ReadOnly(args.out), args.out_start_loc(b) + i, c);
        const double wanted = expected[static_cast<size_t>(c)];
        const double largest = args.out.dtype == DType::kFloat16 ? 65504.0 : 3e38;
        if (std::abs(wanted) > largest) continue;
        RequireNear(got, wanted, 0.0, args.out.dtype);
      }
    }
  }
}

}  // namespace
}  // namespace lathe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  constexpr int64_t kPositions = 5;
  fuzz::Input in(data, size);
  in.DecideMood();
  fuzz::Arrays arrays(in);
  const CacheFormat format = fuzz::FormatOf(in);
  const int64_t fixed = FixedWidth(format);
  const int64_t width = fixed != 0 ? fixed : in.Int(1, 90);
  const int64_t rope = in.Flip() ? 0 : in.Int(0, width < 65 ? width - 1 : 64);
  const int64_t num_blocks = in.Int(1, 4), block_size = in.Int(1, 6), tokens = in.Int(0, 6);
  LatentWriteArgs write;
  write.kv_c = arrays.FloatInput<2>({tokens + in.Int(0, 1), width - rope}, fuzz::DTypeOf(in));
  if (rope > 0) write.k_pe = arrays.FloatInput<2>({tokens + in.Int(0, 1), rope}, fuzz::DTypeOf(in));
  write.slot_mapping =
      arrays.Indices<1>({tokens}, [&] { return in.Int(-2, num_blocks * block_size - 1); });
  write.cache = arrays.Cache(format, width, num_blocks, block_size);
  LatentWriteOptions options;
  options.target = in.Absurd(64) ? static_cast<Target>(in.Int(0, 255)) : fuzz::TargetOf(in);
  options.power_of_two_scales = in.Flip();
  const auto writer = static_cast<fuzz::Writer>(in.Int(0, 1));
  const bool is_transformed = in.Chance(3);
  if (is_transformed) {
    write.transform =
        fuzz::MakeTransform(in, arrays, width - rope, rope > 0 ? rope : width, kPositions);
    // Not of rows that come in two parts.
    if (in.is_calm() && rope > 0) write.transform.hadamard = false;
    write.positions = arrays.Indices<1>({tokens}, [&] { return in.Int(0, kPositions - 1); });
  }
  if (!arrays.fit()) return 0;
  const bool is_written =
      fuzz::RunAccepted(in, arrays, [&] { return fuzz::Write(writer, write, options); });
  if (is_written && !is_transformed && !fuzz::Repeats(write.slot_mapping))
    fuzz::CompareWritten(write);

  LatentGatherArgs gather;
  gather.cache = write.cache;
  test::Random random = in.Numbers();
  // A write of no tokens does not look at the cache.
  const bool is_checked = is_written && write.slot_mapping.extent[0] > 0;
  const bool is_random = in.Flip() && is_checked && write.cache.data != nullptr;
  // Any bytes are a record.
  for (int64_t slot = 0; is_random && slot < write.cache.num_blocks * write.cache.block_size;
       ++slot) {
    std::byte* record =
        write.cache.RecordAt(slot / write.cache.block_size, slot % write.cache.block_size);
    for (int64_t at = 0; at < RecordBytes(format, width); ++at) {
      record[at] = static_cast<std::byte>(random.Below(256));
    }
  }
  const int64_t seqs = in.Int(0, 3), columns = in.Int(1, 4);
  const int64_t most = columns * block_size;
  gather.block_table =
      arrays.Indices<2>({seqs, columns}, [&] { return in.Int(0, num_blocks - 1); });
  gather.gather_lens = arrays.Indices<1>({seqs}, [&] { return in.Int(0, (most + 1) / 2); });
  if (in.Flip())
    gather.gather_starts = arrays.Indices<1>({seqs}, [&] { return in.Int(0, most / 2); });
  gather.last_n = in.Odd(in.Chance(3) ? in.Int(1, 5) : 0);
  int64_t next = 0;
  gather.out_start_loc = arrays.Indices<1>({seqs + 1}, [&] { return (next += most) - most; });
  gather.out = arrays.Floats<2>({(seqs + 1) * most, width}, fuzz::DTypeOf(in));
  LatentGatherOptions gather_options;
  gather_options.target = fuzz::TargetOf(in);
  if (!arrays.fit()) return 0;
  if (fuzz::RunAccepted(in, arrays, [&] { return GatherLatentCache(gather, gather_options); }))
    fuzz::CompareGathered(gather);
  return 0;
}
