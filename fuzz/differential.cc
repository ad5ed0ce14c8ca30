// SPDX-License-Identifier: Apache-2.0
// Whole calls that are right, of every shape, format, mask and target, against the double reference, and against
// themselves: with other numbers of workers, without the other sequences of the batch, and with other queries, lists
// and lengths in the other rows of a sequence each row keeps its bits.
#include "fuzz_input.h"
#include "lathe/ref/attention_ref.h"
#include "row_transform.h"
#include "support/bounds.h"

namespace lathe::fuzz {
namespace {

// Rows [begin, begin + count) of what has a row for each token or sequence.
template <class T, size_t R>
View<T, R> Rows(View<T, R> v, int64_t begin, int64_t count) {
  if (!v.empty()) v.data += begin * v.stride[0];
  v.extent[0] = v.empty() ? v.extent[0] : count;
  return v;
}
template <class Byte, size_t R>
AnyView<Byte, R> Rows(AnyView<Byte, R> v, int64_t begin, int64_t count) {
  if (!v.empty()) v.data += begin * v.stride[0] * static_cast<int64_t>(SizeOf(v.dtype));
  v.extent[0] = v.empty() ? v.extent[0] : count;
  return v;
}
template <size_t R>
IndexView<R> Rows(IndexView<R> v, int64_t begin, int64_t count) {
  const int64_t bytes = v.is_int64 ? 8 : 4;
  if (!v.empty()) v.data = static_cast<const char*>(v.data) + begin * v.stride[0] * bytes;
  v.extent[0] = v.empty() ? v.extent[0] : count;
  return v;
}

// An array of the fuzzer's own, which a call only reads.
template <size_t R>
MutableIndexView<R> Writable(const IndexView<R>& v) {
  MutableIndexView<R> writable;
  writable.data = const_cast<void*>(v.data);
  writable.is_int64 = v.is_int64;
  std::copy(v.extent, v.extent + R, writable.extent);
  std::copy(v.stride, v.stride + R, writable.stride);
  return writable;
}

// The tokens of each sequence, and where each begins.
struct Batch {
  std::vector<int64_t> q_lens, starts{0};

  explicit Batch(Input& in) {
    for (int64_t b = in.Int(1, 3); b > 0; --b) {
      q_lens.push_back(in.Pick<int64_t>({1, 2, 3, 1, 4, 0, 7, 2}));
      starts.push_back(starts.back() + q_lens.back());
    }
  }
  int64_t num_seqs() const { return static_cast<int64_t>(q_lens.size()); }
  int64_t num_tokens() const { return starts.back(); }
  // Of a token among the queries of its sequence.
  int64_t PlaceOf(int64_t token) const {
    return token - *(std::upper_bound(starts.begin(), starts.end(), token) - 1);
  }
};

// A query sees its own key. One that sees none of the queries' may have a key before those that a window cuts by
// (docs/numerics.md), and other rows' bits with it.
void SetPath(const View<const uint64_t, 2>& mask, int64_t token, int64_t place, uint64_t path) {
  const_cast<uint64_t*>(mask.data)[token * mask.stride[0]] = path | uint64_t{1} << place;
}

// out and lse, and what is compared of them.
struct Results {
  Out<3> out;
  View<float, 2> lse;

  std::byte* Row(int64_t token, int64_t head) const {
    const int64_t offset = token * out.stride[0] + head * out.stride[1];
    return out.data + offset * static_cast<int64_t>(SizeOf(out.dtype));
  }
  size_t RowBytes() const { return static_cast<size_t>(out.extent[2]) * SizeOf(out.dtype); }
  float* Lse(int64_t token, int64_t head) const {
    return lse.empty() ? nullptr : lse.data + token * lse.stride[0] + head * lse.stride[1];
  }
  void Clear() const {
    ForEach([this](int64_t token, int64_t head) {
      std::memset(Row(token, head), 0xFF, RowBytes());
      if (!lse.empty()) std::memset(Lse(token, head), 0xFF, sizeof(float));
    });
  }
  std::vector<std::byte> Bits(int64_t token_begin, int64_t num_tokens) const {
    std::vector<std::byte> bits;
    ForEach([&](int64_t token, int64_t head) {
      if (token < token_begin || token >= token_begin + num_tokens) return;
      bits.insert(bits.end(), Row(token, head), Row(token, head) + RowBytes());
      if (lse.empty()) return;
      const auto* value = reinterpret_cast<const std::byte*>(Lse(token, head));
      bits.insert(bits.end(), value, value + sizeof(float));
    });
    return bits;
  }
  std::vector<std::byte> Bits() const { return Bits(0, out.extent[0]); }

