# SPDX-License-Identifier: Apache-2.0
#
# lathe::c, a shared library that exports the functions of lathe/capi.h and nothing else; where
# BUILD_SHARED_LIBS is set and off, as package managers do it, a static one over lathe::dispatch.
set(type SHARED)
if(DEFINED BUILD_SHARED_LIBS AND NOT BUILD_SHARED_LIBS)
  set(type STATIC)
endif()
add_library(lathe_c ${type} src/lathe_c.cc)
add_library(lathe::c ALIAS lathe_c)
set_target_properties(
  lathe_c PROPERTIES EXPORT_NAME c CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                     VERSION ${PROJECT_VERSION}
                     # Finds a Highway that is not the system's also after it is installed.
                     INSTALL_RPATH_USE_LINK_PATH ON
                     # Like the package's version: minor versions differ until 1.0.
                     SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_include_directories(
  lathe_c INTERFACE "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>"
                    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_link_libraries(lathe_c PRIVATE lathe_dispatch)
if(type STREQUAL "SHARED")
  # Whatever is said of static libraries.
  set_target_properties(lathe_dispatch lathe_c PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()
# The archive's symbols are visible, as its other users need them.
if(type STREQUAL "SHARED" AND UNIX AND NOT APPLE)
  target_link_options(lathe_c PRIVATE "LINKER:--exclude-libs,ALL")
endif()
