// SPDX-License-Identifier: Apache-2.0
// The one attention kernel: a block of query rows against the keys of a task, on any engine.
//
//   pack queries once
//   for each split:  for each tile of keys (128 or 96):
//        KeyCursor -> row addresses     (this tile's and, for prefetching, the next one's)
//        RowSource -> rows the engine reads (in place, or decoded once for all query rows)
//        Score     -> S^T [token][row]
//        MaskScores   where some row does not see some key
//        Softmax   -> P, running m and l
//        Accumulate-> O [row][column]
//      fold the split into what came before (or store it)
//   epilogue
//
// Which keys, in which format, in which arithmetic and what happens at the end are parameters of it.

template <class Engine>
class AttendBlock {
 public:
  using A = typename Engine::Arithmetic;
  using Element = typename A::Element;

  // Carves the scratch of one worker; with a counting arena, measures it.
  AttendBlock(Arena& arena, int64_t qk_dim, int64_t v_dim, int64_t max_rows)
      : engine_(arena, qk_dim, max_rows) {
    const int64_t padded_rows = Engine::PaddedRows(max_rows);
    const int64_t output_rows = Engine::OutputRows(max_rows);
    const int64_t padded_width = RowSource<A>::PaddedWidth(qk_dim);
    const auto take = [&arena](int64_t n) { return arena.Take<float>(static_cast<size_t>(n)); };
    v_stride_ = detail::PartialStride(v_dim);
    s_ = take((kTileKeys + kScoreTokens) * padded_rows);
    o_[0] = take(output_rows * v_stride_);
    o_[1] = take(output_rows * v_stride_);
    for (float** state : {&m_[0], &m_[1], &l_[0], &l_[1], &alpha_}) *state = take(padded_rows);
    row_ = take(v_stride_);
    if constexpr (A::kHasResidual) {
      residual_ =
          arena.Take<uint32_t>(static_cast<size_t>(kTileKeys / A::kStepTokens * padded_rows));
    }
    zeros_ = take(padded_width);
    staged_ = arena.Take<Element>(static_cast<size_t>(kTileKeys * padded_width));
    for (int32_t** range : {&mask_begin_, &mask_end_}) {
      *range = arena.Take<int32_t>(static_cast<size_t>(padded_rows));
    }
    visible_ = arena.Take<KeyRange>(static_cast<size_t>(max_rows));
  }

  void Run(const AttendCall& call, const AttendTask& task) {
    call_ = &call;
    task_ = &task;
    const int64_t padded_width = RowSource<A>::PaddedWidth(call.qk_dim);
    std::memset(zeros_, 0, static_cast<size_t>(padded_width) * sizeof(float));
    padded_rows_ = Engine::PaddedRows(task.num_rows);
    // Lanes past the last row are computed and never used; they only must hold numbers.
    std::memset(s_, 0,
                static_cast<size_t>((kTileKeys + kScoreTokens) * padded_rows_) * sizeof(float));
    RowSource<A> source(call, staged_);
    KeyCursor cursor(call, task, reinterpret_cast<const std::byte*>(zeros_));
    // The rows of a tile have not been staged yet: their place is free.
    engine_.Pack(task.num_rows, source.words(), staged_, [this](int64_t row, Element* to) {
      LoadQuery(task_->row_begin + row, reinterpret_cast<std::byte*>(to));
    });
    FindVisible();
    [[maybe_unused]] const typename Engine::Session session;
    RunSplits(source, cursor);
  }

 private:
  void RunSplits(const RowSource<A>& source, KeyCursor& cursor) {
    const int64_t n = task_->num_rows;
    for (int64_t i = 0; i < task_->num_splits; ++i) {
      const int current = i == 0 ? 0 : 1;
      RunSplit(source, cursor, task_->first_split + i, current);
      if (current == 0) continue;
      for (int64_t r = 0; r < n; ++r) {
        RowState acc{o_[0] + r * v_stride_, m_[0][r], l_[0][r]};
        FoldRow(acc, {o_[1] + r * v_stride_, m_[1][r], l_[1][r]}, v_stride_);
        m_[0][r] = acc.m;
        l_[0][r] = acc.l;
      }
    }
    if (task_->partial >= 0) return StorePartial();
    for (int64_t r = 0; r < n; ++r) {
      const int64_t row = task_->row_begin + r;
      FinishRow<A>(*call_, task_->token_begin + row / call_->num_heads, row % call_->num_heads,
                   {o_[0] + r * v_stride_, m_[0][r], l_[0][r]}, row_);
    }
  }

