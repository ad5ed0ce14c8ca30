// SPDX-License-Identifier: Apache-2.0
// LsePolicy: the two things projects disagree on about log-sum-exp values.
#ifndef LATHE_BASE_LSE_H_
#define LATHE_BASE_LSE_H_

#include "lathe/base/types.h"

namespace lathe {

// base2: logarithms in base 2 (FlashInfer) instead of natural ones. empty: the value of a row without
// live keys; FlashMLA's callers expect +inf.
struct LsePolicy {
  bool base2 = false;
  float empty = detail::FloatOf(0xFF800000);  // -inf, also where a caller's flags deny infinities
};

}  // namespace lathe

#endif  // LATHE_BASE_LSE_H_
