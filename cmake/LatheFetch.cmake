# SPDX-License-Identifier: Apache-2.0
include(FetchContent)
if(POLICY CMP0135)
  cmake_policy(SET CMP0135 NEW) # extracted files are as new as the extraction
endif()

# Builds a dependency that find_package did not find, if LATHE_FETCH_DEPS allows, and stops otherwise.
# TARGETS are its libraries; their headers are made system headers, so that our warnings stay ours.
function(lathe_fetch name version package)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "URL;SHA256" "TARGETS")
  if(NOT LATHE_FETCH_DEPS)
    get_filename_component(tree "${CMAKE_CURRENT_FUNCTION_LIST_DIR}" DIRECTORY)
    message(
      FATAL_ERROR
        "lathe needs ${name} >= ${version}, and CMake found none. Either\n"
        "  - install it (Debian 13 and later: ${package}) or point CMAKE_PREFIX_PATH at it,\n"
        "  - on Debian 12, run ${tree}/tools/deps.sh and add\n"
        "    -DCMAKE_PREFIX_PATH=${tree}/.deps/usr (./dev does both), or\n"
        "  - let CMake download and build it: -DLATHE_FETCH_DEPS=ON")
  endif()
  message(STATUS "lathe: fetching ${name}")
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW) # the options set by the caller win over option()
  set(BUILD_TESTING OFF)
  FetchContent_Declare(${name} URL ${arg_URL} URL_HASH SHA256=${arg_SHA256})
  FetchContent_MakeAvailable(${name})
  foreach(target IN LISTS arg_TARGETS)
    get_target_property(includes ${target} INTERFACE_INCLUDE_DIRECTORIES)
    set_target_properties(${target} PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${includes}")
  endforeach()
endfunction()
