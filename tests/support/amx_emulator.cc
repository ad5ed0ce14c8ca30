// SPDX-License-Identifier: Apache-2.0
#include "support/amx_emulator.h"

#if LATHE_HAVE_AMX

#include <immintrin.h>
#include <signal.h>
#include <ucontext.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <mutex>

namespace lathe::test {
namespace {

// The tile registers of a thread.
struct Tiles {
  uint8_t palette = 0;
  uint8_t start_row = 0;
  uint16_t row_bytes[8] = {};
  uint8_t rows[8] = {};
  alignas(64) uint8_t data[8][16][64] = {};
};

Tiles& ThisThreadsTiles() {
  static thread_local Tiles tiles;
  return tiles;
}

uint64_t& Counter() {
  static thread_local uint64_t count = 0;
  return count;
}

// What became of an instruction.
enum class Outcome { kDone, kNotAmx, kUndefined, kProtection };

// One of the VEX-encoded instructions of opcode map 0F38, W = 0, L = 0.
struct Instruction {
  int length = 0;
  uint8_t opcode = 0;
  int prefix = 0;  // pp: none, 66, F3, F2
  bool is_memory = false;
  bool has_sib = false;
  int reg = 0, rm = 0, vvvv = 0;
  uint64_t base = 0;   // address of the memory operand, without the index
  uint64_t index = 0;  // times its scale; between tiles and memory, the stride
};

uint64_t Register(const greg_t* registers, int number) {
  static constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                     REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(registers[kOrder[number]]);
}

uint8_t* Memory(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

int64_t Displacement(const uint8_t* code, int bytes) {
  if (bytes == 0) return 0;
  if (bytes == 1) return static_cast<int8_t>(*code);
  int32_t value;
  std::memcpy(&value, code, sizeof(value));
  return value;
}

uint64_t ThreadPointer() {
  uint64_t pointer;
  asm("mov %%fs:0, %0" : "=r"(pointer));
  return pointer;
}

// False if these bytes are not in the instructions' common format.
bool Decode(const uint8_t* code, const greg_t* registers, Instruction* out) {
  Instruction in;
  const bool is_thread_local = code[0] == 0x64;
  int at = is_thread_local ? 1 : 0;
  const uint8_t* vex = code + at;
  if (vex[0] != 0xC4 || (vex[1] & 0x1F) != 2 || (vex[2] & 0x84) != 0) return false;
  const int extends_reg = ~vex[1] >> 7 & 1, extends_index = ~vex[1] >> 6 & 1;
  const int extends_base = ~vex[1] >> 5 & 1;
  in.prefix = vex[2] & 3;
  in.vvvv = ~vex[2] >> 3 & 15;
  in.opcode = vex[3];
  const int mod = vex[4] >> 6;
  in.reg = (vex[4] >> 3 & 7) | extends_reg << 3;
  const int rm = vex[4] & 7;
  at += 5;
  in.is_memory = mod != 3;
  if (!in.is_memory) {
    in.rm = rm | extends_base << 3;
  } else {
    int displacement_bytes = mod == 0 ? 0 : mod == 1 ? 1 : 4;
    uint64_t base = 0;
    bool is_rip_relative = false;
    in.has_sib = rm == 4;
    if (in.has_sib) {
      const uint8_t sib = code[at++];
      const int index = (sib >> 3 & 7) | extends_index << 3;
      if (mod == 0 && (sib & 7) == 5) {
        displacement_bytes = 4;
      } else {
        base = Register(registers, (sib & 7) | extends_base << 3);
      }
      if (index != 4) in.index = Register(registers, index) << (sib >> 6);
    } else if (mod == 0 && rm == 5) {
      displacement_bytes = 4;
      is_rip_relative = true;
    } else {
      base = Register(registers, rm | extends_base << 3);
    }
    base += static_cast<uint64_t>(Displacement(code + at, displacement_bytes));
    at += displacement_bytes;
    if (is_rip_relative) base += reinterpret_cast<uint64_t>(code) + static_cast<uint64_t>(at);
    if (is_thread_local) base += ThreadPointer();
    in.base = base;
  }
  in.length = at;
  *out = in;
  return true;
}

bool IsConfigured(const Tiles& tiles, int tile) {
  return tiles.palette == 1 && tile < 8 && tiles.rows[tile] != 0;
}

// Palette 1 and nothing reserved.
bool IsValid(const arch::TileConfig& config) {
  for (const uint8_t byte : config.reserved) {
    if (byte != 0) return false;
  }
  for (int i = 0; i < 16; ++i) {
    const int bytes = config.row_bytes[i], rows = config.rows[i];
    if (i >= 8 && (bytes != 0 || rows != 0)) return false;
    if (bytes > 64 || rows > 16 || (bytes == 0) != (rows == 0)) return false;
  }
  return config.palette == 1;
}

Outcome LoadConfig(const Instruction& in, Tiles& tiles) {
  arch::TileConfig config;
  std::memcpy(&config, Memory(in.base + in.index), sizeof(config));
  Tiles loaded;
  if (config.palette != 0) {
    if (!IsValid(config)) return Outcome::kProtection;
    loaded.palette = config.palette;
    loaded.start_row = config.start_row;
    std::memcpy(loaded.row_bytes, config.row_bytes, sizeof(loaded.row_bytes));
    std::memcpy(loaded.rows, config.rows, sizeof(loaded.rows));
  }
  tiles = loaded;
  return Outcome::kDone;
}

Outcome StoreConfig(const Instruction& in, const Tiles& tiles) {
  arch::TileConfig config = {};
  config.palette = tiles.palette;
  config.start_row = tiles.start_row;
  std::memcpy(config.row_bytes, tiles.row_bytes, sizeof(tiles.row_bytes));
  std::memcpy(config.rows, tiles.rows, sizeof(tiles.rows));
  std::memcpy(Memory(in.base + in.index), &config, sizeof(config));
  return Outcome::kDone;
}

Outcome Configure(const Instruction& in, Tiles& tiles) {
  const bool is_plain = in.vvvv == 0 && in.prefix <= 1;
  if (in.is_memory && is_plain && in.reg == 0) {
    return in.prefix == 0 ? LoadConfig(in, tiles) : StoreConfig(in, tiles);
  }
  if (in.is_memory || in.vvvv != 0 || in.rm != 0) return Outcome::kUndefined;
  if (in.prefix == 0 && in.reg == 0) {  // TILERELEASE
    tiles = Tiles();
    return Outcome::kDone;
  }
  if (in.prefix != 3 || !IsConfigured(tiles, in.reg)) return Outcome::kUndefined;  // TILEZERO
  std::memset(tiles.data[in.reg], 0, sizeof(tiles.data[in.reg]));
  return Outcome::kDone;
}

Outcome Move(const Instruction& in, Tiles& tiles) {
  if (!in.has_sib || in.vvvv != 0 || in.prefix == 0 || !IsConfigured(tiles, in.reg)) {
    return Outcome::kUndefined;
  }
  const bool is_store = in.prefix == 2;
  auto& data = tiles.data[in.reg];
  if (!is_store) std::memset(data, 0, sizeof(data));
  for (uint64_t r = 0; r < tiles.rows[in.reg]; ++r) {
    uint8_t* memory = Memory(in.base + r * in.index);
    std::memcpy(is_store ? memory : data[r], is_store ? data[r] : memory, tiles.row_bytes[in.reg]);
  }
  return Outcome::kDone;
}

// The manual's arithmetic: even and odd elements apart, each step a fused one, their sum added to
// C; to nearest even, subnormal operands and results are zero. MXCSR is not involved.
__attribute__((target("avx2,fma"))) Outcome Multiply(const Instruction& in, Tiles& tiles) {
  const int c = in.reg, a = in.rm, b = in.vvvv;
  if (in.is_memory || in.prefix != 2 || c == a || c == b || a == b) return Outcome::kUndefined;
  for (const int tile : {c, a, b}) {
    if (!IsConfigured(tiles, tile) || tiles.row_bytes[tile] % 4 != 0) return Outcome::kUndefined;
  }
  if (tiles.rows[c] != tiles.rows[a] || tiles.row_bytes[c] != tiles.row_bytes[b] ||
      tiles.row_bytes[a] / 4 != tiles.rows[b]) {
    return Outcome::kUndefined;
  }
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(0x1F80 | _MM_DENORMALS_ZERO_ON | _MM_FLUSH_ZERO_ON);
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  for (int m = 0; m < tiles.rows[c]; ++m) {
    for (int n = 0; n < tiles.row_bytes[c]; n += 32) {
      __m256 even = _mm256_setzero_ps(), odd = _mm256_setzero_ps();
      for (int k = 0; k < tiles.rows[b]; ++k) {
        int pair;
        std::memcpy(&pair, tiles.data[a][m] + 4 * k, sizeof(pair));
        const __m256i x = _mm256_set1_epi32(pair);
        const __m256i y = _mm256_load_si256(reinterpret_cast<__m256i*>(tiles.data[b][k] + n));
        even = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),
                               _mm256_castsi256_ps(_mm256_slli_epi32(y, 16)), even);
        odd = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(x, upper)),
                              _mm256_castsi256_ps(_mm256_and_si256(y, upper)), odd);
      }
      auto* sums = reinterpret_cast<float*>(tiles.data[c][m] + n);
      _mm256_store_ps(sums, _mm256_add_ps(_mm256_load_ps(sums), _mm256_add_ps(even, odd)));
    }
    // What lies past the configured columns reads as zero.
    std::memset(tiles.data[c][m] + tiles.row_bytes[c], 0, size_t{64} - tiles.row_bytes[c]);
  }
  _mm_setcsr(saved);
  return Outcome::kDone;
}

