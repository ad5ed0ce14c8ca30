// SPDX-License-Identifier: Apache-2.0
// Entries from the partials of several ranks, against their formula in double.
#include "fuzz_input.h"
#include "lathe/ref/attention_ref.h"
#include "row_transform.h"

namespace lathe::fuzz {
namespace {

// Column c of an entry.
double Pooled(const CompressedMergeArgs& args, int64_t entry, int64_t c) {
  const auto stat = [&](size_t part, int64_t which) {
    const View<const float, 3>& v = args.parts[part];
    return static_cast<double>(v.data[entry * v.stride[0] + which * v.stride[1] + c * v.stride[2]]);
  };
  double max = -ref::kInf, sum = 0.0, weighted = 0.0;
  for (size_t part = 0; part < args.num_parts; ++part) max = std::fmax(max, stat(part, 0));
  for (size_t part = 0; part < args.num_parts && max != -ref::kInf; ++part) {
    sum += std::exp(stat(part, 0) - max) * stat(part, 1);
    weighted += std::exp(stat(part, 0) - max) * stat(part, 2);
  }
  return sum == 0.0 ? 0.0 : weighted / sum;
}

void Compare(const CompressedMergeArgs& args, int64_t d) {
  for (int64_t e = 0; e < args.positions.extent[0]; ++e) {
    const int64_t slot = args.slot_mapping(e);
    if (slot < 0) continue;
    const auto row =
        ref::DecodeRow(args.cache, slot / args.cache.block_size, slot % args.cache.block_size, d);
    for (int64_t c = 0; c < d; ++c) {
      RequireNear(row[static_cast<size_t>(c)], Pooled(args, e, c), 2.0, DType::kFloat32);
    }
  }
}

// A rank without rows has -inf, 0, 0; another's sum is at least 1.
View<const float, 3> MakePart(Input& in, Arrays& arrays, int64_t entries, int64_t d) {
  const View<float, 3> part = arrays.Float32<3>({entries, 3, d});
  const bool is_whole = arrays.fit() && part.data != nullptr && part.extent[0] == entries &&
                        part.extent[1] == 3 && part.extent[2] == d && part.stride[2] == 1 &&
                        reinterpret_cast<uintptr_t>(part.data) % alignof(float) == 0;
  for (int64_t e = 0; in.is_calm() && is_whole && e < entries; ++e) {
    const bool is_empty = in.Chance(4);
    float* stats = part.data + e * part.stride[0];
    for (int64_t c = 0; c < d; ++c) {
      if (is_empty) stats[c] = -std::numeric_limits<float>::infinity();
      float &sum = stats[part.stride[1] + c], &weighted = stats[2 * part.stride[1] + c];
      sum = is_empty ? 0.0f : 1.0f + std::abs(sum);
      weighted = is_empty ? 0.0f : weighted;
    }
  }
  return part;
}

}  // namespace
}  // namespace lathe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  fuzz::Input in(data, size);
  in.DecideMood();
  fuzz::Arrays arrays(in);
  const CacheFormat format = in.Pick({CacheFormat::kLatentFloat32, CacheFormat::kLatentBFloat16,
                                      CacheFormat::kIndexerFp8, CacheFormat::kIndexerMxfp4});
  const int64_t d = FixedWidth(format) != 0 ? FixedWidth(format) : in.Int(1, 40);
  const int64_t entries = in.Int(0, 6), ratio = in.Int(1, 5);
  const int64_t num_blocks = in.Int(2, 4), block_size = in.Int(3, 6), positions = 6 * ratio + 1;
  std::vector<View<const float, 3>> parts(static_cast<size_t>(in.Int(1, 4)));
  for (View<const float, 3>& part : parts) part = fuzz::MakePart(in, arrays, entries, d);
  CompressedMergeArgs args;
  args.parts = in.Absurd(64) ? nullptr : parts.data();
  args.num_parts = in.Absurd(64) ? 0 : parts.size();
  args.positions = arrays.Indices<1>({entries}, [&] { return in.Int(0, positions - 1); });
  // No slot twice.
  int64_t next = in.Int(-1, 0);
  args.slot_mapping = arrays.Indices<1>({entries}, [&] { return next++; });
  args.cache = arrays.Cache(format, d, num_blocks, block_size);
  if (in.Flip()) args.transform = fuzz::MakeTransform(in, arrays, d, d, positions);
  CompressedMergeOptions options;
  options.target = in.Absurd(64) ? static_cast<Target>(in.Int(0, 255)) : fuzz::TargetOf(in);
  options.ratio = in.Odd(ratio);
  options.power_of_two_scales = in.Flip();
  if (!arrays.fit()) return 0;
  if (!fuzz::RunAccepted(in, arrays, [&] { return MergeCompressed(args, options); })) return 0;
  if (in.is_calm() && args.transform.is_identity() && format == CacheFormat::kLatentFloat32)
    fuzz::Compare(args, d);
  return 0;
}
