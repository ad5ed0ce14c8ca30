// SPDX-License-Identifier: Apache-2.0
// Which products a call takes.
#ifndef LATHE_HOST_ENGINE_CHOICE_H_
#define LATHE_HOST_ENGINE_CHOICE_H_

#include "lathe/base/precision.h"
#include "lathe/base/status.h"
#include "lathe/cache/scale_rules.h"
#include "lathe/kernel/kernel_table.h"

namespace lathe::detail {
namespace {

// bf16 products are exact for bf16 inputs. A query of another type would be rounded, and so would keys whose scales
// stay in them (8192 normally distributed ones: 1.3 times the bound of kAuto), so that needs consent.
inline Engine ChooseEngine(bool has_bf16, Precision precision, BFloat16Rows rows,
                           bool is_bf16_query) {
  if (!has_bf16 || rows == BFloat16Rows::kNever) return Engine::kFloat32;
  const bool is_exact = is_bf16_query && rows == BFloat16Rows::kExact;
  const bool is_wanted =
      precision == Precision::kAuto ? is_exact : precision == Precision::kBFloat16;
  return is_wanted ? Engine::kBFloat16 : Engine::kFloat32;
}

inline Status CheckPrecision(Precision precision) {
  if (precision <= Precision::kFloat32) return OkStatus();
  return Invalid("options.precision").Is(precision).Must("be a known Precision");
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_ENGINE_CHOICE_H_