 private:
  template <class F>
  void ForEach(const F& f) const {
    for (int64_t token = 0; token < out.extent[0]; ++token) {
      for (int64_t head = 0; head < out.extent[1]; ++head) f(token, head);
    }
  }
};

Executor InReverse(size_t num_workers) {
  return {nullptr, num_workers, [](void*, size_t n, Executor::TaskFn fn, void* arg) {
            for (size_t i = n; i-- > 0;) fn(arg, i);
          }};
}

Buffer PlanMemory() {
  alignas(64) static std::byte memory[1 << 22];
  return {memory, sizeof(memory)};
}

template <class Plan, class Run>
void RunPlanned(const Status& planned, const Plan* plan, const Results& results, const Run& run) {
  LATHE_FUZZ_REQUIRE(planned.ok(), "%s", Format(planned).c_str());
  results.Clear();
  std::vector<std::byte> workspace(PlanWorkspaceBytes(*plan) + 1);
  const Status status = run(*plan, Buffer{workspace.data(), workspace.size() - 1});
  LATHE_FUZZ_REQUIRE(status.ok(), "%s", Format(status).c_str());
}

struct Decode {
  MlaShape shape;
  MlaDecodeOptions options;
  MlaDecodeArgs args;

  Results results() const { return {args.out, args.lse}; }
  void Run(size_t num_workers) const {
    const MlaDecodePlan* plan = nullptr;
    const Status planned = PlanMlaDecode(shape, options, args, num_workers, PlanMemory(), &plan);
    RunPlanned(planned, plan, results(), [&](const MlaDecodePlan& made, Buffer workspace) {
      return RunMlaDecode(made, args, workspace, InReverse(num_workers));
    });
  }

