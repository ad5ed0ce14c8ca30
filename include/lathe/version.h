// SPDX-License-Identifier: Apache-2.0
//
// The only place the version is written: CMake, the package files and the docs read it from here.

#ifndef LATHE_VERSION_H_
#define LATHE_VERSION_H_

#define LATHE_VERSION_MAJOR 0
#define LATHE_VERSION_MINOR 1
#define LATHE_VERSION_PATCH 0

#endif  // LATHE_VERSION_H_
