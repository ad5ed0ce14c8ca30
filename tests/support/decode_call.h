// SPDX-License-Identifier: Apache-2.0
// A small valid decode call to be broken in one place, and the tables that say what is refused
// then.
#ifndef LATHE_TESTS_SUPPORT_DECODE_CALL_H_
#define LATHE_TESTS_SUPPORT_DECODE_CALL_H_

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lathe/lathe.h"
#include "support/memory.h"

namespace lathe::test {

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();

// `data` moved by some bytes, for misaligned arrays.
template <class T>
T* Shifted(T* data, ptrdiff_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(data) + bytes);
}

// Two sequences of 3 and 5 keys with 1 and 2 query rows; 2 heads, 4 + 2 columns, 6 pages of 2 keys.
// Every optional tensor that goes with a dense call is given; GiveList() adds an index list.
struct DecodeCall {
  MlaShape shape{2, 4, 2};
  MlaDecodeOptions options;
  MlaDecodeArgs args;
  size_t num_workers = 2;
  Guarded<float> q{3 * 2 * 6}, q_nope{3 * 2 * 4}, q_pe{3 * 2 * 2}, cache{6 * 2 * 6}, sink{2};
  Guarded<float> out{3 * 2 * 4}, lse{3 * 2};
  Guarded<int32_t> query_start_loc{std::vector<int32_t>{0, 1, 3}};
  Guarded<int32_t> seq_lens{std::vector<int32_t>{3, 5}};
  Guarded<int32_t> block_table{std::vector<int32_t>{5, 0, 77777, 1, 4, 2}};
  Guarded<int32_t> row_kv_lens{std::vector<int32_t>{2, 3, 4}};
  Guarded<int32_t> indices{std::vector<int32_t>{2, -1, 0, 3, 1, 99}};
  Guarded<int32_t> topk_length{std::vector<int32_t>{2, 0, 1}};
  Guarded<float> extra_cache{3 * 1 * 6};
  Guarded<int32_t> extra_block_table{std::vector<int32_t>{2, 77777, 0, 1}};
  Guarded<float> angles{8 * 2};
  Guarded<int32_t> positions{std::vector<int32_t>{2, 3, 7}};
  Guarded<uint64_t> tree{std::vector<uint64_t>{1, 1, 3}};
  Guarded<std::byte> plan_memory{1 << 14}, workspace{1 << 19};
  Buffer plan_buffer{plan_memory.data(), plan_memory.size()};
  Buffer workspace_buffer{workspace.data(), workspace.size()};
  const MlaDecodePlan* plan = nullptr;

  DecodeCall() {
    for (Guarded<float>* tensor : {&q, &q_nope, &q_pe, &cache, &sink, &extra_cache, &angles}) {
      for (float& x : *tensor) x = 0.5f;
    }
    options.softmax_scale = 0.5f;
    args.q = Packed(q.data(), 3, 2, 6);
    args.query_start_loc = Packed(query_start_loc.data(), 3);
    args.keys.cache = LatentPages(static_cast<const float*>(cache.data()), 6, 2, 6);
    args.keys.block_table = Packed(block_table.data(), 2, 3);
    args.keys.seq_lens = Packed(seq_lens.data(), 2);
    args.attn_sink = Packed(sink.data(), 2);
    args.out = Packed(out.data(), 3, 2, 4);
    args.lse = Packed(lse.data(), 3, 2);
  }
  DecodeCall(const DecodeCall&) = delete;
  DecodeCall& operator=(const DecodeCall&) = delete;

