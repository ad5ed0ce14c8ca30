// SPDX-License-Identifier: Apache-2.0
// Which columns top-k selects: exactly the best, ties to the lower index, NaN last.
#include <sys/mman.h>
#include <unistd.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "support/targets.h"
#include "support/threads.h"
#include "support/topk_problem.h"

namespace lathe::test {
namespace {

// A row of columns [0, before + n + after) in which only [before, before + n) can be read, to the page: the
// readable columns begin right after an unmapped page, or end right before one, or both.
class PartlyReadable {
 public:
  PartlyReadable(int64_t before, int64_t n, int64_t after, bool at_front) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const auto pages = [page](int64_t floats) {
      return (static_cast<size_t>(floats) * sizeof(float) + page - 1) / page * page;
    };
    bytes_ = pages(before) + pages(n) + pages(after);
    map_ = static_cast<std::byte*>(
        mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (map_ == MAP_FAILED) std::abort();
    std::byte* body = map_ + pages(before);
    if (n > 0 && mprotect(body, pages(n), PROT_READ | PROT_WRITE) != 0) std::abort();
    const size_t used = static_cast<size_t>(n) * sizeof(float);
    readable_ = reinterpret_cast<float*>(at_front ? body : body + pages(n) - used);
    columns_ = readable_ - before;
  }
  PartlyReadable(const PartlyReadable&) = delete;
  PartlyReadable& operator=(const PartlyReadable&) = delete;
  ~PartlyReadable() { munmap(map_, bytes_); }

  const float* columns() const { return columns_; }
  float* readable() { return readable_; }

