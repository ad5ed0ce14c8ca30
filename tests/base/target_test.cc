// SPDX-License-Identifier: Apache-2.0
// Targets(): complete, ordered, honest about what runs here; forcing one that cannot run is
// refused.
#include "lathe/base/target.h"

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "lathe/lathe.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace lathe::test {
namespace {

const TargetInfo* Find(Target target) {
  for (const TargetInfo& info : Targets()) {
    if (info.target == target) return &info;
  }
  return nullptr;
}

TEST_CASE("every target is listed once, best first", "[target]") {
  const std::vector<Target> expected = {Target::kAmxBf16, Target::kAvx3Zen4, Target::kAvx3,
                                        Target::kAvx2,    Target::kNeonBf16, Target::kNeon,
                                        Target::kPortable};
  std::vector<Target> listed;
  for (const TargetInfo& info : Targets()) listed.push_back(info.target);
  REQUIRE(listed == expected);
}

TEST_CASE("target numbers are stable and names distinct", "[target]") {
  STATIC_REQUIRE(static_cast<int>(Target::kAuto) == 0);
  STATIC_REQUIRE(static_cast<int>(Target::kPortable) == 1);
  STATIC_REQUIRE(static_cast<int>(Target::kAvx2) == 2);
  STATIC_REQUIRE(static_cast<int>(Target::kAvx3) == 3);
  STATIC_REQUIRE(static_cast<int>(Target::kAvx3Zen4) == 4);
  STATIC_REQUIRE(static_cast<int>(Target::kAmxBf16) == 6);
  STATIC_REQUIRE(static_cast<int>(Target::kNeon) == 8);
  STATIC_REQUIRE(static_cast<int>(Target::kNeonBf16) == 9);
  REQUIRE(std::string(Name(Target::kAuto)) == "auto");
  REQUIRE(std::string(Name(static_cast<Target>(200))) == "unknown");
  for (const TargetInfo& info : Targets()) {
    REQUIRE(std::string(info.name) == Name(info.target));
    REQUIRE(std::string(info.name) != "unknown");
    for (const TargetInfo& other : Targets()) {
      REQUIRE((info.target == other.target) == (std::string(info.name) == other.name));
    }
  }
}

TEST_CASE("a reason is given exactly where a target cannot run", "[target]") {
  for (const TargetInfo& info : Targets()) {
    INFO(info.name << ": " << info.reason);
    REQUIRE(info.runnable == std::string(info.reason).empty());
    if (!info.compiled) {
      REQUIRE_FALSE(info.runnable);
      REQUIRE(std::string(info.reason).find("not compiled: ") == 0);
    }
  }
}

TEST_CASE("the portable target always runs", "[target]") {
  REQUIRE((Find(Target::kPortable)->compiled && Find(Target::kPortable)->runnable));
}

TEST_CASE("the best target is the first that runs", "[target]") {
  Target first = Target::kAuto;
  for (const TargetInfo& info : Targets()) {
    if (info.runnable && first == Target::kAuto) first = info.target;
  }
  REQUIRE(BestTarget() == first);
}

// On CPUs whose model the caller knows; tests/CMakeLists.txt has emulated ones.
TEST_CASE("the best target is the one that LATHE_TEST_BEST_TARGET names", "[.cpu_model]") {
  const char* expected = std::getenv("LATHE_TEST_BEST_TARGET");
  REQUIRE(expected != nullptr);
  REQUIRE(std::string(Name(BestTarget())) == expected);
}

TEST_CASE("the list is the same from every thread", "[target]") {
  const TargetInfo* seen[8] = {};
  std::vector<std::thread> threads;
  for (auto& slot : seen) threads.emplace_back([&slot] { slot = Targets().data; });
  for (std::thread& thread : threads) thread.join();
  for (const TargetInfo* data : seen) REQUIRE(data == Targets().data);
}

TEST_CASE("forcing a target that cannot run is refused with its reason", "[target]") {
  const float kv_c[2] = {1, 2};
  float cache[2] = {};
  const int32_t slot = 0;
  LatentWriteArgs args;
  args.kv_c = Packed(kv_c, 1, 2);
  args.slot_mapping = Packed(&slot, 1);
  args.cache = LatentPages(cache, 1, 1, 2);
  for (const TargetInfo& info : Targets()) {
    CAPTURE(info.name);
    cache[0] = -1;
    LatentWriteOptions options;
    options.target = info.target;
    const Status status = WriteLatentCache(args, options);
    REQUIRE(status.ok() == info.runnable);
    REQUIRE(cache[0] == (info.runnable ? 1.0f : -1.0f));
    if (info.runnable) continue;
    REQUIRE(status.code == StatusCode::kTargetUnavailable);
    REQUIRE(std::string(status.argument) == "options.target");
    REQUIRE(std::string(status.reason) == info.reason);
    REQUIRE(std::string(Format(status).c_str()) ==
            "target unavailable: options.target is " + std::string(info.name) +
                ", must be auto or a target that runs here: " + info.reason);
  }
  LatentWriteOptions options;
  options.target = static_cast<Target>(77);
  const Status status = WriteLatentCache(args, options);
  REQUIRE(std::string(Format(status).c_str()) ==
          "target unavailable: options.target is 77, must be auto or a target that runs here: no "
          "such target");
}

#if defined(__x86_64__)
// CPUID and XGETBV, read without lathe or Highway: a detection that is too shy would skip most
// tests of the targets that matter, silently.
struct CpuFlags {
  bool avx2 = false, avx512 = false, zen4 = false;

