// SPDX-License-Identifier: Apache-2.0
// The three kinds of DeepSeek-V4 layer as an implementation that shares nothing with lathe computed them
// (golden/README.md): window only, with listed entries of ratio 4, with all entries of ratio 128.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/format_pages.h"
#include "support/npy.h"

namespace lathe::test {
namespace {

constexpr int64_t kHeads = 16, kWidth = 512, kTokens = 421, kWindow = 128, kRope = 64;
constexpr int64_t kBlockSize = 64;
constexpr double kGoldenError = 2e-6;  // of the golden tensors themselves

struct Golden {
  explicit Golden(const std::string& layer) : folder(LATHE_GOLDEN_DIR "/" + layer + "/") {}
  std::vector<float> Load(const char* name) const {
    return ReadNpy<float>(folder + name + ".npy").values;
  }
  std::string folder;
  std::vector<int32_t> rows = ReadNpy<int32_t>(folder + "rows.npy").values;
  std::vector<float> q = Load("q"), kv = Load("kv"), sinks = Load("sinks");
  std::vector<float> cos = Load("cos"), sin = Load("sin");
  std::vector<float> out = Load("out"), out_unrotated = Load("out_unrotated"), lse = Load("lse");
};

// Rows of float32 in pages of a format, in reverse order of pages.
struct Pages {
  Pages(CacheFormat format, const std::vector<float>& rows)
      : count(static_cast<int64_t>(rows.size()) / kWidth),
        num_blocks((count + kBlockSize - 1) / kBlockSize),
        block_table(static_cast<size_t>(num_blocks)),
        pages(format, kWidth, num_blocks, kBlockSize) {
    for (int64_t page = 0; page < num_blocks; ++page) {
      block_table[static_cast<size_t>(page)] = static_cast<int32_t>(num_blocks - 1 - page);
    }
    std::vector<int64_t> slots;
    for (int64_t i = 0; i < count; ++i) {
      slots.push_back(block_table[static_cast<size_t>(i / kBlockSize)] * kBlockSize +
                      i % kBlockSize);
    }
    LatentWriteArgs write;
    write.kv_c = Packed(rows.data(), count, kWidth);
    write.slot_mapping = Packed(static_cast<const int64_t*>(slots.data()), count);
    write.cache = pages.cache;
    REQUIRE(WriteLatentCache(write).ok());
  }
  // The same pages for every sequence.
  IndexView<2> Table(int64_t num_seqs) const {
    IndexView<2> table(Packed(block_table.data(), num_seqs, num_blocks));
    table.stride[0] = 0;
    return table;
  }
  int64_t count, num_blocks;
  Guarded<int32_t> block_table;
  FormatPages pages;
};

// Every kept row is a sequence of its own that ends at the row's position.
struct Layer {
  Layer(const Golden& golden, CacheFormat window_format)
      : window(window_format, golden.kv),
        num_rows(static_cast<int64_t>(golden.rows.size())),
        out(static_cast<size_t>(num_rows * kHeads * kWidth)),
        lse(static_cast<size_t>(num_rows * kHeads)) {
    for (const int32_t position : golden.rows) seq_lens.push_back(position + 1);
    for (int32_t i = 0; i < num_rows; ++i)
      positions.push_back(i);  // cos and sin hold the rows' own
    options.softmax_scale = 0.04419417382415922f;
    args.q = Packed(golden.q.data(), num_rows, kHeads, kWidth);
    args.keys = WindowKeys(window.pages.cache, window.Table(num_rows), Lengths(), kWindow);
    args.attn_sink = Packed(golden.sinks.data(), kHeads);
    args.out = Packed(out.data(), num_rows, kHeads, kWidth);
    args.lse = Packed(lse.data(), num_rows, kHeads);
  }
  IndexView<1> Lengths() const { return Packed(seq_lens.data(), num_rows); }
  void RotateBack(const Golden& golden) {
    args.out_rope.cos = Packed(golden.cos.data(), num_rows, kRope / 2);
    args.out_rope.sin = Packed(golden.sin.data(), num_rows, kRope / 2);
    args.out_rope.inverse = true;
    args.positions = Packed(static_cast<const int32_t*>(positions.data()), num_rows);
  }
  void Run() {
    const MlaShape shape{kHeads, kWidth, 0};
    Sizes sizes;
    REQUIRE(MlaDecodeSizes(shape, options, {num_rows, num_rows, 2 * kTokens, 2}, &sizes).ok());
    std::vector<std::byte> plan_memory(sizes.plan_bytes), workspace(sizes.workspace_bytes);
    const MlaDecodePlan* plan = nullptr;
    REQUIRE(PlanMlaDecode(shape, options, args, 2, {plan_memory.data(), plan_memory.size()}, &plan)
                .ok());
    out.Poison();
    lse.Poison();
    REQUIRE(
        RunMlaDecode(*plan, args, {workspace.data(), workspace.size()}, ThreadExecutor(2)).ok());
  }

