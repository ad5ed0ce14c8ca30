// SPDX-License-Identifier: Apache-2.0
// Entries in every cache format: byte for byte what the writer of latent_cache.h makes of the same
// rows.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "compressor/compressor_problem.h"
#include "lathe/latent_cache.h"
#include "support/targets.h"

namespace lathe::test {
namespace {

// The float32 entries of `rows` into pages like those of `problem`.
FormatPages Write(const CompressorProblem& rows, const CompressorProblem& problem) {
  const CompressorCase& c = problem.c;
  FormatPages pages(c.format, c.head_dim, problem.cache.cache.num_blocks, c.cache_block_size, 64,
                    problem.cache.cache.scale);
  std::vector<float> k;
  std::vector<int64_t> slots;
  for (int64_t seq = 0; seq < problem.num_seqs; ++seq) {
    for (int64_t e = 0; e < c.seq_lens[static_cast<size_t>(seq)] / c.ratio; ++e) {
      for (const double x : rows.Entry(seq, e)) k.push_back(static_cast<float>(x));
      slots.push_back(problem.EntrySlot(seq, e));
    }
  }
  LatentWriteArgs args;
  args.kv_c = View<const float, 2>(Packed(k.data(), slots.size(), c.head_dim));
  args.slot_mapping = Packed(slots.data(), slots.size());
  args.cache = pages.cache;
  const Status status =
      WriteLatentCache(args, {problem.options.target, problem.options.power_of_two_scales});
  INFO(Format(status).c_str());
  REQUIRE(status.ok());
  return pages;
}

TEST_CASE("entries are written as the cache writers do it", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  const FormatRow format = GENERATE(from_range(kFormats));
  const bool power_of_two = GENERATE(false, true);
  CAPTURE(Name(target), format.name, power_of_two);
  CompressorCase c;
  c.format = format.format;
  c.head_dim = WidthOf(format.format);
  c.kv_type = c.score_type = DType::kBFloat16;
  CompressorProblem problem(c);
  c.format = CacheFormat::kLatentFloat32;
  CompressorProblem rows(c);
  for (CompressorProblem* p : {&problem, &rows}) {
    p->options.target = target;
    p->options.power_of_two_scales = power_of_two;
    p->cache.cache.scale = 0.25f;
    p->FeedInChunks(3, 12);
  }
  REQUIRE(SameBits(Write(rows, problem).bytes, problem.cache.bytes));
}

TEST_CASE("Hadamard and rounding come between rope and the cache", "[compressor]") {
  const Target target = LATHE_GENERATE_TARGET();
  const CacheFormat format =
      GENERATE(CacheFormat::kLatentFloat32, CacheFormat::kIndexerFp8, CacheFormat::kIndexerMxfp4);
  CAPTURE(Name(target), NameOf(format));
  CompressorCase c;
  c.head_dim = 128;
  CompressorProblem rows(c);
  c.format = format;
  CompressorProblem problem(c);
  for (CompressorProblem* p : {&problem, &rows}) {
    p->options.target = target;
    p->options.power_of_two_scales = true;
    p->transform.hadamard = true;
  }
  rows.FeedRest();
  rows.RequireEntries();  // the reference has the Hadamard matrix, too
  problem.transform.round_to_bfloat16 = true;
  problem.FeedRest();
  // Rounding by hand what was not rounded.
  for (int64_t seq = 0; seq < problem.num_seqs; ++seq) {
    for (int64_t e = 0; e < c.seq_lens[static_cast<size_t>(seq)] / c.ratio; ++e) {
      auto* row = reinterpret_cast<float*>(rows.cache.Record(rows.EntrySlot(seq, e)));
      for (int64_t i = 0; i < c.head_dim; ++i) row[i] = ToFloat(FromFloat<bfloat16>(row[i]));
    }
  }
  REQUIRE(SameBits(Write(rows, problem).bytes, problem.cache.bytes));
}

}  // namespace
}  // namespace lathe::test