Outcome Execute(const uint8_t* code, const greg_t* registers, int* length) {
  Instruction in;
  if (!Decode(code, registers, &in)) return Outcome::kNotAmx;
  *length = in.length;
  Tiles& tiles = ThisThreadsTiles();
  switch (in.opcode) {
    case 0x49:
      return Configure(in, tiles);
    case 0x4B:
      return Move(in, tiles);
    case 0x5C:
      return Multiply(in, tiles);
    default:
      return Outcome::kNotAmx;
  }
}

// Whether more instructions may follow in the same signal: a peek at four bytes, which are there,
// since no function ends in a tile instruction.
bool LooksLikeTile(const uint8_t* code) {
  return code[0] == 0xC4 && (code[1] & 0x1F) == 2 &&
         (code[3] == 0x49 || code[3] == 0x4B || code[3] == 0x5C);
}

struct sigaction& PreviousHandler() {
  static struct sigaction previous = {};
  return previous;
}

void Die(Outcome outcome, const uint8_t* code, int signal_number, siginfo_t* info, void* context) {
  char text[200];
  const int n = std::snprintf(
      text, sizeof(text), "AMX emulator: %s at %p: %02x %02x %02x %02x %02x %02x\n",
      outcome == Outcome::kNotAmx       ? "not an instruction it knows"
      : outcome == Outcome::kProtection ? "invalid tile configuration (#GP)"
                                        : "invalid tile or operands (#UD)",
      static_cast<const void*>(code), code[0], code[1], code[2], code[3], code[4], code[5]);
  if (write(STDERR_FILENO, text, static_cast<size_t>(n)) < 0) _exit(1);
  if (outcome == Outcome::kProtection) {
    raise(SIGSEGV);
    return;
  }
  const struct sigaction previous = PreviousHandler();
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    return previous.sa_sigaction(signal_number, info, context);
  }
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    return previous.sa_handler(signal_number);
  }
  signal(SIGILL, SIG_DFL);  // the instruction runs again, for the last time
}

