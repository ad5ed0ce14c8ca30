// SPDX-License-Identifier: Apache-2.0
// The other operations through C: the bits and the refusals of the C++ calls.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

#include "capi/mirror.h"
#include "gather/gather_problem.h"
#include "query_prep/query_problem.h"
#include "support/latent_write.h"
#include "support/merge_problem.h"
#include "support/targets.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

std::vector<std::byte> ArrayMemory(size_t count) {
  return std::vector<std::byte>(lathe_array_workspace_bytes(count));
}
lathe_buffer BufferOf(std::vector<std::byte>& memory) { return {memory.data(), memory.size()}; }

// RMSNorm, rope, rounding: norm and rope of `width` columns, at positions of their own.
TransformCase SomeTransform() {
  return {NormKind::kRms, true, false, 16, false, false, true, false, true};
}

lathe_latent_write_options WriteOptions(Target target) {
  auto options = Sized<lathe_latent_write_options>();
  options.target = static_cast<int32_t>(target);
  return options;
}

TEST_CASE("latent writes through C give the bytes of C++", "[capi]") {
  const Target target = LATHE_GENERATE_TARGET();
  const bool is_transformed = GENERATE(false, true);
  CAPTURE(Name(target), is_transformed);
  WriteCase write_case;
  write_case.c_width = 64;
  write_case.pe_width = 16;
  write_case.slots = {7, -1, 2};
  WriteProblem problem(write_case);
  const TransformTables tables(SomeTransform(), 64);
  const std::vector<int64_t> positions = {3, 99, 10};
  if (is_transformed) {
    problem.args.transform = tables.transform;
    problem.args.positions = Packed(positions.data(), 3);
  }
  problem.options.target = target;
  problem.Run();
  const std::vector<std::byte> expected = problem.cache.Copy();

  const CWrite c(problem.args);
  const auto options = WriteOptions(target);
  problem.Reset();
  RequireOk(
      [&](lathe_message* m) { return lathe_write_latent_cache(&c.args, &options, nullptr, m); });
  REQUIRE(SameBits(problem.cache, expected));

  problem.Reset();
  CWrite forgotten(problem.args);
  forgotten.args.slot_mapping = lathe_tensor{};
  RequireInvalid(
      [&](lathe_message* m) {
        return lathe_write_latent_cache(&forgotten.args, &options, nullptr, m);
      },
      "slot_mapping must be given: there are rows to write, and it says where");
  REQUIRE(problem.IsUntouched());
}

TEST_CASE("latent writes of many layers through C give the bytes of C++", "[capi]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  std::vector<std::unique_ptr<WriteProblem>> problems;
  std::vector<std::unique_ptr<CWrite>> mirrors;
  std::vector<lathe_latent_write_args> layers;
  std::vector<std::vector<std::byte>> expected;
  for (uint32_t i = 0; i < 5; ++i) {
    WriteCase write_case;
    write_case.pe_width = 8 * i;
    write_case.slots = {static_cast<int64_t>(i), 9};
    problems.push_back(std::make_unique<WriteProblem>(write_case, i));
    problems.back()->options.target = target;
    problems.back()->Run();
    expected.push_back(problems.back()->cache.Copy());
    problems.back()->Reset();
    mirrors.push_back(std::make_unique<CWrite>(problems.back()->args));
    layers.push_back(mirrors.back()->args);
  }
  const auto options = WriteOptions(target);
  const lathe_executor threads = Mirror(ThreadExecutor(3));
  std::vector<std::byte> memory = ArrayMemory(layers.size());
  RequireOk([&](lathe_message* m) {
    return lathe_write_latent_caches(layers.data(), layers.size(), &options, BufferOf(memory),
                                     &threads, m);
  });
  for (size_t i = 0; i < layers.size(); ++i) {
    REQUIRE(SameBits(problems[i]->cache, expected[i]));
    problems[i]->Reset();
  }

  SECTION("refusals name the layer") {
    const auto write = [&](lathe_message* m) {
      return lathe_write_latent_caches(layers.data(), layers.size(), nullptr, BufferOf(memory),
                                       nullptr, m);
    };
    problems[3]->slots64[1] = 12;
    std::vector<LatentWriteArgs> args;
    for (const auto& problem : problems) args.push_back(problem->args);
    const Status status = WriteLatentCaches(args.data(), args.size());
    RequireMessage(write, LATHE_STATUS_INDEX_OUT_OF_RANGE, Format(status).c_str());
    layers[2].slot_mapping.dtype = LATHE_DTYPE_FLOAT16;
    RequireInvalid(write, "layers[2].slot_mapping.dtype is 1, must be int32 or int64 here");
    mirrors[1]->cache.format = -1;
    RequireInvalid(write, "layers[1].cache.format is -1, must be one of its enum");
    layers[1].struct_size -= 8;
    RequireInvalid(
        write,
        "layers[1].struct_size is " + std::to_string(sizeof(lathe_latent_write_args) - 8) +
            ", must be that of the first = " + std::to_string(sizeof(lathe_latent_write_args)));
    layers[0].struct_size = 0;
    RequireInvalid(write, "layers[0].struct_size is 0, must be the struct's size");
    for (const auto& problem : problems) REQUIRE(problem->IsUntouched());
  }
  SECTION("the workspace has to suffice") {
    std::vector<std::byte> small(100);
    RequireMessage(
        [&](lathe_message* m) {
          return lathe_write_latent_caches(layers.data(), 5, nullptr, BufferOf(small), nullptr, m);
        },
        LATHE_STATUS_BUFFER_TOO_SMALL,
        "buffer too small: workspace.bytes is 100, must be at least " +
            std::to_string(lathe_array_workspace_bytes(5)));
    RequireInvalid(
        [&](lathe_message* m) {
          return lathe_write_latent_caches(nullptr, 5, nullptr, BufferOf(memory), nullptr, m);
        },
        "layers must be given");
  }
}

