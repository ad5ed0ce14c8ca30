// SPDX-License-Identifier: Apache-2.0
// Shapes, strides, types and alignment that both planning and running refuse, with the same words.
#include <catch2/catch_test_macros.hpp>

#include "support/decode_call.h"

namespace lathe::test {
namespace {

using Call = DecodeCall;

void RequireBothRefuse(std::initializer_list<Refusal> refusals) {
  RequirePlanRefuses(refusals);
  RequireRunRefuses(refusals);
}

TEST_CASE("the call that the tables break is valid as it is", "[mla_decode][validation]") {
  for (const bool with_list : {false, true}) {
    for (const bool in_parts : {false, true}) {
      Call call;
      if (with_list) call.GiveList();
      if (in_parts) call.GiveQueryInParts();
      call.GiveRowLengths();
      REQUIRE(call.Plan().ok());
      REQUIRE(call.Run().ok());
      REQUIRE(call.out[0] == call.out[0]);  // written: the poison was NaN
    }
  }
}

TEST_CASE("a decode refuses a wrong out", "[mla_decode][validation]") {
  RequireBothRefuse({
      {"invalid argument: out.extent[1] is 3, must be 2",
       [](Call& c) { c.args.out.extent[1] = 3; }},
      {"invalid argument: out.extent[1] is -2, must be 2",
       [](Call& c) { c.args.out.extent[1] = -2; }},
      {"invalid argument: out.extent[2] is 5, must be 4",
       [](Call& c) { c.args.out.extent[2] = 5; }},
      {"invalid argument: out.extent[2] is 9223372036854775807, must be 4",
       [](Call& c) { c.args.out.extent[2] = kInt64Max; }},
      {"invalid argument: out.dtype is 7, must be a known DType",
       [](Call& c) { c.args.out.dtype = static_cast<DType>(7); }},
      {"invalid argument: out.stride[2] is 2, must be 1",
       [](Call& c) { c.args.out.stride[2] = 2; }},
      {"invalid argument: out.stride[1] is 3, must be at least a row's width, 4",
       [](Call& c) { c.args.out.stride[1] = 3; }},
      {"invalid argument: out.stride[0] is 0, must be at least a row's width, 4",
       [](Call& c) { c.args.out.stride[0] = 0; }},
      {"invalid argument: out.stride[0] is -8, must be at least 0",
       [](Call& c) { c.args.out.stride[0] = -8; }},
      {"invalid argument: out.stride[0] is 7, must not let rows overlap",
       [](Call& c) { c.args.out.stride[0] = 7; }},
      {"invalid argument: out.stride[0] is 9223372036854775807, must not lead beyond the address "
       "space "
       "with .extent 3",
       [](Call& c) { c.args.out.stride[0] = kInt64Max; }},
      {"invalid argument: out.stride[1] is 4611686018427387904, must not lead beyond the address "
       "space "
       "with .extent 2",
       [](Call& c) { c.args.out.stride[1] = int64_t{1} << 62; }},
      {"invalid argument: out.data must be aligned to 4",
       [](Call& c) { c.args.out.data = Shifted(c.args.out.data, 2); }},
  });
}

TEST_CASE("a decode refuses a wrong lse", "[mla_decode][validation]") {
  RequireBothRefuse({
      {"invalid argument: lse.extent[0] is 2, must be 3",
       [](Call& c) { c.args.lse.extent[0] = 2; }},
      {"invalid argument: lse.extent[1] is 1, must be 2",
       [](Call& c) { c.args.lse.extent[1] = 1; }},
      {"invalid argument: lse.extent[1] is -1, must be at least 0",
       [](Call& c) { c.args.lse.extent[1] = -1; }},
      {"invalid argument: lse.stride[1] is 0, must be at least 1",
       [](Call& c) { c.args.lse.stride[1] = 0; }},
      {"invalid argument: lse.stride[0] is -2, must be at least 0",
       [](Call& c) { c.args.lse.stride[0] = -2; }},
      {"invalid argument: lse.stride[0] is 1, must not let elements overlap",
       [](Call& c) { c.args.lse.stride[0] = 1; }},
      {"invalid argument: lse.stride[0] is 9223372036854775807, must not lead beyond the address "
       "space "
       "with .extent 3",
       [](Call& c) { c.args.lse.stride[0] = kInt64Max; }},
      {"invalid argument: lse.data must be aligned to 4",
       [](Call& c) { c.args.lse.data = Shifted(c.args.lse.data, 1); }},
  });
}

TEST_CASE("a decode refuses a wrong query", "[mla_decode][validation]") {
  RequireBothRefuse({
      {"invalid argument: q.extent[0] is 2, must be 3", [](Call& c) { c.args.q.extent[0] = 2; }},
      {"invalid argument: q.extent[1] is 1, must be 2", [](Call& c) { c.args.q.extent[1] = 1; }},
      {"invalid argument: q.extent[2] is 4, must be 6", [](Call& c) { c.args.q.extent[2] = 4; }},
      {"invalid argument: q.extent[2] is -6, must be 6", [](Call& c) { c.args.q.extent[2] = -6; }},
      {"invalid argument: q.extent[0] is 0, must be 3", [](Call& c) { c.args.q = {}; }},
      {"invalid argument: q.dtype is 3, must be a known DType",
       [](Call& c) { c.args.q.dtype = static_cast<DType>(3); }},
      {"invalid argument: q.stride[2] is 0, must be 1", [](Call& c) { c.args.q.stride[2] = 0; }},
      {"invalid argument: q.stride[1] is 5, must be at least a row's width, 6",
       [](Call& c) { c.args.q.stride[1] = 5; }},
      {"invalid argument: q.stride[0] is -12, must be at least 0",
       [](Call& c) { c.args.q.stride[0] = -12; }},
      {"invalid argument: q.stride[0] is 9223372036854775807, must not lead beyond the address "
       "space "
       "with .extent 3",
       [](Call& c) { c.args.q.stride[0] = kInt64Max; }},
      {"invalid argument: q.data must be aligned to 4",
       [](Call& c) { c.args.q.data = Shifted(c.args.q.data, 3); }},
      {"invalid argument: q must not be given beside q_nope and q_pe",
       [](Call& c) { c.args.q_nope = Packed(c.q_nope.data(), 3, 2, 4); }},
      {"invalid argument: q must not be given beside q_nope and q_pe",
       [](Call& c) { c.args.q_pe = Packed(c.q_pe.data(), 3, 2, 2); }},
  });
}

TEST_CASE("a decode refuses wrong parts of a query", "[mla_decode][validation]") {
  const auto in_parts = [](Call& c) { c.GiveQueryInParts(); };
  RequireBothRefuse({
      {"invalid argument: q_nope.extent[0] is 0, must be 3", [](Call& c) { c.args.q_nope = {}; },
       in_parts},
      {"invalid argument: q_pe.extent[0] is 0, must be 3", [](Call& c) { c.args.q_pe = {}; },
       in_parts},
      {"invalid argument: q_nope.extent[2] is 6, must be 4",
       [](Call& c) { c.args.q_nope.extent[2] = 6; }, in_parts},
      {"invalid argument: q_pe.extent[2] is 1, must be 2",
       [](Call& c) { c.args.q_pe.extent[2] = 1; }, in_parts},
      {"invalid argument: q_pe.extent[2] is -2, must be 2",
       [](Call& c) { c.args.q_pe.extent[2] = -2; }, in_parts},
      {"invalid argument: q_pe.extent[1] is 3, must be 2",
       [](Call& c) { c.args.q_pe.extent[1] = 3; }, in_parts},
      {"invalid argument: q_nope.stride[1] is 3, must be at least a row's width, 4",
       [](Call& c) { c.args.q_nope.stride[1] = 3; }, in_parts},
      {"invalid argument: q_pe.dtype is 255, must be a known DType",
       [](Call& c) { c.args.q_pe.dtype = static_cast<DType>(255); }, in_parts},
      {"invalid argument: q_pe.data must be aligned to 4",
       [](Call& c) { c.args.q_pe.data = Shifted(c.args.q_pe.data, 2); }, in_parts},
  });
}

TEST_CASE("a decode without a rope part refuses one", "[mla_decode][validation]") {
  RequireBothRefuse({{"invalid argument: q_pe.extent[2] is 2, must be 0",
                      [](Call& c) { c.args.q_pe = Packed(c.q_pe.data(), 3, 2, 2); },
                      [](Call& c) {
                        c.shape = {2, 4, 0};
                        c.args.q = {};
                        c.args.q_nope = Packed(c.q_nope.data(), 3, 2, 4);
                      }}});
}

TEST_CASE("a decode refuses a wrong sink", "[mla_decode][validation]") {
  RequireBothRefuse({
      {"invalid argument: attn_sink.extent[0] is 1, must be 2",
       [](Call& c) { c.args.attn_sink.extent[0] = 1; }},
      {"invalid argument: attn_sink.stride[0] is 0, must be at least 1",
       [](Call& c) { c.args.attn_sink.stride[0] = 0; }},
      {"invalid argument: attn_sink.data must not be null",
       [](Call& c) { c.args.attn_sink.data = nullptr; }},
      {"invalid argument: attn_sink.data must be aligned to 4",
       [](Call& c) { c.args.attn_sink.data = Shifted(c.args.attn_sink.data, 2); }},
  });
}

}  // namespace
}  // namespace lathe::test
