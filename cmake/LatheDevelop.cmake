# SPDX-License-Identifier: Apache-2.0
#
# For our own builds only; nothing here reaches a consumer.
set(LATHE_CXX_STANDARD 17 CACHE STRING "C++ standard of our own builds: 17, 20 or 23")
option(LATHE_WERROR "Treat warnings as errors in our own builds" ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# Makes a target one of ours: warnings, language standard.
function(lathe_develop target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow
                                           $<$<BOOL:${LATHE_WERROR}>:-Werror>)
  # Address checks as calls: the dispatch unit compiles in 50 to 75 s of one core; with them inline
  # it was not done after 140 s.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_FLAGS MATCHES "-fsanitize=address")
    target_compile_options(
      ${target} PRIVATE "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0")
  endif()
  set_target_properties(${target} PROPERTIES CXX_STANDARD ${LATHE_CXX_STANDARD}
                                             CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
endfunction()