  void StorePartial() const {
    const auto n = static_cast<size_t>(task_->num_rows);
    const Partial to = PartialAt(call_->partials + task_->partial, task_->num_rows, v_stride_);
    std::memcpy(to.o, o_[0], n * static_cast<size_t>(v_stride_) * sizeof(float));
    std::memcpy(to.m, m_[0], n * sizeof(float));
    std::memcpy(to.l, l_[0], n * sizeof(float));
  }

  // One query row as elements of the engine; the padding of staged rows is zero already.
  void LoadQuery(int64_t row, std::byte* to) const {
    const int64_t token = task_->token_begin + row / call_->num_heads;
    const int64_t head = row % call_->num_heads;
    for (const In<3>* part : {&call_->q_nope, &call_->q_pe}) {
      if (part->empty()) continue;
      const int64_t offset = token * part->stride[0] + head * part->stride[1];
      Convert(part->dtype, part->data + offset * static_cast<int64_t>(SizeOf(part->dtype)),
              kDTypeOf<Element>, to, part->extent[2]);
      to += part->extent[2] * static_cast<int64_t>(sizeof(Element));
    }
  }

  // Visible positions of every row, and what all rows see in common.
  void FindVisible() {
    all_see_ = {task_->key_begin, task_->key_end};
    any_sees_ = {task_->key_end, task_->key_begin};
    const bool has_list = call_->keys.has_indices();
    const int64_t seq_len = has_list ? 0 : call_->keys.seq_lens(task_->seq);
    for (int64_t r = 0; r < task_->num_rows; ++r) {
      const int64_t i = (task_->row_begin + r) / call_->num_heads;
      visible_[r] = has_list ? all_see_
                             : detail::VisibleKeys(call_->keys, call_->causal, seq_len,
                                                   task_->q_len, i, task_->token_begin + i);
      all_see_.begin = (std::max)(all_see_.begin, visible_[r].begin);
      all_see_.end = (std::min)(all_see_.end, visible_[r].end);
      any_sees_.begin = (std::min)(any_sees_.begin, visible_[r].begin);
      any_sees_.end = (std::max)(any_sees_.end, visible_[r].end);
    }
  }

  // One split from scratch into o_[which], m_[which], l_[which].
  void RunSplit(const RowSource<A>& source, KeyCursor& cursor, int64_t split, int which) {
    const int64_t begin = task_->key_begin + split * task_->split_keys;
    const int64_t end = (std::min)(begin + task_->split_keys, task_->key_end);
    const SoftmaxState state{m_[which], l_[which], alpha_};
    for (int64_t r = 0; r < padded_rows_; ++r) {
      state.m[r] = -std::numeric_limits<float>::infinity();
      state.l[r] = 0.0f;
    }
    // Tiles start at fixed places of the split; those that no row of this block sees are left out.
    const int64_t skipped = (std::max)(any_sees_.begin - begin, int64_t{0});
    cursor.Seek(begin + skipped / kTileKeys * kTileKeys, (std::min)(end, any_sees_.end));
    Carry carry = Carry::kNone;
    int current = 0;
    cursor.Next(tiles_[current]);
    while (tiles_[current].count > 0) {
      cursor.Next(tiles_[1 - current]);
      source.Load(tiles_[current], tiles_[1 - current]);
      RunTile(source, tiles_[current], tiles_[1 - current], carry, state, o_[which]);
      carry = Carry::kKeep;
      current = 1 - current;
    }
    if (carry == Carry::kNone) {
      std::memset(o_[which], 0, static_cast<size_t>(task_->num_rows * v_stride_) * sizeof(float));
    }
  }

  void RunTile(const RowSource<A>& source, KeyTile& tile, const KeyTile& next, Carry carry,
               const SoftmaxState& state, float* o) {
    const int64_t tokens = RoundUp(tile.count, 2);
    engine_.Score(source, tile, next, s_, padded_rows_);
    const bool all_see_all =
        all_see_.begin <= tile.begin && all_see_.end >= tile.begin + tile.count;
    const bool is_masked = tokens != tile.count || (!HasList() && !all_see_all);
    if (is_masked) {
      FindMask(tile);
      MaskScores(s_, padded_rows_, tokens, mask_begin_, mask_end_, padded_rows_);
    }
    // Few keys carry much weight each, and rounding errors do not average out.
    const bool has_few_keys = task_->key_end - task_->key_begin <= call_->residual_keys;
    uint32_t* residual = has_few_keys ? residual_ : nullptr;
    const bool moved =
        Softmax<A>(s_, padded_rows_, tokens, padded_rows_, call_->scale_log2, state, residual);
    if (moved && carry == Carry::kKeep) carry = Carry::kRescale;
    const auto* p = reinterpret_cast<const uint32_t*>(s_);
    const DType type = source.value_type();
    const int64_t isolated = is_masked && !HasList() ? IsolateNonFinite(type, tile) : 0;
    engine_.Accumulate(type, carry, tile, tokens, v_stride_, p, padded_rows_, o, v_stride_,
                       state.alpha);
    if (residual != nullptr) {
      engine_.Accumulate(type, Carry::kKeep, tile, tokens, v_stride_, residual, padded_rows_, o,
                         v_stride_, state.alpha);
    }
    if (isolated > 0) AddIsolated(type, isolated, p, o);
  }

