// SPDX-License-Identifier: Apache-2.0
// The compressors of DeepSeek-V4 layers as an implementation that shares nothing with lathe computed them
// (golden/README.md): from their inputs to their entries, and to the indexer's keys.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "compressor/compressor_problem.h"
#include "support/npy.h"
#include "support/sizes.h"
#include "support/targets.h"

namespace lathe::test {
namespace {

constexpr int64_t kTokens = 421;

// The float32 of the golden tensors themselves is some 2e-6 off; entries are of size 1.
constexpr double kBound = 1e-5;

struct Golden {
  const char* layer;
  const char* prefix;   // of its inputs' names
  const char* entries;  // name of what it makes
  int64_t ratio;
  bool overlap;
};
constexpr Golden kGoldens[] = {{"v4_csa", "compressor_", "compressed", 4, true},
                               {"v4_csa", "index_compressor_", "index_k", 4, true},
                               {"v4_hca", "compressor_", "compressed", 128, false}};

Npy<float> Load(const Golden& golden, const std::string& name) {
  return ReadNpy<float>(std::string(LATHE_GOLDEN_DIR "/") + golden.layer + "/" + name + ".npy");
}
View<const float, 2> Matrix(const Npy<float>& npy) {
  return Packed(npy.values.data(), npy.shape[0], npy.shape[1]);
}

TEST_CASE("the compressor gives the golden entries", "[compressor][golden]") {
  const Target target = LATHE_GENERATE_TARGET();
  const Golden golden = GENERATE(from_range(kGoldens));
  CAPTURE(Name(target), golden.layer, golden.entries);
  const std::string prefix = golden.prefix;
  const Npy<float> kv = Load(golden, prefix + "kv"), score = Load(golden, prefix + "gate");
  const Npy<float> ape = Load(golden, prefix + "position_bias");
  const Npy<float> weight = Load(golden, prefix + "norm_weight");
  const Npy<float> cos = Load(golden, "compress_cos"), sin = Load(golden, "compress_sin");
  const Npy<float> entries = Load(golden, golden.entries);
  const int64_t head_dim = entries.shape[1];
  REQUIRE(kv.shape == std::vector<int64_t>{kTokens, golden.overlap ? 2 * head_dim : head_dim});
  REQUIRE(entries.shape[0] == kTokens / golden.ratio);

  const auto chunk = GENERATE(as<int64_t>(), kTokens, 150, 1);
  CAPTURE(chunk);
  const int64_t window = golden.overlap ? 2 * golden.ratio : golden.ratio;
  const int64_t width = kv.shape[1], num_entries = entries.shape[0];
  std::vector<float> state(static_cast<size_t>(window * 2 * width), -1.0f);
  std::vector<float> cache(entries.values.size());
  const int32_t table = 0;
  CompressorOptions options;
  options.target = target;
  options.ratio = golden.ratio;
  options.overlap = golden.overlap;
  for (int64_t begin = 0; begin < kTokens; begin += chunk) {
    const int64_t count = std::min(chunk, kTokens - begin);
    std::vector<int64_t> positions(static_cast<size_t>(count));
    std::iota(positions.begin(), positions.end(), begin);
    const int64_t starts[] = {0, count};
    CompressorArgs args;
    args.kv = Packed(kv.values.data() + begin * width, count, width);
    args.score = Packed(score.values.data() + begin * width, count, width);
    args.ape = Matrix(ape);
    args.positions = Packed(positions.data(), count);
    args.query_start_loc = Packed(starts, 2);
    args.state = LatentPages(state.data(), 1, window, 2 * width);
    args.state_block_table = Packed(&table, 1, 1);
    args.transform.norm.kind = NormKind::kRms;
    args.transform.norm.eps = 1e-6f;
    args.transform.norm.weight = Packed(weight.values.data(), head_dim);
    args.transform.rope.cos = Matrix(cos);
    args.transform.rope.sin = Matrix(sin);
    args.cache = LatentPages(cache.data(), 1, num_entries, head_dim);
    args.block_table = Packed(&table, 1, 1);
    std::vector<std::byte> workspace(CompressorWorkspaceFor(options, count, 1, head_dim));
    const Status status = CompressTokens(args, options, {workspace.data(), workspace.size()});
    INFO(Format(status).c_str());
    REQUIRE(status.ok());
  }
  for (int64_t e = 0; e < num_entries; ++e) {
    CAPTURE(e);
    const auto row = [&](const std::vector<float>& rows) {
      return std::vector<double>(rows.begin() + e * head_dim, rows.begin() + (e + 1) * head_dim);
    };
    const std::vector<double> have = row(cache), want = row(entries.values);
    double largest = 0.0;
    for (const double x : want) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < want.size(); ++i) {
      CAPTURE(i);
      REQUIRE(std::abs(have[i] - want[i]) <= kBound * largest);
    }
  }
}

}  // namespace
}  // namespace lathe::test
