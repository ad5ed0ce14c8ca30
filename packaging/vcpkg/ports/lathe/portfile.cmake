# SPDX-License-Identifier: Apache-2.0
#
# An overlay port for this tree: the registry's, with the files that lie here in the place of an archive. vcpkg does
# not look at them when it asks its binary cache: after a change, `vcpkg remove lathe` and install it with
# `--editable` or `--binarysource=clear`.
get_filename_component(lathe_tree "${CURRENT_PORT_DIR}/../../../.." ABSOLUTE)

function(vcpkg_from_github)
  set(SOURCE_PATH "${lathe_tree}" PARENT_SCOPE)
endfunction()
include("${lathe_tree}/packaging/registry/vcpkg/lathe/portfile.cmake")