 private:
  size_t bytes_;
  std::byte* map_;
  float* readable_;
  const float* columns_;
};

std::vector<int64_t> List(const TopkProblem<>& problem, int64_t t = 0) {
  const int64_t width = problem.args.indices.extent[1];
  const int32_t* begin = problem.indices.data() + t * width;
  return std::vector<int64_t>(begin, begin + width);
}

std::vector<int64_t> Iota(int64_t begin, int64_t end) {
  std::vector<int64_t> numbers(static_cast<size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

TEST_CASE("the best are selected for every k and n around k and 2 k", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const int64_t k : {0, 1, 512, 1024, 2048, 2051, 4096}) {
    for (const int64_t n :
         {k - 1, k, k + 1, k + 17, 2 * k - 1, 2 * k, 2 * k + 1, 5 * k + 3, int64_t{40000}}) {
      if (n < 0) continue;
      CAPTURE(Name(target), k, n);
      TopkProblem<> problem(2, n, k);
      problem.options.target = target;
      problem.FillNormal(static_cast<uint64_t>(k + n));
      problem.RunAndRequireReference();
    }
  }
}

TEST_CASE("A12: rows shorter than k", "[topk][A12]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  const std::vector<std::vector<int64_t>> expected = {
      {-1, -1, -1, -1}, {-1, -1, -1, -1}, {0, -1, -1, -1}, {0, 1, -1, -1}};
  for (int64_t end = -1; end <= 2; ++end) {
    CAPTURE(end);
    TopkProblem<> problem(1, std::max<int64_t>(end, 0), 4);
    problem.options.target = target;
    // Two columns, of which only the first `end` are mapped.
    problem.args.logits.extent[1] = problem.args.logits.stride[0] = 2;
    const Guarded<int64_t> ends(std::vector<int64_t>{end});
    problem.args.row_ends = Packed(ends.data(), 1);
    for (float& x : problem.scores) x = 1.0f;
    problem.Run();
    REQUIRE(List(problem) == expected[static_cast<size_t>(end + 1)]);
    REQUIRE(problem.counts[0] == std::max<int64_t>(end, 0));
  }
}

TEST_CASE("A13: scores 2^-20 apart", "[topk][A13]") {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t n = GENERATE(20000, 16384, 262144);
  TopkProblem<> problem(1, n, 2048);
  problem.options.target = target;
  std::vector<float> ascending(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    ascending[static_cast<size_t>(i)] = 1.0f + static_cast<float>(i) * 0x1p-20f;
  }
  std::vector<int64_t> order = Iota(0, n);
  const auto run = [&](size_t threads) {
    for (int64_t i = 0; i < n; ++i) {
      problem.scores[static_cast<size_t>(i)] =
          ascending[static_cast<size_t>(order[static_cast<size_t>(i)])];
    }
    problem.Run(ThreadExecutor(threads));
    problem.RequireReference();
  };
  for (const size_t threads : {1u, 2u, 3u, 7u}) {
    CAPTURE(Name(target), n, threads);
    order = Iota(0, n);
    run(threads);
    REQUIRE(List(problem) == Iota(n - 2048, n));
    std::reverse(order.begin(), order.end());
    run(threads);
    REQUIRE(List(problem) == Iota(0, 2048));
    Random(7).Shuffle(order);
    run(threads);
  }
}

TEST_CASE("A14: NaN are chosen when numbers are used up", "[topk][A14]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  TopkProblem<> problem(1, 5000, 512);
  problem.options.target = target;
  problem.FillNormal(14);
  for (size_t i = 0; i < 5000; i += 3) problem.scores[i] = i % 2 == 0 ? kNan : -kNan;
  problem.RunAndRequireReference();
  for (const int64_t i : List(problem)) REQUIRE(i % 3 != 0);

  for (float& x : problem.scores) x = kNan;
  problem.RunAndRequireReference();
  REQUIRE(List(problem) == Iota(0, 512));

  std::vector<int64_t> infinite;
  for (int64_t i = 250; i < 5000; i += 500) infinite.push_back(i);
  for (const int64_t i : infinite) problem.scores[static_cast<size_t>(i)] = kInf;
  problem.RunAndRequireReference();
  const std::vector<int64_t> list = List(problem);
  REQUIRE(std::includes(list.begin(), list.end(), infinite.begin(), infinite.end()));

  // 300 numbers, some of them -inf, and NaN of every kind for the rest.
  for (size_t i = 0; i < 5000; ++i) {
    const uint32_t bits = (i % 2 == 0 ? 0x7F800000u : 0xFF800000u) + 1 + static_cast<uint32_t>(i);
    std::memcpy(&problem.scores[i], &bits, sizeof(bits));
  }
  for (size_t i = 0; i < 300; ++i) problem.scores[i * 16 + 7] = i % 3 == 0 ? -kInf : -1e30f;
  problem.RunAndRequireReference();
  const std::vector<int64_t> chosen = List(problem);
  for (int64_t i = 0; i < 300; ++i) {
    REQUIRE(std::binary_search(chosen.begin(), chosen.end(), i * 16 + 7));
  }
}

TEST_CASE("equal scores go to the lowest indices", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const float score : {0.0f, 1.0f, -2.5f, kInf, -kInf, kNan, 1e-45f}) {
    for (const int64_t n : {5000, 100000}) {
      for (const size_t threads : {1u, 3u}) {
        CAPTURE(Name(target), score, n, threads);
        TopkProblem<> problem(1, n, 1024);
        problem.options.target = target;
        for (float& x : problem.scores) x = score;
        problem.Run(ThreadExecutor(threads));
        REQUIRE(List(problem) == Iota(0, 1024));
      }
    }
  }
}

TEST_CASE("the least better scores, after more equal ones than there is room for", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const float score : {1.0f, -1.0f, 0.0f, -kInf}) {
    for (const size_t threads : {1u, 2u}) {
      CAPTURE(Name(target), score, threads);
      TopkProblem<> problem(1, 100000, 1024);
      problem.options.target = target;
      for (float& x : problem.scores) x = score;
      for (size_t i = 1000; i > 0; --i) {
        problem.scores[100000 - 37 * i] = std::nextafter(score, kInf);
      }
      problem.RunAndRequireReference(ThreadExecutor(threads));
    }
  }
}