void OnIllegalInstruction(int signal_number, siginfo_t* info, void* context) {
  auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
  const auto* code = reinterpret_cast<const uint8_t*>(machine.gregs[REG_RIP]);
  int length = 0;
  Outcome outcome = Execute(code, machine.gregs, &length);
  if (outcome != Outcome::kDone) return Die(outcome, code, signal_number, info, context);
  do {
    ++Counter();
    code += length;
    outcome = LooksLikeTile(code) ? Execute(code, machine.gregs, &length) : Outcome::kNotAmx;
  } while (outcome == Outcome::kDone);
  machine.gregs[REG_RIP] = reinterpret_cast<greg_t>(code);
}

std::mutex& InstallMutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

bool HasRealAmx() {
  static const bool has = arch::ThisTileUnit().is_complete() && arch::RequestTilePermission() == 0;
  return has;
}

void InstallAmxEmulator() {
  if (HasRealAmx()) return;
  struct sigaction current = {};
  sigaction(SIGILL, nullptr, &current);
  if (current.sa_sigaction == OnIllegalInstruction) return;
  const std::lock_guard<std::mutex> lock(InstallMutex());
  sigaction(SIGILL, nullptr, &current);
  if (current.sa_sigaction == OnIllegalInstruction) return;
  PreviousHandler() = current;
  struct sigaction ours = {};
  ours.sa_sigaction = OnIllegalInstruction;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGILL, &ours, nullptr);
}

uint64_t EmulatedInstructions() { return Counter(); }

AmxEmulation::AmxEmulation() { InstallAmxEmulator(); }

AmxEmulation::~AmxEmulation() {
  if (HasRealAmx()) return;
  const std::lock_guard<std::mutex> lock(InstallMutex());
  sigaction(SIGILL, &PreviousHandler(), nullptr);
}

}  // namespace lathe::test

#endif  // LATHE_HAVE_AMX
