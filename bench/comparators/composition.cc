// SPDX-License-Identifier: Apache-2.0
#include "bench/comparators/composition.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/comparators/composition_loops.h"

namespace lathe::bench {
namespace {

int64_t Bytes(DType type, int64_t n) { return n * static_cast<int64_t>(SizeOf(type)); }

// A float32 or bfloat16 `to`, the latter from its own type only: CompositionPlan has no other case.
void Widen(DType from_type, const std::byte* from, int64_t n, DType to_type, std::byte* to) {
  const auto* halves = reinterpret_cast<const uint16_t*>(from);
  auto* floats = reinterpret_cast<float*>(to);
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<size_t>(Bytes(from_type, n)));
  } else if (from_type == DType::kBFloat16) {
    loops::WidenBFloat16(halves, n, floats);
  } else {
    loops::WidenFloat16(halves, n, floats);
  }
}

void Narrow(const float* from, int64_t n, DType to_type, std::byte* to) {
  if (to_type == DType::kFloat32) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
  } else if (to_type == DType::kBFloat16) {
    loops::NarrowToBFloat16(from, n, reinterpret_cast<uint16_t*>(to));
  } else {
    auto* halves = reinterpret_cast<float16*>(to);
    for (int64_t i = 0; i < n; ++i) halves[i] = FromFloat<float16>(from[i]);
  }
}

}  // namespace

Composition::Composition(const DecodeTask& task, Team& team, const CompositionPlan& plan)
    : task_(task), team_(team), plan_(plan) {
  const auto num_workers = static_cast<int64_t>(plan.is_on_team ? team.size() : 1);
  num_splits_ =
      std::clamp<int64_t>((num_workers + task.batch - 1) / task.batch, 1, task.keys / plan.chunk);
  workers_.resize(static_cast<size_t>(num_workers));
  sums_.resize(static_cast<size_t>(num_splits_ == 1 ? num_workers : task.batch * num_splits_));
}

std::unique_ptr<Comparator> Composition::Make(const DecodeTask& task, Team& team,
                                              MakeGemms make_gemms, const CompositionPlan& plan) {
  std::unique_ptr<Composition> made(new Composition(task, team, plan));
  if (!made->MakeWorkers(make_gemms)) return nullptr;
  return made;
}

bool Composition::MakeWorkers(MakeGemms make_gemms) {
  const int64_t rows = task_.rows(), chunk = plan_.chunk;
  const int64_t d = task_.shape.head_dim(), v_dim = task_.shape.kv_lora_rank;
  const GemmShape shape{rows, chunk, d, v_dim, plan_.type, plan_.is_on_team ? 1 : team_.size()};
  for (Sums& sums : sums_) {
    sums.values = HugeBuffer(static_cast<size_t>(Bytes(DType::kFloat32, rows * v_dim)));
    sums.max.resize(static_cast<size_t>(rows));
    sums.weight.resize(static_cast<size_t>(rows));
  }
  OnWorkers([&](size_t ith) {
    Worker& worker = workers_[ith];
    worker.gemms = make_gemms(shape);
    const int64_t sizes[] = {Bytes(plan_.type, rows * d), Bytes(plan_.type, chunk * d),
                             Bytes(plan_.type, rows * chunk), Bytes(DType::kFloat32, rows * chunk)};
    // 17 cache lines apart, so that they do not all start in the same set of the cache.
    constexpr int64_t kGap = 17 * 64;
    int64_t at[5] = {};
    for (size_t i = 0; i < 4; ++i) at[i + 1] = (at[i] + sizes[i]) / 64 * 64 + kGap;
    worker.memory = HugeBuffer(static_cast<size_t>(at[4]));
    worker.q = worker.memory.data() + at[0];
    worker.keys = worker.memory.data() + at[1];
    worker.weights = worker.memory.data() + at[2];
    worker.scores = reinterpret_cast<float*>(worker.memory.data() + at[3]);
  });
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.gemms != nullptr; });
}

void Composition::OnWorkers(const std::function<void(size_t)>& f) {
  if (plan_.is_on_team) return team_.Run(f);
  f(0);
}

void Composition::Run(const MlaDecodeArgs& args) {
  const size_t num_workers = workers_.size();
  OnWorkers([&](size_t ith) {
    Worker& worker = workers_[ith];
    worker.gemms->Begin();
    const auto num_items = static_cast<size_t>(task_.batch * num_splits_);
    for (size_t item = ith; item < num_items; item += num_workers) {
      const auto sequence = static_cast<int64_t>(item) / num_splits_;
      Sums& sums = sums_[num_splits_ == 1 ? ith : item];
      Attend(args, worker, sequence, static_cast<int64_t>(item) % num_splits_, sums);
      for (int64_t row = 0; row < task_.rows() && num_splits_ == 1; ++row) {
        Write(args, sequence, row, sums);
      }
    }
  });
  if (num_splits_ == 1) return;
  OnWorkers([&](size_t ith) {
    const int64_t rows = task_.batch * task_.rows();
    for (auto row = static_cast<int64_t>(ith); row < rows;
         row += static_cast<int64_t>(num_workers)) {
      Merge(args, row / task_.rows(), row % task_.rows());
    }
  });
}

