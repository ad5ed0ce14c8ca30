# SPDX-License-Identifier: Apache-2.0
vcpkg_from_github(
  OUT_SOURCE_PATH SOURCE_PATH
  REPO "@REPOSITORY@"
  REF "v${VERSION}"
  SHA512 "@SHA512@"
  HEAD_REF main)

vcpkg_check_features(
  OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES c LATHE_BUILD_C_LIBRARY)
if(NOT "c" IN_LIST FEATURES)
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
          -DLATHE_INSTALL_HIGHWAY=OFF
          -DLATHE_WERROR=OFF
          "-DLATHE_INSTALL_CMAKEDIR=share/${PORT}")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup()
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
file(INSTALL "${CURRENT_PORT_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
