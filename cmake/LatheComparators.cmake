# SPDX-License-Identifier: Apache-2.0
#
# Finds what decode is compared with. Nothing here is required: what is missing is named, and left out.

# Adds the sources, definitions and libraries of the comparators to `target`.
function(lathe_add_comparators target)
  if(NOT LATHE_BENCH_COMPARATORS)
    return()
  endif()
  set(found scalar)
  set(missing)

  # Not find_package(dnnl): Debian's stops CMake where OpenCL's headers are missing.
  find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
  find_library(ONEDNN_LIBRARY dnnl)
  find_package(OpenMP COMPONENTS CXX QUIET)
  set(runtime)
  if(ONEDNN_INCLUDE_DIR)
    file(STRINGS "${ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h" runtime
         REGEX "^#define DNNL_CPU_RUNTIME DNNL_RUNTIME_OMP")
  endif()
  if(ONEDNN_INCLUDE_DIR AND ONEDNN_LIBRARY AND runtime AND OpenMP_CXX_FOUND)
    target_sources(${target} PRIVATE comparators/onednn_gemms.cc)
    target_compile_definitions(${target} PRIVATE LATHE_BENCH_ONEDNN=1)
    target_include_directories(${target} SYSTEM PRIVATE "${ONEDNN_INCLUDE_DIR}")
    target_link_libraries(${target} PRIVATE "${ONEDNN_LIBRARY}" OpenMP::OpenMP_CXX)
    list(APPEND found oneDNN)
  elseif(ONEDNN_INCLUDE_DIR AND ONEDNN_LIBRARY)
    # Its threads are set through OpenMP.
    list(APPEND missing "oneDNN (is there, but OpenMP is missing in it or in the compiler)")
  else()
    list(APPEND missing "oneDNN (Debian: libdnnl-dev)")
  endif()

  # Not find_package(BLAS): any other BLAS has no openblas_config.h, and a name of its own.
  find_path(OPENBLAS_INCLUDE_DIR openblas_config.h
            PATH_SUFFIXES openblas-pthread openblas-openmp openblas)
  find_library(OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-pthread openblas-openmp openblas)
  if(OPENBLAS_INCLUDE_DIR AND OPENBLAS_LIBRARY)
    target_sources(${target} PRIVATE comparators/openblas_gemms.cc)
    target_compile_definitions(${target} PRIVATE LATHE_BENCH_OPENBLAS=1)
    target_include_directories(${target} SYSTEM PRIVATE "${OPENBLAS_INCLUDE_DIR}")
    target_link_libraries(${target} PRIVATE "${OPENBLAS_LIBRARY}")
    list(APPEND found "OpenBLAS")
  else()
    list(APPEND missing "OpenBLAS (Debian: libopenblas-dev)")
  endif()

  if(NOT found STREQUAL "scalar")
    target_sources(${target} PRIVATE comparators/composition.cc comparators/composition_loops.cc)
    include(CheckCXXCompilerFlag)
    check_cxx_compiler_flag(-march=native LATHE_HAS_MARCH_NATIVE)
    set(flags -O3 -ffast-math)
    if(LATHE_HAS_MARCH_NATIVE)
      list(APPEND flags -march=native)
    endif()
    set_source_files_properties(comparators/composition_loops.cc PROPERTIES COMPILE_OPTIONS
                                                                            "${flags}")
  endif()

  list(JOIN found ", " found)
  message(STATUS "lathe: the benchmark compares with ${found}")
  if(missing)
    list(JOIN missing ", " missing)
    message(STATUS "lathe: not found, not compared with: ${missing}")
  endif()
endfunction()
