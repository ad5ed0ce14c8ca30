# SPDX-License-Identifier: Apache-2.0
#
# An overlay port: it builds the source tree that it lies in.
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../../.." ABSOLUTE)

vcpkg_check_features(
  OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES dispatch LATHE_BUILD_DISPATCH
           c LATHE_BUILD_C_LIBRARY)
if(NOT "dispatch" IN_LIST FEATURES)
  set(VCPKG_BUILD_TYPE release) # header-only
elseif(NOT "c" IN_LIST FEATURES)
  vcpkg_check_linkage(ONLY_STATIC_LIBRARY)
endif()

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${FEATURE_OPTIONS}
          -DLATHE_BUILD_TESTS=OFF
          -DLATHE_BUILD_BENCHMARKS=OFF
          -DLATHE_BUILD_EXAMPLES=OFF
          -DLATHE_BUILD_TOOLS=OFF
          -DLATHE_FETCH_DEPS=OFF
          -DLATHE_WERROR=OFF
          "-DLATHE_INSTALL_CMAKEDIR=share/${PORT}"
  MAYBE_UNUSED_VARIABLES LATHE_FETCH_DEPS LATHE_WERROR)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup()
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
if(NOT "dispatch" IN_LIST FEATURES)
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib")
endif()

file(INSTALL "${CURRENT_PORT_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
