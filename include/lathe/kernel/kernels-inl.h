// SPDX-License-Identifier: Apache-2.0
// All kernels of one target, and the table that names them. Included once per target pass by
// dispatch/foreach_target.h; the files below are included from here only, in this order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "lathe/base/arena.h"
#include "lathe/cache/code_tables.h"
#include "lathe/cache/formats.h"
#include "lathe/kernel/kernel_table.h"
#include "lathe/kernel/visibility.h"

HWY_BEFORE_NAMESPACE();
namespace lathe {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// clang-format off
#include "lathe/kernel/vector-inl.h"
#include "lathe/kernel/convert-inl.h"
#include "lathe/cache/token_row-inl.h"
#include "lathe/cache/decode-inl.h"
#include "lathe/cache/quantize-inl.h"
#include "lathe/cache/formats-inl.h"
#include "lathe/kernel/latent_write-inl.h"
#include "lathe/kernel/latent_gather-inl.h"
#include "lathe/kernel/merge-inl.h"
#include "lathe/kernel/exp2-inl.h"
#include "lathe/kernel/arithmetic-inl.h"
#include "lathe/kernel/score-inl.h"
#include "lathe/kernel/softmax-inl.h"
#include "lathe/kernel/accumulate-inl.h"
#include "lathe/kernel/key_cursor-inl.h"
#include "lathe/kernel/row_source-inl.h"
#include "lathe/kernel/engine-inl.h"
#include "lathe/kernel/epilogue-inl.h"
#include "lathe/kernel/attend-inl.h"
// clang-format on

template <class Engine>
constexpr void AddEngine(detail::KernelTable& table) {
  using A = typename Engine::Arithmetic;
  constexpr auto kIndex = static_cast<size_t>(A::kEngine);
  table.attend_scratch_bytes[kIndex] = AttendScratchBytes<Engine>;
  table.attend[kIndex] = Attend<Engine>;
  table.fold[kIndex] = Fold<A>;
}

constexpr detail::KernelTable MakeKernels() {
  detail::KernelTable table;
  table.write_latents = WriteLatents;
  table.gather_latents = GatherLatents;
  table.merge = Merge;
  AddEngine<RegisterEngine<FloatArithmetic>>(table);
#if HWY_NATIVE_DOT_BF16
  AddEngine<RegisterEngine<BFloat16Arithmetic>>(table);
  table.native_bf16 = true;
#endif
  return table;
}

inline const detail::KernelTable& Kernels() {
  static constexpr detail::KernelTable kTable = MakeKernels();
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace lathe
HWY_AFTER_NAMESPACE();