  void GiveQueryInParts() {
    args.q = {};
    args.q_nope = Packed(q_nope.data(), 3, 2, 4);
    args.q_pe = Packed(q_pe.data(), 3, 2, 2);
  }
  void GiveRowLengths() { args.keys.row_kv_lens = Packed(row_kv_lens.data(), 3); }
  void GiveList() {
    args.keys.indices = Packed(indices.data(), 3, 2);
    args.keys.topk_length = Packed(topk_length.data(), 3);
  }
  // Entries of 2 tokens each in 3 pages of one, beside a window of 2.
  void GiveExtra() {
    args.keys.window = 2;
    args.extra_keys =
        CompressedKeys(LatentPages(static_cast<const float*>(extra_cache.data()), 3, 1, 6),
                       Packed(extra_block_table.data(), 2, 2), args.keys.seq_lens, 2);
  }
  // Angles of positions below 8 for the last 4 columns of out.
  void GiveRope() {
    args.out_rope.cos = Packed(angles.data(), 8, 2);
    args.out_rope.sin = Packed(angles.data(), 8, 2);
  }
  // The queries of each sequence are a chain.
  void GiveTree() { args.tree_mask = Packed(static_cast<const uint64_t*>(tree.data()), 3, 1); }
  void GivePositions() { args.positions = Packed(positions.data(), 3); }
  std::byte* out_bytes() { return reinterpret_cast<std::byte*>(out.data()); }

  Status Plan() { return PlanMlaDecode(shape, options, args, num_workers, plan_buffer, &plan); }
  Status Run() { return RunMlaDecode(*plan, args, workspace_buffer); }
  Status Part(size_t ith, size_t nth) {
    return RunMlaDecodePart(*plan, args, workspace_buffer, ith, nth);
  }
  Status Merge(size_t ith, size_t nth) {
    return RunMlaDecodeMerge(*plan, args, workspace_buffer, ith, nth);
  }

  // The bytes of all memory that a call may write, or must not.
  std::vector<std::byte> Snapshot() const {
    std::vector<std::byte> bytes;
    const auto add = [&bytes](const auto&... arrays) {
      const auto append = [&bytes](const auto& array) {
        const auto* first = reinterpret_cast<const std::byte*>(array.data());
        bytes.insert(bytes.end(), first, first + array.size() * sizeof(*array.data()));
      };
      (append(arrays), ...);
    };
    add(q, q_nope, q_pe, cache, sink, out, lse, query_start_loc, seq_lens, block_table,
        row_kv_lens);
    add(indices, topk_length, extra_cache, extra_block_table, angles, positions, tree);
    add(plan_memory, workspace);
    return bytes;
  }
};

// One way to break a call, and the whole message that names it.
struct Refusal {
  const char* message;
  void (*break_it)(DecodeCall& call);
  void (*prepare)(DecodeCall& call) = [](DecodeCall&) {};  // valid changes, made before planning
};

inline void RequireRefused(const Status& status, const std::string& message) {
  REQUIRE(std::string(Format(status).c_str()) == message);
  REQUIRE_FALSE(status.ok());
}

inline void RequirePlanRefuses(std::initializer_list<Refusal> refusals) {
  for (const Refusal& refusal : refusals) {
    DecodeCall call;
    refusal.prepare(call);
    INFO("expected: " << refusal.message);
    REQUIRE(std::string(Format(call.Plan()).c_str()) == "ok");
    call.plan = nullptr;
    std::memset(call.plan_memory.data(), kPoison, call.plan_memory.size());
    refusal.break_it(call);
    const auto before = call.Snapshot();
    RequireRefused(call.Plan(), refusal.message);
    REQUIRE(call.plan == nullptr);
    REQUIRE(SameBits(call.Snapshot(), before));
  }
}

// Run, Part and Merge alike, with the plan of the call as it was before it was broken.
inline void RequireRunRefuses(std::initializer_list<Refusal> refusals) {
  for (const Refusal& refusal : refusals) {
    DecodeCall call;
    refusal.prepare(call);
    INFO("expected: " << refusal.message);
    REQUIRE(std::string(Format(call.Plan()).c_str()) == "ok");
    refusal.break_it(call);
    const auto before = call.Snapshot();
    RequireRefused(call.Run(), refusal.message);
    RequireRefused(call.Part(0, 2), refusal.message);
    RequireRefused(call.Merge(1, 2), refusal.message);
    REQUIRE(SameBits(call.Snapshot(), before));
  }
}

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_DECODE_CALL_H_
