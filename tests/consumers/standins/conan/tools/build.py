# SPDX-License-Identifier: Apache-2.0
def check_min_cppstd(conanfile, standard):
    assert conanfile is not None and standard in (17, 20, 23)


def stdcpp_library(conanfile):
    return "stdc++"


def can_run(conanfile):
    return conanfile is not None
