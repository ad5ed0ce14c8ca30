// SPDX-License-Identifier: Apache-2.0
// Merging of partial results against the reference.
#include "fuzz_input.h"
#include "lathe/ref/attention_ref.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  fuzz::Input in(data, size);
  in.DecideMood();
  fuzz::Arrays arrays(in);
  const int64_t tokens = in.Int(0, 3), heads = in.Int(1, 4),
                width = in.Chance(4) ? in.Int(500, 600) : in.Int(1, 40);
  std::vector<MergePart> parts(static_cast<size_t>(in.Chance(8) ? in.Int(60, 70) : in.Int(1, 4)));
  for (MergePart& part : parts) {
    part.out = arrays.FloatInput<3>({tokens, heads, width}, fuzz::DTypeOf(in));
    part.lse_policy.base2 = in.Flip();
    if (in.Flip()) part.lse_policy.empty = std::numeric_limits<float>::infinity();
    const View<float, 2> lse = arrays.Float32<2>({tokens, heads});
    test::Guarded<std::byte>& bytes = arrays.last();
    for (size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
      if (in.Chance(4)) fuzz::Arrays::Store(DType::kFloat32, part.lse_policy.empty, &bytes[at]);
    }
    part.lse = lse;
  }
  MergeStatesArgs args;
  args.parts = in.Absurd(64) ? nullptr : parts.data();
  args.num_parts = in.Absurd(64) ? 0 : parts.size();
  if (in.Chance(3)) args.attn_sink = arrays.Float32<1>({heads});
  const bool is_in_place = in.Chance(8);
  args.out = arrays.Floats<3>({tokens, heads, width}, fuzz::DTypeOf(in));
  if (in.Flip()) args.lse = arrays.Float32<2>({tokens, heads});
  if (!arrays.fit()) return 0;
  MergeStatesOptions options;
  options.lse_policy.base2 = in.Flip();
  options.target = in.Absurd(64) ? static_cast<Target>(in.Int(0, 255)) : fuzz::TargetOf(in);
  // In place of one part, which then is that part's memory.
  if (is_in_place) {
    const auto& part =
        parts[static_cast<size_t>(in.Int(0, static_cast<int64_t>(parts.size()) - 1))];
    args.out.data = const_cast<std::byte*>(part.out.data);
    args.out.dtype = part.out.dtype;
    std::copy(part.out.stride, part.out.stride + 3, args.out.stride);
    std::copy(part.out.extent, part.out.extent + 3, args.out.extent);
    const auto before = arrays.Contents();
    if (!MergeStates(args, options).ok())
      LATHE_FUZZ_REQUIRE(before == arrays.Contents(), "written though refused");
    return 0;
  }
  if (!fuzz::RunAccepted(in, arrays, [&] { return MergeStates(args, options); })) return 0;
  const ref::AttentionResult expected = ref::MergeStates(args);
  for (int64_t row = 0; row < tokens * heads; ++row) {
    for (int64_t c = 0; c < width; ++c) {
      fuzz::RequireNear(ref::At(fuzz::ReadOnly(args.out), row / heads, row % heads, c),
                        expected.out[static_cast<size_t>(row * width + c)], 2.0, args.out.dtype);
    }
    if (args.lse.empty()) continue;
    const double lse = expected.lse[static_cast<size_t>(row)];
    const float got =
        args.lse.data[row / heads * args.lse.stride[0] + row % heads * args.lse.stride[1]];
    fuzz::RequireNear(static_cast<double>(got),
                      options.lse_policy.base2 ? lse / std::log(2.0) : lse, 1.0, DType::kFloat32);
  }
  return 0;
}
