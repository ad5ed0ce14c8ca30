// SPDX-License-Identifier: Apache-2.0
// Both implementations, of C++ and of C, in one unit.
#include <lathe/capi_impl.h>
#include <lathe/impl.h>
