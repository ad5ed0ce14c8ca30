# SPDX-License-Identifier: Apache-2.0
import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd, stdcpp_library
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get, rm, rmdir

required_conan_version = ">=2.0"


class LatheConan(ConanFile):
    name = "lathe"
    description = "Latent-attention kernels for CPUs"
    license = "Apache-2.0"
    url = "https://github.com/conan-io/conan-center-index"
    homepage = "@HOMEPAGE@"
    topics = ("attention", "mla", "llm", "inference", "simd")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    # lathe::dispatch is static. `shared` is about lathe::c; a package with it has that one library.
    options = {"header_only": [True, False], "enable_c_library": [True, False], "shared": [True, False],
               "fPIC": [True, False]}
    default_options = {"header_only": False, "enable_c_library": False, "shared": False, "fPIC": True}
    no_copy_source = True

    @property
    def _is_shared(self):
        return bool(self.options.get_safe("shared", False))

    @property
    def _has_c_library(self):
        return bool(self.options.get_safe("enable_c_library", False))

    def config_options(self):
        if self.settings.os == "Windows":
            self.options.rm_safe("fPIC")

    # An option that means nothing is none, so that *:shared=True in a profile asks for nothing impossible.
    def configure(self):
        if self.options.header_only:
            for option in ("enable_c_library", "shared", "fPIC"):
                self.options.rm_safe(option)
        elif not self.options.enable_c_library:
            self.package_type = "static-library"
            self.options.rm_safe("shared")
        elif self.options.shared:
            self.options.rm_safe("fPIC")

    def layout(self):
        cmake_layout(self)
        # Editable mode: headers of the tree, libraries of the build folder.
        libraries = ["c"] if self._has_c_library else []
        if not self._is_shared and not self.options.header_only:
            libraries.append("dispatch")
        for component in ("lathe", *libraries):
            self.cpp.source.components[component].includedirs = ["include"]
        for component in libraries:
            self.cpp.build.components[component].libdirs = ["."]

    def requirements(self):
        is_seen = not self._is_shared
        self.requires("highway/[>=1.2 <2]", transitive_headers=is_seen, transitive_libs=is_seen)

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.22]")

    def package_id(self):
        if self.info.options.header_only:
            self.info.clear()

    def validate(self):
        check_min_cppstd(self, 17)
        if self.settings.os == "Windows":
            raise ConanInvalidConfiguration(
                "lathe is neither built nor tested on Windows: its targets take attributes of GCC and Clang")

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # which would lie in the source tree
        toolchain.cache_variables["LATHE_BUILD_DISPATCH"] = not self.options.header_only
        for part in ("TESTS", "BENCHMARKS", "EXAMPLES", "TOOLS"):
            toolchain.cache_variables[f"LATHE_BUILD_{part}"] = False
        toolchain.cache_variables["LATHE_BUILD_C_LIBRARY"] = self._has_c_library
        toolchain.cache_variables["LATHE_INSTALL_HIGHWAY"] = False
        toolchain.cache_variables["LATHE_WERROR"] = False
        # Or the shared library names the folders that it was built with.
        toolchain.cache_variables["CMAKE_SKIP_INSTALL_RPATH"] = True
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
        # All components together would be called lathe::lathe otherwise, which the headers alone are.
        self.cpp_info.set_property("cmake_target_name", "lathe::all")
        headers = self.cpp_info.components["lathe"]
        headers.set_property("cmake_target_name", "lathe::lathe")
        headers.set_property("pkg_config_name", "lathe")
        headers.bindirs = []
        headers.libdirs = []
        if not self._is_shared:
            headers.requires = ["highway::hwy"]
        if self.options.header_only:
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
        dispatch.requires = ["lathe"]
        if self.settings.os in ("Linux", "FreeBSD"):
            dispatch.system_libs = ["m"]

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
