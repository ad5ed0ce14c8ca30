// SPDX-License-Identifier: Apache-2.0
// Top-k against sorting.
#include "fuzz_input.h"
#include "lathe/ref/topk_ref.h"

namespace lathe::fuzz {
namespace {

float Score(test::Random& random, int64_t kind) {
  const auto x = static_cast<float>(random.Below(kind == 0 ? 5 : 100000));
  if (kind != 2 || random.Below(8) != 0) return x - 2.0f;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float specials[] = {kInfinity, -kInfinity, NAN, -NAN, 0.0f, -0.0f, 1e-40f, -1e-40f};
  return specials[random.Below(8)];
}

void FillScores(Input& in, test::Guarded<std::byte>& buffer) {
  test::Random random = in.Numbers();
  const int64_t kind = in.Int(0, 2);
  for (size_t at = 0; at + sizeof(float) <= buffer.size(); at += sizeof(float)) {
    Arrays::Store(DType::kFloat32, Score(random, kind), &buffer[at]);
  }
}

void Compare(const TopkArgs& args, const TopkOptions& options) {
  for (int64_t t = 0; t < args.indices.extent[0]; ++t) {
    const ref::TopkRowResult expected = ref::TopkOfRow(args, options, t);
    const auto places = static_cast<int64_t>(expected.indices.size());
    for (int64_t i = 0; i < args.indices.extent[1]; ++i) {
      const int64_t wanted = i < places ? expected.indices[static_cast<size_t>(i)] : -1;
      const int64_t got = IndexView<2>(args.indices)(t, i);
      LATHE_FUZZ_REQUIRE(got == wanted, "row %d place %d: %lld, not %lld", static_cast<int>(t),
                         static_cast<int>(i), static_cast<long long>(got),
                         static_cast<long long>(wanted));
      if (args.values.empty()) continue;
      const float value = i < places ? expected.values[static_cast<size_t>(i)]
                                     : -std::numeric_limits<float>::infinity();
      LATHE_FUZZ_REQUIRE(
          std::memcmp(&value,
                      &args.values.data[t * args.values.stride[0] + i * args.values.stride[1]],
                      sizeof(value)) == 0,
          "value %d", static_cast<int>(i));
    }
    if (!args.counts.empty())
      LATHE_FUZZ_REQUIRE(IndexView<1>(args.counts)(t) == places, "count of row %d",
                         static_cast<int>(t));
  }
}

}  // namespace
}  // namespace lathe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  fuzz::Input in(data, size);
  in.DecideMood();
  fuzz::Arrays arrays(in);
  const int64_t rows = in.Int(0, 3), columns = in.Flip() ? in.Int(0, 40) : in.Int(0, 9000);
  TopkOptions options;
  options.k = in.Odd(in.Chance(3) ? in.Int(0, 2100) : in.Int(0, 30));
  options.pool_size = in.Odd(in.Chance(4) ? in.Int(1, 5) : 1);
  options.append_newest = in.Odd(in.Chance(4) ? in.Int(0, 9) : 0);
  options.index_base = in.Flip() ? TopkIndexBase::kColumn : TopkIndexBase::kRowStart;
  options.allow_holes = in.Chance(4);
  options.target = in.Absurd(64) ? static_cast<Target>(in.Int(0, 255)) : Target::kAuto;
  TopkArgs args;
  args.logits = arrays.Float32<2>({rows, columns});
  fuzz::FillScores(in, arrays.last());
  const auto bound = [&] { return in.Int(-3, columns + 3); };
  if (in.Chance(3)) args.row_starts = arrays.Indices<1>({rows}, bound);
  if (in.Chance(3)) args.row_ends = arrays.Indices<1>({rows}, bound);
  const int64_t pool = options.pool_size > 0 && options.pool_size < 10 ? options.pool_size : 1;
  // Positions past the last column are the unscored tail: only as many as are appended.
  if (options.append_newest > 0 && in.Flip()) {
    args.row_lens = arrays.Indices<1>({rows}, [&] { return in.Int(-2, columns * pool); });
  }
  const bool is_small = options.k >= 0 && options.k < 3000 && options.append_newest >= 0 &&
                        options.append_newest < 20;
  const int64_t width = is_small ? options.k * pool + options.append_newest + in.Int(0, 3) : 8;
  args.indices = arrays.IndexOutput<2>({rows, width});
  if (in.Flip()) args.counts = arrays.IndexOutput<1>({rows});
  if (in.Flip()) args.values = arrays.Float32<2>({rows, width});
  if (in.Chance(3)) {
    args.block_size = in.Odd(in.Int(1, 70));
    args.num_blocks = in.Odd(20);
    const int64_t size_of_page =
        args.block_size >= 1 && args.block_size <= 70 ? args.block_size : 1;
    const int64_t pages = columns * pool / size_of_page + 1;
    const int64_t num_seqs = in.Int(1, 3);
    const bool has_holes = options.allow_holes;
    args.block_table = arrays.Indices<2>({in.Flip() ? num_seqs : rows, pages}, [&] {
      return has_holes ? in.Int(-2, 22) : in.Int(0, 19);
    });
    if (args.block_table.extent[0] != rows || in.Flip()) {
      const int64_t most = args.block_table.extent[0] > 0 ? args.block_table.extent[0] - 1 : 0;
      args.row_seq = arrays.Indices<1>({rows}, [&] { return in.Int(0, most < 3 ? most : 0); });
    }
  }
  if (!arrays.fit()) return 0;
  const auto workers = static_cast<size_t>(in.Int(1, 4));
  Sizes sizes;  // 0 where what is absurd is refused
  (void)TopkSizes(options, {0, 0, args.logits.extent[1], workers}, &sizes).ok();
  const size_t bytes = sizes.workspace_bytes;
  if (bytes > (1 << 22)) return 0;
  const size_t given = in.Absurd(16) && bytes > 0 ? bytes - 1 : bytes;
  std::byte* workspace = arrays.Take(static_cast<int64_t>(given));
  // The tasks of so many workers, one after another.
  const Executor executor{nullptr, workers, [](void*, size_t n, Executor::TaskFn fn, void* arg) {
                            for (size_t i = 0; i < n; ++i) fn(arg, i);
                          }};
  if (fuzz::RunAccepted(in, arrays, [&] {
        return SelectTopk(args, options, {workspace, given}, executor);
      })) {
    fuzz::Compare(args, options);
  }
  return 0;
}