  CpuFlags() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    __get_cpuid(1, &a, &b, &c, &d);
    const bool fma = (c >> 12 & 1) != 0, f16c = (c >> 29 & 1) != 0, osxsave = (c >> 27 & 1) != 0;
    const bool aes = (c >> 25 & 1) != 0 && (c >> 1 & 1) != 0;
    if (!osxsave) return;
    unsigned low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    const bool saves_ymm = (low & 0x6) == 0x6, saves_zmm = (low & 0xE6) == 0xE6;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    const auto ebx = [b](int bit) { return (b >> bit & 1) != 0; };
    const auto ecx = [c](int bit) { return (c >> bit & 1) != 0; };
    avx2 = saves_ymm && ebx(5) && ebx(3) && ebx(8) && fma && f16c && aes;
    avx512 = avx2 && saves_zmm && ebx(16) && ebx(17) && ebx(28) && ebx(30) && ebx(31);
    // VBMI, VBMI2, GFNI, VAES, VPCLMULQDQ, VNNI, BITALG, VPOPCNTDQ; and BF16.
    const bool ice_lake =
        avx512 && ecx(1) && ecx(6) && ecx(8) && ecx(9) && ecx(10) && ecx(11) && ecx(12) && ecx(14);
    __get_cpuid_count(7, 1, &a, &b, &c, &d);
    zen4 = ice_lake && (a >> 5 & 1) != 0;
  }
};

TEST_CASE("what the CPU can run is runnable", "[target]") {
  const CpuFlags cpu;
  const auto require_runs = [](Target target, bool expected) {
    const TargetInfo& info = *Find(target);
    INFO(info.name << ": " << info.reason);
    // A build may leave a target out on purpose, and says so.
    if (!info.compiled) SUCCEED("not compiled");
    if (info.compiled) REQUIRE(info.runnable == expected);
  };
  require_runs(Target::kAvx2, cpu.avx2);
  require_runs(Target::kAvx3, cpu.avx512);
  require_runs(Target::kAvx3Zen4, cpu.zen4);
}

TEST_CASE("a target of this architecture is left out only on purpose", "[target]") {
  for (const Target target : {Target::kAvx2, Target::kAvx3, Target::kAvx3Zen4}) {
    const TargetInfo& info = *Find(target);
    INFO(info.name << ": " << info.reason);
    const std::string reason = info.reason;
    const bool on_purpose = reason == "not compiled: disabled when this program was built" ||
                            reason == "not compiled: the compiler flags demand a better target";
    REQUIRE((info.compiled || on_purpose));
  }
  REQUIRE_FALSE(Find(Target::kNeon)->compiled);
}

TEST_CASE("bf16 products are native from avx3_zen4 on", "[target]") {
  REQUIRE_FALSE(Find(Target::kAvx2)->native_bf16);
  REQUIRE_FALSE(Find(Target::kAvx3)->native_bf16);
  if (Find(Target::kAvx3Zen4)->compiled) REQUIRE(Find(Target::kAvx3Zen4)->native_bf16);
}
#elif defined(__aarch64__)
#if defined(__linux__)
TEST_CASE("what the CPU can run is runnable", "[target]") {
  const unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
  const bool aes = (cap & HWCAP_AES) != 0;
  const bool bf16 = aes && (cap & HWCAP_ASIMDHP) != 0 && (cap & HWCAP_ASIMDDP) != 0 &&
                    (cap2 & (1ul << 14)) != 0;  // HWCAP2_BF16, which old headers lack
  const auto require_runs = [](Target target, bool expected) {
    const TargetInfo& info = *Find(target);
    INFO(info.name << ": " << info.reason);
    REQUIRE(info.runnable == (info.compiled && expected));
  };
  require_runs(Target::kNeon, aes);
  require_runs(Target::kNeonBf16, bf16);
}
#endif

TEST_CASE("a target of this architecture is left out only on purpose", "[target]") {
  const std::string neon = Find(Target::kNeon)->reason, bf16 = Find(Target::kNeonBf16)->reason;
  INFO("neon: " << neon << ", neon_bf16: " << bf16);
  const std::string demanded = "not compiled: the compiler flags demand a better target";
  REQUIRE((Find(Target::kNeon)->compiled || neon == demanded));
#if !defined(__apple_build_version__) && (__GNUC__ >= 14 || (__clang_major__ + 0) >= 17)
  REQUIRE(Find(Target::kNeonBf16)->compiled);
#endif
  REQUIRE_FALSE(Find(Target::kAvx2)->compiled);
}

TEST_CASE("bf16 products are native to neon_bf16 alone", "[target]") {
  REQUIRE_FALSE(Find(Target::kNeon)->native_bf16);
  if (Find(Target::kNeonBf16)->compiled) REQUIRE(Find(Target::kNeonBf16)->native_bf16);
#if !defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  REQUIRE_FALSE(Find(Target::kPortable)->native_bf16);
#endif
}
#endif

}  // namespace
}  // namespace lathe::test
