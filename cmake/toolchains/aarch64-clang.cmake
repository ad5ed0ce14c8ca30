# SPDX-License-Identifier: Apache-2.0
#
# The same by Clang over GCC's cross libraries. From version 17 on it compiles NEON_BF16, too, for
# which GCC needs 13.2, newer than Debian 12 has.
find_program(LATHE_CLANG NAMES clang++-21 clang++-20 clang++-19 clang++-18 clang++-17 clang++)
if(NOT CMAKE_CXX_COMPILER)
  set(CMAKE_CXX_COMPILER "${LATHE_CLANG}")
endif()
if(NOT CMAKE_C_COMPILER)
  string(REPLACE "clang++" "clang" CMAKE_C_COMPILER "${CMAKE_CXX_COMPILER}")
endif()
set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-fuse-ld=bfd") # GCC's cross linker; the host's lld may be absent
include("${CMAKE_CURRENT_LIST_DIR}/aarch64-gcc.cmake")
