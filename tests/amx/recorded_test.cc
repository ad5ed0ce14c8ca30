// SPDX-License-Identifier: Apache-2.0
// Products against those of silicon, bit for bit: golden/amx holds operands and what a Xeon made of them.
#include "support/amx_emulator.h"

#if LATHE_HAVE_AMX

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/npy.h"

namespace lathe::test {
namespace {

using arch::AmxTile;

constexpr size_t kWords = 256;  // of a tile
constexpr char kFolder[] = LATHE_GOLDEN_DIR "/amx/";

bool IsNan(int32_t bits) { return (bits & 0x7FFFFFFF) > 0x7F800000; }

std::vector<int32_t> Products() {
  const auto a = ReadNpy<int32_t>(std::string(kFolder) + "a.npy"),
             b = ReadNpy<int32_t>(std::string(kFolder) + "b.npy");
  std::vector<int32_t> c = ReadNpy<int32_t>(std::string(kFolder) + "c.npy").values;
  AmxTile::Configure(arch::kWholeTiles);
  for (size_t at = 0; at < c.size(); at += kWords) {
    AmxTile::Load<0>(&c[at], 64);
    AmxTile::Load<1>(&a.values[at], 64);
    AmxTile::Load<2>(&b.values[at], 64);
    AmxTile::MultiplyBFloat16<0, 1, 2>();
    AmxTile::Store<0>(&c[at], 64);
  }
  AmxTile::Release();
  return c;
}

TEST_CASE("AMX: products have the bits of silicon", "[amx]") {
  const AmxEmulation emulation;
  const std::vector<int32_t> expected =
      ReadNpy<int32_t>(std::string(kFolder) + "product.npy").values;
  const std::vector<int32_t> products = Products();
  REQUIRE(products.size() == expected.size());
  size_t num_nans = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    INFO("tile " << i / kWords << ", row " << i % kWords / 16 << ", column " << i % 16);
    // Which of several NaN a sum keeps the manual leaves open.
    const bool is_nan = IsNan(expected[i]);
    REQUIRE((is_nan ? IsNan(products[i]) : products[i] == expected[i]));
    num_nans += is_nan ? 1 : 0;
  }
  REQUIRE(num_nans < products.size() / 8);
}

// How product.npy came about; on a machine with AMX.
TEST_CASE("AMX: record products", "[.record]") {
  if (!HasRealAmx()) SKIP("no AMX here");
  std::ifstream c(std::string(kFolder) + "c.npy", std::ios::binary);
  std::string file((std::istreambuf_iterator<char>(c)), std::istreambuf_iterator<char>());
  const std::vector<int32_t> products = Products();
  const size_t bytes = products.size() * sizeof(products[0]);
  std::memcpy(&file[file.size() - bytes], products.data(), bytes);
  std::ofstream(std::string(kFolder) + "product.npy", std::ios::binary) << file;
}

}  // namespace
}  // namespace lathe::test

#endif  // LATHE_HAVE_AMX
