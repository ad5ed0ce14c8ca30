// SPDX-License-Identifier: Apache-2.0
// Views: packing, conversions that keep or add const, types known at run time, both index widths.
#include "lathe/base/view.h"

#include <array>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace lathe::test {
namespace {

TEST_CASE("an array that is not given is empty and has no extent", "[view]") {
  STATIC_REQUIRE((View<float, 3>{}.empty() && View<float, 3>{}.extent[2] == 0));
  STATIC_REQUIRE((In<2>{}.empty() && In<2>{}.extent[0] == 0));
  STATIC_REQUIRE((Out<2>{}.empty() && IndexView<1>{}.empty() && IndexView<1>{}.extent[0] == 0));
  float x = 0;
  REQUIRE_FALSE(Packed(&x, 1).empty());
  REQUIRE_FALSE(In<1>(Packed(&x, 1)).empty());
}

TEST_CASE("Packed is dense and row-major for extents of any integer type", "[view]") {
  float data[24];
  const auto v = Packed(data, int64_t{2}, size_t{3}, 4);
  STATIC_REQUIRE(std::is_same_v<decltype(v), const View<float, 3>>);
  REQUIRE(v.data == data);
  REQUIRE(std::vector<int64_t>(v.extent, v.extent + 3) == std::vector<int64_t>{2, 3, 4});
  REQUIRE(std::vector<int64_t>(v.stride, v.stride + 3) == std::vector<int64_t>{12, 4, 1});
  const auto row = Packed(data, 24);
  REQUIRE((row.extent[0] == 24 && row.stride[0] == 1));
  // Offsets of large caches pass 2^32.
  const auto large = Packed(data, 100000, 64, 576);
  REQUIRE(large.stride[0] * 99999 == int64_t{36864} * 99999);
}

TEST_CASE("an element, or the first one of a row, lies where the strides say", "[view]") {
  float data[24] = {};
  const View<float, 3> v{data, {2, 3, 2}, {1, 8, 4}};
  REQUIRE(&v(1, size_t{2}, 1) == data + 1 + 16 + 4);
  REQUIRE(&v(1, 2) == data + 17);
  v(0, 1) = 3.0f;
  REQUIRE(data[8] == 3.0f);
  const View<const float, 3> read_only = v;
  REQUIRE(read_only(0, 1, 0) == 3.0f);
  const In<3> erased = v;
  REQUIRE(erased.At(1, 2, 1) == reinterpret_cast<const std::byte*>(data + 21));
  bfloat16 halves[6] = {};
  const Out<2> written = Packed(halves, 2, 3);
  REQUIRE(written.At(1) == reinterpret_cast<std::byte*>(halves + 3));
}

TEST_CASE("views gain const and never lose it", "[view]") {
  float data[6] = {};
  const View<float, 2> v = Packed(data, 2, 3);
  const View<const float, 2> c = v;
  REQUIRE((c.data == data && c.extent[1] == 3 && c.stride[0] == 3));
  STATIC_REQUIRE(std::is_convertible_v<View<float, 2>, View<const float, 2>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<View<const float, 2>, View<float, 2>>);
  STATIC_REQUIRE(std::is_convertible_v<View<float, 2>, In<2>>);
  STATIC_REQUIRE(std::is_convertible_v<View<const float, 2>, In<2>>);
  STATIC_REQUIRE(std::is_convertible_v<View<float, 2>, Out<2>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<View<const float, 2>, Out<2>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<View<float, 3>, In<2>>);
}

TEMPLATE_TEST_CASE("a view whose type is erased keeps everything else", "[view]", float, float16,
                   bfloat16) {
  TestType data[8] = {};
  View<TestType, 2> v = Packed(data, 2, 3);
  v.stride[0] = 4;
  const In<2> in = v;
  REQUIRE(in.data == reinterpret_cast<const std::byte*>(data));
  REQUIRE(in.dtype == kDTypeOf<TestType>);
  REQUIRE((in.extent[0] == 2 && in.extent[1] == 3 && in.stride[0] == 4 && in.stride[1] == 1));
  const In<2> from_const = View<const TestType, 2>(v);
  REQUIRE((from_const.data == in.data && from_const.dtype == in.dtype));
  const Out<2> out = v;
  REQUIRE((out.data == reinterpret_cast<std::byte*>(data) && out.dtype == in.dtype));
}

TEMPLATE_TEST_CASE("an index array reads either width through its strides", "[view]", int32_t,
                   int64_t, const int32_t, const int64_t) {
  using Integer = std::remove_const_t<TestType>;
  constexpr Integer kMin = std::numeric_limits<Integer>::min();
  constexpr Integer kMax = std::numeric_limits<Integer>::max();
  Integer data[] = {kMin, -1, 0, 1, 99, kMax};
  const IndexView<1> line = Packed(static_cast<TestType*>(data), 6);
  REQUIRE(line.is_int64 == (sizeof(Integer) == 8));
  for (int64_t i = 0; i < 6; ++i) REQUIRE(line(i) == int64_t{data[i]});

  View<TestType, 2> transposed{data, {3, 2}, {1, 3}};
  const IndexView<2> table = transposed;
  REQUIRE((table.extent[0] == 3 && table.extent[1] == 2));
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 2; ++j) REQUIRE(table(i, j) == int64_t{data[i + 3 * j]});
  }
  // Indices of any integer type; unsigned ones are not misread.
  REQUIRE(table(size_t{2}, uint32_t{1}) == int64_t{kMax});
}

TEST_CASE("an index array takes int32 and int64 and nothing else", "[view]") {
  STATIC_REQUIRE(std::is_convertible_v<View<int32_t, 1>, IndexView<1>>);
  STATIC_REQUIRE(std::is_convertible_v<View<const int64_t, 2>, IndexView<2>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<View<uint32_t, 1>, IndexView<1>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<View<int16_t, 1>, IndexView<1>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<View<float, 1>, IndexView<1>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<View<int32_t, 2>, IndexView<1>>);
}

#if defined(__cpp_lib_span)
TEST_CASE("a std::span packs into a row", "[view]") {
  std::array<float, 5> data{};
  const auto v = Packed(std::span<float>(data));
  STATIC_REQUIRE(std::is_same_v<decltype(v), const View<float, 1>>);
  REQUIRE((v.data == data.data() && v.extent[0] == 5 && v.stride[0] == 1));
  const std::array<int32_t, 3> lengths{4, 5, 6};
  const IndexView<1> indices = Packed(std::span<const int32_t>(lengths));
  REQUIRE((indices(0) == 4 && indices(2) == 6 && indices.extent[0] == 3));
}
#endif

}  // namespace
}  // namespace lathe::test
