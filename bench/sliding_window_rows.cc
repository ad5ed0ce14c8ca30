// SPDX-License-Identifier: Apache-2.0
// V4Decode/model:flash|pro/layer:window|ratio4|ratio128/context:L/batch:B/format:F/target:T/threads:N[/executor:openmp]
//
// One decode step of DeepSeek-V4's attention over B sequences of L tokens: a ring of pages that holds the last 128
// keys, and beside it nothing, K of the L / 4 compressed entries, picked at random and in ascending order, or all
// L / 128 of them. Flash: 64 heads, K 512; Pro: 128 heads, K 1024. Rows and values are 512 wide; a sink, the
// inverse rope of 64 columns; query and output bfloat16. Every call reads other caches and lists, in all more
// than four last-level caches of each.
//
//   GFLOP/s, tokens/s, of_flop_ceiling, of_read_ceiling, of_limit   as MlaDecode's; all cold
//   GB/s   each record once, lists, query and output, / time
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/decode_step.h"
#include "bench/harness.h"
#include "bench/index_lists.h"
#include "bench/layered_cache.h"
#include "lathe/base/rope.h"
#include "lathe/sliding_window.h"

namespace lathe::bench {
namespace {

constexpr int64_t kWidth = 512;
constexpr int64_t kWindow = 128;
constexpr int64_t kRingKeys = 3 * kBlockSize;  // a window begins anywhere in a page

struct Model {
  const char* name;
  int64_t heads, topk;
};
constexpr Model kModels[] = {{"flash", 64, 512}, {"pro", 128, 1024}};

struct Layer {
  const char* name;
  int64_t ratio;  // 0: there are no entries
  bool has_list;
};
constexpr Layer kLayers[] = {{"window", 0, false}, {"ratio4", 4, true}, {"ratio128", 128, false}};

struct Case {
  Model model;
  Layer layer;
  int64_t context;
  CacheSpec window;
  CacheSpec entries;  // keys: 0 where there are none
  TargetInfo target;
  TeamSpec team;

  int64_t batch() const { return window.batch; }
  int64_t entries_seen() const {
    return layer.has_list ? std::min(model.topk, entries.keys) : entries.keys;
  }
  int64_t keys_seen() const { return kWindow + entries_seen(); }
  DecodeCall call() const {
    DecodeCall call{{model.heads, kWidth, 0},
                    OptionsOf(target.target),
                    batch(),
                    1,
                    window.format.activations,
                    team.threads};
    call.options.softmax_scale = 1.0f / std::sqrt(static_cast<float>(kWidth));
    return call;
  }
  std::string Name() const {
    char name[160];
    std::snprintf(name, sizeof(name),
                  "V4Decode/model:%s/layer:%s/context:%d/batch:%d/format:%s/target:%s/threads:%d",
                  model.name, layer.name, static_cast<int>(context), static_cast<int>(batch()),
                  window.format.name, target.name, static_cast<int>(team.threads));
    return name + team.suffix();
  }
};

// Sinks and angles. One position serves all sequences: a rotation costs the same at any.
class Epilogue {
 public:
  Epilogue(int64_t heads, int64_t batch)
      : sinks_(static_cast<size_t>(heads)), positions_(static_cast<size_t>(batch), 0) {
    Random random(5);
    for (float& sink : sinks_) sink = random.Normal();
    for (int64_t i = 0; i < kRopeDim / 2; ++i) {
      cos_.push_back(std::cos(static_cast<float>(i)));
      sin_.push_back(std::sin(static_cast<float>(i)));
    }
  }

  void AddTo(MlaDecodeArgs* args) const {
    args->attn_sink = Packed(sinks_.data(), sinks_.size());
    args->out_rope.cos = Packed(cos_.data(), 1, kRopeDim / 2);
    args->out_rope.sin = Packed(sin_.data(), 1, kRopeDim / 2);
    args->out_rope.inverse = true;
    args->positions = Packed(positions_.data(), positions_.size());
  }