  // Sequence b alone.
  Decode Alone(const Batch& batch, int64_t b) const {
    Decode alone = *this;
    static int32_t starts[2];
    const int64_t first = batch.starts[static_cast<size_t>(b)];
    const int64_t count = batch.q_lens[static_cast<size_t>(b)];
    starts[0] = 0;
    starts[1] = static_cast<int32_t>(count);
    MlaDecodeArgs& a = alone.args;
    a.query_start_loc = Packed(static_cast<const int32_t*>(starts), 2);
    a.q = Rows(a.q, first, count);
    a.q_nope = Rows(a.q_nope, first, count);
    a.q_pe = Rows(a.q_pe, first, count);
    a.positions = Rows(a.positions, first, count);
    a.tree_mask = Rows(a.tree_mask, first, count);
    a.out = Rows(a.out, first, count);
    a.lse = Rows(a.lse, first, count);
    for (KeySet* keys : {&a.keys, &a.extra_keys}) {
      keys->block_table = Rows(keys->block_table, b, 1);
      keys->seq_lens = Rows(keys->seq_lens, b, 1);
      keys->row_kv_lens = Rows(keys->row_kv_lens, first, count);
      keys->row_starts = Rows(keys->row_starts, first, count);
      keys->indices = Rows(keys->indices, first, count);
      keys->topk_length = Rows(keys->topk_length, first, count);
    }
    return alone;
  }
};

// How many keys a decode may have in all for the reference to be fast.
constexpr int64_t kMostProducts = 20'000'000;
constexpr int64_t kMostSlotBytes = 1 << 16;

CacheFormat AnyFormat(Input& in) {
  constexpr CacheFormat kFormats[] = {
#define LATHE_FORMAT(enumerator, number, ...) CacheFormat::enumerator,
#include "lathe/cache/formats.def"
#undef LATHE_FORMAT
  };
  // Plain formats as often as all others.
  return in.Flip() ? in.Pick({CacheFormat::kLatentBFloat16, CacheFormat::kLatentBFloat16,
                              CacheFormat::kLatentFloat32, CacheFormat::kLatentFp8E4m3})
                   : kFormats[in.Int(0, std::size(kFormats) - 1)];
}

// One record becomes what no arithmetic likes.
void PoisonRecord(Input& in, const MutablePagedCache& cache, int64_t width) {
  std::vector<float> row(static_cast<size_t>(width), 0.5f);
  // Where a tile has a scale an infinity becomes the largest float, whose products overflow.
  const bool is_plain = cache.format == CacheFormat::kLatentFloat32 ||
                        cache.format == CacheFormat::kLatentFloat16 ||
                        cache.format == CacheFormat::kLatentBFloat16;
  const float infinity = is_plain ? INFINITY : NAN;
  row[static_cast<size_t>(in.Int(0, width - 1))] = in.Pick({NAN, infinity, -infinity});
  const int64_t slot = in.Int(0, cache.num_blocks * cache.block_size - 1);
  LatentWriteArgs write;
  write.kv_c = Packed(static_cast<const float*>(row.data()), 1, width);
  write.slot_mapping = Packed(&slot, 1);
  write.cache = cache;
  LATHE_FUZZ_REQUIRE(WriteLatentCache(write).ok(), "a record is refused");
}

KeySet MakeKeys(Input& in, Arrays& arrays, const Batch& batch, CacheFormat format, int64_t width,
                int64_t longest, bool has_tree) {
  KeySet keys;
  test::Random random = in.Numbers();
  const int64_t block_size = in.Pick<int64_t>({1, 2, 3, 7, 16, 64});
  const int64_t slot_bytes = RecordBytes(format, width) + SideBytes(format) + 32;
  const int64_t num_blocks =
      std::max<int64_t>(1, std::min<int64_t>(40, kMostSlotBytes / (slot_bytes * block_size)));
  const MutablePagedCache cache = arrays.FilledCache(format, width, num_blocks, block_size);
  keys.cache = cache;
  if (arrays.fit() && in.Chance(8)) PoisonRecord(in, cache, width);
  keys.compress_ratio = in.Pick<int64_t>({1, 1, 1, 4, 3});
  if (in.Chance(4)) keys.window = in.Pick<int64_t>({1, 5, 128, 300});
  keys.block_table = arrays.Indices<2>({batch.num_seqs(), (longest + block_size - 1) / block_size},
                                       [&] { return random.Below(num_blocks); });
  const int64_t shortest = in.Flip() ? longest / 2 : 0;
  keys.seq_lens = arrays.Indices<1>(
      {batch.num_seqs()}, [&] { return shortest + random.Below(longest - shortest + 1); });
  if (in.Chance(4)) {
    keys.row_kv_lens = arrays.Indices<1>({batch.num_tokens()}, [&] {
      return random.Below(3) == 0 ? random.Below(6) - 2 : random.Below(longest + 3);
    });
  }
  if (!in.Chance(3)) {
    if (has_tree || !in.Chance(4)) return keys;
    keys.row_starts =
        arrays.Indices<1>({batch.num_tokens()}, [&] { return random.Below(longest + 3) - 2; });
    return keys;
  }
  // Few of many places are live, or most of few.
  const int64_t places = in.Pick<int64_t>({4, 70, 1100, 2048});
  const int64_t holes = places > 100 ? places / 16 : in.Int(0, 3);
  keys.index_space = !has_tree && in.Flip() ? IndexSpace::kPhysical : IndexSpace::kLogical;
  const int64_t last =
      keys.index_space == IndexSpace::kPhysical ? num_blocks * block_size : longest;
  keys.indices = arrays.Indices<2>({batch.num_tokens(), places}, [&] {
    return random.Below(holes + 1) != 0 ? -1 - random.Below(3) : random.Below(last + 2);
  });
  if (in.Chance(3)) {
    keys.topk_length =
        arrays.Indices<1>({batch.num_tokens()}, [&] { return random.Below(places + 1); });
  }
  return keys;
}

Target AnyTarget(Input& in) {
  std::vector<Target> targets;
  for (const TargetInfo& info : Targets()) {
    if (info.runnable) targets.push_back(info.target);
  }
  return targets[static_cast<size_t>(in.Int(0, static_cast<int64_t>(targets.size()) - 1))];
}

Decode MakeDecode(Input& in, Arrays& arrays, const Batch& batch) {
  Decode call;
  MlaDecodeArgs& args = call.args;
  const int64_t tokens = batch.num_tokens();
  const int64_t heads = in.Pick<int64_t>({1, 2, 3, 5, 8, 16, 20, 64});
  CacheFormat formats[2] = {AnyFormat(in), AnyFormat(in)};
  int64_t rank = in.Pick<int64_t>({16, 64, 40, 7, 512, 128});
  int64_t rope = in.Pick<int64_t>({0, 16, 5, 64});
  for (const CacheFormat format : formats) {
    const int64_t width = FixedWidth(format);
    if (width == 0) continue;
    rank = width > 512 ? 512 : width;
    rope = width - rank;
  }
  const int64_t width = rank + rope;
  for (CacheFormat& format : formats) {
    if (FixedWidth(format) != 0 && FixedWidth(format) != width)
      format = CacheFormat::kLatentBFloat16;
  }
  const int64_t most = kMostProducts / (2 * width * heads * std::max<int64_t>(tokens, 1));
  const int64_t longest =
      std::max<int64_t>(4, std::min(most, in.Pick<int64_t>({8, 60, 200, 700, 2500})));
  call.shape = {heads, rank, rope};
  call.options.softmax_scale =
      in.Pick({0.3f, 0.6f, 1.5f, 0.05f}) / std::sqrt(static_cast<float>(width));
  call.options.precision =
      in.Pick({Precision::kAuto, Precision::kAuto, Precision::kBFloat16, Precision::kFloat32});
  call.options.target = AnyTarget(in);
  const bool has_tree = in.Chance(5);
  call.options.causal = has_tree || !in.Chance(4);

  const DType q_type = in.Flip() ? DType::kBFloat16 : DTypeOf(in);
  if (in.Flip()) {
    args.q = arrays.FloatInput<3>({tokens, heads, width}, q_type);
  } else {
    args.q_nope = arrays.FloatInput<3>({tokens, heads, rank}, q_type);
    if (rope > 0) args.q_pe = arrays.FloatInput<3>({tokens, heads, rope}, q_type);
  }
  size_t b = 0;
  args.query_start_loc =
      arrays.Indices<1>({batch.num_seqs() + 1}, [&] { return batch.starts[b++]; });
  args.keys = MakeKeys(in, arrays, batch, formats[0], width, longest, has_tree);
  if (in.Chance(2))
    args.extra_keys = MakeKeys(in, arrays, batch, formats[1], width, longest, has_tree);
  if (in.Chance(3)) args.attn_sink = arrays.Float32<1>({heads});
  args.out = arrays.Floats<3>({tokens, heads, rank}, in.Flip() ? DType::kFloat32 : DTypeOf(in));
  if (!in.Chance(4)) args.lse = arrays.Float32<2>({tokens, heads});
  if (has_tree) {
    args.tree_mask = arrays.Make<View<const uint64_t, 2>, 2>({tokens, 1}, 8, true, {});
    test::Random random = in.Numbers();
    for (int64_t t = 0; arrays.fit() && t < tokens; ++t) {
      SetPath(args.tree_mask, t, batch.PlaceOf(t), random.Next());
    }
  }
  if (in.Chance(6) && rank > 1) {
    args.out_rope = MakeRope(in, arrays, rank, longest + 1);
    args.positions = arrays.Indices<1>({tokens}, [&] { return in.Int(0, longest); });
  }
  return call;
}

// How far a result may be from the reference. The largest value in a cache is 2, and 2.1 in the coarsest format.
class DecodeBounds {
 public:
  explicit DecodeBounds(const Decode& call) : call_(call) {
    is_bf16_ = test::HasBf16Products(call.options, call.args);
    Decode twice = call;
    twice.options.softmax_scale *= 2;
    if (is_bf16_) squares_ = ref::MlaDecode(twice.shape, twice.options, twice.args);
    bool is_exact = call.args.q.extent[2] == 0 || call.args.q.dtype == DType::kBFloat16;
    is_exact =
        is_exact && (call.args.q_nope.extent[2] == 0 || call.args.q_nope.dtype == DType::kBFloat16);
    for (const KeySet* keys : {&call.args.keys, &call.args.extra_keys}) {
      if (!keys->is_given()) continue;
      is_exact = is_exact && BFloat16UnscaledRowsOf(keys->cache.format) == BFloat16Rows::kExact;
    }
    // Rows and queries that are rounded on request cost digits of the scores.
    requested_ = is_bf16_ && !is_exact ? 0.1 : 0.0;
  }