TEST_CASE("the scale of a cache through C divides what is written; 0 means 1", "[capi]") {
  const float kv_c[2] = {3.0f, -7.0f};
  const int64_t slot = 0;
  const auto write = [&](float scale) {
    std::vector<std::byte> bytes(2);
    auto cache = Sized<lathe_paged_cache>();
    cache.data = bytes.data();
    cache.format = LATHE_FORMAT_LATENT_FP8_E4M3;
    cache.scale = scale;
    cache.num_blocks = cache.block_size = 1;
    cache.block_stride = cache.row_stride = 2;
    auto c = Sized<lathe_latent_write_args>();
    c.kv_c = lathe_packed2(kv_c, LATHE_DTYPE_FLOAT32, 1, 2);
    c.slot_mapping = lathe_packed1(&slot, LATHE_DTYPE_INT64, 1);
    c.cache = &cache;
    RequireOk([&](lathe_message* m) { return lathe_write_latent_cache(&c, nullptr, nullptr, m); });
    return std::vector<float>{ToFloat(float8_e4m3fn{std::to_integer<uint8_t>(bytes[0])}),
                              ToFloat(float8_e4m3fn{std::to_integer<uint8_t>(bytes[1])})};
  };
  REQUIRE(write(0.0f) == std::vector<float>{3.0f, -7.0f});
  REQUIRE(write(0.5f) == std::vector<float>{6.0f, -14.0f});
}

TEST_CASE("writes of an indexer's keys through C give the bytes of C++", "[capi]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  FormatPages pages(CacheFormat::kIndexerFp8, 128, 2, 4, 0, 1.0f);
  AnyTensor<2> k(DType::kBFloat16, {2, 128});
  Random random(5);
  for (size_t i = 0; i < k.size(); ++i) k.Set(i, random.Normal());
  const TransformTables tables({NormKind::kLayer, true, true, 64, true, true, false, true}, 128);
  const std::vector<int32_t> slots = {5, 0};
  const std::vector<int64_t> positions = {1, 10};
  LatentWriteArgs args;
  args.kv_c = k.in();
  args.slot_mapping = Packed(slots.data(), 2);
  args.cache = pages.cache;
  args.transform = tables.transform;
  args.positions = Packed(positions.data(), 2);
  const auto bytes = [&] {
    return std::vector<std::byte>(args.cache.data, args.cache.data + 2 * args.cache.block_stride);
  };
  const auto before = bytes();
  REQUIRE(WriteLatentCache(args, {target, true}).ok());
  const auto expected = bytes();
  std::copy(before.begin(), before.end(), args.cache.data);

  const CTransform transform(args.transform);
  const lathe_paged_cache cache = Mirror(args.cache);
  auto c = Sized<lathe_latent_write_args>();
  c.kv_c = Mirror(args.kv_c);
  c.slot_mapping = Mirror(args.slot_mapping);
  c.cache = &cache;
  c.transform = &transform.c;
  c.positions = Mirror(args.positions);
  auto options = WriteOptions(target);
  options.power_of_two_scales = 1;
  RequireOk([&](lathe_message* m) { return lathe_write_latent_cache(&c, &options, nullptr, m); });
  REQUIRE(SameBits(bytes(), expected));
}

