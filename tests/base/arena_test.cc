// SPDX-License-Identifier: Apache-2.0
// Arena: what it counts over no buffer is what it uses of a buffer, wherever that starts.
#include "lathe/base/arena.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace lathe::test {
namespace {

struct alignas(32) Wide {
  char bytes[96];
};

struct Piece {
  std::byte* data;
  size_t bytes;
};

template <class T>
Piece TakeAs(Arena& arena, size_t count) {
  return {reinterpret_cast<std::byte*>(arena.Take<T>(count)), count * sizeof(T)};
}

// The same carving for every arena, out of types of several sizes.
std::vector<Piece> Carve(Arena& arena, const std::vector<std::pair<int, size_t>>& requests) {
  std::vector<Piece> pieces;
  for (const auto& [type, count] : requests) {
    if (type == 0) pieces.push_back(TakeAs<char>(arena, count));
    if (type == 1) pieces.push_back(TakeAs<uint16_t>(arena, count));
    if (type == 2) pieces.push_back(TakeAs<double>(arena, count));
    if (type == 3) pieces.push_back(TakeAs<Wide>(arena, count));
  }
  return pieces;
}

TEST_CASE("nothing taken needs nothing", "[arena]") {
  Arena counting;
  REQUIRE(counting.bytes() == 0);
  REQUIRE(counting.Take<float>(0) == nullptr);
  REQUIRE(counting.bytes() == 0);
}

TEST_CASE("counting hands out no memory", "[arena]") {
  Arena counting;
  REQUIRE(counting.Take<float>(100) == nullptr);
  REQUIRE(counting.Take<double>(1) == nullptr);
  REQUIRE(counting.bytes() >= 100 * sizeof(float) + sizeof(double));
}

TEST_CASE("a count past 2^32 bytes is not cut off", "[arena]") {
  Arena counting;
  counting.Take<double>(size_t{1} << 32);
  REQUIRE(counting.bytes() >= size_t{1} << 35);
}

TEST_CASE("counted bytes hold the carving for any start", "[arena]") {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::pair<int, size_t>> requests(random() % 8 + 1);
    for (auto& [type, count] : requests) {
      type = static_cast<int>(random() % 4);
      count = random() % 50;
    }
    Arena counting;
    Carve(counting, requests);
    const size_t needed = counting.bytes();
    std::vector<std::byte> memory(needed + 2 * Arena::kAlign);
    for (size_t shift = 0; shift < Arena::kAlign; shift += shift < 4 ? 1 : 13) {
      std::byte* const start = memory.data() + shift;
      Arena arena(start);
      const std::vector<Piece> pieces = Carve(arena, requests);
      REQUIRE(arena.bytes() == needed);
      const std::byte* end_of_last = start;
      for (const Piece& piece : pieces) {
        REQUIRE(reinterpret_cast<uintptr_t>(piece.data) % Arena::kAlign == 0);
        REQUIRE(piece.data >= end_of_last);  // pieces follow one another and do not overlap
        end_of_last = piece.data + piece.bytes;
        REQUIRE(end_of_last <= start + needed);
      }
    }
  }
}

TEST_CASE("the count is tight: only alignment is added", "[arena]") {
  Arena counting;
  counting.Take<char>(1);
  counting.Take<char>(Arena::kAlign);
  counting.Take<char>(Arena::kAlign + 1);
  REQUIRE(counting.bytes() == 4 * Arena::kAlign + Arena::kAlign - 1);
}

}  // namespace
}  // namespace lathe::test