TEST_CASE("both zeros are one score", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  TopkProblem<> problem(1, 10000, 3000);
  problem.options.target = target;
  for (size_t i = 0; i < 10000; ++i) problem.scores[i] = i % 2 == 0 ? -0.0f : 0.0f;
  problem.RunAndRequireReference();
  REQUIRE(List(problem) == Iota(0, 3000));
}

TEST_CASE("few different scores, all special ones among them", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  const float special[] = {kInf,   -kInf,   kNan,   -kNan,  0.0f,    -0.0f,
                           1e-45f, -1e-45f, 1e-40f, 1e-38f, 3.4e38f, -3.4e38f};
  for (const int64_t k : {1, 100, 2048, 2051}) {
    for (const int64_t n : {3000, 4096, 70001}) {
      for (const int64_t kinds : {2, 5, 12}) {
        CAPTURE(Name(target), k, n, kinds);
        TopkProblem<> problem(2, n, k);
        problem.options.target = target;
        Random random(static_cast<uint64_t>(k + n + kinds));
        for (float& x : problem.scores) x = special[random.Below(kinds)];
        problem.RunAndRequireReference();
      }
    }
  }
}

#if defined(__SSE2__)
// Sets denormals-are-zero and flush-to-zero while it lives.
class FlushedDenormals {
 public:
  FlushedDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }
  FlushedDenormals(const FlushedDenormals&) = delete;
  FlushedDenormals& operator=(const FlushedDenormals&) = delete;
  ~FlushedDenormals() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
};

TEST_CASE("subnormal scores are told apart where the caller flushes them", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const int64_t n : {3000, 50000}) {
    CAPTURE(Name(target), n);
    TopkProblem<> problem(1, n, 700);
    problem.options.target = target;
    Random random(static_cast<uint64_t>(n));
    for (float& x : problem.scores) {
      const uint32_t bits = static_cast<uint32_t>(random.Below(1 << 23)) |
                            static_cast<uint32_t>(random.Below(2)) << 31;
      std::memcpy(&x, &bits, sizeof(bits));
    }
    {
      const FlushedDenormals flushed;
      problem.Run();
    }
    problem.RequireReference();
  }
}
#endif

TEST_CASE("orders that are bad for sampling and for running thresholds", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  constexpr int64_t kN = 131072;
  const std::vector<std::function<float(int64_t)>> rows = {
      [](int64_t i) { return static_cast<float>(i); },
      [](int64_t i) { return static_cast<float>(-i); },
      [](int64_t i) { return static_cast<float>(i % 512); },
      [](int64_t i) { return i < kN - 100 ? kNan : 1.0f; },
      [](int64_t i) { return i < kN - 100 ? -kInf : 1.0f; },
      // High where a guess looks (16 of 512 scores, at an offset that varies) and nowhere else, so that
      // more is expected than there is.
      [](int64_t i) {
        const bool is_sampled = i % 512 / 16 == i / 512 * 37 % 32;
        return is_sampled ? 1e9f : static_cast<float>(i);
      }};
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const int64_t k : {1, 2048, 6000}) {
      for (const size_t threads : {1u, 2u, 7u}) {
        CAPTURE(Name(target), row, k, threads);
        TopkProblem<> problem(1, kN, k);
        problem.options.target = target;
        for (int64_t i = 0; i < kN; ++i) problem.scores[static_cast<size_t>(i)] = rows[row](i);
        problem.RunAndRequireReference(ThreadExecutor(threads));
      }
    }
  }
}

