// SPDX-License-Identifier: Apache-2.0
// The ops as torch calls them, by name through its dispatcher, against attention in double on what the caches hold.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <lathe/lathe.h>

#include <string>
#include <tuple>
#include <vector>

#include "../reference.h"

namespace {

using at::Tensor;
using OptionalTensor = c10::optional<Tensor>;
using reference::Vector;

reference::Checks checks;

template <class Signature>
auto Op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}
void MlaDecode(Tensor out, const Tensor& query, const Tensor& cache, double scale,
               const Tensor& tables, const Tensor& lens) {
  Op<void(Tensor, const Tensor&, const Tensor&, double, const Tensor&, const Tensor&)>(
      "lathe::mla_decode_kvcache_cpu")
      .call(out, query, cache, scale, tables, lens);
}
void Write(const Tensor& kv_c, const Tensor& k_pe, Tensor cache, const Tensor& slots,
           const std::string& dtype, double scale = 1.0) {
  Op<void(const Tensor&, const Tensor&, Tensor, const Tensor&, c10::string_view, const Tensor&)>(
      "lathe::concat_and_cache_mla")
      .call(kv_c, k_pe, cache, slots, dtype, at::full({1}, scale, at::kFloat));
}

// The arguments of FlashMLA's op that have defaults.
struct Flash {
  OptionalTensor block_table, cache_seqlens;
  c10::optional<double> softmax_scale;
  bool causal = false, is_fp8_kvcache = false;
  OptionalTensor indices, attn_sink, extra_k_cache, extra_indices, topk_length, extra_topk_length;

  std::tuple<Tensor, Tensor> operator()(const Tensor& q, const Tensor& k_cache,
                                        int64_t head_dim_v) const {
    using O = const OptionalTensor&;
    return Op<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, O, O, int64_t, O, O,
                                         c10::optional<double>, bool, bool, O, O, O, O, O, O)>(
               "lathe::flash_mla_with_kvcache")
        .call(q, k_cache, block_table, cache_seqlens, head_dim_v, c10::nullopt, c10::nullopt,
              softmax_scale, causal, is_fp8_kvcache, indices, attn_sink, extra_k_cache,
              extra_indices, topk_length, extra_topk_length);
  }
};

Tensor Waves(at::IntArrayRef shape, double step, at::ScalarType type = at::kFloat) {
  const Tensor flat = at::arange(1, c10::multiply_integers(shape) + 1, at::kDouble).mul(step).sin();
  return flat.view(shape).to(type);
}
Vector Values(const Tensor& tensor) {
  const Tensor doubles = tensor.to(at::kDouble).contiguous();
  const double* data = doubles.data_ptr<double>();
  return Vector(data, data + doubles.numel());
}
double Tolerance(at::ScalarType type) {
  return type == at::kFloat ? 1e-5 : type == at::kHalf ? 1e-3 : 1e-2;
}

constexpr int64_t kSeqs = 3, kHeads = 5, kBlockSize = 16, kColumns = 6;
constexpr int64_t kLens[kSeqs] = {80, 0, 33};
constexpr double kScale = 0.11;

// Block table [kSeqs, kColumns] and the slots of all tokens, sequence after sequence.
struct Paging {
  Tensor table = at::arange(0, kSeqs* kColumns, at::kInt)
                     .mul(5)
                     .remainder(kSeqs * kColumns)
                     .view({kSeqs, kColumns})
                     .to(at::kInt);
  Tensor lens = at::tensor({80, 0, 33}, at::kInt);
  int64_t Slot(int64_t b, int64_t p) const {
    return table[b][p / kBlockSize].item<int64_t>() * kBlockSize + p % kBlockSize;
  }
  Tensor slots() const {
    std::vector<int64_t> all;
    for (int64_t b = 0; b < kSeqs; ++b) {
      for (int64_t p = 0; p < kLens[b]; ++p) all.push_back(Slot(b, p));
    }
    return at::tensor(all, at::kLong);
  }
};

// What the slots of a cache [NB, bs, ...] hold, by lathe's own reader.
std::vector<Vector> RowsOf(const Tensor& cache, lathe::CacheFormat format, int64_t row_stride,
                           int64_t width, float scale = 1.0f) {
  const int64_t num_slots = cache.size(0) * cache.size(1);
  const Tensor out = at::empty({num_slots, width}, at::kFloat);
  std::vector<int64_t> blocks, zero = {0}, lens = {num_slots};
  for (int64_t i = 0; i < cache.size(0); ++i) blocks.push_back(i);
  lathe::LatentGatherArgs args;
  args.cache = {static_cast<const std::byte*>(cache.data_ptr()),
                format,
                cache.size(0),
                cache.size(1),
                cache.stride(0) * static_cast<int64_t>(cache.element_size()),
                row_stride,
                scale};
  args.block_table = lathe::Packed(blocks.data(), 1, cache.size(0));
  args.gather_lens = lathe::Packed(lens.data(), 1);
  args.out_start_loc = lathe::Packed(zero.data(), 1);
  args.out = lathe::Packed(out.data_ptr<float>(), num_slots, width);
  checks.True("gathered", lathe::GatherLatentCache(args).ok());
  std::vector<Vector> rows;
  for (int64_t i = 0; i < num_slots; ++i) rows.push_back(Values(out[i]));
  return rows;
}

