# SPDX-License-Identifier: Apache-2.0
find_package(Catch2 3.4 CONFIG QUIET)
if(NOT TARGET Catch2::Catch2WithMain)
  include(LatheFetch)
  lathe_fetch(Catch2 3.4 libcatch2-dev
    URL https://github.com/catchorg/Catch2/archive/refs/tags/v3.7.1.tar.gz
    SHA256 c991b247a1a0d7bb9c39aa35faf0fe9e19764213f28ffba3109388e62ee0269c
    TARGETS Catch2)
  FetchContent_GetProperties(Catch2)
  list(APPEND CMAKE_MODULE_PATH "${catch2_SOURCE_DIR}/extras")
endif()
include(Catch)
