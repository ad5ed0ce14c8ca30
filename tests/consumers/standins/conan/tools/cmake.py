# SPDX-License-Identifier: Apache-2.0
import pathlib
import subprocess


def cmake_layout(conanfile):
    conanfile.has_layout = True


class CMakeToolchain:
    user_presets_path = "CMakeUserPresets.json"

    def __init__(self, conanfile):
        self.conanfile, self.cache_variables = conanfile, {}

    def generate(self):
        if self.user_presets_path:
            pathlib.Path(self.conanfile.source_folder, self.user_presets_path).write_text("{}", encoding="utf-8")
        options = {"shared": "BUILD_SHARED_LIBS", "fPIC": "CMAKE_POSITION_INDEPENDENT_CODE"}
        values = {name: self.conanfile.options.get_safe(option) for option, name in options.items()}
        known = {name: value for name, value in values.items() if value is not None}
        self.conanfile.cache_variables = {**known, **self.cache_variables}


class CMakeDeps:
    """Highway stays the one that CMake is told of, under its own name."""

    def __init__(self, conanfile):
        self.conanfile, self.properties = conanfile, {}

    def set_property(self, dependency, name, value):
        self.properties[dependency, name] = value

    def generate(self):
        assert self.properties["highway", "cmake_file_name"] == "hwy", "CMakeLists.txt looks for hwy"


class CMake:
    def __init__(self, conanfile):
        self.conanfile = conanfile

    def configure(self):
        recipe = self.conanfile
        variables = [f"-D{k}={'ON' if v is True else 'OFF' if v is False else v}"
                     for k, v in recipe.cache_variables.items()]
        self._cmake("-S", recipe.source_folder, "-B", recipe.build_folder, *recipe.cmake_arguments,
                    "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_INSTALL_LIBDIR=lib", *variables)

    def build(self):
        self._cmake("--build", self.conanfile.build_folder)

    def install(self):
        self._cmake("--install", self.conanfile.build_folder, "--prefix", self.conanfile.package_folder)

    @staticmethod
    def _cmake(*arguments):
        subprocess.run(["cmake", *map(str, arguments)], check=True)