  double Out(double expected, double largest_of_row, double lse, size_t row) const {
    const test::Bounds bounds{is_bf16_, call_.args.out.dtype};
    double tolerance = test::OutTolerance(bounds, expected, largest_of_row);
    if (!is_bf16_) return tolerance + 1e-6 * kLargestValue;
    // sqrt(sum of p^2), by the sum of exp(2 s).
    const double spread = std::exp(squares_.lse[row] / 2 - lse);
    const double once = std::abs(expected) / 128 + 4.0 / 256 * kLargestValue * spread;
    return std::max(tolerance, once) + requested_;
  }
  double Lse(double expected) const {
    return std::max(1e-3, 1e-5 * std::abs(expected)) + requested_;
  }

 private:
  static constexpr double kLargestValue = 2.1;
  const Decode& call_;
  bool is_bf16_;
  double requested_ = 0.0;
  ref::AttentionResult squares_;
};

void RequireReference(const Decode& call) {
  const ref::AttentionResult expected = ref::MlaDecode(call.shape, call.options, call.args);
  const DecodeBounds bounds(call);
  const int64_t heads = call.shape.num_heads, width = call.shape.kv_lora_rank;
  const In<3> out = ReadOnly(call.args.out);
  for (int64_t row = 0; row < out.extent[0] * heads; ++row) {
    const auto at = static_cast<size_t>(row);
    const double* wanted = &expected.out[at * static_cast<size_t>(width)];
    double largest = 0;
    for (int64_t c = 0; c < width; ++c) {
      if (std::isfinite(wanted[c])) largest = std::max(largest, std::abs(wanted[c]));
    }
    for (int64_t c = 0; c < width; ++c) {
      const double got = ref::At(out, row / heads, row % heads, c);
      const double tolerance = bounds.Out(wanted[c], largest, expected.lse[at], at);
      LATHE_FUZZ_REQUIRE(test::Matches(got, wanted[c], tolerance),
                         "row %d column %d: %.9g instead of %.9g +- %.3g", static_cast<int>(row),
                         static_cast<int>(c), got, wanted[c], tolerance);
    }
    if (call.args.lse.empty()) continue;
    const auto lse = static_cast<double>(*call.results().Lse(row / heads, row % heads));
    LATHE_FUZZ_REQUIRE(test::Matches(lse, expected.lse[at], bounds.Lse(expected.lse[at])),
                       "row %d: lse %.9g instead of %.9g", static_cast<int>(row), lse,
                       expected.lse[at]);
  }
}

// All rows but `kept` get other queries, lists, lengths and paths.
void DisturbOthers(Input& in, const Batch& batch, const Decode& call, int64_t kept, int64_t most) {
  const MlaDecodeArgs& args = call.args;
  test::Random random = in.Numbers();
  const bool has_nan = in.Flip();
  for (int64_t t = 0; t < args.out.extent[0]; ++t) {
    if (t == kept) continue;
    for (const In<3>* part : {&args.q, &args.q_nope, &args.q_pe}) {
      for (int64_t i = 0; i < part->extent[1] * part->extent[2]; ++i) {
        const int64_t head = i / part->extent[2], column = i % part->extent[2];
        const int64_t offset = t * part->stride[0] + head * part->stride[1] + column;
        const float x = has_nan && random.Below(64) == 0
                            ? NAN
                            : static_cast<float>(random.Below(33) - 16) / 8.0f;
        Arrays::Store(part->dtype, x,
                      const_cast<std::byte*>(part->data) +
                          offset * static_cast<int64_t>(SizeOf(part->dtype)));
      }
    }
    if (!args.tree_mask.empty()) {
      SetPath(args.tree_mask, t, batch.PlaceOf(t), random.Next());
    }
    for (const KeySet* keys : {&args.keys, &args.extra_keys}) {
      if (!keys->row_kv_lens.empty())
        Writable(keys->row_kv_lens).Set(random.Below(most + 4) - 2, t);
      if (!keys->row_starts.empty()) Writable(keys->row_starts).Set(random.Below(most + 4) - 2, t);
      if (!keys->topk_length.empty())
        Writable(keys->topk_length).Set(random.Below(keys->indices.extent[1] + 1), t);
      for (int64_t k = 0; keys->has_indices() && k < keys->indices.extent[1]; ++k) {
        Writable(keys->indices).Set(random.Below(most + 40) - 20, t, k);
      }
    }
  }
}

void CheckDecode(Input& in) {
  Arrays arrays(in);
  const Batch batch(in);
  const Decode call = MakeDecode(in, arrays, batch);
  if (!arrays.fit() || batch.num_tokens() == 0) return;
  call.Run(1);
  RequireReference(call);
  const auto serial = arrays.Contents();
  for (const size_t workers : {size_t{2}, size_t{3}, size_t{7}, size_t{32}}) {
    call.Run(workers);
    LATHE_FUZZ_REQUIRE(arrays.Contents() == serial, "other bits with %d workers",
                       static_cast<int>(workers));
  }
  const auto b = in.Int(0, batch.num_seqs() - 1);
  const auto alone_workers = static_cast<size_t>(in.Int(1, 5));
  if (batch.q_lens[static_cast<size_t>(b)] > 0) {
    call.Alone(batch, b).Run(alone_workers);
    LATHE_FUZZ_REQUIRE(arrays.Contents() == serial, "other bits of sequence %d alone",
                       static_cast<int>(b));
  }
  const int64_t kept = in.Int(0, batch.num_tokens() - 1);
  const auto bits = call.results().Bits(kept, 1);
  DisturbOthers(in, batch, call, kept,
                call.args.keys.block_table.extent[1] * call.args.keys.cache.block_size);
  call.Run(alone_workers);
  LATHE_FUZZ_REQUIRE(call.results().Bits(kept, 1) == bits,
                     "other bits of token %d beside other rows", static_cast<int>(kept));
}

struct Prefill {
  PrefillShape shape;
  PrefillOptions options;
  PrefillArgs args;