  bool HasList() const { return call_->keys.has_indices(); }

  void FindMask(const KeyTile& tile) {
    const auto in_tile = [&tile](int64_t position) {
      const int64_t at = position - tile.begin;
      return static_cast<int32_t>((std::min)((std::max)(at, int64_t{0}), tile.count));
    };
    for (int64_t r = 0; r < padded_rows_; ++r) {
      const bool is_row = r < task_->num_rows;
      mask_begin_[r] = is_row && !HasList() ? in_tile(visible_[r].begin) : 0;
      mask_end_[r] = !is_row ? 0 : static_cast<int32_t>(tile.count);
      if (is_row && !HasList()) mask_end_[r] = in_tile(visible_[r].end);
    }
  }

  // A weight of 0 does not keep a NaN or Inf value out of a row (0 * NaN): where some rows do not see a
  // key whose value is not finite, that key is taken out of P x V and added for the rows that see it.
  int64_t IsolateNonFinite(DType type, KeyTile& tile) {
    int64_t count = 0;
    for (int64_t t = 0; t < tile.count; ++t) {
      const int64_t position = tile.begin + t;
      if (position >= all_see_.begin && position < all_see_.end) continue;
      bool is_finite = true;
      VisitStored<A>(type, [&](auto stored) {
        is_finite = IsFinite(reinterpret_cast<const decltype(stored)*>(tile.rows[t]));
      });
      if (is_finite) continue;
      isolated_[count++] = {t, tile.rows[t]};
      tile.rows[t] = reinterpret_cast<const std::byte*>(zeros_);
    }
    return count;
  }

  template <class Stored>
  bool IsFinite(const Stored* row) const {
    const F32 d;
    VF acc = hn::Zero(d);
    for (int64_t c = 0; c < v_stride_; c += kLanes) {
      const VF v = LoadFloats(row + c);
      acc = hn::Add(acc, hn::Sub(v, v));  // 0 where finite, else NaN
    }
    return hn::AllTrue(d, hn::Eq(acc, hn::Zero(d)));
  }

  void AddIsolated(DType type, int64_t count, const uint32_t* p, float* o) const {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t t = isolated_[i].token;
      for (int64_t r = 0; r < task_->num_rows; ++r) {
        if (t < mask_begin_[r] || t >= mask_end_[r]) continue;
        const float weight = A::Weight(p, padded_rows_, t, r);
        VisitStored<A>(type, [&](auto stored) {
          const auto* value = reinterpret_cast<const decltype(stored)*>(isolated_[i].row);
          for (int64_t c = 0; c < call_->v_dim; ++c) {
            o[r * v_stride_ + A::Position(c)] += weight * ToFloat(value[c]);
          }
        });
      }
    }
  }

  struct Isolated {
    int64_t token;
    const std::byte* row;
  };

  Engine engine_;
  const AttendCall* call_ = nullptr;
  const AttendTask* task_ = nullptr;
  int64_t padded_rows_ = 0;
  int64_t v_stride_ = 0;
  float* s_;  // S^T, then P in place
  uint32_t* residual_ = nullptr;
  float* o_[2];
  float* m_[2];
  float* l_[2];
  float* alpha_;
  float* row_;
  float* zeros_;
  Element* staged_;
  int32_t* mask_begin_;
  int32_t* mask_end_;
  KeyRange* visible_;
  KeyRange all_see_;
  KeyRange any_sees_;
  KeyTile tiles_[2];
  Isolated isolated_[kTileKeys];
};

template <class Engine>
void Attend(const AttendCall& call, const AttendTask& task, void* scratch) {
  Arena arena(scratch);
  AttendBlock<Engine> block(arena, call.qk_dim, call.v_dim, task.num_rows);
  block.Run(call, task);
}

template <class Engine>
size_t AttendScratchBytes(int64_t qk_dim, int64_t v_dim, int64_t max_rows) {
  Arena counting;
  AttendBlock<Engine> block(counting, qk_dim, v_dim, max_rows);
  return counting.bytes();
}
