// SPDX-License-Identifier: Apache-2.0
// The C functions of the tests, as an engine makes them: one unit of its own.
#include <lathe/capi_impl.h>
