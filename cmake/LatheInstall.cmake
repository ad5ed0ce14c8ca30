# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)

set(LATHE_INSTALL_CMAKEDIR "${CMAKE_INSTALL_LIBDIR}/cmake/lathe"
    CACHE STRING "Where the CMake package files go")

install(DIRECTORY include/lathe DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
set(targets lathe)
set(pc_files lathe)
set(version_options ARCH_INDEPENDENT)
if(LATHE_BUILD_DISPATCH)
  list(APPEND targets lathe_dispatch)
  list(APPEND pc_files lathe-dispatch)
  # The C++ runtime, which a C compiler does not link by itself.
  set(LATHE_PC_RUNTIME ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
  list(FILTER LATHE_PC_RUNTIME INCLUDE REGEX "^(std)?c\\+\\+$")
  list(REMOVE_DUPLICATES LATHE_PC_RUNTIME)
  list(TRANSFORM LATHE_PC_RUNTIME PREPEND " -l")
  list(JOIN LATHE_PC_RUNTIME "" LATHE_PC_RUNTIME)
  set(version_options)
endif()

if(LATHE_BUILD_C_LIBRARY)
  list(APPEND targets lathe_c)
  list(APPEND pc_files lathe-c)
  set(LATHE_PC_C_REQUIRES)
  get_target_property(type lathe_c TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    set(LATHE_PC_C_REQUIRES "lathe-dispatch = ${PROJECT_VERSION}")
  endif()
endif()

install(TARGETS ${targets} EXPORT lathe ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
if(LATHE_BUILD_TOOLS)
  install(TARGETS lathe_info RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(EXPORT lathe NAMESPACE lathe:: FILE lathe-targets.cmake
        DESTINATION "${LATHE_INSTALL_CMAKEDIR}")

# pkg-config files are relocatable when they name their prefix relative to themselves.
file(RELATIVE_PATH LATHE_PC_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" LATHE_PC_PREFIX "${LATHE_PC_PREFIX}")
include(LatheInstallHighway)

configure_package_config_file(
  cmake/lathe-config.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/lathe-config.cmake"
  INSTALL_DESTINATION "${LATHE_INSTALL_CMAKEDIR}")
write_basic_package_version_file(
  "${CMAKE_CURRENT_BINARY_DIR}/lathe-config-version.cmake"
  COMPATIBILITY SameMinorVersion ${version_options})
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/lathe-config.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/lathe-config-version.cmake"
              cmake/LatheHighwayTarget.cmake
        DESTINATION "${LATHE_INSTALL_CMAKEDIR}")

foreach(pc IN LISTS pc_files)
  configure_file(cmake/${pc}.pc.in "${CMAKE_CURRENT_BINARY_DIR}/${pc}.pc" @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${pc}.pc"
          DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()
