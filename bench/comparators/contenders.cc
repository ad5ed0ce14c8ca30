// SPDX-License-Identifier: Apache-2.0
#include "bench/comparators/comparator.h"
#if LATHE_BENCH_ONEDNN || LATHE_BENCH_OPENBLAS
#include <algorithm>

#include "bench/comparators/composition.h"
#include "bench/layered_cache.h"
#endif

namespace lathe::bench {
namespace {

#if LATHE_BENCH_ONEDNN || LATHE_BENCH_OPENBLAS
// A page, where it lies; what stays in the second-level cache; and longer, better for products.
constexpr int64_t kChunks[] = {kBlockSize, 256, 1024};

Contender ComposedOf(const char* name, MakeGemms make_gemms, bool has_bf16, const DecodeTask& task,
                     Team& team) {
  Contender contender{name, {}};
  const auto add = [&](int64_t chunk, DType type, bool is_on_team) {
    contender.ways.push_back([=, &team] {
      return Composition::Make(task, team, make_gemms, {chunk, type, is_on_team});
    });
  };
  for (const bool is_on_team : {true, false}) {
    if (!is_on_team && team.size() == 1) continue;  // the same
    int64_t last = 0;
    for (const int64_t wanted : kChunks) {
      const int64_t chunk = std::min(wanted, task.keys);
      if (chunk == last || task.keys % chunk != 0) continue;
      last = chunk;
      const DType type =
          task.type == DType::kBFloat16 && has_bf16 ? DType::kBFloat16 : DType::kFloat32;
      add(chunk, type, is_on_team);
      // Widened, for machines where bfloat16 is slow.
      if (wanted == 256 && type == DType::kBFloat16) add(chunk, DType::kFloat32, is_on_team);
    }
  }
  return contender;
}
#endif

}  // namespace

std::vector<Contender> Contenders(const DecodeTask& task, Team& team) {
  std::vector<Contender> contenders;
#if LATHE_BENCH_ONEDNN
  contenders.push_back(ComposedOf("onednn", MakeOneDnnGemms, true, task, team));
#endif
#if LATHE_BENCH_OPENBLAS
  contenders.push_back(ComposedOf("openblas", MakeOpenBlasGemms, false, task, team));
#endif
  contenders.push_back({"scalar", {[task, &team] { return MakeScalarDecode(task, team); }}});
  return contenders;
}

std::vector<std::pair<std::string, std::string>> DescribeContenders() {
  std::string onednn = "not found when this was configured", openblas = onednn;
#if LATHE_BENCH_ONEDNN
  onednn = DescribeOneDnn();
#endif
#if LATHE_BENCH_OPENBLAS
  openblas = DescribeOpenBlas();
#endif
  return {{"onednn", onednn}, {"openblas", openblas}};
}

}  // namespace lathe::bench
