# SPDX-License-Identifier: Apache-2.0
#
# cmake -DBUILD_DIR= -DTREE= -DPREFIX= -P install.cmake
# Installs into a folder that is then moved to PREFIX, and looks for paths that must not have come along: a
# prefix works where it is, also without the tree that it came from.
cmake_minimum_required(VERSION 3.22)

file(REMOVE_RECURSE "${PREFIX}" "${PREFIX}.staged")
execute_process(COMMAND ${CMAKE_COMMAND} --install "${BUILD_DIR}" --prefix "${PREFIX}.staged"
                COMMAND_ERROR_IS_FATAL ANY)
file(RENAME "${PREFIX}.staged" "${PREFIX}")

file(GLOB_RECURSE texts "${PREFIX}/*.cmake" "${PREFIX}/*.pc")
foreach(path IN LISTS texts)
  file(READ "${path}" text)
  foreach(folder "${TREE}" "${PREFIX}.staged")
    string(FIND "${text}" "${folder}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${path} names ${folder}")
    endif()
  endforeach()
endforeach()

file(GLOB_RECURSE programs "${PREFIX}/bin/*" "${PREFIX}/liblathe_c.so")
foreach(path IN LISTS programs)
  file(READ_ELF "${path}" RPATH rpath RUNPATH runpath CAPTURE_ERROR error)
  set(searched "${rpath};${runpath}")
  string(FIND "${searched}" "${TREE}" at)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "${path} looks for libraries in ${searched}")
  endif()
endforeach()
