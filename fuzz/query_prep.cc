// SPDX-License-Identifier: Apache-2.0
// Norm, rope, Hadamard matrix and quantisation of query rows against the reference.
#include "fuzz_input.h"
#include "lathe/ref/row_transform_ref.h"
#include "row_transform.h"

namespace lathe::fuzz {
namespace {

std::vector<double> Reference(const QueryPrepArgs& args, int64_t token, int64_t head) {
  std::vector<double> row;
  for (int64_t c = 0; c < args.q.extent[2]; ++c) row.push_back(ref::At(args.q, token, head, c));
  const int64_t position = args.transform.rope.is_given() ? args.positions(token) : 0;
  return ref::TransformRow(args.transform, position, row);
}

void Compare(const QueryPrepArgs& args) {
  for (int64_t token = 0; token < args.q.extent[0]; ++token) {
    for (int64_t head = 0; head < args.q.extent[1]; ++head) {
      const std::vector<double> expected = Reference(args, token, head);
      double largest = 0;
      for (const double x : expected) largest = std::fmax(largest, std::abs(x));
      for (size_t c = 0; c < expected.size(); ++c) {
        const auto column = static_cast<int64_t>(c);
        if (!args.codes.empty()) {
          if (args.q_scales.empty()) continue;
          const float8_e4m3fn code =
              args.codes.data[token * args.codes.stride[0] + head * args.codes.stride[1] + column];
          const auto scale = static_cast<double>(
              args.q_scales.data[token * args.q_scales.stride[0] + head * args.q_scales.stride[1]]);
          const double got = scale * static_cast<double>(ToFloat(code));
          // Half a step of three bits of mantissa, or of the least codes.
          LATHE_FUZZ_REQUIRE(std::abs(got - expected[c]) <=
                                 std::abs(expected[c]) / 15.9 + scale / 500 + 1e-4 * largest,
                             "%g for %g", got, expected[c]);
        } else {
          RequireNear(ref::At(ReadOnly(args.out), token, head, column), expected[c], largest,
                      args.out.dtype);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lathe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  fuzz::Input in(data, size);
  in.DecideMood();
  fuzz::Arrays arrays(in);
  const int64_t tokens = in.Int(0, 3), heads = in.Int(1, 4), positions = in.Int(1, 5);
  const int64_t width = in.Flip() ? int64_t{1} << in.Int(0, 7) : in.Int(1, 150);
  QueryPrepArgs args;
  args.q = arrays.FloatInput<3>({tokens, heads, width}, fuzz::DTypeOf(in));
  args.transform = fuzz::MakeTransform(in, arrays, width, width, positions);
  args.positions =
      arrays.Indices<1>({tokens + in.Int(0, 1)}, [&] { return in.Int(0, positions - 1); });
  if (in.Flip()) {
    args.out = arrays.Floats<3>({tokens, heads, width}, fuzz::DTypeOf(in));
  } else {
    args.codes = arrays.Make<View<float8_e4m3fn, 3>, 3>({tokens, heads, width}, 1, true, {});
    if (in.Flip()) args.q_scales = arrays.Float32<2>({tokens, heads});
  }
  if (in.Flip()) {
    args.weights = arrays.FloatInput<2>({tokens, heads}, fuzz::DTypeOf(in));
    args.weights_out = arrays.Float32<2>({tokens, heads});
  }
  QueryPrepOptions options;
  options.target = in.Absurd(64) ? static_cast<Target>(in.Int(0, 255)) : fuzz::TargetOf(in);
  options.power_of_two_scales = in.Flip();
  options.softmax_scale = in.Absurd(64) ? NAN : 0.5f;
  if (!arrays.fit()) return 0;
  if (fuzz::RunAccepted(in, arrays, [&] { return PrepareQueries(args, options); }))
    fuzz::Compare(args);
  return 0;
}
