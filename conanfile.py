# SPDX-License-Identifier: Apache-2.0
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd, stdcpp_library
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rm, rmdir

required_conan_version = ">=2.0"


class LatheConan(ConanFile):
    name = "lathe"
    description = "Latent-attention kernels for CPUs"
    license = "Apache-2.0"
    topics = ("attention", "mla", "llm", "inference", "simd")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    # lathe::dispatch is static. `shared` is about lathe::c; a package with it has that one library.
    options = {"header_only": [True, False], "c_library": [True, False], "shared": [True, False]}
    default_options = {"header_only": False, "c_library": False, "shared": False}
    exports_sources = "CMakeLists.txt", "cmake/*", "include/*", "src/*", "LICENSE"
    no_copy_source = True

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include", "lathe", "version.h"))
        self.version = ".".join(re.findall(r"^#define LATHE_VERSION_[A-Z]+ ([0-9]+)$", text, re.MULTILINE))

    @property
    def _is_shared(self):
        return bool(self.options.get_safe("shared", False))

    @property
    def _has_c_library(self):
        return bool(self.options.get_safe("c_library", False))

    def configure(self):
        if self.options.header_only:
            self.options.rm_safe("c_library")
            self.options.rm_safe("shared")

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        is_seen = not self._is_shared
        self.requires("highway/[>=1.2 <2]", transitive_headers=is_seen, transitive_libs=is_seen)

    def package_id(self):
        if self.info.options.header_only:
            self.info.clear()

    def validate(self):
        check_min_cppstd(self, 17)
        if self._is_shared and not self._has_c_library:
            raise ConanInvalidConfiguration("lathe::dispatch is static; shared=True takes c_library=True as well")

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["LATHE_BUILD_DISPATCH"] = not self.options.header_only
        for part in ("TESTS", "BENCHMARKS", "EXAMPLES", "TOOLS"):
            toolchain.cache_variables[f"LATHE_BUILD_{part}"] = False
        toolchain.cache_variables["LATHE_BUILD_C_LIBRARY"] = self._has_c_library
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
        if self._is_shared:
            rm(self, "*lathe_dispatch.*", os.path.join(self.package_folder, "lib"))

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
        if self._has_c_library:
            self._add_c_library()
        if self._is_shared:
            return
        dispatch = self.cpp_info.components["dispatch"]
        dispatch.set_property("cmake_target_name", "lathe::dispatch")
        dispatch.set_property("pkg_config_name", "lathe-dispatch")
        dispatch.libs = ["lathe_dispatch"]
        dispatch.bindirs = []
        dispatch.requires = ["lathe", "highway::hwy"]

    def _add_c_library(self):
        library = self.cpp_info.components["c"]
        library.set_property("cmake_target_name", "lathe::c")
        library.set_property("pkg_config_name", "lathe-c")
        library.libs = ["lathe_c"]
        if self._is_shared:
            library.requires = ["lathe", "highway::hwy"]
            return
        library.bindirs = []
        library.requires = ["dispatch"]
        # C programs link it, too.
        runtime = stdcpp_library(self)
        if runtime:
            library.system_libs.append(runtime)
