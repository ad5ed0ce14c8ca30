// SPDX-License-Identifier: Apache-2.0
// Compiler differences, in one place.
#ifndef LATHE_BASE_CONFIG_H_
#define LATHE_BASE_CONFIG_H_

#if defined(_MSVC_LANG) ? _MSVC_LANG < 201703L : __cplusplus < 201703L
#error "lathe needs C++17 or newer: compile this file with -std=c++17 (or link the CMake target)"
#include "lathe/base/cxx17_is_needed"  // stops here: hundreds of errors would follow that mean the same
#endif

// A function that is never emitted on its own: translation units built with different -m flags must not
// share a copy, or the linker may give a baseline caller the AVX-512 one.
#if defined(_MSC_VER) && !defined(__clang__)
#define LATHE_INLINE __forceinline
#else
#define LATHE_INLINE inline __attribute__((always_inline))
#endif

// What does not leave its module: plugins and libraries of one process, each with a lathe of its own version, formats and
// targets, neither call each other's functions nor keep each other loaded.
#if defined(__GNUC__) && !defined(_WIN32)
#define LATHE_HIDDEN __attribute__((visibility("hidden")))
#else
#define LATHE_HIDDEN
#endif

// Before the declaration of every public function that is compiled code. One unit of a module (a program, a shared
// library), or lathe::dispatch, defines them (impl.h); where static.h is included, it does, for that unit alone. A
// library that offers lathe's functions to others defines it as nothing, in its build and in theirs.
#ifndef LATHE_API
#define LATHE_API LATHE_HIDDEN
#endif

// Before a loop of constant length whose body must end up in registers.
#if defined(__clang__)
#define LATHE_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define LATHE_UNROLL _Pragma("GCC unroll 16")
#else
#define LATHE_UNROLL
#endif

#endif  // LATHE_BASE_CONFIG_H_