void RequireRow(const char* what, const Vector& got, double got_lse, const reference::Row& expected,
                double tolerance) {
  for (size_t c = 0; c < got.size(); ++c) checks.Near(what, got[c], expected.out[c], tolerance);
  const double lse = std::isinf(expected.lse) ? -expected.lse : expected.lse;  // FlashMLA's +inf
  checks.Near(what, got_lse, lse, tolerance);
}

void TestVllmOps(at::ScalarType type) {
  constexpr int64_t kRank = 512, kRope = 64;
  const Paging paging;
  const Tensor slots = paging.slots();
  const Tensor kv_c = Waves({slots.size(0) + 2, kRank}, 0.7, type),
               k_pe = Waves({slots.size(0) + 2, kRope}, 0.3, type);
  Tensor cache =
      at::full({kSeqs * kColumns, kBlockSize, kRank + kRope},
               std::numeric_limits<double>::quiet_NaN(), at::TensorOptions().dtype(type));
  Write(kv_c, k_pe, cache, slots, "auto");
  const Tensor expected_rows = at::cat({kv_c, k_pe}, 1).slice(0, 0, slots.size(0));
  checks.True("cache rows",
              at::equal(cache.view({-1, kRank + kRope}).index({slots}), expected_rows));

  const Tensor query = Waves({kSeqs, kHeads, kRank + kRope}, 1.1, type);
  Tensor out = at::full({kSeqs, kHeads, kRank}, 7.0, at::TensorOptions().dtype(type));
  MlaDecode(out, query, cache, kScale, paging.table, paging.lens);
  for (int64_t b = 0, first = 0; b < kSeqs; first += kLens[b++]) {
    std::vector<Vector> keys;
    for (int64_t p = 0; p < kLens[b]; ++p) keys.push_back(Values(expected_rows[first + p]));
    for (int64_t h = 0; h < kHeads; ++h) {
      const reference::Row expected = reference::Attend(Values(query[b][h]), keys, kScale, kRank);
      const Vector got = Values(out[b][h]);
      for (size_t c = 0; c < got.size(); ++c) {
        checks.Near("mla_decode_kvcache_cpu", got[c], expected.out[c], Tolerance(type));
      }
    }
  }
}

// Pages of V3.2's fp8 records, by the op's own writer.
Tensor V32Pages(int64_t num_blocks, double step) {
  Tensor cache = at::zeros({num_blocks, kBlockSize, 1, 656}, at::TensorOptions().dtype(at::kByte));
  const Tensor slots = at::arange(0, num_blocks * kBlockSize, at::kLong);
  const Tensor latents = Waves({slots.size(0), 576}, step, at::kBFloat16);
  Write(latents.slice(1, 0, 512), latents.slice(1, 512), cache.squeeze(2), slots, "fp8_ds_mla");
  return cache;
}

// Dense: s_q query rows a request over a cache of their type, or of fp8.
void TestFlashDense(int64_t s_q, bool causal, at::ScalarType type, bool is_fp8 = false) {
  constexpr int64_t kRank = 512, kWidth = 576, kBlocks = kSeqs * kColumns;
  const Paging paging;
  const Tensor cache =
      is_fp8 ? V32Pages(kBlocks, 0.7) : Waves({kBlocks, kBlockSize, 1, kWidth}, 0.7, type);
  const lathe::CacheFormat format = is_fp8               ? lathe::CacheFormat::kFp8DsMla
                                    : type == at::kFloat ? lathe::CacheFormat::kLatentFloat32
                                    : type == at::kHalf  ? lathe::CacheFormat::kLatentFloat16
                                                         : lathe::CacheFormat::kLatentBFloat16;
  const std::vector<Vector> rows =
      RowsOf(cache.squeeze(2), format, cache.stride(1) * static_cast<int64_t>(cache.element_size()),
             kWidth);
  const Tensor q = Waves({kSeqs, s_q, kHeads, kWidth}, 1.1, type);
  Flash flash;
  flash.block_table = paging.table;
  flash.cache_seqlens = paging.lens;
  flash.causal = causal;
  flash.is_fp8_kvcache = is_fp8;
  const auto [out, lse] = flash(q, cache, kRank);
  checks.True("shape of lse", lse.sizes() == at::IntArrayRef({kSeqs, kHeads, s_q}));
  const double scale = 1.0 / std::sqrt(576.0);
  for (int64_t b = 0; b < kSeqs; ++b) {
    for (int64_t i = 0; i < s_q; ++i) {
      std::vector<Vector> keys;
      const int64_t count = causal ? kLens[b] - s_q + i + 1 : kLens[b];
      for (int64_t p = 0; p < count; ++p)
        keys.push_back(rows[static_cast<size_t>(paging.Slot(b, p))]);
      for (int64_t h = 0; h < kHeads; ++h) {
        RequireRow("flash_mla_with_kvcache, dense", Values(out[b][i][h]),
                   lse[b][h][i].item<double>(),
                   reference::Attend(Values(q[b][i][h]), keys, scale, kRank), Tolerance(type));
      }
    }
  }
}

