// SPDX-License-Identifier: Apache-2.0
// The C interface's numbers are the C++ enums'. Those of cache formats are compared by tools/check_capi.py.
#ifndef LATHE_CAPI_NUMBERS_H_
#define LATHE_CAPI_NUMBERS_H_

#include "lathe/capi.h"
#include "lathe/lathe.h"

namespace lathe {
namespace capi {

#define LATHE_C_SAME(c, cpp) static_assert(static_cast<int>(c) == static_cast<int>(cpp))
LATHE_C_SAME(LATHE_STATUS_OK, StatusCode::kOk);
LATHE_C_SAME(LATHE_STATUS_INVALID_ARGUMENT, StatusCode::kInvalidArgument);
LATHE_C_SAME(LATHE_STATUS_BUFFER_TOO_SMALL, StatusCode::kBufferTooSmall);
LATHE_C_SAME(LATHE_STATUS_INDEX_OUT_OF_RANGE, StatusCode::kIndexOutOfRange);
LATHE_C_SAME(LATHE_STATUS_STALE_PLAN, StatusCode::kStalePlan);
LATHE_C_SAME(LATHE_STATUS_TARGET_UNAVAILABLE, StatusCode::kTargetUnavailable);

LATHE_C_SAME(LATHE_DTYPE_FLOAT32, DType::kFloat32);
LATHE_C_SAME(LATHE_DTYPE_FLOAT16, DType::kFloat16);
LATHE_C_SAME(LATHE_DTYPE_BFLOAT16, DType::kBFloat16);

LATHE_C_SAME(LATHE_TARGET_AUTO, Target::kAuto);
LATHE_C_SAME(LATHE_TARGET_PORTABLE, Target::kPortable);
LATHE_C_SAME(LATHE_TARGET_AVX2, Target::kAvx2);
LATHE_C_SAME(LATHE_TARGET_AVX3, Target::kAvx3);
LATHE_C_SAME(LATHE_TARGET_AVX3_ZEN4, Target::kAvx3Zen4);
LATHE_C_SAME(LATHE_TARGET_AVX3_SPR, Target::kAvx3Spr);
LATHE_C_SAME(LATHE_TARGET_AMX_BF16, Target::kAmxBf16);
LATHE_C_SAME(LATHE_TARGET_NEON, Target::kNeon);
LATHE_C_SAME(LATHE_TARGET_NEON_BF16, Target::kNeonBf16);

LATHE_C_SAME(LATHE_INDEX_SPACE_LOGICAL, IndexSpace::kLogical);
LATHE_C_SAME(LATHE_INDEX_SPACE_PHYSICAL, IndexSpace::kPhysical);

LATHE_C_SAME(LATHE_NORM_NONE, NormKind::kNone);
LATHE_C_SAME(LATHE_NORM_RMS, NormKind::kRms);
LATHE_C_SAME(LATHE_NORM_LAYER, NormKind::kLayer);

LATHE_C_SAME(LATHE_PRECISION_AUTO, Precision::kAuto);
LATHE_C_SAME(LATHE_PRECISION_BFLOAT16, Precision::kBFloat16);
LATHE_C_SAME(LATHE_PRECISION_FLOAT32, Precision::kFloat32);

LATHE_C_SAME(LATHE_TOPK_INDEX_BASE_COLUMN, TopkIndexBase::kColumn);
LATHE_C_SAME(LATHE_TOPK_INDEX_BASE_ROW_START, TopkIndexBase::kRowStart);
#undef LATHE_C_SAME

}  // namespace capi
}  // namespace lathe

#endif  // LATHE_CAPI_NUMBERS_H_
