// SPDX-License-Identifier: Apache-2.0
// LsePolicy: the two things projects disagree on about log-sum-exp values.
#ifndef LATHE_BASE_LSE_H_
#define LATHE_BASE_LSE_H_

#include <limits>

namespace lathe {

// base2: logarithms in base 2 (FlashInfer) instead of natural ones. empty: the value of a row without
// live keys; FlashMLA's callers expect +inf.
struct LsePolicy {
  bool base2 = false;
  float empty = -std::numeric_limits<float>::infinity();
};

}  // namespace lathe

#endif  // LATHE_BASE_LSE_H_