TEST_CASE("gathers through C give the bytes of C++", "[capi]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  GatherCase gather_case;
  gather_case.last_n = 7;
  GatherProblem<bfloat16, int32_t> problem(gather_case);
  problem.options.target = target;
  problem.Run();  // compares with what is expected
  const auto expected = problem.Expected();
  std::vector<bfloat16> out(expected.size());
  std::memset(static_cast<void*>(out.data()), kPoison, out.size() * sizeof(bfloat16));

  const lathe_paged_cache cache = Mirror(problem.args.cache);
  auto c = Sized<lathe_latent_gather_args>();
  c.cache = &cache;
  c.block_table = Mirror(problem.args.block_table);
  c.gather_lens = Mirror(problem.args.gather_lens);
  c.gather_starts = Mirror(problem.args.gather_starts);
  c.last_n = problem.args.last_n;
  c.out_start_loc = Mirror(problem.args.out_start_loc);
  c.out = lathe_packed2(out.data(), LATHE_DTYPE_BFLOAT16, problem.args.out.extent[0],
                        problem.args.out.extent[1]);
  auto options = Sized<lathe_latent_gather_options>();
  options.target = static_cast<int32_t>(target);
  RequireOk([&](lathe_message* m) { return lathe_gather_latent_cache(&c, &options, nullptr, m); });
  REQUIRE(SameBits(out, expected));
}

TEST_CASE("page copies through C move the bytes of C++", "[capi]") {
  std::vector<std::byte> source(4 * 100), to(4 * 100), other(4 * 100);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7);
  const std::vector<int64_t> pairs = {2, 0, 1, 3};
  PageCopyArgs args;
  args.source = source.data();
  args.num_source_blocks = args.num_destination_blocks = 4;
  args.source_stride = args.destination_stride = 100;
  args.destination = to.data();
  args.page_bytes = 96;
  args.block_pairs = Packed(pairs.data(), 2, 2);
  REQUIRE(CopyCachePages(args).ok());
  const auto expected = to;

  std::fill(to.begin(), to.end(), std::byte{0});
  lathe_page_copy_args c = Mirror(args);
  RequireOk([&](lathe_message* m) { return lathe_copy_cache_pages(&c, nullptr, m); });
  REQUIRE(SameBits(to, expected));

  std::fill(to.begin(), to.end(), std::byte{0});
  lathe_page_copy_args layers[2] = {c, c};
  layers[1].destination = other.data();
  std::vector<std::byte> memory = ArrayMemory(2);
  RequireOk([&](lathe_message* m) {
    return lathe_copy_caches_pages(layers, 2, BufferOf(memory), nullptr, m);
  });
  REQUIRE(SameBits(to, expected));
  REQUIRE(SameBits(other, expected));

  args.page_bytes = c.page_bytes = 101;
  const Status status = CopyCachePages(args);
  RequireMessage([&](lathe_message* m) { return lathe_copy_cache_pages(&c, nullptr, m); },
                 LATHE_STATUS_INVALID_ARGUMENT, Format(status).c_str());
}

TEST_CASE("record copies through C move the bytes of C++", "[capi][CA19]") {
  std::vector<float> pages(4 * 2 * 5);
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<float>(i);
  const std::vector<float> before = pages;
  const std::vector<int64_t> from = {3, 6, 7}, to = {2, 1, 4};
  RecordCopyArgs args;
  args.cache = LatentPages(pages.data(), 4, 2, 5);
  args.width = 5;
  args.src_slots = Packed(from.data(), from.size());
  args.dst_slots = Packed(to.data(), to.size());
  REQUIRE(CopyCacheRecords(args).ok());
  const std::vector<float> expected = pages;

  pages = before;
  std::vector<float> other = before;
  CRecordCopy c(args);
  RequireOk([&](lathe_message* m) { return lathe_copy_cache_records(&c.args, nullptr, m); });
  REQUIRE(SameBits(pages, expected));

  pages = before;
  lathe_paged_cache other_cache = c.cache;
  other_cache.data = other.data();
  lathe_record_copy_args layers[2] = {c.args, c.args};
  layers[1].cache = &other_cache;
  std::vector<std::byte> memory = ArrayMemory(2);
  RequireOk([&](lathe_message* m) {
    return lathe_copy_caches_records(layers, 2, BufferOf(memory), nullptr, m);
  });
  REQUIRE(SameBits(pages, expected));
  REQUIRE(SameBits(other, expected));

  args.width = c.args.width = 6;
  const Status status = CopyCacheRecords(args);
  RequireMessage([&](lathe_message* m) { return lathe_copy_cache_records(&c.args, nullptr, m); },
                 LATHE_STATUS_INVALID_ARGUMENT, Format(status).c_str());
}

