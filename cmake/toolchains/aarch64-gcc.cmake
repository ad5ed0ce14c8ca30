# SPDX-License-Identifier: Apache-2.0
#
# For 64-bit Arm Linux on another machine, by Debian's cross compiler g++-aarch64-linux-gnu; programs
# run under qemu-user. Its CPU "max" has BF16; ctest also runs the choice of target on CPUs without.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu) # Clang does not say it
if(NOT CMAKE_CXX_COMPILER)
  set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
endif()
if(NOT CMAKE_C_COMPILER)
  set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
  set(CMAKE_C_FLAGS_INIT -fno-tree-vectorize) # GCC 12.2 ends in an internal error there
endif()
# This machine's own libraries are for another processor.
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
find_program(LATHE_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
set(CMAKE_CROSSCOMPILING_EMULATOR "${LATHE_QEMU};-cpu;max;-L;/usr/aarch64-linux-gnu" CACHE STRING
    "What runs the programs built here")
