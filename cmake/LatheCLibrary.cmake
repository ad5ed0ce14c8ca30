# SPDX-License-Identifier: Apache-2.0
#
# lathe::c, a shared library that exports the functions of lathe/capi.h and nothing else.
add_library(lathe_c SHARED src/lathe_c.cc)
add_library(lathe::c ALIAS lathe_c)
set_target_properties(
  lathe_c PROPERTIES EXPORT_NAME c CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                     VERSION ${PROJECT_VERSION}
                     # Like the package's version: minor versions differ until 1.0.
                     SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_include_directories(
  lathe_c INTERFACE "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>"
                    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_link_libraries(lathe_c PRIVATE lathe_dispatch)
# The archive's symbols are visible, as its other users need them.
if(UNIX AND NOT APPLE)
  target_link_options(lathe_c PRIVATE "LINKER:--exclude-libs,ALL")
endif()