TEST_CASE("merges through C give the bits of C++", "[capi]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  MergeProblem<bfloat16, float> problem({3, 5, 64, 4});
  problem.GiveSink();
  problem.parts[1].lse_policy = {true, kInfinity};
  problem.MakeEmpty(1);
  problem.options.lse_policy = {true, -1.0f};
  problem.options.target = target;
  problem.Run();
  const auto out = problem.out.Copy();
  const auto lse = problem.lse.Copy();

  std::vector<lathe_merge_part> parts;
  for (const MergePart& part : problem.parts) {
    parts.push_back(
        {sizeof(lathe_merge_part), Mirror(part.out), Mirror(part.lse), Mirror(part.lse_policy)});
  }
  std::vector<std::byte> memory = ArrayMemory(parts.size());
  auto c = Sized<lathe_merge_states_args>();
  c.parts = parts.data();
  c.num_parts = parts.size();
  c.attn_sink = Mirror(problem.args.attn_sink);
  c.out = Mirror(problem.args.out);
  c.lse = Mirror(problem.args.lse);
  auto options = Sized<lathe_merge_states_options>();
  options.lse_policy = Mirror(problem.options.lse_policy);
  options.target = static_cast<int32_t>(target);
  const auto merge = [&](lathe_message* m) {
    return lathe_merge_states(&c, &options, BufferOf(memory), nullptr, m);
  };
  problem.out.Poison();
  problem.lse.Poison();
  RequireOk(merge);
  REQUIRE(SameBits(problem.out, out));
  REQUIRE(SameBits(problem.lse, lse));

  parts[3].lse.rank = 1;
  RequireInvalid(merge, "parts[3].lse.rank is 1, must be 2");
  c.num_parts = 0;
  const Status none = MergeStates({});
  RequireMessage(merge, LATHE_STATUS_INVALID_ARGUMENT, Format(none).c_str());
}

TEST_CASE("query preparation through C gives the bits of C++", "[capi]") {
  const Target target = LATHE_GENERATE_TARGET();
  const bool asks_for_codes = GENERATE(false, true);
  CAPTURE(Name(target), asks_for_codes);
  QueryCase query_case;
  query_case.transform = SomeTransform();
  QueryProblem problem(query_case);
  problem.args.transform.norm.eps = 0.5f;
  if (asks_for_codes) problem.AskForCodes();
  problem.GiveWeights();
  problem.options.target = target;
  problem.options.power_of_two_scales = true;
  problem.options.softmax_scale = 0.3f;
  problem.options.head_scale = 0.5f;
  const auto outputs = [&] {
    std::vector<std::byte> bytes = problem.out.bytes.Copy();
    const auto append = [&bytes](const auto& array) {
      const auto* first = reinterpret_cast<const std::byte*>(array.data());
      bytes.insert(bytes.end(), first, first + array.size() * sizeof(*array.data()));
    };
    append(problem.codes);
    append(problem.q_scales);
    append(problem.weights_out);
    return bytes;
  };
  problem.Run();
  const auto expected = outputs();
  problem.out.bytes.Poison();
  problem.codes.Poison();
  problem.q_scales.Poison();
  problem.weights_out.Poison();

  const CTransform transform(problem.args.transform);
  auto c = Sized<lathe_query_prep_args>();
  c.q = Mirror(problem.args.q);
  c.transform = &transform.c;
  c.positions = Mirror(problem.args.positions);
  c.out = Mirror(problem.args.out);
  c.codes = Mirror(problem.args.codes);
  c.q_scales = Mirror(problem.args.q_scales);
  c.weights = Mirror(problem.args.weights);
  c.weights_out = Mirror(problem.args.weights_out);
  auto options = Sized<lathe_query_prep_options>();
  options.target = static_cast<int32_t>(target);
  options.power_of_two_scales = 1;
  options.softmax_scale = 0.3f;
  options.head_scale = 0.5f;
  const auto prepare = [&](lathe_message* m) {
    return lathe_prepare_queries(&c, &options, nullptr, m);
  };
  RequireOk(prepare);
  REQUIRE(SameBits(outputs(), expected));

  c.codes = lathe_packed3(problem.codes.data(), LATHE_DTYPE_FLOAT32, 3, 2, 128);
  RequireInvalid(prepare, "codes.dtype is 0, must be uint8 here (codes of float8_e4m3fn)");
}

}  // namespace
}  // namespace lathe::test
