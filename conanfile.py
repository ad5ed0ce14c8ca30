# SPDX-License-Identifier: Apache-2.0
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir

required_conan_version = ">=2.0"


class LatheConan(ConanFile):
    name = "lathe"
    description = "Latent-attention kernels for CPUs"
    license = "Apache-2.0"
    topics = ("attention", "mla", "llm", "inference", "simd")
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"fPIC": [True, False], "header_only": [True, False]}
    default_options = {"fPIC": True, "header_only": False}
    exports_sources = "CMakeLists.txt", "cmake/*", "include/*", "src/*", "LICENSE"
    no_copy_source = True

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include", "lathe", "version.h"))
        self.version = ".".join(re.findall(r"^#define LATHE_VERSION_[A-Z]+ ([0-9]+)$", text, re.MULTILINE))

    def configure(self):
        if self.options.header_only:
            self.options.rm_safe("fPIC")

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires("highway/[>=1.2 <2]", transitive_headers=True, transitive_libs=True)

    def package_id(self):
        if self.info.options.header_only:
            self.info.clear()

    def validate(self):
        check_min_cppstd(self, 17)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["LATHE_BUILD_DISPATCH"] = not self.options.header_only
        for part in ("TESTS", "BENCHMARKS", "EXAMPLES", "TOOLS"):
            toolchain.cache_variables[f"LATHE_BUILD_{part}"] = False
        toolchain.cache_variables["LATHE_WERROR"] = False
        toolchain.generate()
        deps = CMakeDeps(self)
        # Conan's file for Highway has another name than Highway's own.
        deps.set_property("highway", "cmake_file_name", "hwy")
        deps.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        # Conan writes its own.
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "lathe")
        headers = self.cpp_info.components["lathe"]
        headers.set_property("cmake_target_name", "lathe::lathe")
        headers.set_property("pkg_config_name", "lathe")
        headers.bindirs = []
        headers.libdirs = []
        if self.options.header_only:
            headers.requires = ["highway::hwy"]
            return
        dispatch = self.cpp_info.components["dispatch"]
        dispatch.set_property("cmake_target_name", "lathe::dispatch")
        dispatch.set_property("pkg_config_name", "lathe-dispatch")
        dispatch.libs = ["lathe_dispatch"]
        dispatch.bindirs = []
        dispatch.requires = ["lathe", "highway::hwy"]