TEST_CASE("nothing outside of a row's columns is read", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const int64_t n : {1, 2, 15, 17, 1024, 1031, 2048, 20480, 33333}) {
    for (const bool at_front : {false, true}) {
      for (const size_t threads : {1u, 3u}) {
        CAPTURE(Name(target), n, at_front, threads);
        constexpr int64_t kStart = 77, kAfter = 70000;
        PartlyReadable row(kStart, n, kAfter, at_front);
        Random random(static_cast<uint64_t>(n));
        for (int64_t i = 0; i < n; ++i) row.readable()[i] = random.Normal();
        const Guarded<int32_t> starts(std::vector<int32_t>{kStart});
        const Guarded<int32_t> ends(std::vector<int32_t>{static_cast<int32_t>(kStart + n)});
        TopkProblem<> problem(1, 0, 500);
        problem.options.target = target;
        problem.args.logits = Packed(row.columns(), 1, kStart + n + kAfter);
        problem.args.row_starts = Packed(starts.data(), 1);
        problem.args.row_ends = Packed(ends.data(), 1);
        problem.RunAndRequireReference(ThreadExecutor(threads));
      }
    }
  }
}

TEST_CASE("scores that need no choice are not read", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  TopkProblem<> problem(3, 0, 64);
  problem.options.target = target;
  const PartlyReadable nothing(300000, 0, 0, true);
  problem.args.logits = Packed(nothing.columns(), 3, 64);
  problem.args.values = {};
  problem.Run();
  for (int64_t t = 0; t < 3; ++t) REQUIRE(List(problem, t) == Iota(0, 64));
  problem.options.k = 0;
  problem.args.logits = Packed(nothing.columns(), 3, 100000);
  problem.Run();
  for (int64_t t = 0; t < 3; ++t) REQUIRE(List(problem, t) == std::vector<int64_t>(64, -1));
}

TEST_CASE("the same lists for any number of workers and rows, every time", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  for (const int64_t rows : {1, 2, 5, 9}) {
    for (const int64_t n : {9000, 70000}) {
      CAPTURE(Name(target), rows, n);
      TopkProblem<> problem(rows, n, 1500);
      problem.options.target = target;
      Random random(static_cast<uint64_t>(rows * n));
      // Many ties, so that an order of arrival would show.
      for (float& x : problem.scores) x = std::floor(8 * random.Normal());
      problem.RunAndRequireReference();
      const std::vector<int32_t> expected = problem.indices.Copy();
      for (const size_t threads : {1u, 2u, 3u, 7u, 64u}) {
        for (int repeat = 0; repeat < (threads > 7 ? 2 : 20); ++repeat) {
          CAPTURE(threads, repeat);
          problem.Run(ThreadExecutor(threads));
          REQUIRE(SameBits(problem.indices.Copy(), expected));
        }
      }
    }
  }
}

TEST_CASE("a list does not depend on the rows around it", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  TopkProblem<> batch(6, 70000, 300);
  batch.options.target = target;
  batch.FillNormal(6);
  batch.Run(ThreadExecutor(3));
  for (int64_t t = 0; t < 6; ++t) {
    TopkProblem<> alone(1, 70000, 300);
    alone.options.target = target;
    alone.args.logits.data = batch.scores.data() + t * 70000;
    alone.Run(ThreadExecutor(7));
    REQUIRE(List(alone) == List(batch, t));
  }
}

TEST_CASE("a million columns, more than enough workers", "[topk]") {
  const Target target = LATHE_GENERATE_TARGET();
  CAPTURE(Name(target));
  TopkProblem<> problem(1, 1 << 20, 4096);
  problem.options.target = target;
  problem.FillNormal(20);
  problem.RunAndRequireReference(ThreadExecutor(7));
}

TEST_CASE("long rows among short ones, in parts that workers share", "[topk][long]") {
  const Target target = LATHE_GENERATE_TARGET();
  const int64_t k = GENERATE(1, 700, 30000);
  CAPTURE(Name(target), k);
  TopkProblem<> problem(7, 200000, k);
  problem.options.target = target;
  problem.FillNormal(21);
  const std::vector<int32_t> ends = {200000, 3, 0, 150001, 29999, 30001, 200000};
  problem.args.row_ends = Packed(ends.data(), ends.size());
  for (const size_t threads : {1u, 2u, 5u, 16u}) {
    CAPTURE(threads);
    problem.RunAndRequireReference(ThreadExecutor(threads));
  }
}

}  // namespace
}  // namespace lathe::test
