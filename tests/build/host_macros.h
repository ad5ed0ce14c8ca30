// SPDX-License-Identifier: Apache-2.0
// CA11: macros that the headers of hosts define, among them X11's and those of Windows, after the standard's headers. Not
// X11's `Status`, which is a type of lathe's: include X11 later, or #undef it.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#define LATHE_TEST_HOST_MACROS
#define min(a, b) no_such_min(a, b)
#define max(a, b) no_such_max(a, b)
#define Bool int
#define True 1
#define False 0
#define None 0L
#define Success 0
#define Always 2
#define Complex 0
#define IN
#define OUT
#define near
#define far
#define small char
#define interface struct
#define ERROR 0
#define major(x) x
#define minor(x) x
#define length length_
#define error error_
