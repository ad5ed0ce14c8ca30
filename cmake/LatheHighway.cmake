# SPDX-License-Identifier: Apache-2.0
#
# Provides hwy::hwy: the one the parent project already has, an installed one, or a fetched one.
include(LatheHighwayTarget)
if(NOT TARGET hwy::hwy)
  find_package(hwy 1.2 CONFIG QUIET)
  include("${CMAKE_CURRENT_LIST_DIR}/LatheHighwayTarget.cmake")
endif()

if(NOT TARGET hwy::hwy)
  foreach(part TESTS EXAMPLES CONTRIB INSTALL)
    set(HWY_ENABLE_${part} OFF)
  endforeach()
  include(LatheFetch)
  lathe_fetch(
    Highway 1.2 libhwy-dev
    URL https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz
    SHA256 7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343
    TARGETS hwy)
  include("${CMAKE_CURRENT_LIST_DIR}/LatheHighwayTarget.cmake")
  set(LATHE_INSTALL OFF)
  message(STATUS "lathe: no install rules, a fetched Highway cannot be part of the package")
endif()
