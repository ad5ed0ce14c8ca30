// SPDX-License-Identifier: Apache-2.0
// A row of any floats through every format: the kernels of every target write the same bytes, and read back
// what the scalar codecs say these bytes are.
#include "fuzz_input.h"
#include "lathe/ref/attention_ref.h"

namespace lathe::fuzz {
namespace {

// One row as a record of a page, then decoded by the gather.
struct Page {
  std::vector<std::byte> bytes;
  std::vector<float> row;
};

Page RoundTrip(const std::vector<float>& x, CacheFormat format, float scale, bool power_of_two,
               Target target) {
  const auto width = static_cast<int64_t>(x.size());
  Page page;
  page.bytes.resize(static_cast<size_t>(RecordBytes(format, width) + SideBytes(format)));
  page.row.resize(x.size());
  LatentWriteArgs write;
  write.kv_c = Packed(x.data(), 1, width);
  const int32_t slot = 0;
  write.slot_mapping = Packed(&slot, 1);
  write.cache.data = page.bytes.data();
  write.cache.format = format;
  write.cache.num_blocks = write.cache.block_size = 1;
  write.cache.row_stride = RecordBytes(format, width);
  write.cache.block_stride = static_cast<int64_t>(page.bytes.size());
  write.cache.scale = scale;
  LatentWriteOptions options;
  options.target = target;
  options.power_of_two_scales = power_of_two;
  Status status = WriteLatentCache(write, options);
  LATHE_FUZZ_REQUIRE(status.ok(), "%s", Format(status).c_str());
  LatentGatherArgs gather;
  gather.cache = write.cache;
  const int32_t zero = 0, one = 1;
  gather.block_table = Packed(&zero, 1, 1);
  gather.gather_lens = Packed(&one, 1);
  gather.out_start_loc = Packed(&zero, 1);
  gather.out = Packed(page.row.data(), 1, width);
  status = GatherLatentCache(gather, {target});
  LATHE_FUZZ_REQUIRE(status.ok(), "%s", Format(status).c_str());
  const std::vector<double> expected = ref::DecodeRow(gather.cache, 0, 0, width);
  for (size_t c = 0; c < expected.size(); ++c) {
    const auto wanted = static_cast<float>(expected[c]);
    const bool same = std::isnan(wanted) ? std::isnan(page.row[c]) : page.row[c] == wanted;
    LATHE_FUZZ_REQUIRE(same || std::abs(wanted) < 1.2e-38f, "column %zu: %g, not %g", c,
                       static_cast<double>(page.row[c]), static_cast<double>(wanted));
  }
  return page;
}

// Any bits, or of one size, or with something special among them.
std::vector<float> MakeRow(Input& in, size_t width) {
  test::Random random = in.Numbers();
  const int64_t kind = in.Int(0, 3), exponent = in.Int(-149, 127);
  std::vector<float> row(width);
  for (float& x : row) {
    if (kind == 0) {
      const auto bits = static_cast<uint32_t>(random.Next());
      std::memcpy(&x, &bits, sizeof(x));
    } else {
      x = std::ldexp(random.Normal(), static_cast<int>(exponent));
    }
    if (kind >= 2 && random.Below(50) == 0) {
      const float specials[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-44f, 3.4e38f, 448.0f};
      x = specials[random.Below(kind == 2 ? 8 : 2)];
    }
  }
  return row;
}

}  // namespace
}  // namespace lathe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  fuzz::Input in(data, size);
  const CacheFormat format = in.Pick({
#define LATHE_FORMAT(enumerator, number, type) CacheFormat::enumerator,
#include "lathe/cache/formats.def"
#undef LATHE_FORMAT
  });
  const int64_t fixed = FixedWidth(format);
  const std::vector<float> row =
      fuzz::MakeRow(in, static_cast<size_t>(fixed != 0 ? fixed : in.Int(1, 100)));
  const float scale = std::ldexp(in.Pick({1.0f, 0.7f}), static_cast<int>(in.Int(-100, 100)));
  const bool power_of_two = in.Flip();
  std::vector<std::byte> first;
  for (const TargetInfo& info : Targets()) {
    if (!info.runnable) continue;
    const fuzz::Page page = fuzz::RoundTrip(row, format, scale, power_of_two, info.target);
    if (first.empty()) first = page.bytes;
    LATHE_FUZZ_REQUIRE(first == page.bytes, "%s writes other bytes of format %d", info.name,
                       static_cast<int>(format));
  }
  return 0;
}
