// SPDX-License-Identifier: Apache-2.0
// Assembly, because a compiler may hoist, fold or spill what it sees, and each loop belongs to an
// instruction set that this file is not compiled for. Registers start from chosen values:
// left-overs could be denormals, which are slow.
//
// 12 accumulators: two instructions a cycle at 6 cycles latency, as much as any of these CPUs has.
// 16 bytes are the pair (1, 1) of bfloat16 four times over, or floats close to 1.
#include "bench/flop_loop.h"

#include <cstdint>

#include "lathe/arch/x86_amx.h"

namespace lathe::bench {
namespace {

constexpr size_t kAccumulators = 12;

#if defined(__x86_64__) || defined(__aarch64__)
alignas(16) constexpr uint32_t kOnes[4] = {0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80};
#endif

#if defined(__x86_64__)

#define LATHE_CLOBBERS                                                                           \
  "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

// `multiply` works on accumulator \r and the sources 14 and 15.
#define LATHE_FLOP_LOOP(Name, broadcast, zero, multiply, leave)                  \
  void Name(size_t rounds) {                                                     \
    asm volatile(broadcast "\n\t.irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t" zero       \
                           "\n\t.endr\n"                                         \
                           "1:\n\t.irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t" multiply \
                           "\n\t.endr\n\t"                                       \
                           "dec %0\n\tjnz 1b\n\t" leave                          \
                 : "+r"(rounds)                                                  \
                 : "m"(kOnes)                                                    \
                 : LATHE_CLOBBERS);                                              \
  }

LATHE_FLOP_LOOP(DotBf16Zmm, "vbroadcastss %1, %%zmm14\n\tvbroadcastss %1, %%zmm15",
                "vxorps %%xmm\\r, %%xmm\\r, %%xmm\\r", "vdpbf16ps %%zmm14, %%zmm15, %%zmm\\r",
                "vzeroupper")
LATHE_FLOP_LOOP(FmaZmm, "vbroadcastss %1, %%zmm14\n\tvbroadcastss %1, %%zmm15",
                "vxorps %%xmm\\r, %%xmm\\r, %%xmm\\r", "vfmadd231ps %%zmm14, %%zmm15, %%zmm\\r",
                "vzeroupper")
LATHE_FLOP_LOOP(FmaYmm, "vbroadcastss %1, %%ymm14\n\tvbroadcastss %1, %%ymm15",
                "vxorps %%xmm\\r, %%xmm\\r, %%xmm\\r", "vfmadd231ps %%ymm14, %%ymm15, %%ymm\\r",
                "vzeroupper")
// Two-operand instructions: the product needs a register of its own, the copy is free by renaming.
LATHE_FLOP_LOOP(MulAddXmm, "movaps %1, %%xmm14\n\tmovaps %1, %%xmm15", "xorps %%xmm\\r, %%xmm\\r",
                "movaps %%xmm14, %%xmm12\n\tmulps %%xmm15, %%xmm12\n\taddps %%xmm12, %%xmm\\r", "")

#if LATHE_HAVE_AMX
constexpr size_t kPanels = 6;  // 24 KiB

// Pairs (1, 1): a Xeon multiplies tiles of zeros a fifth faster (2.75 against 2.25 TFLOP/s a core), since it clocks by the
// power that the data takes.
struct TileOperands {
  constexpr TileOperands() {
    for (auto& panel : words) {
      for (auto& tile : panel) {
        for (uint32_t& word : tile) word = kOnes[0];
      }
    }
  }
  alignas(64) uint32_t words[kPanels][4][256] = {};
};

// Two by two products of tiles, of which each round loads the operands from L1: products need new
// operands, so registers alone would be no ceiling of anything.
void MultiplyTiles(size_t rounds) {
  using lathe::arch::AmxTile;
  static constexpr TileOperands kOperands;
  const auto& operands = kOperands.words;
  AmxTile::Configure(lathe::arch::kWholeTiles);
  for (size_t panel = 0; rounds > 0; --rounds) {
    AmxTile::Load<4>(operands[panel][0], 64);
    AmxTile::Load<6>(operands[panel][1], 64);
    AmxTile::MultiplyBFloat16<0, 4, 6>();
    AmxTile::Load<7>(operands[panel][2], 64);
    AmxTile::MultiplyBFloat16<1, 4, 7>();
    AmxTile::Load<5>(operands[panel][3], 64);
    AmxTile::MultiplyBFloat16<2, 5, 6>();
    AmxTile::MultiplyBFloat16<3, 5, 7>();
    panel = panel + 1 < kPanels ? panel + 1 : 0;
  }
  AmxTile::Release();
}
constexpr FlopLoop kTiles = {"tdpbf16ps fed from L1", 4 * 2 * 16 * 16 * 32, MultiplyTiles};
#endif

constexpr FlopLoop kDotBf16Zmm = {"vdpbf16ps zmm", kAccumulators * 64, DotBf16Zmm};
constexpr FlopLoop kFmaZmm = {"vfmadd231ps zmm", kAccumulators * 32, FmaZmm};
constexpr FlopLoop kFmaYmm = {"vfmadd231ps ymm", kAccumulators * 16, FmaYmm};
constexpr FlopLoop kMulAddXmm = {"mulps, addps xmm", kAccumulators * 8, MulAddXmm};

#elif defined(__aarch64__)

#define LATHE_FLOP_LOOP(Name, multiply)                                                          \
  void Name(size_t rounds) {                                                                     \
    asm volatile(                                                                                \
        "ldr q30, %1\n\tldr q31, %1\n\t"                                                         \
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,16,17,18,19,20,21,22,23,24,25,26,27\n\t"               \
        "movi v\\r\\().4s, #0\n\t.endr\n"                                                        \
        "1:\n\t"                                                                                 \
        ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,16,17,18,19,20,21,22,23,24,25,26,27\n\t" multiply      \
        "\n\t.endr\n\t"                                                                          \
        "subs %0, %0, #1\n\tb.ne 1b"                                                             \
        : "+r"(rounds)                                                                           \
        : "m"(kOnes)                                                                             \
        : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v16", \
          "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v30",    \
          "v31");                                                                                \
  }

// Four pipes at 4 cycles latency ask for more chains than x86 does. bfdot \r.4s, v30.8h, v31.8h as
// a number, because assemblers know it only for targets that have it.
constexpr size_t kNeonAccumulators = 2 * kAccumulators;
LATHE_FLOP_LOOP(FmaNeon, "fmla v\\r\\().4s, v30.4s, v31.4s")
LATHE_FLOP_LOOP(DotBf16Neon, ".inst 0x6e5fffc0 + \\r")

constexpr FlopLoop kFmaNeon = {"fmla 4s", kNeonAccumulators * 8, FmaNeon};
constexpr FlopLoop kDotBf16Neon = {"bfdot 4s", kNeonAccumulators * 16, DotBf16Neon};

#endif

// What the compiler makes of vectors under this program's own flags.
#if defined(__AVX512F__)
constexpr size_t kVectorBytes = 64;
#elif defined(__AVX__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif
using Vector [[gnu::vector_size(kVectorBytes)]] = float;

constexpr double kFlopsPerVector = 2.0 * kVectorBytes / sizeof(float);

void MulAddPlain(size_t rounds) {
  Vector accumulators[kAccumulators] = {};
  // Volatile: multiplying by a known number would not be a multiplication. Below 1: sums stay
  // finite.
  volatile float factor = 0.5f;
  const Vector x = Vector{} + factor;
  for (; rounds > 0; --rounds) {
    for (Vector& a : accumulators) a = a * x + x;
  }
  volatile float sink = 0.0f;
  for (const Vector& a : accumulators) sink = sink + a[0];
}

constexpr FlopLoop kMulAddPlain = {"compiler's multiply-add", kFlopsPerVector* kAccumulators,
                                   MulAddPlain};

}  // namespace

const FlopLoop& FlopLoopOf(const TargetInfo& target, bool is_bf16) {
  const bool has_dot = is_bf16 && target.native_bf16;
  (void)has_dot;
  switch (target.target) {
#if defined(__x86_64__)
#if LATHE_HAVE_AMX
    case Target::kAmxBf16:
      return has_dot ? kTiles : kFmaZmm;
#endif
    case Target::kAvx3Zen4:
      return has_dot ? kDotBf16Zmm : kFmaZmm;
    case Target::kAvx3:
      return kFmaZmm;
    case Target::kAvx2:
      return kFmaYmm;
#if !defined(__AVX__)
    case Target::kPortable:
      return kMulAddXmm;
#endif
#elif defined(__aarch64__)
    case Target::kNeonBf16:
      return has_dot ? kDotBf16Neon : kFmaNeon;
    case Target::kNeon:
      return kFmaNeon;
#endif
    default:
      return kMulAddPlain;
  }
}

}  // namespace lathe::bench
