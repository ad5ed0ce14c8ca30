# SPDX-License-Identifier: Apache-2.0
#
# Highway's target has another name by each route (package, Conan, subdirectory); ours is hwy::hwy.
foreach(name highway::hwy hwy)
  if(NOT TARGET hwy::hwy AND TARGET ${name})
    add_library(hwy::hwy ALIAS ${name})
  endif()
endforeach()
