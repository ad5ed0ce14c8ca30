// SPDX-License-Identifier: Apache-2.0
// Latent write: each token's kv_c and k_pe become one record at its slot.

template <class Format>
void WriteTokens(const LatentWriteArgs& args, const ScaleRule& rule, int64_t token_begin,
                 int64_t token_end) {
  const MutablePagedCache& cache = args.cache;
  const auto row = [](const In<2>& part, int64_t token) {
    if (part.empty()) return part.data;
    return part.data + token * part.stride[0] * static_cast<int64_t>(SizeOf(part.dtype));
  };
  for (int64_t token = token_begin; token < token_end; ++token) {
    const int64_t slot = args.slot_mapping(token);
    if (slot < 0) continue;
    std::byte* page = cache.data + slot / cache.block_size * cache.block_stride;
    std::byte* record = page + slot % cache.block_size * cache.row_stride;
    std::byte* side =
        page + cache.block_size * cache.row_stride + slot % cache.block_size * Format::kSideBytes;
    EncodeRecord(Format{},
                 TokenRow{args.kv_c.dtype, row(args.kv_c, token), args.kv_c.extent[1],
                          args.k_pe.dtype, row(args.k_pe, token), args.k_pe.extent[1]},
                 rule, record, Format::kSideBytes > 0 ? side : nullptr);
  }
}

inline void WriteLatents(const LatentWriteArgs& args, bool power_of_two_scales, int64_t token_begin,
                         int64_t token_end) {
  VisitFormat(args.cache.format, [&](auto tag) {
    WriteTokens<typename decltype(tag)::Type>(args, {power_of_two_scales, args.cache.scale},
                                              token_begin, token_end);
  });
}