void Composition::Attend(const MlaDecodeArgs& args, Worker& worker, int64_t sequence, int64_t split,
                         Sums& sums) const {
  const std::byte* q = Queries(args, worker, sequence);
  auto* values = reinterpret_cast<float*>(sums.values.data());
  std::fill_n(values, task_.rows() * task_.shape.kv_lora_rank, 0.0f);
  std::fill(sums.max.begin(), sums.max.end(), loops::kNoMax);
  std::fill(sums.weight.begin(), sums.weight.end(), 0.0f);
  const int64_t num_chunks = task_.keys / plan_.chunk;
  const int64_t end = num_chunks * (split + 1) / num_splits_;
  for (int64_t chunk = num_chunks * split / num_splits_; chunk < end; ++chunk) {
    const std::byte* keys = Keys(args.keys, worker, sequence, chunk);
    worker.gemms->Scores(q, keys, worker.scores);
    Softmax(worker, chunk, sums);
    worker.gemms->AddValues(worker.weights, keys, values);
  }
}

const std::byte* Composition::Queries(const MlaDecodeArgs& args, Worker& worker,
                                      int64_t sequence) const {
  const int64_t n = task_.rows() * task_.shape.head_dim();
  const std::byte* q = args.q.data + Bytes(task_.type, sequence * n);
  if (task_.type == plan_.type) return q;
  Widen(task_.type, q, n, plan_.type, worker.q);
  return worker.q;
}

const std::byte* Composition::Keys(const KeySet& keys, Worker& worker, int64_t sequence,
                                   int64_t chunk) const {
  const PagedCache& cache = keys.cache;
  const int64_t d = task_.shape.head_dim();
  const int64_t first = chunk * plan_.chunk, last = first + plan_.chunk - 1;
  const int64_t first_page = first / cache.block_size, last_page = last / cache.block_size;
  const auto page = [&](int64_t i) -> int64_t { return keys.block_table(sequence, i); };
  bool is_in_place = task_.type == plan_.type;
  for (int64_t i = first_page; i < last_page; ++i) is_in_place &= page(i + 1) == page(i) + 1;
  if (is_in_place) return cache.RecordAt(page(first_page), first % cache.block_size);
  for (int64_t key = first; key <= last;) {
    const int64_t slot = key % cache.block_size;
    const int64_t n = std::min(cache.block_size - slot, last + 1 - key);
    const std::byte* from = cache.RecordAt(page(key / cache.block_size), slot);
    Widen(task_.type, from, n * d, plan_.type, worker.keys + Bytes(plan_.type, (key - first) * d));
    key += n;
  }
  return worker.keys;
}

void Composition::Softmax(Worker& worker, int64_t chunk, Sums& sums) const {
  const int64_t n = plan_.chunk, v_dim = task_.shape.kv_lora_rank;
  for (int64_t row = 0; row < task_.rows(); ++row) {
    const auto r = static_cast<size_t>(row);
    const int64_t visible = std::min(n, task_.Visible(row) - chunk * n);
    float* scores = worker.scores + row * n;
    std::byte* weights = worker.weights + Bytes(plan_.type, row * n);
    const bool is_float = plan_.type == DType::kFloat32;
    const float factor =
        loops::OnlineSoftmax(scores, visible, n, task_.softmax_scale, &sums.max[r], &sums.weight[r],
                             is_float ? reinterpret_cast<float*>(weights) : scores);
    if (!is_float) Narrow(scores, n, plan_.type, weights);
    if (factor != 1.0f) {
      loops::Scale(factor, v_dim, reinterpret_cast<float*>(sums.values.data()) + row * v_dim);
    }
  }
}

// The parts of a row into the first.
void Composition::Merge(const MlaDecodeArgs& args, int64_t sequence, int64_t row) {
  const auto r = static_cast<size_t>(row);
  const int64_t v_dim = task_.shape.kv_lora_rank;
  const auto values_of = [&](Sums& sums) {
    return reinterpret_cast<float*>(sums.values.data()) + row * v_dim;
  };
  Sums* parts = &sums_[static_cast<size_t>(sequence * num_splits_)];
  float max = parts[0].max[r];
  for (int64_t i = 1; i < num_splits_; ++i) max = std::max(max, parts[i].max[r]);
  for (int64_t i = 0; i < num_splits_; ++i) {
    const float factor = std::exp(parts[i].max[r] - max);
    if (i == 0) {
      loops::Scale(factor, v_dim, values_of(parts[0]));
      parts[0].weight[r] *= factor;
    } else {
      loops::AddScaled(values_of(parts[i]), factor, v_dim, values_of(parts[0]));
      parts[0].weight[r] += parts[i].weight[r] * factor;
    }
  }
  parts[0].max[r] = max;
  Write(args, sequence, row, parts[0]);
}

void Composition::Write(const MlaDecodeArgs& args, int64_t sequence, int64_t row,
                        Sums& sums) const {
  const auto r = static_cast<size_t>(row);
  const int64_t v_dim = task_.shape.kv_lora_rank;
  const int64_t token = sequence * task_.q_len + row / task_.shape.num_heads;
  const int64_t head = row % task_.shape.num_heads;
  float* values = reinterpret_cast<float*>(sums.values.data()) + row * v_dim;
  loops::Scale(1.0f / sums.weight[r], v_dim, values);
  const int64_t to = token * args.out.stride[0] + head * args.out.stride[1];
  Narrow(values, v_dim, task_.type, args.out.data + Bytes(task_.type, to));
  args.lse.data[token * args.lse.stride[0] + head * args.lse.stride[1]] =
      sums.max[r] + std::log(sums.weight[r]);
}

std::string Composition::Describe() const {
  return std::string(plan_.type == DType::kBFloat16 ? "bf16" : "float32") + " products of " +
         std::to_string(plan_.chunk) + " keys, " +
         (plan_.is_on_team ? "row's threads" : "library's threads");
}

}  // namespace lathe::bench
