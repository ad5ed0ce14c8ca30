// SPDX-License-Identifier: Apache-2.0
// The emulator against the manual: addressing, shapes, arithmetic, faults. Where the CPU has AMX
// the same tests ask the CPU.
#include "support/amx_emulator.h"

#if LATHE_HAVE_AMX

#include <immintrin.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "lathe/base/types.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/scalar_tile.h"
#include "support/threads.h"

namespace lathe::test {
namespace {

using arch::AmxTile;
using arch::kWholeTiles;
using arch::TileConfig;

// Tile t has rows[t] rows of row_bytes[t] bytes, t = 0, 1, 2.
TileConfig ConfigOf(std::initializer_list<std::pair<int, int>> shapes) {
  TileConfig config = {};
  config.palette = 1;
  int tile = 0;
  for (const auto& [rows, row_bytes] : shapes) {
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile++] = static_cast<uint16_t>(row_bytes);
  }
  return config;
}

TileConfig CurrentConfig() {
  TileConfig config;
  std::memset(&config, 0xAA, sizeof(config));
  asm volatile("sttilecfg %0" : "=m"(config)::"memory");
  return config;
}

bool SameConfig(const TileConfig& a, const TileConfig& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

std::vector<uint8_t> RandomBytes(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<uint8_t> bytes(n);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  return bytes;
}

// What tile 1 holds.
std::vector<uint8_t> Tile1() {
  std::vector<uint8_t> bytes(1024);
  AmxTile::Store<1>(bytes.data(), 64);
  return bytes;
}

TEST_CASE("AMX: configurations are stored as they were loaded", "[amx]") {
  const AmxEmulation emulation;
  const TileConfig mixed =
      ConfigOf({{1, 4}, {16, 64}, {5, 28}, {16, 60}, {3, 3}, {7, 8}, {2, 2}, {9, 64}});
  AmxTile::Configure(mixed);
  REQUIRE(SameConfig(CurrentConfig(), mixed));
  AmxTile::Configure(kWholeTiles);
  REQUIRE(SameConfig(CurrentConfig(), kWholeTiles));
  AmxTile::Release();
  REQUIRE(SameConfig(CurrentConfig(), TileConfig{}));
  // Palette 0 is as good as a release.
  AmxTile::Configure(kWholeTiles);
  AmxTile::Configure(TileConfig{});
  REQUIRE(SameConfig(CurrentConfig(), TileConfig{}));
}

TEST_CASE("AMX: configurations come from any address", "[amx]") {
  const AmxEmulation emulation;
  static const TileConfig fixed = ConfigOf({{3, 12}});
  static thread_local TileConfig local;
  local = ConfigOf({{4, 16}});
  asm volatile("ldtilecfg %0" ::"m"(fixed) : "memory");  // relative to rip
  REQUIRE(SameConfig(CurrentConfig(), fixed));
  asm volatile("ldtilecfg %0" ::"m"(local) : "memory");  // relative to fs
  REQUIRE(SameConfig(CurrentConfig(), local));
  std::vector<TileConfig> list(9, kWholeTiles);
  list[3] = fixed;
  asm volatile("ldtilecfg (%0,%1,8)" ::"r"(list.data()), "r"(int64_t{24}) : "memory");
  REQUIRE(SameConfig(CurrentConfig(), fixed));
  asm volatile("ldtilecfg 0x200(%0)" ::"r"(list.data()) : "memory");
  REQUIRE(SameConfig(CurrentConfig(), kWholeTiles));
  AmxTile::Release();
}

TEST_CASE("AMX: loads zero what the tile does not have, and loading a configuration all", "[amx]") {
  const AmxEmulation emulation;
  const std::vector<uint8_t> bytes = RandomBytes(1024, 1);
  std::vector<uint8_t> stored(1024, 0xEE), expected(1024, 0xEE);
  AmxTile::Configure(ConfigOf({{16, 64}, {5, 28}}));
  AmxTile::Load<1>(bytes.data(), 40);
  AmxTile::Store<1>(stored.data(), 64);
  for (size_t r = 0; r < 5; ++r) std::memcpy(&expected[64 * r], &bytes[40 * r], 28);
  REQUIRE(stored == expected);
  AmxTile::Zero<1>();
  AmxTile::Store<1>(stored.data(), 64);
  for (size_t r = 0; r < 5; ++r) std::memset(&expected[64 * r], 0, 28);
  REQUIRE(stored == expected);

  AmxTile::Configure(kWholeTiles);
  AmxTile::Load<1>(bytes.data(), 64);
  REQUIRE(Tile1() == bytes);
  AmxTile::Load<1>(bytes.data() + 960, -64);
  for (size_t r = 0; r < 16; ++r) {
    REQUIRE(std::memcmp(&Tile1()[64 * r], &bytes[64 * (15 - r)], 64) == 0);
  }
  AmxTile::Configure(kWholeTiles);
  REQUIRE(Tile1() == std::vector<uint8_t>(1024, 0));
  AmxTile::Release();
}

TEST_CASE("AMX: loads and stores take every form of address", "[amx]") {
  const AmxEmulation emulation;
  AmxTile::Configure(kWholeTiles);
  const std::vector<uint8_t> bytes = RandomBytes(4096, 2);
  const auto require = [&](const char* form, size_t offset, size_t stride) {
    INFO(form << " with offset " << offset << " and stride " << stride);
    std::vector<uint8_t> expected(1024);
    for (size_t r = 0; r < 16; ++r) std::memcpy(&expected[64 * r], &bytes[offset + r * stride], 64);
    REQUIRE(Tile1() == expected);
    AmxTile::Zero<1>();
  };
  uint64_t at = reinterpret_cast<uint64_t>(bytes.data());
  int64_t index = 64;

  // Any register as the base: swapped in, because some must not be named as clobbered.
#define LATHE_BASE(reg)                                      \
  asm volatile("xchg %0, %%" reg "\n\ttileloadd 0x40(%%" reg \
               ",%%rcx,1), %%tmm1\n\txchg %0, %%" reg        \
               : "+r"(at)                                    \
               : "c"(index)                                  \
               : "memory");                                  \
  require("base " reg, 0x40, 64);
  LATHE_BASE("rax")
  LATHE_BASE("rbx")
  LATHE_BASE("rdx")
  LATHE_BASE("rsi")
  LATHE_BASE("rdi")
  LATHE_BASE("rbp")
  LATHE_BASE("r8")
  LATHE_BASE("r9")
  LATHE_BASE("r10")
  LATHE_BASE("r11")
  LATHE_BASE("r12")
  LATHE_BASE("r13")
  LATHE_BASE("r14")
  LATHE_BASE("r15")
#undef LATHE_BASE
#define LATHE_INDEX(reg, scale)                                                \
  asm volatile("xchg %0, %%" reg "\n\ttileloadd -0x80(%%rcx,%%" reg "," #scale \
               "), %%tmm1\n\txchg %0, %%" reg                                  \
               : "+r"(index)                                                   \
               : "c"(at + 0x80)                                                \
               : "memory");                                                    \
  require("index " reg, 0, 64 * scale);
  LATHE_INDEX("rax", 1)
  LATHE_INDEX("rbx", 2)
  LATHE_INDEX("rdx", 1)
  LATHE_INDEX("rsi", 2)
  LATHE_INDEX("rdi", 1)
  LATHE_INDEX("rbp", 2)
  LATHE_INDEX("r8", 1)
  LATHE_INDEX("r9", 2)
  LATHE_INDEX("r10", 1)
  LATHE_INDEX("r11", 2)
  LATHE_INDEX("r12", 1)
  LATHE_INDEX("r13", 2)
  LATHE_INDEX("r14", 1)
  LATHE_INDEX("r15", 2)
#undef LATHE_INDEX

  const int64_t small = 16;
  asm volatile("tileloadd (%0,%1,4), %%tmm1" ::"r"(at), "r"(small) : "memory");
  require("scale 4", 0, 64);
  asm volatile("tileloadd 0x123(%0,%1,8), %%tmm1" ::"r"(at), "r"(small) : "memory");
  require("scale 8, long displacement", 0x123, 128);
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm1" ::"r"(at), "r"(int64_t{64}) : "memory");
  require("tileloaddt1", 0, 64);
  // The stack pointer as the base.
  asm volatile(
      "sub $2048, %%rsp\n\tmov %%rsp, %%rdi\n\tmov %0, %%rsi\n\tmov $1024, %%ecx\n\trep movsb\n\t"
      "mov $32, %%eax\n\ttileloadd (%%rsp,%%rax,2), %%tmm1\n\tadd $2048, %%rsp" ::"r"(at)
      : "memory", "rdi", "rsi", "rcx", "rax");
  require("base rsp", 0, 64);

  // Without an index every row is the same; without a base the displacement is the address.
  asm volatile("tileloadd (%0), %%tmm1" ::"r"(at) : "memory");
  require("no index", 0, 0);
  constexpr size_t kLow = 0x10000000;
  void* low = mmap(reinterpret_cast<void*>(kLow), 4096, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  REQUIRE(low == reinterpret_cast<void*>(kLow));
  std::memcpy(low, bytes.data(), 4096);
  asm volatile("tileloadd 0x10000020(,%0,1), %%tmm1" ::"r"(int64_t{80}) : "memory");
  require("no base", 0x20, 80);
  munmap(low, 4096);
  AmxTile::Release();
}

// C += A x B by the manual, subnormals flushed; pairs are [k][2].
float FlushToZero(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

float MultiplyByTheManual(float c, const bfloat16* a, const bfloat16* b, int pairs, int columns) {
  float sums[2] = {};
  for (int k = 0; k < pairs; ++k) {
    for (int i = 0; i < 2; ++i) {
      const float x = FlushToZero(ToFloat(a[2 * k + i]));
      const float y = FlushToZero(ToFloat(b[k * columns * 2 + i]));
      sums[i] = FlushToZero(std::fma(x, y, sums[i]));
    }
  }
  return FlushToZero(FlushToZero(c) + FlushToZero(sums[0] + sums[1]));
}

TEST_CASE("AMX: products have the manual's arithmetic", "[amx]") {
  const AmxEmulation emulation;
  const int rows = GENERATE(16, 5, 1), columns = GENERATE(16, 7, 1), pairs = GENERATE(16, 9, 1);
  // Ordinary numbers; and such that operands, products and sums are often subnormal.
  const bool is_tiny = GENERATE(false, true);
  CAPTURE(rows, columns, pairs, is_tiny);
  Random random(static_cast<uint64_t>(rows * 400 + columns * 20 + pairs));
  bfloat16 a[16 * 32] = {}, b[16 * 32] = {};
  for (bfloat16* operand : {a, b}) {
    for (int i = 0; i < 16 * 32; ++i) {
      const float scale =
          is_tiny ? std::ldexp(1.0f, -52 - static_cast<int>(random.Below(24))) : 1.0f;
      operand[i] = FromFloat<bfloat16>(random.Normal() * scale);
      if (is_tiny && i % 7 == 0) operand[i].bits = static_cast<uint16_t>(random.Below(128));
    }
  }
  float before[256], c[256], scalar[256];
  for (float& x : before) x = random.Normal() * (is_tiny ? 1e-37f : 1.0f);
  std::memcpy(c, before, sizeof(c));
  const TileConfig config =
      ConfigOf({{rows, columns * 4}, {rows, pairs * 4}, {pairs, columns * 4}});
  const unsigned rounding = _mm_getcsr();
  _mm_setcsr(rounding | 0x6000);  // toward zero, which must not matter
  AmxTile::Configure(config);
  AmxTile::Load<0>(c, columns * 4);
  AmxTile::Load<1>(a, pairs * 4);
  AmxTile::Load<2>(b, columns * 4);
  AmxTile::MultiplyBFloat16<0, 1, 2>();
  AmxTile::Store<0>(c, columns * 4);
  AmxTile::Release();
  _mm_setcsr(rounding);

  for (int m = 0; m < rows; ++m) {
    for (int n = 0; n < columns; ++n) {
      const float expected = MultiplyByTheManual(before[m * columns + n], a + m * pairs * 2,
                                                 b + n * 2, pairs, columns);
      CAPTURE(m, n);
      REQUIRE(c[m * columns + n] == expected);
    }
  }
  if (is_tiny) return;
  std::memcpy(scalar, before, sizeof(scalar));
  ScalarTile::Configure(config);
  ScalarTile::Load<0>(scalar, columns * 4);
  ScalarTile::Load<1>(a, pairs * 4);
  ScalarTile::Load<2>(b, columns * 4);
  ScalarTile::MultiplyBFloat16<0, 1, 2>();
  ScalarTile::Store<0>(scalar, columns * 4);
  ScalarTile::Release();
  for (int i = 0; i < rows * columns; ++i) {
    REQUIRE(c[i] == scalar[i]);
  }
}

TEST_CASE("AMX: NaN and infinities go through products", "[amx]") {
  const AmxEmulation emulation;
  bfloat16 a[16 * 32] = {}, b[16 * 32] = {};
  for (bfloat16& x : b) x = FromFloat<bfloat16>(1.0f);
  a[0] = FromFloat<bfloat16>(INFINITY);
  a[32 + 1] = FromFloat<bfloat16>(NAN);
  a[64] = FromFloat<bfloat16>(INFINITY);
  a[64 + 2] = FromFloat<bfloat16>(-INFINITY);
  float c[256];
  AmxTile::Configure(kWholeTiles);
  AmxTile::Load<1>(a, 64);
  AmxTile::Load<2>(b, 64);
  AmxTile::MultiplyBFloat16<0, 1, 2>();
  AmxTile::Store<0>(c, 64);
  AmxTile::Release();
  for (int n = 0; n < 16; ++n) {
    REQUIRE(c[n] == INFINITY);
    REQUIRE(std::isnan(c[16 + n]));
    REQUIRE(std::isnan(c[32 + n]));
    REQUIRE(c[48 + n] == 0.0f);
  }
}

TEST_CASE("AMX: every thread has tiles of its own", "[amx]") {
  const AmxEmulation emulation;
  constexpr size_t kThreads = 8;
  Barrier configured(kThreads), loaded(kThreads);
  bool same[kThreads] = {};
  OnThreads(kThreads, [&](size_t i) {
    const std::vector<uint8_t> bytes = RandomBytes(1024, i);
    const auto rows = static_cast<int>(i) + 1;
    std::vector<uint8_t> stored(1024), expected(1024);
    std::memcpy(expected.data(), bytes.data(), static_cast<size_t>(rows) * 64);
    AmxTile::Configure(ConfigOf({{rows, 64}}));
    configured.Wait();
    AmxTile::Load<0>(bytes.data(), 64);
    loaded.Wait();
    AmxTile::Store<0>(stored.data(), 64);
    AmxTile::Release();
    same[i] = stored == expected;
  });
  for (const bool is_same : same) REQUIRE(is_same);
}

// How a child process ends that runs `code`, and what it says.
struct Ending {
  int signal_number = 0;
  std::string text;
};

Ending RunInChild(void (*code)()) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    for (const int number : {SIGILL, SIGSEGV}) signal(number, SIG_DFL);
    InstallAmxEmulator();
    code();
    _exit(0);
  }
  close(ends[1]);
  Ending ending;
  char buffer[256];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    ending.text.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) ending.signal_number = WTERMSIG(status);
  return ending;
}

template <class Change>
void ConfigureChanged(const Change& change) {
  TileConfig config = kWholeTiles;
  change(config);
  AmxTile::Configure(config);
}

TEST_CASE("AMX: what faults on a CPU with AMX faults", "[amx]") {
  struct Case {
    const char* what;
    int signal_number;
    const char* text;
    void (*code)();
  };
  const Case cases[] = {
      {"a valid configuration", 0, "", [] { AmxTile::Configure(kWholeTiles); }},
      {"palette 2", SIGSEGV, "#GP", [] { ConfigureChanged([](TileConfig& c) { c.palette = 2; }); }},
      {"a reserved byte", SIGSEGV, "#GP",
       [] { ConfigureChanged([](TileConfig& c) { c.reserved[13] = 1; }); }},
      {"a ninth tile", SIGSEGV, "#GP",
       [] { ConfigureChanged([](TileConfig& c) { c.rows[8] = 1; }); }},
      {"17 rows", SIGSEGV, "#GP", [] { ConfigureChanged([](TileConfig& c) { c.rows[3] = 17; }); }},
      {"65 bytes", SIGSEGV, "#GP",
       [] { ConfigureChanged([](TileConfig& c) { c.row_bytes[3] = 65; }); }},
      {"rows without bytes", SIGSEGV, "#GP",
       [] { ConfigureChanged([](TileConfig& c) { c.row_bytes[3] = 0; }); }},
      {"a tile without a configuration", SIGILL, "#UD", [] { AmxTile::Zero<0>(); }},
      {"a released tile", SIGILL, "#UD",
       [] {
         AmxTile::Configure(kWholeTiles);
         AmxTile::Release();
         AmxTile::Zero<0>();
       }},
      {"a tile that the configuration leaves out", SIGILL, "#UD",
       [] {
         static uint8_t bytes[1024];
         AmxTile::Configure(ConfigOf({{16, 64}}));
         AmxTile::Load<1>(bytes, 64);
       }},
      {"rows of C and A that differ", SIGILL, "#UD",
       [] {
         AmxTile::Configure(ConfigOf({{15, 64}, {16, 64}, {16, 64}}));
         AmxTile::MultiplyBFloat16<0, 1, 2>();
       }},
      {"columns of C and B that differ", SIGILL, "#UD",
       [] {
         AmxTile::Configure(ConfigOf({{16, 64}, {16, 64}, {16, 60}}));
         AmxTile::MultiplyBFloat16<0, 1, 2>();
       }},
      {"pairs of A and B that differ", SIGILL, "#UD",
       [] {
         AmxTile::Configure(ConfigOf({{16, 64}, {16, 60}, {16, 64}}));
         AmxTile::MultiplyBFloat16<0, 1, 2>();
       }},
      {"half a word", SIGILL, "#UD",
       [] {
         AmxTile::Configure(ConfigOf({{16, 62}, {16, 64}, {16, 62}}));
         AmxTile::MultiplyBFloat16<0, 1, 2>();
       }},
      {"one tile twice", SIGILL, "#UD",
       [] {
         AmxTile::Configure(kWholeTiles);
         asm volatile(".byte 0xc4, 0xe2, 0x72, 0x5c, 0xc0" ::: "memory");  // tmm0 += tmm0 x tmm1
       }},
      {"no SIB byte", SIGILL, "#UD",
       [] {
         AmxTile::Configure(kWholeTiles);
         asm volatile(".byte 0xc4, 0xe2, 0x7b, 0x4b, 0x00" ::: "memory");
       }},
  };
  for (const Case& c : cases) {
    const Ending ending = RunInChild(c.code);
    INFO(c.what << ": " << ending.text);
    REQUIRE(ending.signal_number == c.signal_number);
    if (!HasRealAmx()) REQUIRE(ending.text.find(c.text) != std::string::npos);
  }
}

TEST_CASE("AMX: the emulator names an instruction that it does not know", "[amx]") {
  if (HasRealAmx()) SKIP("there is no emulator here");
  Ending ending = RunInChild([] { asm volatile("ud2"); });
  REQUIRE(ending.signal_number == SIGILL);
  REQUIRE(ending.text.find("not an instruction it knows") != std::string::npos);
  REQUIRE(ending.text.find(": 0f 0b ") != std::string::npos);
  ending = RunInChild([] {  // tdpbssd, of AMX-INT8
    AmxTile::Configure(kWholeTiles);
    asm volatile(".byte 0xc4, 0xe2, 0x73, 0x5e, 0xc2" ::: "memory");
  });
  REQUIRE(ending.signal_number == SIGILL);
  REQUIRE(ending.text.find("not an instruction it knows") != std::string::npos);
}

}  // namespace
}  // namespace lathe::test

#endif  // LATHE_HAVE_AMX
