// SPDX-License-Identifier: Apache-2.0
// Merging of finished partial results (out, lse), one row at a time.

// Columns summed at once: all of a DeepSeek row, in a buffer that stays in L1.
constexpr int64_t kMergeColumns = 512;

// Natural-log lse of one part's row; -inf for an empty part.
inline double PartLse(const MergePart& part, int64_t token, int64_t head) {
  const float lse = part.lse.data[token * part.lse.stride[0] + head * part.lse.stride[1]];
  const bool is_empty = lse == part.lse_policy.empty;
  if (is_empty) return -std::numeric_limits<double>::infinity();
  return static_cast<double>(lse) * (part.lse_policy.base2 ? 0.693147180559945309417 : 1.0);
}

// acc += weight * part's columns; the first part that counts is stored, so that a weight of 1 keeps bits.
inline void AddPart(const MergePart& part, int64_t offset, float weight, bool is_first,
                    float* HWY_RESTRICT acc, float* HWY_RESTRICT columns, int64_t n) {
  const F32 d;
  Convert(part.out.dtype, part.out.data + offset * static_cast<int64_t>(SizeOf(part.out.dtype)),
          DType::kFloat32, reinterpret_cast<std::byte*>(columns), n);
  const VF w = hn::Set(d, weight);
  for (int64_t c = 0; c < n; c += kLanes) {
    const VF scaled = hn::Load(d, columns + c);
    const VF sum = is_first ? hn::Mul(scaled, w) : hn::MulAdd(scaled, w, hn::Load(d, acc + c));
    hn::Store(sum, d, acc + c);
  }
}

inline void MergeRow(const MergeStatesArgs& args, int64_t token, int64_t head) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  double max_lse = -kInf;
  for (size_t i = 0; i < args.num_parts; ++i) {
    const double lse = PartLse(args.parts[i], token, head);
    if (lse > max_lse || std::isnan(lse)) max_lse = lse;
  }
  double sum = 0.0;
  for (size_t i = 0; i < args.num_parts && max_lse != -kInf; ++i) {
    sum += std::exp(PartLse(args.parts[i], token, head) - max_lse);
  }
  const bool is_empty = max_lse == -kInf;
  const double merged = max_lse + std::log(sum);
  double factor = 1.0 / sum;
  if (!args.attn_sink.empty()) {
    const double sink = static_cast<double>(args.attn_sink.data[head * args.attn_sink.stride[0]]);
    factor /= 1.0 + std::exp(sink - merged);
  }

  HWY_ALIGN float acc[kMergeColumns] = {};
  HWY_ALIGN float columns[kMergeColumns] = {};
  const int64_t v_dim = args.out.extent[2];
  for (int64_t c = 0; c < v_dim; c += kMergeColumns) {
    const int64_t n = (std::min)(kMergeColumns, v_dim - c);
    bool is_first = true;
    for (size_t i = 0; i < args.num_parts && !is_empty; ++i) {
      const MergePart& part = args.parts[i];
      const double lse = PartLse(part, token, head);
      if (lse == -kInf) continue;
      const int64_t offset = token * part.out.stride[0] + head * part.out.stride[1] + c;
      AddPart(part, offset, static_cast<float>(std::exp(lse - max_lse) * factor), is_first, acc,
              columns, n);
      is_first = false;
    }
    const int64_t to = token * args.out.stride[0] + head * args.out.stride[1] + c;
    Convert(DType::kFloat32, reinterpret_cast<const std::byte*>(acc), args.out.dtype,
            args.out.data + to * static_cast<int64_t>(SizeOf(args.out.dtype)), n);
  }
  if (!args.lse.empty()) {
    const double lse = args.lse_policy.base2 ? merged / 0.693147180559945309417 : merged;
    args.lse.data[token * args.lse.stride[0] + head * args.lse.stride[1]] =
        is_empty ? args.lse_policy.empty : static_cast<float>(lse);
  }
}

inline void Merge(const MergeStatesArgs& args, int64_t row_begin, int64_t row_end) {
  const int64_t num_heads = args.out.extent[1];
  for (int64_t row = row_begin; row < row_end; ++row) {
    MergeRow(args, row / num_heads, row % num_heads);
  }
}
