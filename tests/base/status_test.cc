// SPDX-License-Identifier: Apache-2.0
// Status: every part of a message, literally, and a buffer that no text can overflow.
#include "lathe/base/status.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

namespace lathe::test {
namespace {

std::string Text(const Status& status) { return Format(status).c_str(); }

TEST_CASE("success is ok and says so", "[status]") {
  STATIC_REQUIRE(OkStatus().ok());
  STATIC_REQUIRE(Status{}.ok());
  STATIC_REQUIRE_FALSE(Invalid("x").ok());
  REQUIRE(Text(OkStatus()) == "ok");
}

TEST_CASE("a refusal names argument, field, element, value, rule, bound and reason", "[status]") {
  REQUIRE(Text(Invalid("keys.window").Is(-3).Must("be at least", 0)) ==
          "invalid argument: keys.window is -3, must be at least 0");
  REQUIRE(Text(Invalid("q", ".stride").At(1).Is(575).Must("be at least a row's width,", 576)) ==
          "invalid argument: q.stride[1] is 575, must be at least a row's width, 576");
  REQUIRE(Text(Refuse(StatusCode::kIndexOutOfRange, "keys.seq_lens")
                   .At(3)
                   .Is(70000)
                   .Must("be at most block_table.extent[1] * block_size =", 65536)) ==
          "index out of range: keys.seq_lens[3] is 70000, must be at most block_table.extent[1] * "
          "block_size = 65536");
  REQUIRE(Text(Refuse(StatusCode::kBufferTooSmall, "workspace", ".bytes")
                   .Is(7)
                   .Must("be at least", 8)) ==
          "buffer too small: workspace.bytes is 7, must be at least 8");
  REQUIRE(Text(Invalid("options.softmax_scale").Is(-0.5).Must("be above 0")) ==
          "invalid argument: options.softmax_scale is -0.5, must be above 0");
  REQUIRE(Text(Invalid("q", ".data").Must("not be null")) ==
          "invalid argument: q.data must not be null");
  REQUIRE(Text(Refuse(StatusCode::kStalePlan, "plan").Must("be made for these lengths")) ==
          "stale plan: plan must be made for these lengths");
  REQUIRE(
      Text(Refuse(StatusCode::kTargetUnavailable, "options.target")
               .Is(4)
               .Must("be a target that runs here")
               .Because("this CPU lacks AVX512_BF16")) ==
      "target unavailable: options.target is 4, must be a target that runs here: this CPU lacks "
      "AVX512_BF16");
}

TEST_CASE("a refusal quotes names as well as numbers", "[status]") {
  REQUIRE(Text(Invalid("cache", ".format").IsNamed("kFp8DsMla").MustName("be", "kLatentFloat32")) ==
          "invalid argument: cache.format is kFp8DsMla, must be kLatentFloat32");
  REQUIRE(Text(Refuse(StatusCode::kTargetUnavailable, "options.target")
                   .IsNamed("avx3_zen4")
                   .Must("be a target that runs here")
                   .Because("this CPU lacks AVX512_BF16")) ==
          "target unavailable: options.target is avx3_zen4, must be a target that runs here: this "
          "CPU lacks AVX512_BF16");
}

TEST_CASE("a refusal of one struct of a list says which", "[status]") {
  REQUIRE(Text(Invalid("out", ".extent").At(2).Is(5).Must("be", 4).Of("parts", 0)) ==
          "invalid argument: parts[0].out.extent[2] is 5, must be 4");
  REQUIRE(Text(Invalid("lse").Must("not overlap out").Of("parts", 12)) ==
          "invalid argument: parts[12].lse must not overlap out");
}

TEST_CASE("the parts of a refusal can be read one by one", "[status]") {
  constexpr Status s = Invalid("a", ".b").At(4).Is(5).Must("be", 6).Because("why").Of("c", 7);
  STATIC_REQUIRE(s.code == StatusCode::kInvalidArgument);
  STATIC_REQUIRE(s.kind == Status::Kind::kInteger);
  STATIC_REQUIRE((s.index == 4 && s.integer == 5 && s.has_bound && s.bound == 6 && s.entry == 7));
  REQUIRE(std::strcmp(s.argument, "a") == 0);
  REQUIRE(std::strcmp(s.field, ".b") == 0);
  REQUIRE(std::strcmp(s.rule, "be") == 0);
  REQUIRE(std::strcmp(s.reason, "why") == 0);
  REQUIRE(std::strcmp(s.list, "c") == 0);
  constexpr Status named = Invalid("a").Is(StatusCode::kStalePlan).Must("be below", size_t{3});
  STATIC_REQUIRE((named.kind == Status::Kind::kInteger && named.integer == 4 && named.bound == 3));
  STATIC_REQUIRE(OutOfRange("a", ".b").code == StatusCode::kIndexOutOfRange);
  constexpr Status single = Invalid("a").Is(0.5f);
  STATIC_REQUIRE((single.kind == Status::Kind::kReal && single.real == 0.5));
  constexpr Status real = Invalid("a").Is(0.25).Must("be something");
  STATIC_REQUIRE((real.kind == Status::Kind::kReal && real.real == 0.25 && !real.has_bound));
  STATIC_REQUIRE((real.index == -1 && real.list[0] == '\0'));
  STATIC_REQUIRE(std::is_trivially_copyable_v<Status>);
}

TEST_CASE("extreme numbers are written whole", "[status]") {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  REQUIRE(Text(Invalid("a").At(kMax).Is(kMin).Must("be", kMin).Of("b", kMax)) ==
          "invalid argument: b[9223372036854775807].a[9223372036854775807] is "
          "-9223372036854775808, must be -9223372036854775808");
  REQUIRE(Text(Invalid("a").Is(-std::numeric_limits<double>::max()).Must("be")) ==
          "invalid argument: a is -1.79769313e+308, must be");
  REQUIRE(Text(Invalid("a").Is(std::numeric_limits<double>::quiet_NaN()).Must("be")).find("nan,") !=
          std::string::npos);
}

TEST_CASE("a text that is too long is cut, never written past its buffer", "[status]") {
  const std::string name(5000, 'n');
  Status s = Invalid(name.c_str(), name.c_str()).At(1).Is(2).Must(name.c_str(), 3);
  s = s.Because(name.c_str()).Of(name.c_str(), 4);
  struct {
    StatusText text;
    char canary[64];
  } box;
  std::memset(&box, 'c', sizeof(box));
  box.text = Format(s);
  for (const char c : box.canary) REQUIRE(c == 'c');
  REQUIRE(std::memchr(box.text.text, '\0', sizeof(box.text.text)) ==
          box.text.text + sizeof(box.text.text) - 1);
  REQUIRE(std::string(box.text.text).rfind("invalid argument: nnn", 0) == 0);
}

TEST_CASE("every code has a name of its own", "[status]") {
  const StatusCode codes[] = {StatusCode::kOk,
                              StatusCode::kInvalidArgument,
                              StatusCode::kBufferTooSmall,
                              StatusCode::kIndexOutOfRange,
                              StatusCode::kStalePlan,
                              StatusCode::kTargetUnavailable};
  for (const StatusCode a : codes) {
    REQUIRE(std::string(Name(a)) != "unknown");
    for (const StatusCode b : codes) REQUIRE((a == b) == (std::string(Name(a)) == Name(b)));
  }
  REQUIRE(std::string(Name(static_cast<StatusCode>(200))) == "unknown");
}

}  // namespace
}  // namespace lathe::test