// Sparse over an fp8 cache, with V3.2's records, or V4's with a second cache and a sink.
void TestFlashSparse(bool is_v4) {
  constexpr int64_t kRank = 512, kBlocks = 5, kTopk = 40, kQueries = 2, kRequests = 2;
  const int64_t width = is_v4 ? 512 : 576, bytes = is_v4 ? 584 : 656,
                num_slots = kBlocks * kBlockSize;
  const auto make = [&](double step) {
    if (!is_v4) return V32Pages(kBlocks, step);
    Tensor cache = at::zeros({kBlocks, kBlockSize, 1, bytes}, at::TensorOptions().dtype(at::kByte));
    const Tensor slots = at::arange(0, num_slots, at::kLong);
    const Tensor latents = Waves({num_slots, width}, step, at::kBFloat16);
    lathe::LatentWriteArgs args;
    args.kv_c =
        lathe::Packed(static_cast<const lathe::bfloat16*>(latents.data_ptr()), num_slots, width);
    args.slot_mapping = lathe::Packed(slots.data_ptr<int64_t>(), num_slots);
    args.cache = {static_cast<std::byte*>(cache.data_ptr()),
                  lathe::CacheFormat::kFp8Ds4,
                  kBlocks,
                  kBlockSize,
                  kBlockSize * bytes,
                  576};
    checks.True("V4 write", lathe::WriteLatentCache(args).ok());
    return cache;
  };
  const auto rows_of = [&](const Tensor& cache) {
    return RowsOf(cache.squeeze(2),
                  is_v4 ? lathe::CacheFormat::kFp8Ds4 : lathe::CacheFormat::kFp8DsMla,
                  is_v4 ? 576 : 656, width);
  };
  const Tensor cache = make(0.7), extra = make(0.4);
  const std::vector<Vector> rows = rows_of(cache), extra_rows = rows_of(extra);
  const Tensor q = Waves({kRequests, kQueries, kHeads, width}, 1.1, at::kBFloat16);
  const auto list = [&](int64_t step) {
    Tensor indices = at::arange(0, kRequests * kQueries * kTopk, at::kInt)
                         .mul(step)
                         .remainder(num_slots)
                         .to(at::kInt)
                         .view({kRequests, kQueries, kTopk})
                         .clone();
    indices.slice(2, 3, 6).fill_(-1);
    indices[1].slice(1, kTopk - 10).fill_(std::numeric_limits<int32_t>::max());  // past topk_length
    return indices;
  };
  const Tensor indices = list(7), extra_indices = list(3);
  const Tensor lengths = at::tensor({kTopk, kTopk - 10}, at::kInt);
  const Tensor sink = Waves({kHeads}, 2.0);

  Flash flash;
  flash.softmax_scale = kScale;
  flash.is_fp8_kvcache = true;
  flash.indices = indices;
  flash.topk_length = lengths;
  if (is_v4) {
    flash.attn_sink = sink;
    flash.extra_k_cache = extra;
    flash.extra_indices = extra_indices;
    flash.extra_topk_length = lengths;
  }
  const auto [out, lse] = flash(q, cache, kRank);
  for (int64_t b = 0; b < kRequests; ++b) {
    for (int64_t i = 0; i < kQueries; ++i) {
      std::vector<Vector> keys;
      const auto add = [&, b = b](const Tensor& from, const std::vector<Vector>& of) {
        for (int64_t k = 0; k < lengths[b].item<int64_t>(); ++k) {
          const auto slot = from[b][i][k].item<int64_t>();
          if (slot >= 0) keys.push_back(of[static_cast<size_t>(slot)]);
        }
      };
      add(indices, rows);
      if (is_v4) add(extra_indices, extra_rows);
      for (int64_t h = 0; h < kHeads; ++h) {
        const reference::Row expected =
            is_v4
                ? reference::Attend(Values(q[b][i][h]), keys, kScale, kRank, sink[h].item<double>())
                : reference::Attend(Values(q[b][i][h]), keys, kScale, kRank);
        RequireRow("flash_mla_with_kvcache, sparse", Values(out[b][i][h]),
                   lse[b][h][i].item<double>(), expected, 1e-2);
      }
    }
  }
}

