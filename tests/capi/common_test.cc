// SPDX-License-Identifier: Apache-2.0
// What every C function has in common: versions of structs, what views refuse, where a message points.
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "capi/mirror.h"
#include "lathe/cache/formats.h"
#include "lathe/version.h"
#include "support/decode_call.h"

namespace lathe::test {
namespace {

TEST_CASE("the version and the targets of C are those of C++", "[capi]") {
  int32_t major = -1, minor = -1, patch = -1;
  lathe_version(&major, &minor, &patch);
  REQUIRE(major == LATHE_VERSION_MAJOR);
  REQUIRE(minor == LATHE_VERSION_MINOR);
  REQUIRE(patch == LATHE_VERSION_PATCH);
  lathe_version(nullptr, nullptr, nullptr);

  const TargetList targets = Targets();
  REQUIRE(lathe_num_targets() == targets.size);
  REQUIRE(lathe_best_target() == static_cast<int32_t>(BestTarget()));
  REQUIRE(lathe_decline_amx() == (DeclineAmx() ? 1 : 0));
  for (size_t i = 0; i < targets.size; ++i) {
    auto info = Sized<lathe_target_info>();
    RequireOk([&](lathe_message* m) { return lathe_get_target(i, &info, m); });
    REQUIRE(info.struct_size == sizeof(info));
    REQUIRE(info.target == static_cast<int32_t>(targets.data[i].target));
    REQUIRE(info.compiled == targets.data[i].compiled);
    REQUIRE(info.runnable == targets.data[i].runnable);
    REQUIRE(info.native_bf16 == targets.data[i].native_bf16);
    REQUIRE(std::string(info.name) == targets.data[i].name);
    REQUIRE(std::string(info.reason) == targets.data[i].reason);
  }
  auto info = Sized<lathe_target_info>();
  RequireMessage([&](lathe_message* m) { return lathe_get_target(targets.size, &info, m); },
                 LATHE_STATUS_INDEX_OUT_OF_RANGE,
                 "index out of range: index is " + std::to_string(targets.size) +
                     ", must be below " + std::to_string(targets.size));
  RequireInvalid([&](lathe_message* m) { return lathe_get_target(0, nullptr, m); },
                 "info must be given");
}

TEST_CASE("a packed tensor of C is dense and row-major, whatever its rank", "[capi]") {
  float data[1] = {};
  const int64_t extent[4] = {2, 3, 4, 5};
  const lathe_tensor whole = lathe_packed(data, LATHE_DTYPE_FLOAT32, 4, extent);
  REQUIRE((whole.data == data && whole.dtype == LATHE_DTYPE_FLOAT32 && whole.rank == 4));
  const int64_t strides[4] = {60, 20, 5, 1};
  for (size_t i = 0; i < 4; ++i) {
    REQUIRE(whole.extent[i] == extent[i]);
    REQUIRE(whole.stride[i] == strides[i]);
  }
  const lathe_tensor plane = lathe_packed2(data, LATHE_DTYPE_FLOAT32, 7, 9);
  REQUIRE((plane.rank == 2 && plane.extent[0] == 7 && plane.extent[1] == 9));
  REQUIRE((plane.stride[0] == 9 && plane.stride[1] == 1 && plane.extent[2] == 0));
  const lathe_tensor row = lathe_packed1(data, LATHE_DTYPE_FLOAT32, 11);
  REQUIRE((row.rank == 1 && row.extent[0] == 11 && row.stride[0] == 1 && row.stride[1] == 0));
  const lathe_tensor cube = lathe_packed3(data, LATHE_DTYPE_FLOAT32, 2, 3, 4);
  REQUIRE((cube.rank == 3 && cube.extent[2] == 4 && cube.stride[0] == 12 && cube.stride[1] == 4));
}

TEST_CASE("what a format's records take is said as in C++", "[capi]") {
  for (int32_t format = LATHE_FORMAT_LATENT_FLOAT32; format <= LATHE_FORMAT_INDEXER_MXFP4;
       ++format) {
    CAPTURE(format);
    const auto cpp = static_cast<CacheFormat>(format);
    const int64_t width = FixedWidth(cpp) == 0 ? 77 : FixedWidth(cpp);
    auto info = Sized<lathe_format_info>();
    RequireOk([&](lathe_message* m) { return lathe_get_format(format, width, &info, m); });
    REQUIRE(info.record_bytes == RecordBytes(cpp, width));
    REQUIRE(info.side_bytes == SideBytes(cpp));
    REQUIRE(info.fixed_width == FixedWidth(cpp));
    REQUIRE(info.alignment == static_cast<int64_t>(RecordAlignment(cpp)));
    REQUIRE(info.has_tensor_scale == HasTensorScale(cpp));
  }
  auto info = Sized<lathe_format_info>();
  info.alignment = -7;
  info.struct_size = offsetof(lathe_format_info, alignment);
  RequireOk([&](lathe_message* m) {
    return lathe_get_format(LATHE_FORMAT_LATENT_FLOAT16, 576, &info, m);
  });
  REQUIRE(info.record_bytes == 1152);
  REQUIRE(info.alignment == -7);

  const auto refused = [&](int32_t format, int64_t width, const std::string& text) {
    info.record_bytes = -7;
    RequireInvalid([&](lathe_message* m) { return lathe_get_format(format, width, &info, m); },
                   text);
    REQUIRE(info.record_bytes == -7);
  };
  refused(-1, 576, "format is -1, must be one of its enum");
  int32_t unknown = 0;
  while (RecordAlignment(static_cast<CacheFormat>(unknown)) != 0) ++unknown;
  refused(unknown, 576, "format is " + std::to_string(unknown) + ", must be a known CacheFormat");
  refused(LATHE_FORMAT_FP8_DS_MLA, 512, "width is 512, must be that of the format, 576");
  refused(LATHE_FORMAT_LATENT_FLOAT32, 0, "width is 0, must be at least 1");
  refused(LATHE_FORMAT_LATENT_FLOAT32, int64_t{1} << 62,
          "width is 4611686018427387904, must be at most 2147483647");
  RequireInvalid([](lathe_message* m) { return lathe_get_format(0, 1, nullptr, m); },
                 "info must be given");
}

TEST_CASE("an older, shorter struct receives no more than it has", "[capi]") {
  auto info = Sized<lathe_target_info>();
  info.struct_size = offsetof(lathe_target_info, name);
  const char* const kept = "kept";
  info.name = info.reason = kept;
  RequireOk([&](lathe_message* m) { return lathe_get_target(0, &info, m); });
  REQUIRE(info.struct_size == offsetof(lathe_target_info, name));
  REQUIRE(info.target == static_cast<int32_t>(Targets().data[0].target));
  REQUIRE(info.name == kept);
  REQUIRE(info.reason == kept);
}

// A decode call of C that is valid, to be broken.
struct Call {
  Call() : c(call.shape, call.options, call.args) {}
  int32_t Plan(lathe_message* message) {
    return lathe_plan_mla_decode(&c.shape, &c.options, &c.args, call.num_workers,
                                 {call.plan_buffer.data, call.plan_buffer.bytes}, &plan, message);
  }
  void RequireRefused(const std::string& text) {
    RequireInvalid([this](lathe_message* m) { return Plan(m); }, text);
    REQUIRE(plan == nullptr);
  }
  DecodeCall call;
  CDecode c;
  const lathe_mla_decode_plan* plan = nullptr;
};

TEST_CASE("fields past an older struct's size are not given", "[capi]") {
  Call call;
  call.c.options.struct_size = offsetof(lathe_mla_decode_options, no_causal);
  call.c.options.no_causal = 1;  // each of these would be refused or change the plan
  call.c.options.precision = 77;
  call.c.options.target = 200;
  call.c.args.struct_size = offsetof(lathe_mla_decode_args, lse);
  call.c.args.lse.rank = 3;
  call.c.args.tree_mask.rank = 3;
  call.c.keys.c.struct_size = offsetof(lathe_key_set, compress_ratio);
  call.c.keys.c.compress_ratio = -5;
  call.c.keys.c.window = -5;
  call.c.keys.c.index_space = 9;
  RequireOk([&](lathe_message* m) { return call.Plan(m); });
  call.c.options.struct_size = offsetof(lathe_mla_decode_options, target);
  call.plan = nullptr;
  call.RequireRefused("options.precision is 77, must be a known Precision");
}

TEST_CASE("decode arguments of before tree masks still work", "[capi]") {
  Call call;
  call.call.GiveTree();
  call.c.args.tree_mask = Mirror(call.call.args.tree_mask);
  call.c.options.no_causal = 1;  // which a mask would be refused beside
  call.RequireRefused("tree_mask must not be given where options.causal is false");
  call.c.args.struct_size = offsetof(lathe_mla_decode_args, tree_mask);
  RequireOk([&](lathe_message* m) { return call.Plan(m); });
}

TEST_CASE("a newer, longer struct is taken as long as its new fields are zero", "[capi]") {
  struct Newer {
    lathe_mla_decode_options known;
    int64_t unknown;
  } newer{};
  Call call;
  newer.known = call.c.options;
  newer.known.struct_size = sizeof(newer);
  const auto plan = [&](lathe_message* m) {
    return lathe_plan_mla_decode(&call.c.shape, &newer.known, &call.c.args, 1,
                                 {call.call.plan_buffer.data, call.call.plan_buffer.bytes},
                                 &call.plan, m);
  };
  RequireOk(plan);
  newer.unknown = 1;
  RequireInvalid(plan,
                 "options.struct_size is " + std::to_string(sizeof(newer)) + ", must be at most " +
                     std::to_string(sizeof(newer.known)) +
                     ": the fields past it are not zero, and this library does not know them");
}

TEST_CASE("C refuses what C++ cannot be told", "[capi]") {
  const auto refused = [](const std::string& text, void (*break_it)(Call&)) {
    INFO("expected: " << text);
    Call call;
    break_it(call);
    call.RequireRefused(text);
  };
  refused("options.struct_size is 0, must be the struct's size",
          [](Call& call) { call.c.options.struct_size = 0; });
  refused("args.struct_size is 7, must be the struct's size",
          [](Call& call) { call.c.args.struct_size = 7; });
  refused("keys.struct_size is 0, must be the struct's size",
          [](Call& call) { call.c.keys.c.struct_size = 0; });
  refused("keys.cache.struct_size is 0, must be the struct's size",
          [](Call& call) { call.c.keys.cache.struct_size = 0; });
  refused("keys must be given", [](Call& call) { call.c.args.keys = nullptr; });
  refused("q.rank is 2, must be 3", [](Call& call) { call.c.args.q.rank = 2; });
  refused("q.rank is -1, must be 3", [](Call& call) { call.c.args.q.rank = -1; });
  refused("q.dtype is 16, must be float32, float16 or bfloat16 here",
          [](Call& call) { call.c.args.q.dtype = LATHE_DTYPE_INT32; });
  refused("q.dtype is 256, must be float32, float16 or bfloat16 here",
          [](Call& call) { call.c.args.q.dtype = 256; });
  refused("q.dtype is -256, must be float32, float16 or bfloat16 here",
          [](Call& call) { call.c.args.q.dtype = -256; });
  refused("keys.seq_lens.dtype is 0, must be int32 or int64 here",
          [](Call& call) { call.c.keys.c.seq_lens.dtype = LATHE_DTYPE_FLOAT32; });
  refused("keys.block_table.rank is 1, must be 2",
          [](Call& call) { call.c.keys.c.block_table.rank = 1; });
  refused("tree_mask.dtype is 17, must be uint64 here", [](Call& call) {
    call.call.GiveTree();
    call.c.args.tree_mask = Mirror(call.call.args.tree_mask);
    call.c.args.tree_mask.dtype = LATHE_DTYPE_INT64;
  });
  refused("tree_mask.rank is 1, must be 2", [](Call& call) { call.c.args.tree_mask.rank = 1; });
  refused("lse.dtype is 2, must be float32 here",
          [](Call& call) { call.c.args.lse.dtype = LATHE_DTYPE_BFLOAT16; });
  refused("options.precision is 300, must be one of its enum",
          [](Call& call) { call.c.options.precision = 300; });
  refused("options.target is -1, must be one of its enum",
          [](Call& call) { call.c.options.target = -1; });
  refused("keys.cache.format is 256, must be one of its enum",
          [](Call& call) { call.c.keys.cache.format = 256; });
}

// call(args, options, message) with no argument given and a target that is none.
template <class Args, class Options, class CCall>
void RequireTargetRefused(const CCall& call) {
  const auto args = Sized<Args>();
  auto options = Sized<Options>();
  options.target = -1;
  RequireInvalid([&](lathe_message* m) { return call(&args, &options, m); },
                 "options.target is -1, must be one of its enum");
}

TEST_CASE("every operation takes a target", "[capi]") {
  RequireTargetRefused<lathe_latent_write_args, lathe_latent_write_options>(
      [](auto args, auto options, lathe_message* m) {
        return lathe_write_latent_cache(args, options, nullptr, m);
      });
  RequireTargetRefused<lathe_latent_write_args, lathe_latent_write_options>(
      [](auto args, auto options, lathe_message* m) {
        return lathe_write_latent_caches(args, 1, options, {}, nullptr, m);
      });
  RequireTargetRefused<lathe_latent_gather_args, lathe_latent_gather_options>(
      [](auto args, auto options, lathe_message* m) {
        return lathe_gather_latent_cache(args, options, nullptr, m);
      });
  RequireTargetRefused<lathe_merge_states_args, lathe_merge_states_options>(
      [](auto args, auto options, lathe_message* m) {
        return lathe_merge_states(args, options, {}, nullptr, m);
      });
  RequireTargetRefused<lathe_query_prep_args, lathe_query_prep_options>(
      [](auto args, auto options, lathe_message* m) {
        return lathe_prepare_queries(args, options, nullptr, m);
      });
  RequireTargetRefused<lathe_topk_args, lathe_topk_options>(
      [](auto args, auto options, lathe_message* m) {
        return lathe_select_topk(args, options, {}, nullptr, m);
      });
  RequireTargetRefused<lathe_indexer_logits_args, lathe_indexer_logits_options>(
      [](auto args, auto options, lathe_message* m) {
        return lathe_compute_indexer_logits(args, options, {}, nullptr, m);
      });
  RequireTargetRefused<lathe_indexer_topk_args, lathe_indexer_topk_options>(
      [](auto args, auto options, lathe_message* m) {
        return lathe_select_indexer_topk(args, options, {}, nullptr, m);
      });
  RequireTargetRefused<lathe_compressor_args, lathe_compressor_options>(
      [](auto args, auto options, lathe_message* m) {
        return lathe_compress_tokens(args, options, {}, nullptr, m);
      });
  RequireTargetRefused<lathe_compressed_merge_args, lathe_compressed_merge_options>(
      [](auto args, auto options, lathe_message* m) {
        return lathe_merge_compressed(args, options, {}, nullptr, m);
      });
}

TEST_CASE("pointers that are null are named", "[capi]") {
  Call call;
  const lathe_buffer memory{call.call.plan_buffer.data, call.call.plan_buffer.bytes};
  const auto plan = [&](const lathe_mla_shape* shape, const lathe_mla_decode_options* options,
                        const lathe_mla_decode_args* args, const lathe_mla_decode_plan** to) {
    return [=](lathe_message* m) {
      return lathe_plan_mla_decode(shape, options, args, 1, memory, to, m);
    };
  };
  const CDecode& c = call.c;
  RequireInvalid(plan(nullptr, &c.options, &c.args, &call.plan), "shape must be given");
  RequireInvalid(plan(&c.shape, nullptr, &c.args, &call.plan),
                 "options.softmax_scale is 0, must be finite and above 0 (it has no default)");
  RequireInvalid(plan(&c.shape, &c.options, nullptr, &call.plan), "args must be given");
  RequireInvalid(plan(&c.shape, &c.options, &c.args, nullptr), "plan must be given");
  RequireInvalid(
      [&](lathe_message* m) { return lathe_run_mla_decode(nullptr, &c.args, {}, nullptr, m); },
      "plan must be given");
  RequireInvalid(
      [](lathe_message* m) { return lathe_merge_states(nullptr, nullptr, {}, nullptr, m); },
      "args must be given");
}

}  // namespace
}  // namespace lathe::test
