# SPDX-License-Identifier: Apache-2.0
import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class LatheTestConan(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if not can_run(self):
            return
        options = self.dependencies[self.tested_reference_str].options
        programs = [] if options.get_safe("shared") else ["decode"]
        if options.get_safe("enable_c_library"):
            programs.append("merge")
        # One that was not built is an error.
        for program in programs:
            self.run(os.path.join(self.cpp.build.bindir, program), env="conanrun")
