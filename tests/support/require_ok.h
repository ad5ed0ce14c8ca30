// SPDX-License-Identifier: Apache-2.0
// A call that shall succeed, whichever thread it is on.
#ifndef LATHE_TESTS_SUPPORT_REQUIRE_OK_H_
#define LATHE_TESTS_SUPPORT_REQUIRE_OK_H_

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "lathe/base/status.h"

namespace lathe::test {

// Catch2 counts assertions, and keeps messages, for one thread at a time: what runs on several asserts where it fails
// alone.
inline void RequireOk(const Status& status) {
  if (!status.ok()) REQUIRE(std::string(Format(status).c_str()) == "ok");
}

inline void RequireIntact(bool is_intact) {
  if (!is_intact) REQUIRE(is_intact);
}

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_REQUIRE_OK_H_
