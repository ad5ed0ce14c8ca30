# SPDX-License-Identifier: Apache-2.0
#
# A Highway that lies in this tree was unpacked by tools/deps.sh, and nothing outside looks for it there: it is
# installed beside lathe, so that the prefix has all that its users need, also after the tree is gone. Any
# other Highway stays where its owner has put it.
set(in_tree OFF)
if(hwy_DIR)
  cmake_path(IS_PREFIX PROJECT_SOURCE_DIR "${hwy_DIR}" NORMALIZE in_tree)
endif()
option(LATHE_INSTALL_HIGHWAY "Install Highway beside lathe" ${in_tree})
set(LATHE_HIGHWAY_PATHS)
if(NOT LATHE_INSTALL_HIGHWAY)
  return()
endif()

# Its package files find its libraries relative to themselves, so the folders keep their places.
get_target_property(include hwy::hwy INTERFACE_INCLUDE_DIRECTORIES)
get_filename_component(root "${include}" DIRECTORY)
get_filename_component(libdir "${hwy_DIR}/../.." ABSOLUTE)
file(RELATIVE_PATH place "${root}" "${libdir}")
file(GLOB libraries "${libdir}/libhwy*")
install(DIRECTORY "${include}/hwy" DESTINATION include)
install(DIRECTORY "${hwy_DIR}" DESTINATION "${place}/cmake")
install(FILES ${libraries} DESTINATION "${place}")
install(FILES "${root}/share/doc/libhwy-dev/copyright" DESTINATION share/doc/libhwy-dev OPTIONAL)
set(LATHE_HIGHWAY_PATHS "PATHS \"\${PACKAGE_PREFIX_DIR}/${place}/cmake/hwy\"")

# Its pkg-config file, with the prefix that it has now, and so that programs find the library when they start.
file(READ "${libdir}/pkgconfig/libhwy.pc" pc)
string(REGEX REPLACE "prefix=/usr\n" "prefix=\${pcfiledir}/${LATHE_PC_PREFIX}\n" pc "${pc}")
string(REPLACE " -lhwy" " -lhwy -Wl,-rpath,\${libdir}" pc "${pc}")
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/libhwy.pc" "${pc}")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/libhwy.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# What is installed finds the library wherever the prefix is moved.
foreach(pair lathe_c:${CMAKE_INSTALL_LIBDIR} lathe_info:${CMAKE_INSTALL_BINDIR})
  string(REPLACE ":" ";" pair "${pair}")
  list(POP_FRONT pair target from)
  if(TARGET ${target})
    file(RELATIVE_PATH path "/prefix/${from}" "/prefix/${place}")
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "\$ORIGIN/${path}"
                                               INSTALL_RPATH_USE_LINK_PATH OFF)
  endif()
endforeach()