  Pages window;
  int64_t num_rows;
  std::vector<int32_t> seq_lens, positions;
  Guarded<float> out, lse;
  MlaDecodeArgs args;
  MlaDecodeOptions options;
};

void RequireNear(const Guarded<float>& values, const std::vector<float>& golden, double bound) {
  REQUIRE(values.size() == golden.size());
  double largest = 0.0, worst = 0.0;
  for (const float g : golden) largest = std::max(largest, std::abs(static_cast<double>(g)));
  for (size_t i = 0; i < golden.size(); ++i) {
    worst =
        std::max(worst, std::abs(static_cast<double>(values[i]) - static_cast<double>(golden[i])));
  }
  INFO("worst " << worst << " of " << largest);
  REQUIRE(worst <= bound * std::max(1.0, largest) + kGoldenError);
}

// float32 caches hold the tensors exactly. Those of V4 round them: 2^-4 of e4m3, spread over many keys.
void CheckLayer(Layer& layer, const Golden& golden, double bound) {
  for (const Target target : RunnableTargets()) {
    INFO("target " << Name(target));
    layer.options.target = target;
    layer.args.out_rope = {};
    layer.Run();
    RequireNear(layer.out, golden.out, bound);
    RequireNear(layer.lse, golden.lse, bound);
    layer.RotateBack(golden);
    layer.Run();
    RequireNear(layer.out, golden.out_unrotated, bound);
  }
}

struct NamedBound {
  CacheFormat format;
  double bound;
};
constexpr NamedBound kCaches[] = {{CacheFormat::kLatentFloat32, 1e-5},
                                  {CacheFormat::kLatentBFloat16, 4e-3},
                                  {CacheFormat::kFp8Ds4, 4.5e-2}};

TEST_CASE("a window layer equals the golden one", "[sliding_window][golden]") {
  const NamedBound cache = GENERATE(from_range(kCaches));
  CAPTURE(NameOf(cache.format));
  const Golden golden("v4_swa");
  Layer layer(golden, cache.format);
  CheckLayer(layer, golden, cache.bound);
}

TEST_CASE("a layer of listed entries equals the golden one", "[sliding_window][golden]") {
  const NamedBound cache = GENERATE(from_range(kCaches));
  CAPTURE(NameOf(cache.format));
  const Golden golden("v4_csa");
  const Npy<int32_t> topk = ReadNpy<int32_t>(golden.folder + "topk.npy");
  Layer layer(golden, cache.format);
  const Pages entries(cache.format, golden.Load("compressed"));
  layer.args.extra_keys =
      ListedEntries(entries.pages.cache, entries.Table(layer.num_rows), layer.Lengths(), 4,
                    Packed(topk.values.data(), topk.shape[0], topk.shape[1]));
  CheckLayer(layer, golden, cache.bound);
}

TEST_CASE("a layer of all entries equals the golden one", "[sliding_window][golden]") {
  const NamedBound cache = GENERATE(from_range(kCaches));
  CAPTURE(NameOf(cache.format));
  const Golden golden("v4_hca");
  Layer layer(golden, cache.format);
  const Pages entries(cache.format, golden.Load("compressed"));
  layer.args.extra_keys =
      CompressedKeys(entries.pages.cache, entries.Table(layer.num_rows), layer.Lengths(), 128);
  CheckLayer(layer, golden, cache.bound);
}

}  // namespace
}  // namespace lathe::test
