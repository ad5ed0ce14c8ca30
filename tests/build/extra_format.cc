// SPDX-License-Identifier: Apache-2.0
// Writes and attends over formats of the program's own, on every target, against the reference.
#include <cmath>
#include <cstdio>
#include <type_traits>
#include <vector>

#include "lathe/impl.h"
#include "lathe/ref/attention_ref.h"

namespace {

constexpr int64_t kHeads = 11, kWidth = 80, kKeys = 40, kBlockSize = 8;

bool Ok(const lathe::Status& status) {
  if (!status.ok()) std::printf("%s\n", lathe::Format(status).c_str());
  return status.ok();
}

// T: of the query; with bfloat16 and codes that are exact in it, products are bfloat16 where the target has them.
template <class T>
bool IsRight(const lathe::TargetInfo& info, lathe::CacheFormat format) {
  std::vector<float> rows(kKeys * kWidth), out(kHeads * 64);
  std::vector<T> q(kHeads * kWidth);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(static_cast<float>(i * 7 + 1));
  for (size_t i = 0; i < q.size(); ++i) {
    q[i] = lathe::FromFloat<T>(std::cos(static_cast<float>(i * 5)));
  }
  const int64_t record = lathe::RecordBytes(format, kWidth);
  std::vector<std::byte> bytes(static_cast<size_t>(kKeys * record));
  std::vector<int32_t> slots(kKeys), block_table(kKeys / kBlockSize);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < block_table.size(); ++i) block_table[i] = static_cast<int32_t>(i);
  const int32_t seq_len = kKeys;

  lathe::LatentWriteArgs write;
  write.kv_c = lathe::Packed(static_cast<const float*>(rows.data()), kKeys, kWidth);
  write.slot_mapping = lathe::Packed(static_cast<const int32_t*>(slots.data()), kKeys);
  write.cache = {bytes.data(),        format, kKeys / kBlockSize, kBlockSize,
                 kBlockSize * record, record, 1.0f / 127};
  lathe::LatentWriteOptions write_options;
  write_options.target = info.target;
  if (!Ok(lathe::WriteLatentCache(write, write_options))) return false;
  for (int64_t key = 0; key < kKeys; ++key) {
    const std::vector<double> row =
        lathe::ref::DecodeRow(write.cache, key / kBlockSize, key % kBlockSize, kWidth);
    for (int64_t c = 0; c < kWidth; ++c) {
      const double x = double{rows[static_cast<size_t>(key * kWidth + c)]};
      if (!(std::fabs(row[static_cast<size_t>(c)] - x) <= 0.51 / 127)) return false;
    }
  }

  lathe::MlaShape shape{kHeads, 64, 16};
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 0.5f;
  options.target = info.target;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(static_cast<const T*>(q.data()), 1, kHeads, kWidth);
  args.keys.cache = write.cache;
  args.keys.block_table =
      lathe::Packed(static_cast<const int32_t*>(block_table.data()), 1, kKeys / kBlockSize);
  args.keys.seq_lens = lathe::Packed(&seq_len, 1);
  args.out = lathe::Packed(out.data(), 1, kHeads, 64);
  const auto run = [&](lathe::Precision precision) {
    options.precision = precision;
    lathe::Sizes sizes;
    if (!Ok(lathe::MlaDecodeSizes(shape, options, {1, 1, kKeys, 1}, &sizes))) return false;
    std::vector<std::byte> plan_memory(sizes.plan_bytes), workspace(sizes.workspace_bytes);
    const lathe::MlaDecodePlan* plan = nullptr;
    return Ok(lathe::PlanMlaDecode(shape, options, args, 1,
                                   {plan_memory.data(), plan_memory.size()}, &plan)) &&
           Ok(lathe::RunMlaDecode(*plan, args, {workspace.data(), workspace.size()}));
  };
  if (!run(lathe::Precision::kFloat32)) return false;
  const std::vector<float> in_float32 = out;
  if (!run(lathe::Precision::kAuto)) return false;
  const bool is_bf16 = std::is_same_v<T, lathe::bfloat16> && info.native_bf16;
  if ((out != in_float32) != is_bf16) return false;
  const std::vector<double> expected = lathe::ref::MlaDecode(shape, options, args).out;
  for (size_t i = 0; i < out.size(); ++i) {
    if (!(std::fabs(double{out[i]} - expected[i]) <= 1e-5)) return false;
  }
  return true;
}

}  // namespace

int main() {
  static_assert(static_cast<int>(lathe::CacheFormat::kInt8Latent) == 128);
  int passed = 0, failed = 0;
  for (const lathe::TargetInfo& info : lathe::Targets()) {
    if (!info.runnable) continue;
    bool ok = true;
    for (const auto format : {lathe::CacheFormat::kInt8Latent, lathe::CacheFormat::kInt8Rows}) {
      ok = IsRight<float>(info, format) && IsRight<lathe::bfloat16>(info, format) && ok;
    }
    std::printf("%-10s %s\n", info.name, ok ? "ok" : "FAILED");
    (ok ? passed : failed) += 1;
  }
  return passed > 0 && failed == 0 ? 0 : 1;
}