 private:
  std::vector<float> sinks_, cos_, sin_;
  std::vector<int32_t> positions_;
};

struct Slots {
  CacheSlot window = MakeCacheSlot();
  CacheSlot entries = MakeCacheSlot();
};

void RunRow(benchmark::State& state, const Case& c, Harness& harness, const Slots& slots) {
  const std::vector<int32_t> tokens(static_cast<size_t>(c.batch()),
                                    static_cast<int32_t>(c.context));
  const IndexView<1> seq_lens = Packed(tokens.data(), tokens.size());
  MlaDecodeArgs args;
  const Epilogue epilogue(c.model.heads, c.batch());
  epilogue.AddTo(&args);

  const LayeredCache& window = Provide(slots.window, c.window, harness);
  args.keys = WindowKeys(window.Pages(0), window.block_table(), seq_lens, kWindow, true);
  LayeredCache* entries = nullptr;
  std::unique_ptr<IndexLists> lists;
  if (c.layer.ratio > 0) {
    entries = &Provide(slots.entries, c.entries, harness);
    args.extra_keys =
        CompressedKeys(entries->Pages(0), entries->block_table(), seq_lens, c.layer.ratio);
  }
  if (c.layer.has_list) {
    CacheSpec seen = c.entries;
    seen.keys = c.entries_seen();
    lists = std::make_unique<IndexLists>(ColdLayers(seen.layer_bytes(), harness.machine()),
                                         c.batch(), seen.keys, c.entries.keys);
    args.extra_keys.indices = lists->Turn(0);
  }
  DecodeStep step(c.call(), args, [&](int64_t turn, MlaDecodeArgs* a) {
    a->keys.cache.data = window.Layer(turn);
    if (entries != nullptr) a->extra_keys.cache.data = entries->Layer(turn);
    if (lists != nullptr) a->extra_keys.indices = lists->Turn(turn);
  });
  Team& team = harness.team(c.team);
  step.Run(0, team.executor());
  step.results().Check(CheckedReference(c.call(), args));

  const int64_t pairs = c.batch() * c.keys_seen();
  const int64_t list_bytes =
      c.layer.has_list ? c.batch() * c.entries_seen() * int64_t{sizeof(int32_t)} : 0;
  MeasureDecode(state, team, step,
                {pairs, static_cast<double>(pairs * c.window.token_bytes() + list_bytes)},
                FlopLoopOf(c.target, c.window.format.format, Precision::kAuto), harness.dram());
}

bool IsDefault(const Harness& harness, const Case& c) {
  const bool is_long = c.context == (c.layer.ratio == 0 ? 65536 : 1048576);
  return is_long && c.batch() == 1 && c.window.format.format == CacheFormat::kFp8Ds4 &&
         harness.IsBest(c.target) && harness.IsShown(c.team);
}

void RegisterCase(Harness& harness, const Case& c, const Slots& slots) {
  if (!harness.Wants(IsDefault(harness, c))) return;
  if (c.team.is_openmp && c.batch() > 1) return;
  harness.RegisterLarge(
      c.Name(), c.window.bytes() + c.entries.bytes(),
      [c, &harness, slots](benchmark::State& state) { RunRow(state, c, harness, slots); });
}

}  // namespace

// Rows of the same caches follow each other, so that they are written once.
void RegisterSlidingWindow(Harness& harness) {
  const Slots slots;
  const auto cold = [&harness](const NamedFormat& format, int64_t keys, int64_t batch) {
    CacheSpec spec{format, keys, batch, 0, kWidth, kWidth};
    if (keys > 0) spec.layers = ColdLayers(spec.layer_bytes(), harness.machine());
    return spec;
  };
  for (const NamedFormat& format :
       {NamedFormat{CacheFormat::kFp8Ds4, "fp8_ds4", DType::kBFloat16}, kBFloat16Format}) {
    for (const Layer& layer : kLayers) {
      for (const int64_t context : {4096, 65536, 1048576}) {
        for (const int64_t batch : {1, 8, 64}) {
          const CacheSpec window = cold(format, kRingKeys, batch);
          const CacheSpec entries =
              cold(format, layer.ratio == 0 ? 0 : context / layer.ratio, batch);
          for (const Model& model : kModels) {
            for (const TargetInfo& target : harness.targets()) {
              for (const TeamSpec& team : harness.team_specs()) {
                RegisterCase(harness, {model, layer, context, window, entries, target, team},
                             slots);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace lathe::bench