void TestPerTensorFp8() {
  constexpr int64_t kRank = 512, kRope = 64;
  for (const char* dtype : {"fp8", "fp8_e4m3", "fp8_e5m2"}) {
    Tensor cache = at::zeros({2, kBlockSize, kRank + kRope}, at::TensorOptions().dtype(at::kByte));
    const Tensor kv_c = Waves({3, kRank}, 0.7), k_pe = Waves({3, kRope}, 0.3);
    Write(kv_c, k_pe, cache, at::tensor({4, -1, 20}, at::kInt), dtype, 0.25);
    const bool is_e5m2 = std::string(dtype) == "fp8_e5m2";
    const std::vector<Vector> rows = RowsOf(
        cache, is_e5m2 ? lathe::CacheFormat::kLatentFp8E5m2 : lathe::CacheFormat::kLatentFp8E4m3,
        kRank + kRope, kRank + kRope, 0.25f);
    for (int64_t c = 0; c < kRank; ++c) {
      for (const auto& [slot, token] : {std::pair<size_t, int64_t>{4, 0}, {20, 2}}) {
        const double x = kv_c[token][c].item<double>();
        checks.Near(dtype, rows[slot][static_cast<size_t>(c)], x,
                    std::abs(x) * (is_e5m2 ? 0.125 : 0.0625) + 1e-3);
      }
    }
  }
}

void TestThreadsGiveTheSameBits() {
  const Tensor cache = Waves({64, kBlockSize, 576}, 0.7), query = Waves({1, 16, 576}, 1.1);
  const Tensor table = at::arange(0, 64, at::kInt).view({1, 64}),
               lens = at::tensor({1000}, at::kInt);
  Tensor one = at::empty({1, 16, 512}), four = at::empty({1, 16, 512});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  MlaDecode(one, query, cache, kScale, table, lens);
  at::set_num_threads(4);
  MlaDecode(four, query, cache, kScale, table, lens);
  at::set_num_threads(before);
  checks.True("same bits for 1 and 4 threads", at::equal(one, four));
}

template <class Call>
void RequireThrows(const std::string& message, const Call& call) {
  std::string got = "nothing was thrown";
  try {
    call();
  } catch (const c10::Error& error) {
    got = error.what_without_backtrace();
  }
  if (got.find(message) == std::string::npos) {
    std::fprintf(stderr, "got      %s\nexpected %s\n", got.c_str(), message.c_str());
  }
  checks.True("throws", got.find(message) != std::string::npos);
}

void TestErrors() {
  const Tensor cache = Waves({4, kBlockSize, 576}, 0.7), query = Waves({1, 2, 576}, 1.1);
  Tensor table = at::zeros({1, 2}, at::kInt), lens = at::tensor({33}, at::kInt);
  Tensor out = at::zeros({1, 2, 512});
  RequireThrows(
      "lathe: index out of range: keys.seq_lens[0] is 33, must give at most as many keys as "
      "block_table covers, 32",
      [&] { MlaDecode(out, query, cache, kScale, table, lens); });
  checks.True("nothing is written", at::equal(out, at::zeros({1, 2, 512})));
  RequireThrows("lathe: query must have 3 axes, it has 2",
                [&] { MlaDecode(out, query[0], cache, kScale, table, lens); });
  RequireThrows("lathe: the cache must be float32, float16 or bfloat16, it is Byte",
                [&] { MlaDecode(out, query, cache.to(at::kByte), kScale, table, lens); });
  RequireThrows("lathe: unknown kv_cache_dtype int4", [&] {
    Write(out[0], out[0], at::zeros({1, 1, 1024}, at::TensorOptions().dtype(at::kByte)), lens,
          "int4");
  });
  RequireThrows("lathe: without indices, block_table and cache_seqlens must be given",
                [&] { Flash()(query.unsqueeze(0), cache.unsqueeze(2), 512); });
}

}  // namespace

int main() {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) TestVllmOps(type);
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    TestFlashDense(1, true, type);
    TestFlashDense(3, true, type);
    TestFlashDense(2, false, type);
  }
  TestFlashDense(2, true, at::kBFloat16, true);
  TestFlashSparse(false);
  TestFlashSparse(true);
  TestPerTensorFp8();
  TestThreadsGiveTheSameBits();
  TestErrors();
  return checks.Finish("ops_test");
}