  Results results() const { return {args.out, args.lse}; }
  void Run(size_t num_workers) const {
    const PrefillPlan* plan = nullptr;
    const Status planned = PlanPrefill(shape, options, args, num_workers, PlanMemory(), &plan);
    RunPlanned(planned, plan, results(), [&](const PrefillPlan& made, Buffer workspace) {
      return RunPrefill(made, args, workspace, InReverse(num_workers));
    });
  }

  // Sequence b alone.
  Prefill Alone(int64_t b) const {
    Prefill alone = *this;
    static int32_t starts[2][2];
    PrefillArgs& a = alone.args;
    const int64_t first = a.query_start_loc(b), first_key = a.kv_start_loc(b);
    const int64_t count = a.query_start_loc(b + 1) - first;
    const int64_t keys = a.kv_start_loc(b + 1) - first_key;
    starts[0][1] = static_cast<int32_t>(count);
    starts[1][1] = static_cast<int32_t>(keys);
    a.query_start_loc = Packed(static_cast<const int32_t*>(starts[0]), 2);
    a.kv_start_loc = Packed(static_cast<const int32_t*>(starts[1]), 2);
    a.q = Rows(a.q, first, count);
    a.k = Rows(a.k, first_key, keys);
    a.v = Rows(a.v, first_key, keys);
    a.out = Rows(a.out, first, count);
    a.lse = Rows(a.lse, first, count);
    return alone;
  }
};

// One element becomes what no arithmetic likes.
void PoisonElement(Input& in, const In<3>& tensor) {
  if (tensor.extent[0] == 0) return;
  const int64_t offset = in.Int(0, tensor.extent[0] - 1) * tensor.stride[0] +
                         in.Int(0, tensor.extent[1] - 1) * tensor.stride[1] +
                         in.Int(0, tensor.extent[2] - 1);
  Arrays::Store(
      tensor.dtype, in.Pick({NAN, INFINITY, -INFINITY}),
      const_cast<std::byte*>(tensor.data) + offset * static_cast<int64_t>(SizeOf(tensor.dtype)));
}

Prefill MakePrefill(Input& in, Arrays& arrays) {
  Prefill call;
  const int64_t kv_heads = in.Int(1, 3), heads = kv_heads * in.Int(1, 3);
  call.shape.num_heads = heads;
  call.shape.num_kv_heads = kv_heads;
  call.shape.qk_head_dim = in.Pick<int64_t>({16, 48, 7, 192});
  call.shape.v_head_dim = in.Pick<int64_t>({64, 16, 5, 128});
  call.options.softmax_scale = in.Pick({0.05f, 0.2f, 0.5f});
  call.options.causal = !in.Chance(3);
  if (in.Chance(4)) call.options.window = in.Pick<int64_t>({1, 5, 128});
  call.options.precision = in.Pick({Precision::kAuto, Precision::kBFloat16, Precision::kFloat32});
  call.options.target = AnyTarget(in);
  std::vector<int32_t> rows{0}, keys{0};
  for (int64_t b = in.Int(1, 3); b > 0; --b) {
    rows.push_back(rows.back() + static_cast<int32_t>(in.Pick<int64_t>({0, 1, 3, 20, 70, 140})));
    keys.push_back(keys.back() + static_cast<int32_t>(in.Int(0, 300)));
  }
  const DType kv_type = in.Flip() ? DType::kBFloat16 : DTypeOf(in);
  const DType q_type = in.Flip() ? kv_type : DTypeOf(in);
  PrefillArgs& args = call.args;
  args.q = arrays.FloatInput<3>({rows.back(), heads, call.shape.qk_head_dim}, q_type);
  args.k = arrays.FloatInput<3>({keys.back(), kv_heads, call.shape.qk_head_dim}, kv_type);
  args.v = arrays.FloatInput<3>({keys.back(), kv_heads, call.shape.v_head_dim}, kv_type);
  size_t b = 0, c = 0;
  args.query_start_loc =
      arrays.Indices<1>({static_cast<int64_t>(rows.size())}, [&] { return rows[b++]; });
  args.kv_start_loc =
      arrays.Indices<1>({static_cast<int64_t>(keys.size())}, [&] { return keys[c++]; });
  if (in.Chance(3)) args.attn_sink = arrays.Float32<1>({heads});
  args.out = arrays.Floats<3>({rows.back(), heads, call.shape.v_head_dim},
                              in.Flip() ? DType::kFloat32 : DTypeOf(in));
  args.lse = arrays.Float32<2>({rows.back(), heads});
  for (const In<3>* tensor : {&args.v, &args.v, &args.k, &args.q}) {
    if (arrays.fit() && in.Chance(8)) PoisonElement(in, *tensor);
  }
  return call;
}

void CheckPrefill(Input& in) {
  Arrays arrays(in);
  const Prefill call = MakePrefill(in, arrays);
  const PrefillArgs& args = call.args;
  if (!arrays.fit() || args.out.extent[0] == 0) return;
  call.Run(1);
  // Rounded weights alone err by what they are of values that are at most 2; on request operands are rounded, too.
  const ref::AttentionResult expected = ref::Prefill(call.shape, call.options, args);
  const bool is_bf16 = call.options.precision != Precision::kFloat32 &&
                       args.k.dtype == DType::kBFloat16 && test::HasNativeBf16(call.options.target);
  const bool is_rounded = is_bf16 && call.options.precision == Precision::kBFloat16;
  for (size_t i = 0; i < expected.out.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / call.shape.v_head_dim;
    const double got =
        ref::At(ReadOnly(args.out), row / call.shape.num_heads, row % call.shape.num_heads,
                static_cast<int64_t>(i) % call.shape.v_head_dim);
    const double tolerance = test::OutTolerance({is_bf16, args.out.dtype}, expected.out[i], 0.2) +
                             (is_rounded ? 0.1 : 0);
    LATHE_FUZZ_REQUIRE(test::Matches(got, expected.out[i], tolerance),
                       "element %d: %.9g instead of %.9g", static_cast<int>(i), got,
                       expected.out[i]);
  }
  const auto serial = arrays.Contents();
  for (const size_t workers : {size_t{2}, size_t{3}, size_t{7}, size_t{32}}) {
    call.Run(workers);
    LATHE_FUZZ_REQUIRE(arrays.Contents() == serial, "other bits with %d workers",
                       static_cast<int>(workers));
  }
  const int64_t b = in.Int(0, args.query_start_loc.extent[0] - 2);
  if (args.query_start_loc(b + 1) == args.query_start_loc(b)) return;
  call.Alone(b).Run(static_cast<size_t>(in.Int(1, 5)));
  LATHE_FUZZ_REQUIRE(arrays.Contents() == serial, "other bits of sequence %d alone",
                     static_cast<int>(b));
}

}  // namespace
}  // namespace lathe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lathe::fuzz::Input in(data, size);
  in.Calm();
  if (in.Chance(4)) {
    lathe::fuzz::CheckPrefill(in);
  } else {
    lathe::fuzz::CheckDecode(in);
  }
  return 0;
}
