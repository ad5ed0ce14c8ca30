// SPDX-License-Identifier: Apache-2.0
// The AMX emulator's decoder: any bytes, of which it may read 15 and no more, and every form of an
// instruction against the fields it was made of.
#include "support/amx_emulator.cc"

#include "fuzz_input.h"

namespace lathe::test {
namespace {

// What an instruction is made of.
struct Fields {
  bool is_thread_local = false;
  int prefix = 0, opcode = 0, vvvv = 0, mod = 0, reg = 0, rm = 0, index = 0, shift = 0;
  int32_t displacement = 0;
};

std::vector<uint8_t> Encode(const Fields& f) {
  std::vector<uint8_t> code;
  if (f.is_thread_local) code.push_back(0x64);
  const bool has_sib = f.mod != 3 && (f.rm & 7) == 4;
  code.push_back(0xC4);
  code.push_back(static_cast<uint8_t>(2 | (f.reg < 8) << 7 | (!has_sib || f.index < 8) << 6 |
                                      (f.rm < 8) << 5));
  code.push_back(static_cast<uint8_t>((~f.vvvv & 15) << 3 | f.prefix));
  code.push_back(static_cast<uint8_t>(f.opcode));
  code.push_back(static_cast<uint8_t>(f.mod << 6 | (f.reg & 7) << 3 | (f.rm & 7)));
  if (has_sib) code.push_back(static_cast<uint8_t>(f.shift << 6 | (f.index & 7) << 3 | (f.rm & 7)));
  const bool has_no_base = f.mod == 0 && (f.rm & 7) == 5;
  const int bytes = f.mod == 1 ? 1 : f.mod == 2 || has_no_base ? 4 : 0;
  for (int i = 0; i < bytes; ++i)
    code.push_back(static_cast<uint8_t>(static_cast<uint32_t>(f.displacement) >> (8 * i)));
  return code;
}

void RoundTrip(fuzz::Input& in) {
  greg_t registers[NGREG] = {};
  constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};
  for (int i = 0; i < 16; ++i) registers[kOrder[i]] = (i + 1) * 0x1000;
  const auto number = [&in](int64_t most) { return static_cast<int>(in.Int(0, most)); };
  Fields f;
  f.is_thread_local = in.Chance(4);
  f.prefix = number(3);
  f.opcode = number(255);
  f.vvvv = number(15);
  f.mod = number(3);
  f.reg = number(15);
  f.rm = number(15);
  f.index = number(15);
  f.shift = number(3);
  f.displacement = f.mod == 1 ? number(255) - 128 : (number(255) << 16 | number(255)) - (1 << 23);
  const std::vector<uint8_t> bytes = Encode(f);
  const Guarded<uint8_t> code(bytes);
  Instruction decoded;
  LATHE_FUZZ_REQUIRE(Decode(code.data(), registers, &decoded), "not decoded");
  LATHE_FUZZ_REQUIRE(decoded.length == static_cast<int>(bytes.size()), "length %d", decoded.length);
  LATHE_FUZZ_REQUIRE(
      decoded.opcode == f.opcode && decoded.prefix == f.prefix && decoded.vvvv == f.vvvv, "opcode");
  LATHE_FUZZ_REQUIRE(decoded.reg == f.reg && decoded.is_memory == (f.mod != 3), "operands");
  if (f.mod == 3) {
    LATHE_FUZZ_REQUIRE(decoded.rm == f.rm, "rm");
    return;
  }
  const bool has_sib = (f.rm & 7) == 4, has_no_base = f.mod == 0 && (f.rm & 7) == 5;
  uint64_t base = has_no_base ? 0 : static_cast<uint64_t>(f.rm + 1) * 0x1000;
  if (has_no_base) base = reinterpret_cast<uint64_t>(code.data()) + bytes.size();
  if (f.mod != 0 || has_no_base) base += static_cast<uint64_t>(int64_t{f.displacement});
  if (f.is_thread_local) base += ThreadPointer();
  const uint64_t index =
      has_sib && f.index != 4 ? static_cast<uint64_t>(f.index + 1) * 0x1000 << f.shift : 0;
  LATHE_FUZZ_REQUIRE(decoded.has_sib == has_sib && decoded.base == base && decoded.index == index,
                     "address");
}

}  // namespace
}  // namespace lathe::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  test::Guarded<uint8_t> code(15);
  std::memcpy(code.data(), data, size < 15 ? size : 15);
  if (size > 2 && data[0] % 2 == 0) code[code[0] == 0x64 ? 1 : 0] = 0xC4;
  const greg_t registers[NGREG] = {};
  test::Instruction decoded;
  if (test::Decode(code.data(), registers, &decoded)) {
    LATHE_FUZZ_REQUIRE(decoded.length >= 5 && decoded.length <= 11, "length %d", decoded.length);
    LATHE_FUZZ_REQUIRE(decoded.reg < 16 && decoded.rm < 16 && decoded.vvvv < 16, "register");
  }
  fuzz::Input in(data, size);
  test::RoundTrip(in);
  return 0;
}
