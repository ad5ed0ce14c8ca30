# SPDX-License-Identifier: Apache-2.0
find_package(benchmark 1.6 CONFIG QUIET)
if(NOT TARGET benchmark::benchmark)
  set(BENCHMARK_ENABLE_TESTING OFF)
  set(BENCHMARK_ENABLE_INSTALL OFF)
  include(LatheFetch)
  lathe_fetch(benchmark 1.6 libbenchmark-dev
    URL https://github.com/google/benchmark/archive/refs/tags/v1.9.1.tar.gz
    SHA256 32131c08ee31eeff2c8968d7e874f3cb648034377dfc32a4c377fa8796d84981
    TARGETS benchmark)
endif()
