// SPDX-License-Identifier: Apache-2.0
#if defined(_WIN32)
#define LATHE_C_API __declspec(dllexport)
#else
#define LATHE_C_API __attribute__((visibility("default")))
#endif
#include <lathe/capi_impl.h>
