// SPDX-License-Identifier: Apache-2.0
// CA3, CA4: a module with a lathe of its own, which knows LATHE_TEST_FORMATS formats of its own, from number 128 on.
#include <lathe/impl.h>

namespace ops = lathe;
#include "tests/build/exercise.h"

extern "C" __attribute__((visibility("default"))) const void* LATHE_TEST_ENTRY() {
  bool ok = Exercise();
  for (int code = 128; code < 130; ++code) {
    const bool is_known = lathe::RecordBytes(static_cast<lathe::CacheFormat>(code), 64) > 0;
    ok = ok && is_known == (code < 128 + LATHE_TEST_FORMATS);
  }
  return ok ? lathe::Targets().data : nullptr;  // which lies in the module that it belongs to
}
